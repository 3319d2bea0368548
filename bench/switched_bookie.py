"""A bookie whose measuring is switched while it runs; the child process of ``metrics_cost.py``.

    python bench/switched_bookie.py DIR KEY=VALUE...

Prints its port and that of its HTTP admin, then reads lines ``WINDOWS SECONDS``. Each has it set every
distribution of the bookie to what ``enableStatistics`` false and true would, in turn, for so many windows of
both kinds. It prints ``on`` at the beginning of one with measuring, once for each second of these, and at
the end a JSON object with the sums of both kinds. Ends with its standard input.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bkctl.engine.bookie import Bookie
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.prometheus.statistics_switch import histograms
from bkctl.server.wire.bookie_server import BookieServer


@dataclass
class Sums:
    """Processor seconds of this process, and adds that it answered."""

    user_s: float = 0.0
    cpu_s: float = 0.0
    adds: int = 0


def window(bookie: Bookie, server: BookieServer, measuring: bool, seconds: float, sums: Sums) -> None:
    """Let the bookie work, and count."""
    for histogram in histograms(bookie, server):
        histogram.on = measuring
    before, adds = resource.getrusage(resource.RUSAGE_SELF), server.adds.meter.done
    time.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    sums.user_s += after.ru_utime - before.ru_utime
    sums.cpu_s += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    sums.adds += server.adds.meter.done - adds


def main() -> None:
    """The process."""
    folder, *lines = sys.argv[1:]
    overrides = dict(line.split("=", 1) for line in lines)
    with EmbeddedBookie(folder, overrides=overrides) as embedded:
        service = embedded.service
        assert service is not None
        assert service.bookie is not None
        assert service.server is not None
        print(embedded.port, embedded.http_port, flush=True)
        for line in sys.stdin:
            windows, seconds = line.split()
            sums = {"without": Sums(), "with": Sums()}
            for turn in range(int(windows)):
                # Neither is always the first.
                for name in ("without", "with") if turn % 2 else ("with", "without"):
                    if name == "with" and turn % max(1, round(1 / float(seconds))) == 0:
                        print("on", flush=True)
                    window(service.bookie, service.server, name == "with", float(seconds), sums[name])
            print(json.dumps({name: asdict(each) for name, each in sums.items()}), flush=True)


if __name__ == "__main__":
    main()
