"""Time, passed in so that a test can move it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The times that the engine asks for."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; they never go back."""

    def time_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC."""


class SystemClock:
    """The operating system's clocks."""

    #: Without a function of Python around it: a lone add asks thirty times.
    monotonic = staticmethod(time.monotonic)

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000
