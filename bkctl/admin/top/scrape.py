"""One scrape of a Java bookie's Prometheus text, reduced to the samples that ``top`` has a use for.

A bookie exports some 1,500 lines, of which a few score are wanted: the others are passed over before they are
parsed. Java writes empty braces, a space behind the comma of a label, and NaN for what did not happen; NaN
and infinities are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bkctl.admin.top.counters import finite, rounded
from bkctl.errors import CorruptionError
from bkctl.extras import need
from bkctl.metrics.bookie_catalogue import WHOLE
from bkctl.metrics.catalogue import ACTIVE_LOGS, CACHES, FLUSHES, GC, JOURNAL, LEDGERS, READS
from bkctl.metrics.metric import java_names

#: Samples of one scrape; a bookie with many ledger directories has some thousands.
SAMPLES_MAX = 50_000

_SERVER = (
    "ADD_ENTRY", "ADD_ENTRY_REQUEST", "ADD_ENTRY_REJECTED", "READ_ENTRY",
    "READ_ENTRY_REQUEST", "READ_ENTRY_REJECTED", "READ_ENTRY_SCHEDULING_DELAY", "WRITE_THREAD_QUEUED_LATENCY",
    "thread_executor_queue", "BookieReadThreadPool_max_queue_size", "BookieReadThreadPool_threads",
    "BookieWriteThreadPool_max_queue_size", "BookieWriteThreadPool_threads",
    "BookieHighPriorityThread_max_queue_size", "BookieHighPriorityThread_threads",
)  # fmt: skip
_BOOKIE = (
    "SERVER_STATUS", "JOURNAL_QUEUE_MAX_SIZE", "JOURNAL_DIRS",
    "journal_JOURNAL_QUEUE_SIZE", "journal_JOURNAL_QUEUE_LATENCY", "journal_JOURNAL_FLUSH_LATENCY",
    "journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE", "journal_JOURNAL_FORCE_WRITE_ENQUEUE",
    "journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES", "journal_JOURNAL_FORCE_WRITE_BATCH_BYTES",
    "write_cache_size", "write_cache_max_size", "throttled_write_requests", "rejected_write_requests",
    "SKIP_LIST_THROTTLING",
    "(?:gc_)?RECLAIMED_DELETION_SPACE_BYTES", "ledger_dir_[a-zA-Z0-9_]+_usage",
    *(name.removeprefix("bookie_") for name in java_names(JOURNAL, CACHES, LEDGERS, READS, FLUSHES)),
    *(f"(?:gc_)?{name.removeprefix('bookie_')}" for name in java_names(ACTIVE_LOGS, GC)),
)  # fmt: skip
#: Of the bookie as a whole; ``start_time_seconds`` says whether it is the same process as before.
_WHOLE = ("process_start_time_seconds", *java_names(*WHOLE))
_WANTED = re.compile(
    rf"^(?:bookkeeper_server_(?:{'|'.join(_SERVER)})|bookie_(?:{'|'.join(_BOOKIE)})|{'|'.join(_WHOLE)})"
    r'(?:_count|_sum)?(?: |\{(?!.*quantile="(?!0\.5"|0\.99")).*$).*$',
    re.MULTILINE,
)

Labels = dict[str, str]


class Scrape:
    """Samples by name, each with its labels. Names are as in the text, with ``_count`` and ``_sum``."""

    __slots__ = ("samples",)

    def __init__(self, samples: dict[str, list[tuple[Labels, float]]]) -> None:
        self.samples = samples

    def values(self, name: str, **labels: str) -> Iterator[float]:
        """Yield the values of the samples that have these labels, and perhaps others."""
        wanted = labels.items()
        for found, value in self.samples.get(name, ()):
            if wanted <= found.items():
                yield value

    def total(self, name: str, **labels: str) -> float | None:
        """Add up the values of the samples that have these labels; None without any."""
        values = list(self.values(name, **labels))
        return sum(values) if values else None

    def whole(self, name: str, **labels: str) -> int | None:
        """Add up the values of the samples that have these labels, as an int; None without any."""
        found = self.total(name, **labels)
        return None if found is None else int(found)

    def largest(self, name: str, **labels: str) -> float | None:
        """Find the largest value of the samples that have these labels; None without any."""
        return max(self.values(name, **labels), default=None)

    def labels_of(self, label: str, *names: str) -> list[str]:
        """List the values that a label has among samples of these names, ascending."""
        return sorted(
            {found[label] for name in names for found, _ in self.samples.get(name, ()) if label in found}
        )


def parse_scrape(text: str, url: str) -> Scrape:
    """Parse the samples of a scrape's text. Raises CorruptionError when it is no Prometheus text."""
    need("reading the metrics of a Java bookie", "prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    lines = "".join(f"{match[0]}\n" for match in _WANTED.finditer(text))
    samples: dict[str, list[tuple[Labels, float]]] = {}
    count = 0
    try:
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                count += 1
                if count > SAMPLES_MAX:
                    raise CorruptionError(
                        "scrape", expected=f"at most {SAMPLES_MAX} samples", found="more", path=url
                    )
                if finite(sample.value) is not None:
                    samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    except (ValueError, IndexError) as error:
        raise CorruptionError("scrape", expected="Prometheus text", found=str(error), path=url) from error
    return Scrape(samples)


class ScrapeInterval:
    """Two scrapes ``seconds`` apart; ``before`` None is a first one."""

    __slots__ = ("before", "now", "seconds")

    def __init__(self, before: Scrape | None, now: Scrape, seconds: float) -> None:
        self.before = before if seconds > 0 else None
        self.now = now
        self.seconds = seconds

    def grown(self, name: str, **labels: str) -> float | None:
        """Return by how much counters with these labels have grown together; None when they were set back.

        A counter of a thread is not there before its first event: it began at 0.
        """
        if self.before is None:
            return None
        now = self.now.total(name, **labels)
        before = self.before.total(name, **labels) or 0.0
        return None if now is None or now < before else now - before

    def rate(self, name: str, unit: float = 1.0, /, **labels: str) -> float | None:
        """Return by how many ``unit`` counters with these labels have grown in a second."""
        grown = self.grown(name, **labels)
        return None if grown is None else rounded(grown / unit / self.seconds)

    def busy(self, name: str, **labels: str) -> float | None:
        """Compute the share of the time that the events of a summary of milliseconds took, 0 to 1.

        Java's bookie cuts the time of each event to whole milliseconds before it adds it to the sum. So the
        share is the least that it can be, and None when events were counted that add up to nothing.
        """
        grown_ms = self.grown(f"{name}_sum", **labels)
        if grown_ms is None or (grown_ms == 0 and self.grown(f"{name}_count", **labels)):
            return None
        return rounded(min(grown_ms / 1000 / self.seconds, 1.0))

    def mean(self, name: str, **labels: str) -> float | None:
        """Compute the mean value of the interval's events."""
        amount, count = self.grown(f"{name}_sum", **labels), self.grown(f"{name}_count", **labels)
        return None if amount is None or not count else rounded(amount / count)

    def quantile_ms(self, fraction: str, name: str, **labels: str) -> float | None:
        """Find a quantile of the last minute, the largest one of several threads or parts."""
        found = self.now.largest(name, quantile=fraction, success="true", **labels)
        return None if found is None else rounded(found)
