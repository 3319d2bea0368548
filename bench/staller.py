"""Holds connections that stall; the child process of ``abuse.py``.

    python bench/staller.py STAGE PORT LEDGER COUNT OPEN_SECONDS

Opens them and prints how many there were when they were open, or the time or the descriptors at an end. Holds
them until its standard input says anything, and then drops all at once.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.stalled_connections import Stage, StalledConnections


def main() -> None:
    """The process."""
    stage, port, ledger, count, open_s = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with StalledConnections(Stage[stage], int(port), ledger=int(ledger)) as stalled:
        made = stalled.open(int(count), timeout_s=float(open_s))
        print(made, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
