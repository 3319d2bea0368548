"""Every entry of the logs as rows for sorting; what cannot be read as findings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bkctl.admin.index.check.finding import Finding, Kind
from bkctl.admin.index.rows.framing import misframed
from bkctl.admin.index.rows.location_runs import Rows
from bkctl.admin.index.rows.row_sort import RowSorter
from bkctl.codec.location import pack_location
from bkctl.directories.index_spaces import IndexSpace
from bkctl.reporting import Advance, counted
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.files.entrylogs import LogEntries, scan_logs
from bkctl.vfs import FileSystem

#: Ranges, and failing entries, remembered of one log. More damage is reported, but rows that point into it
#: get no such evidence.
DAMAGES_KEPT = 10_000


class LogEntryReader:
    """Reads the logs of a space into a sorter.

    ``damage`` maps a log's path to its damaged ranges, ``failing`` to the offsets of the records whose bytes
    do not match their digest.
    """

    def __init__(self, filesystem: FileSystem, space: IndexSpace, book: DigestBook) -> None:
        self._filesystem = filesystem
        self._space = space
        self._book = book
        self.damage: dict[str, list[Damage]] = {}
        self.failing: dict[str, set[int]] = {}

    def read(self, sorter: RowSorter, advance: Advance) -> Iterator[Finding]:
        """Add every entry whose digest does not contradict it. Raises StorageError."""
        logs = {log.path: log for log in self._space.logs}
        done = 0
        for item in scan_logs(self._filesystem, list(self._space.logs), self._book):
            if isinstance(item, Damage):
                yield self._damaged(logs[item.path], item)
                continue
            sorter.add(rows_of(item))
            self._note_failing(item)
            yield from _contradicted(item)
            batch = item.entries.batch
            step = sum(batch.sizes) + 4 * len(batch)
            done += step
            advance(step)
        advance(max(0, self._space.bytes_total - done))

    def _note_failing(self, item: LogEntries) -> None:
        batch, failing = item.entries.batch, item.entries.check.failing
        if failing:
            offsets = self.failing.setdefault(item.log.path, set())
            offsets.update(sorted(map(batch.offset, failing))[: DAMAGES_KEPT - len(offsets)])

    def _damaged(self, log: LogFile, damage: Damage) -> Finding:
        ranges = self.damage.setdefault(log.path, [])
        if len(ranges) < DAMAGES_KEPT:
            ranges.append(damage)
        expected = f", expected {damage.expected}" if damage.expected else ""
        found = f", found {damage.found}" if damage.found else ""
        size = counted(damage.size_bytes, "byte")
        detail = f"{size}: {damage.reason}{expected}{found}; see bkctl entrylog verify"
        return Finding(Kind.DAMAGED_LOG, log.directory, None, None, log.log_id, damage.offset, detail)


def rows_of(item: LogEntries) -> Rows:
    """Return the batch's entries without those whose digest fails, or that no bookie can read."""
    batch, check = item.entries.batch, item.entries.check
    locations = np.array(batch.starts, np.int64) + (pack_location(item.log.log_id, 0) + batch.base + 4)
    rows = Rows(np.array(batch.ledgers, np.int64), np.array(batch.entries, np.int64), locations)
    lost = check.failing | check.strangers.keys() | misframed(batch)
    if not lost:
        return rows
    kept = np.ones(len(rows), np.bool_)
    kept[list(lost)] = False
    return rows.select(kept)


def _contradicted(item: LogEntries) -> Iterator[Finding]:
    """Report entries whose bytes do not match their digest.

    An entry with another ledger's id is reported as damage.
    """
    batch, check = item.entries.batch, item.entries.check
    for index in sorted(check.failing - check.strangers.keys()):
        yield Finding(
            Kind.DAMAGED_LOG,
            item.log.directory,
            batch.ledgers[index],
            batch.entries[index],
            item.log.log_id,
            batch.offset(index) + 4,
            "the entry's bytes do not match its digest; see bkctl entrylog verify",
        )
