"""Reading beside a bookie that is at work: at a bounded rate, and when nobody else wants the disk."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_WHO_PROCESS = 1
_IDLE = 3 << 13
_BY_NICENESS = 0
_NICE = 19


class Pace:
    """Keeps reading at ``rate_bytes`` a second on the whole; 0 is no bound."""

    def __init__(
        self,
        rate_bytes: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate_bytes
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def spend(self, size_bytes: int) -> None:
        """Count bytes that were read, and wait until they were due. Unused time is not saved up."""
        if self._rate <= 0:
            return
        now = self._clock()
        self._due = max(self._due, now - 1.0) + size_bytes / self._rate
        if self._due > now:
            self._sleep(self._due - now)


@contextmanager
def idle() -> Iterator[bool]:
    """Let this process, and processes started inside the block, use the disk only when no other wants it.

    They get the lowest share of the processor, too. Yields whether the disk's scheduler granted it.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    granted = _set_io_priority(_IDLE)
    try:
        yield granted
    finally:
        _set_io_priority(_BY_NICENESS)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)


def _set_io_priority(priority: int) -> bool:
    number = _IOPRIO_SET.get(platform.machine())
    if number is None:
        return False
    granted: int = ctypes.CDLL(None, use_errno=True).syscall(number, _WHO_PROCESS, 0, priority)
    return granted == 0
