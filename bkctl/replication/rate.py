"""How many bytes a second replication may copy (``replicationRateByBytes``)."""

from __future__ import annotations

from bkctl.clock import Clock
from bkctl.errors import UsageError

#: Unused time counts for so long: after a pause no more than this is caught up.
BURST_S = 0.1


class ByteRate:
    """Says when bytes may be copied; shared by all copies that a worker makes at once.

    ``bytes_per_s`` None is no limit. Belongs to one event loop.
    """

    def __init__(self, bytes_per_s: int | None, clock: Clock) -> None:
        if bytes_per_s is not None and bytes_per_s < 1:
            raise UsageError("a rate must be 1 byte a second or more")
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._free_s = float("-inf")

    def now_s(self) -> float:
        """Return the time by which it counts."""
        return self._clock.monotonic()

    def reserve(self, count: int) -> float:
        """Return how many seconds to wait before ``count`` bytes go; they are reserved from then on."""
        if self._bytes_per_s is None:
            return 0.0
        now_s = self._clock.monotonic()
        begin_s = max(self._free_s, now_s - BURST_S)
        self._free_s = begin_s + count / self._bytes_per_s
        return max(0.0, begin_s - now_s)
