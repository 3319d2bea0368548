"""The rows of a space's location indexes, in order of ledger and entry, in blocks."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from bkctl.admin.index.check.finding import Finding, Kind
from bkctl.admin.index.check.indexed_ledgers import IndexedLedgers, damage_finding
from bkctl.admin.index.rows.comparison import UNDECODABLE
from bkctl.admin.index.rows.location_runs import Rows, concatenated, rows_of
from bkctl.admin.index.rows.row_sort import in_order
from bkctl.scan.index import DirectoryIndex
from bkctl.scan.index_rows import IndexDamage


class IndexRows:
    """Reads the locations of ``indexes``; several are the ``.idx`` directories of one bookie.

    ``take_findings`` and ``take_odd`` give what came up since they were last asked: damage, and rows with
    negative entry ids, which stand in no order that is of use.
    """

    def __init__(self, indexes: Sequence[DirectoryIndex], known: IndexedLedgers) -> None:
        self._indexes = indexes
        self._known = known
        self._findings: list[Finding] = []
        self._odd: list[Rows] = []
        self._unsorted = False

    def blocks(self, rows_max: int) -> Iterator[Rows]:
        """Yield rows in blocks of some ``rows_max``. Raises CorruptionError, StorageError."""
        streams = [self._stream(index) for index in self._indexes]
        pending: list[Rows] = []
        count = 0
        for rows in heapq.merge(*streams, key=_first_key) if len(streams) > 1 else streams[0]:
            if count >= rows_max and not self._unsorted_last(rows):
                yield self._joined(pending)
                pending, count = [], 0
            pending.append(rows)
            count += len(rows)
        if pending:
            yield self._joined(pending)

    def _unsorted_last(self, rows: Rows) -> bool:
        """Return whether ``rows`` is a row that does not decode: it belongs among those before it."""
        return len(rows) == 1 and int(rows.locations[0]) == UNDECODABLE

    def _joined(self, pending: list[Rows]) -> Rows:
        rows = concatenated(pending)
        unsorted, self._unsorted = self._unsorted, False
        return in_order(rows) if unsorted or len(self._indexes) > 1 else rows

    def _stream(self, index: DirectoryIndex) -> Iterator[Rows]:
        for item in index.locations.rows():
            if isinstance(item, IndexDamage):
                yield from self._damage(item, index.path)
                continue
            if self._known.owners.get(item.ledgers[0], index.path) != index.path:
                continue  # a batch of .idx slots has one ledger; another directory's file counts
            rows = rows_of(item)
            negative = rows.entries < 0
            if negative.any():
                self._odd.append(rows.select(negative))
                rows = rows.select(~negative)
            if len(rows):
                yield rows

    def _damage(self, damage: IndexDamage, directory: str) -> Iterator[Rows]:
        finding = damage_finding(damage, directory)
        if damage.offset is not None:
            if finding.kind is not Kind.UNDECODABLE_ROW or finding.ledger is None:
                return  # a header or a name: reported with the ledgers
            self._known.hidden.add(finding.ledger)
        self._findings.append(finding)
        if finding.ledger is not None and finding.entry is not None and damage.offset is None:
            self._unsorted = True
            one = np.array([finding.ledger, finding.entry, UNDECODABLE], np.int64)
            if finding.entry >= 0:
                yield Rows(one[:1], one[1:2], one[2:])

    def take_findings(self) -> list[Finding]:
        """Take the damage of the rows read so far."""
        taken, self._findings = self._findings, []
        return taken

    def take_odd(self) -> Rows:
        """Take the rows with negative entry ids among those read so far."""
        taken, self._odd = concatenated(self._odd), []
        return taken


def _first_key(rows: Rows) -> tuple[int, int]:
    return int(rows.ledgers[0]), int(rows.entries[0])
