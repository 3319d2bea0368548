"""One scrape: values are added by name, distributions get their window, the text comes out at the end."""

from __future__ import annotations

from bkctl.metrics.exposition import Families, render
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.sizes import SizeHistogram
from bkctl.metrics.windows import Windows


class Scrape:
    """Collects what one scrape shows; ``windows`` outlive it."""

    def __init__(self, windows: Windows) -> None:
        self._families = Families()
        self._windows = windows

    def counter(self, name: str, value: float, /, **labels: str) -> None:
        """Add a number that only grows."""
        self._families.counter(name, value, **labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Add a number of this moment."""
        self._families.gauge(name, value, **labels)

    def times(self, name: str, histogram: LatencyHistogram, failed: int = 0, /, **labels: str) -> None:
        """Add a distribution of times, and how many events failed."""
        self._families.summary(name, self._windows.of(_key(name, labels), histogram), failed, **labels)

    def sizes(self, name: str, histogram: SizeHistogram, /, **labels: str) -> None:
        """Add a distribution of bytes or counts."""
        self._families.sizes(name, self._windows.of(_key(name, labels), histogram), **labels)

    def total(self, name: str, count: float, total: float, /, **labels: str) -> None:
        """Add a summary without quantiles."""
        self._families.total(name, count, total, **labels)

    def text(self) -> str:
        """Return the text of the whole scrape."""
        return render(self._families.families())


def _key(name: str, labels: dict[str, str]) -> str:
    return "\t".join((name, *labels.values()))
