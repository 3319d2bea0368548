"""Find what one entry log holds, and how much of it is alive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from bkctl.admin.gc.index_reader import IndexReader
from bkctl.codec.entry import EntryBatch
from bkctl.codec.entry_log_metadata import EntryLogMetadata
from bkctl.engine.gc.log_reading import (
    corruption_of,
    count_bytes,
    header_damage_of,
    records_bytes_of,
    trusted_map,
)
from bkctl.engine.gc.log_usage import is_plausible
from bkctl.errors import BkctlError, CorruptionError, StorageError
from bkctl.reporting import Advance
from bkctl.scan.damage import Damage
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.log_metadata_cache import LogMetadataCache
from bkctl.vfs import FileSystem

#: Those of some ledgers that are alive.
LiveAmong = Callable[[Collection[int]], set[int]]


@dataclass(slots=True)
class LogFacts:
    """One log. Bytes count records with their size words.

    ``record_bytes`` are those of all entries, ``totals`` those of each ledger, ``counted_bytes`` those of
    live ledgers, ``live`` maps each live ledger to the bytes of its entries that the index has in this log
    (with ``exact`` False: of all its entries). ``unindexed`` counts entries of live ledgers for which the
    index has no row at all. ``source`` is ``walk``, ``map`` or ``cache``. ``rolled`` is False while the log
    has no ledgers map. ``problem`` is why the log could not be read to its end; the numbers are those up to
    there, and nothing to decide by.
    """

    log: LogFile
    age_s: int
    source: str = "walk"
    exact: bool = True
    rolled: bool = False
    record_bytes: int = 0
    counted_bytes: int = 0
    ledgers: int = 0
    live_ledgers: int = 0
    live: dict[int, int] = field(default_factory=dict)
    totals: Mapping[int, int] = field(default_factory=dict)
    unindexed: int = 0
    problem: str | None = None

    @property
    def live_bytes(self) -> int:
        """Bytes that a compaction copies."""
        return sum(self.live.values())

    def balance(self) -> LogBalance:
        """Give what a plan keeps of the log: its two totals, without the ledgers that they are made of."""
        return LogBalance(self.log, self.record_bytes, self.live_bytes)


@dataclass(frozen=True, slots=True)
class LogBalance:
    """The two totals that decide whether a log is compacted, a :class:`bkctl.engine.gc.policy.LogShare`.

    A plan holds one for each log of a directory, so nothing here grows with the ledgers of the log.
    """

    log: LogFile
    record_bytes: int
    remaining_bytes: int

    @property
    def log_id(self) -> int:
        """The log."""
        return self.log.log_id

    @property
    def file_bytes(self) -> int:
        """The bytes that the removal of the file gives back."""
        return self.log.size_bytes

    def usage(self, log_size_bytes: int | None = None) -> float:
        """Compute the live fraction, 0 to 1; with ``log_size_bytes`` of a log of at least that size."""
        total = max(self.record_bytes, log_size_bytes or 0)
        return self.remaining_bytes / total if total else 0.0


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads logs of one space.

    With ``quick`` a ledgers map that accounts for the whole log, or the row of ``cache``, is believed
    instead of walking the log; all records of a live ledger count as alive then.
    """

    filesystem: FileSystem
    index: IndexReader
    live_among: LiveAmong
    now_s: float
    quick: bool = False
    cache: LogMetadataCache | None = None

    def read(self, log: LogFile, advance: Advance) -> LogFacts:
        """Read the facts of a log; damage of the log is in them.

        Raises StorageError, NotFoundError, and CorruptionError when the index cannot be read.
        """
        facts = LogFacts(log, self._age_s(log))
        with EntryLogScan(self.filesystem, log.path) as scan:
            facts.rolled = scan.head.header.has_map
            totals = self._known(scan, facts) if self.quick else None
            if totals is None:
                totals = self._walk(scan, facts, advance)
            else:
                advance(log.size_bytes)
        alive = self.live_among(totals.keys())
        live = {ledger: size for ledger, size in totals.items() if ledger in alive}
        facts.totals = totals
        facts.ledgers, facts.live_ledgers = len(totals), len(live)
        facts.counted_bytes = sum(live.values())
        if facts.source != "cache":  # whose row has the total of what once stood there
            facts.record_bytes = sum(totals.values())
        if not facts.exact:
            facts.live = live
        return facts

    def _age_s(self, log: LogFile) -> int:
        status = self.filesystem.status(log.path)
        return 0 if status is None else max(0, int(self.now_s - status.mtime_s))

    def _known(self, scan: EntryLogScan, facts: LogFacts) -> Mapping[int, int] | None:
        ledgers = trusted_map(scan.head)
        if ledgers is not None:
            facts.source, facts.exact = "map", False
            return ledgers
        row = self._cached(facts.log)
        # Java has cached what it took from maps that left ledgers out.
        if (
            row is None
            or scan.head.damage
            or row.total_bytes != records_bytes_of(scan.head.header, facts.log.size_bytes)
        ):
            return None
        facts.source, facts.exact, facts.record_bytes = "cache", False, row.total_bytes
        return dict(row.ledgers)

    def _cached(self, log: LogFile) -> EntryLogMetadata | None:
        row = None
        with suppress(CorruptionError, StorageError):  # it is only a cache
            row = None if self.cache is None else self.cache.get(log.log_id)
        return row if row is not None and is_plausible(row, log.log_id, log.size_bytes) else None

    def _walk(self, scan: EntryLogScan, facts: LogFacts, advance: Advance) -> dict[int, int]:
        totals: dict[int, int] = {}
        done = 0
        for item in scan:
            if isinstance(item, EntryBatch):
                count_bytes(item, totals)
                self._count_live(item, facts)
                end = item.offset(len(item) - 1)
                advance(end - done)
                done = end
            elif isinstance(item, Damage) and facts.problem is None:
                facts.problem = str(corruption_of(item))
        header = header_damage_of(scan.head)
        if header is not None and not totals and not scan.file.is_zero(0, scan.file.size_bytes):
            # Nothing in it looks like a record, and the header does not say that it is a log.
            facts.problem = facts.problem or str(corruption_of(header))
        advance(facts.log.size_bytes - done)
        return totals

    def _count_live(self, batch: EntryBatch, facts: LogFacts) -> None:
        alive = self.live_among(set(batch.ledgers))
        if not alive:
            return
        chosen = [number for number, ledger in enumerate(batch.ledgers) if ledger in alive]
        batch = batch if len(chosen) == len(batch) else batch.select(chosen)
        here = self.index.compare(batch, facts.log.log_id)
        facts.unindexed += here.count(None)
        if not all(here):
            batch = batch.select([number for number, same in enumerate(here) if same])
        count_bytes(batch, facts.live)


def unreadable(log: LogFile, error: BkctlError) -> LogFacts:
    """Make the facts of a log that could not even be opened."""
    return LogFacts(log, 0, problem=str(error))
