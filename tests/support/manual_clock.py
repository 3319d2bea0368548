"""A clock that a test moves."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until :meth:`advance` is called; both times move together."""

    def __init__(self, time_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = time_ms
        self._elapsed_s = 0.0

    def advance(self, seconds: float) -> None:
        """Move ``seconds`` (>= 0) forward."""
        if seconds < 0:
            raise ValueError(f"a clock never goes back: {seconds} s")
        self._elapsed_s += seconds

    def monotonic(self) -> float:
        return self._elapsed_s

    def time_ms(self) -> int:
        return self._start_ms + int(self._elapsed_s * 1000)
