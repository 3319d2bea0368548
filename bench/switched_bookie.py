"""A bookie whose measuring is switched while it runs; the child process of ``metrics_cost.py``.

    python bench/switched_bookie.py DIR KEY=VALUE...

Prints its port and that of its HTTP admin, then reads lines: ``on`` or ``off`` sets every distribution of the
bookie to what ``enableStatistics`` true or false would, and is answered with the same word. Ends with its
standard input.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bkctl.server.embedded import EmbeddedBookie
from bkctl.server.statistics_switch import histograms


def main() -> None:
    """The process."""
    folder, *lines = sys.argv[1:]
    overrides = dict(line.split("=", 1) for line in lines)
    with EmbeddedBookie(folder, overrides=overrides) as bookie:
        service = bookie.service
        assert service is not None
        assert service.bookie is not None
        assert service.server is not None
        print(bookie.port, bookie.http_port, flush=True)
        for line in sys.stdin:
            word = line.strip()
            for histogram in histograms(service.bookie, service.server):
                histogram.on = {"on": True, "off": False}[word]
            print(word, flush=True)


if __name__ == "__main__":
    main()
