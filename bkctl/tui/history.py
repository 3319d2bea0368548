"""The figures of the last minutes, for sparklines: bounded in length and in number."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Sequence

from bkctl.admin.top.sample import BookieSample, ClusterSample

#: Samples that are kept of each figure.
SAMPLES_MAX = 240
#: Bookies of which figures are kept; one beyond has no sparklines. With every figure about 100 MB.
BOOKIES_MAX = 1000
#: Figures that are kept of a bookie: those of its first directories where it has very many.
FIGURES_MAX = 100

_NOTHING: Sequence[float] = ()


def figures_of(bookie: BookieSample) -> Iterator[tuple[str, float | None]]:
    """Yield names and values of what a bookie's sparklines show; per directory under ``name:directory``."""
    yield "adds_per_s", bookie.adds_per_s
    yield "reads_per_s", bookie.reads_per_s
    yield "add_mb_per_s", bookie.add_mb_per_s
    yield "add_p99_ms", bookie.add_p99_ms
    yield "read_p99_ms", bookie.read_p99_ms
    yield "sync_p99_ms", bookie.journal_sync_p99_ms
    yield "hit_rate", bookie.read_cache_hit_rate
    yield "cpu_cores_used", bookie.cpu_cores_used
    for queue in bookie.queues:
        yield f"queue:{queue.name}", None if queue.length is None else float(queue.length)
    for journal in bookie.journals:
        yield f"sync_p99_ms:{journal.dir}", journal.sync_p99_ms
        yield f"journal_mb_per_s:{journal.dir}", journal.mb_per_s
    for ledger_dir in bookie.ledger_dirs:
        yield f"flushed_mb_per_s:{ledger_dir.dir}", ledger_dir.flushed_mb_per_s
    for cache in bookie.read_cache:
        yield f"hit_rate:{cache.dir}", cache.hit_rate
    for directory in sorted({half.dir for half in bookie.write_cache}):
        yield f"write_cache:{directory}", bookie.write_cache_fullness(directory)


class History:
    """Figures by bookie and name, oldest first; NaN where a bookie did not report one."""

    def __init__(
        self,
        samples_max: int = SAMPLES_MAX,
        bookies_max: int = BOOKIES_MAX,
        figures_max: int = FIGURES_MAX,
    ) -> None:
        self._samples_max = samples_max
        self._bookies_max = bookies_max
        self._figures_max = figures_max
        self._figures: dict[str, dict[str, array[float]]] = {}
        self._taken_ms: deque[int] = deque(maxlen=samples_max)

    def add(self, sample: ClusterSample) -> None:
        """Keep what this one says. A bookie that is no longer watched is forgotten."""
        self._taken_ms.append(sample.taken_at_ms)
        watched = {bookie.bookie for bookie in sample.bookies}
        for gone in self._figures.keys() - watched:
            del self._figures[gone]
        for bookie in sample.bookies:
            figures = self._figures.get(bookie.bookie)
            if figures is None:
                if len(self._figures) >= self._bookies_max:
                    continue
                figures = self._figures[bookie.bookie] = {}
            self._add(figures, dict(figures_of(bookie)))

    def series(self, bookie: str, figure: str) -> Sequence[float]:
        """Return the values of one figure; empty when there are none."""
        return self._figures.get(bookie, {}).get(figure, _NOTHING)

    def window_ms(self, samples: int) -> int:
        """Return the time from the oldest to the newest of so many newest samples."""
        if not self._taken_ms or samples < 1:
            return 0
        return max(self._taken_ms[-1] - self._taken_ms[-min(samples, len(self._taken_ms))], 0)

    def total(self, figure: str) -> list[float]:
        """Return the sum over all bookies, sample by sample; NaN where none of them had a value."""
        all_series = [figures[figure] for figures in self._figures.values() if figure in figures]
        length = max((len(series) for series in all_series), default=0)
        sums = [math.nan] * length
        for series in all_series:
            for at, value in enumerate(series, length - len(series)):
                if not math.isnan(value):
                    sums[at] = value if math.isnan(sums[at]) else sums[at] + value
        return sums

    def highest(self, figure: str) -> list[float]:
        """Return the greatest value among all bookies, sample by sample."""
        all_series = [figures[figure] for figures in self._figures.values() if figure in figures]
        length = max((len(series) for series in all_series), default=0)
        tops = [math.nan] * length
        for series in all_series:
            for at, value in enumerate(series, length - len(series)):
                if not math.isnan(value) and not value <= tops[at]:
                    tops[at] = value
        return tops

    def clear(self) -> None:
        """Forget all figures."""
        self._figures.clear()
        self._taken_ms.clear()

    def _add(self, figures: dict[str, array[float]], values: dict[str, float | None]) -> None:
        for name in [name for name in figures if name not in values]:
            values[name] = None
        for name, value in values.items():
            series = figures.get(name)
            if series is None:
                if len(figures) >= self._figures_max:
                    continue
                series = figures[name] = array("f")
            series.append(math.nan if value is None else value)
            if len(series) > self._samples_max:
                del series[0]
