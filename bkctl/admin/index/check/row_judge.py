"""Judging the rows of an index that no entry of the logs confirms, and entries that have no row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from heapq import merge
from operator import itemgetter

import numpy as np

from bkctl.admin.index.check.damaged_logs import DamagedLogs
from bkctl.admin.index.check.finding import Finding, Kind
from bkctl.admin.index.check.indexed_ledgers import IndexedLedgers
from bkctl.admin.index.check.log_entries import LogEntryReader
from bkctl.admin.index.check.pending_replay import PendingReplay
from bkctl.admin.index.check.places import LogPlaces
from bkctl.admin.index.check.replay import Replay
from bkctl.admin.index.check.strange_ledgers import StrangeLedgers
from bkctl.admin.index.rows.comparison import NO_COPY, Comparison
from bkctl.admin.index.rows.location_runs import Rows
from bkctl.codec.location import ID_MAX, OFFSET_MAX
from bkctl.directories.index_spaces import IndexSpace
from bkctl.scan.quarantined_logs import QuarantinedLog
from bkctl.vfs import FileSystem

#: (ledger, entry, the finding or, for what replay repairs, what is wrong until then)
_Judged = tuple[int, int, "Finding | str"]


class RowJudge:
    """Judges rows of one space, whose logs ``reader`` has read. A context manager: it opens logs.

    ``quarantined`` are the logs in quarantine by their ids.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        space: IndexSpace,
        reader: LogEntryReader,
        quarantined: Mapping[int, QuarantinedLog],
    ) -> None:
        self._space = space
        self._places = LogPlaces(filesystem, space.logs, reader.damage, reader.failing)
        self._other_places = LogPlaces(filesystem, space.other_logs, {}, {})
        self._salvages = DamagedLogs(filesystem, reader.damage.keys() | reader.failing.keys())
        self._quarantined = quarantined
        self._pending = PendingReplay(space.dir)

    def __enter__(self) -> RowJudge:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            stack.push(self._places)
            stack.push(self._other_places)

    def negative_rows(self, rows: Rows, known: IndexedLedgers, strange: StrangeLedgers) -> Iterator[Finding]:
        """Judge locations of negative entry ids, which no log reader takes for entries."""
        if not len(rows):
            return
        at, is_known = known.find(rows.ledgers)
        known.seen[at[is_known]] = True
        for ledger, entry, packed, there in _lines(rows, is_known):
            if not there:
                strange.add_negative(ledger, 1)
            elif (judged := self._unproved(ledger, entry, packed, False, NO_COPY)) is not None:
                assert isinstance(judged, Finding), "what is not journaled is a finding"
                yield judged

    def compared_rows(self, compared: Comparison, known: IndexedLedgers, replay: Replay) -> Iterator[Finding]:
        """Judge the rows that no entry confirms, and the entries without a row, in order of ledgers."""
        unproved = self._unproved_rows(compared, known, replay)
        unindexed = self._unindexed(compared, known)
        for ledger, _, finding in merge(unproved, unindexed, key=itemgetter(0, 1)):
            if isinstance(finding, str):
                yield from self._pending.add(ledger, finding)
            else:
                yield finding

    def _unproved_rows(self, compared: Comparison, known: IndexedLedgers, replay: Replay) -> list[_Judged]:
        """Look at the places in order of logs and offsets, and put what is wrong back in order of keys."""
        rows = compared.unproved
        _, is_known = known.find(rows.ledgers)
        order = np.argsort(rows.locations, kind="stable")
        judged: list[_Judged] = []
        columns = (is_known, compared.unproved_journaled, compared.copies)
        chosen = (column[order] for column in columns)
        for ledger, entry, packed, there, journaled, copy in _lines(rows.select(order), *chosen):
            if entry == ID_MAX and not there:
                continue  # a deletion leaves this row behind, and its log may be gone
            comes_back = journaled and (there or ledger in replay.master_keys)
            finding = self._unproved(ledger, entry, packed, bool(comes_back), copy)
            if finding is not None:
                judged.append((ledger, entry, finding))
        judged.sort(key=itemgetter(0, 1))
        return judged

    def _unproved(
        self, ledger: int, entry: int, packed: int, journaled: bool, copy: int
    ) -> Finding | str | None:
        """Judge what a row of the index says that no entry of the logs confirms."""
        fault = self._places.fault(ledger, entry, packed)
        if fault is None:
            return None
        kind, detail = fault.kind, fault.detail
        self._salvages.add(fault.damaged)
        aside = self._quarantined.get(packed >> 32)
        if aside is not None and self._places.log_of(packed) is None:
            kind = Kind.SALVAGED_LOCATION if aside.is_salvaged else Kind.QUARANTINED_LOCATION
            detail = f"its log is in quarantine: {aside.log.path}"
        other = self._other_places.log_of(packed)
        if other is not None and self._other_places.fault(ledger, entry, packed) is None:
            if self._space.is_elsewhere(ledger):
                return None  # wrong_directory says it for the whole ledger
            kind = Kind.WRONG_LOG_ID_SPACE
            detail = f"the entry stands there in {other.path}, the log of another ledger directory; {detail}"
        if journaled:
            return "a location that is wrong"
        if copy != NO_COPY:
            detail += f"; the entry stands in log {copy >> 32} at {copy & OFFSET_MAX}"
        finding = Finding(kind, self._space.dir, ledger, entry, packed >> 32, packed & OFFSET_MAX, detail)
        return self._with_salvage(finding, packed)

    def _with_salvage(self, finding: Finding, packed: int) -> Finding:
        """Return a finding about a location with the damaged log that it names."""
        return replace(finding, damaged_log=self._salvages.among(self._places.log_of(packed)))

    def _unindexed(self, compared: Comparison, known: IndexedLedgers) -> Iterator[_Judged]:
        """Judge entries of known ledgers without a row."""
        rows = compared.unindexed
        _, is_known = known.find(rows.ledgers)
        if not is_known.any():
            return
        chosen = rows.select(is_known)
        for ledger, entry, packed, journaled in _lines(chosen, compared.unindexed_journaled[is_known]):
            if ledger in known.hidden:
                continue
            if journaled:
                yield ledger, entry, "no location"
                continue
            detail = "the entry stands in the log, and the index has no row of it"
            log_id, offset = packed >> 32, packed & OFFSET_MAX
            finding = Finding(Kind.MISSING_LOCATION, self._space.dir, ledger, entry, log_id, offset, detail)
            yield ledger, entry, self._with_salvage(finding, packed)

    def end(self) -> Iterator[Finding]:
        """Yield the note about the last ledger of which a replay repairs something."""
        yield from self._pending.close()


def _lines(rows: Rows, *columns: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Return rows and further columns as tuples of Python's integers."""
    listed = [column.tolist() for column in (rows.ledgers, rows.entries, rows.locations, *columns)]
    return zip(*listed, strict=True)
