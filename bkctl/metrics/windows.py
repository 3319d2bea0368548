"""The windows that quantiles look back through, one for each metric, rolled together."""

from __future__ import annotations

from bkctl.metrics.latency import LatencyHistogram, LatencyWindow


class Windows:
    """Windows by name; a metric whose histogram has been replaced starts over.

    Every ``rollover_s`` the windows move on when they are read, so a quantile covers the last one to two of
    these periods, or the time since the last read when that is longer.
    """

    def __init__(self, rollover_s: float, now_s: float) -> None:
        self._windows: dict[str, LatencyWindow] = {}
        self._rollover_s = rollover_s
        self._rolled_s = now_s

    def of(self, name: str, histogram: LatencyHistogram) -> LatencyWindow:
        """Return the window of a metric."""
        window = self._windows.get(name)
        if window is None or window.total is not histogram:
            window = self._windows[name] = LatencyWindow(histogram)
        return window

    def look(self, now_s: float) -> None:
        """Move the windows on if a period is over, as somebody has looked."""
        if now_s - self._rolled_s >= self._rollover_s:
            self._rolled_s = now_s
            for window in self._windows.values():
                window.roll()
