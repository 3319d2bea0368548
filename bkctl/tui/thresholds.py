"""The values from which on a figure deserves attention, or is in trouble: one table, with units."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.server_keys.disks import USAGE_THRESHOLD
from bkctl.tui.lines import Tone

#: The limit of a figure that deserves attention as soon as it is not zero.
ANY = 0.001


@dataclass(frozen=True, slots=True)
class Threshold:
    """A figure's two limits in its ``unit``: the value itself is already beyond."""

    figure: str
    unit: str
    warning: float
    bad: float

    def tone(self, value: float | None) -> Tone:
        """Return the tone of a value; one that is not known or within its limits is plain."""
        if value is None or not value >= self.warning:
            return Tone.PLAIN
        return Tone.WARNING if value < self.bad else Tone.BAD

    def limits(self) -> str:
        """Return both limits in words."""
        if self.unit == "share":
            return f"{self.warning:.0%}, {self.bad:.0%}"
        first = "any" if self.warning == ANY else f"{self.warning:g} {self.unit}"
        return f"{first}, {self.bad:g} {self.unit}"


QUEUE = Threshold("queue length, share of its bound", "share", 0.7, 0.95)
CACHE = Threshold("write cache, share of its bound", "share", 0.7, 0.95)
BUSY = Threshold("disk time in fsync or flush", "share", 0.7, 0.95)
#: A bookie is read-only from its ``diskUsageThreshold`` on.
DISK = Threshold("used space of a disk", "share", 0.85, USAGE_THRESHOLD)
CPU = Threshold("processor time, share of the available", "share", 0.7, 0.9)
WASTED = Threshold("entries read ahead in vain", "share", 0.5, 0.9)
ADD_P99 = Threshold("add p99", "ms", 100.0, 1000.0)
READ_P99 = Threshold("read p99", "ms", 100.0, 1000.0)
SYNC_P99 = Threshold("journal sync p99", "ms", 50.0, 500.0)
REFUSED = Threshold("requests refused", "/s", ANY, 100.0)

TABLE = (QUEUE, CACHE, BUSY, DISK, CPU, WASTED, ADD_P99, READ_P99, SYNC_P99, REFUSED)
