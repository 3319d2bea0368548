"""The replay of one journal file: which of its records count, and what each of them does."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

from bkctl.codec.entry import ACCEPTED_BYTES_MIN, HEADER_BYTES, EntryBatch
from bkctl.codec.journal import RecordKind
from bkctl.codec.last_mark import LastMark
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.entries_there import has_another
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.replayed_directory import ReplayedDirectory
from bkctl.engine.second_keys import ReplayedFile, alike
from bkctl.engine.torn_lacs import is_lower_lac, is_torn_lac
from bkctl.engine.torn_records import TornEntries
from bkctl.engine.unsynced_tail import UnsyncedTail
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.proved_ids import EntryIds, proves_itself

_log = logging.getLogger(__name__)


class ReplayedEnd(NamedTuple):
    """The end of the last journal of a replay.

    ``mark`` is where the next replay is to begin. That is behind a hole or a torn record, which was examined
    and would be damage once a newer journal exists. ``records_end`` is where the last record ends that was
    read, None where there was none: a mark may stand behind the records.
    """

    path: str
    mark: LastMark
    records_end: LastMark | None


class FileReplay:
    """Replays one file of a journal directory, once."""

    def __init__(self, directory: ReplayedDirectory, file: ReplayedFile) -> None:
        self._directory = directory
        self._ledgers = directory.ledgers
        self._report = directory.report
        self._file = file
        self._torn = TornEntries(directory.ledgers, directory.report, file.path, directory.doubted)
        self._doubted = directory.doubted
        self._tail: UnsyncedTail

    def run(self) -> ReplayedEnd:
        """Replay the file."""
        file = self._file
        mark, end = file.start, 0
        with file.scan(self._directory.filesystem) as scan:
            self._tail = UnsyncedTail(scan, file.hole_from)
            for damage in scan.head.damage:
                self._directory.damaged(damage)
            for item in without_cut_keys(scan):
                if isinstance(item, EntryBatch):
                    self._entries(item)
                    last = len(item) - 1
                    end = item.offset(last) + 4 + item.sizes[last]
                elif isinstance(item, MarkedRecord):
                    self._special(item)
                    end = item.end
                elif isinstance(item, Damage):
                    self._directory.damaged(item)
                    if item.unsynced:
                        self._torn.hole(item.offset)
                    # Where the damage ends is where records go on, or not known.
                    mark, end = max(item.end, scan.file.size_bytes), 0
                elif item.kind == "torn":
                    _log.info("%s: a torn record at offset %d ends it", file.path, item.offset)
                    mark = scan.file.size_bytes
        self._torn.judge(at_end=True)
        records_end = LastMark(file.journal, end) if end else None
        return ReplayedEnd(file.path, LastMark(file.journal, max(end, mark)), records_end)

    def _entries(self, batch: EntryBatch) -> None:
        short = [index for index, size in enumerate(batch.sizes) if size < ACCEPTED_BYTES_MIN]
        if short:
            offset, size = batch.offset(short[0]), batch.sizes[short[0]]
            unsynced = self._torn.is_behind_a_hole(offset) or self._tail.looks_torn(
                offset, batch.body(short[0])
            )
            reason = "an entry without a header"
            self._directory.damaged(Damage(self._file.path, offset, 4 + size, reason, unsynced=unsynced))
            batch = batch.select(
                [index for index, size in enumerate(batch.sizes) if size >= ACCEPTED_BYTES_MIN]
            )
        if not len(batch):
            return
        batch = self._doubted.hold(self._replacing_none(self._present(batch)), self._file.path)
        by_storage: dict[LedgerStorage, tuple[list[bytes], list[bytes]]] = {}
        known = {ledger: self._directory.is_known(ledger) for ledger in set(batch.ledgers)}
        for index, ledger in enumerate(batch.ledgers):
            if not known[ledger]:
                self._report.skipped_records += 1
                continue
            body = batch.body(index)
            keys, bodies = by_storage.setdefault(self._ledgers.storage_of(ledger), ([], []))
            keys.append(body[:16])
            bodies.append(body)
        for storage, (keys, bodies) in by_storage.items():
            self._ledgers.put(storage, keys, bodies)

    def _present(self, batch: EntryBatch) -> EntryBatch:
        """Return the entries that are of their ledgers' present lives and not torn; hold torn ones."""
        last = len(batch) - 1
        if not self._directory.skipped_until and batch.offset(last) not in self._tail:
            return batch
        chosen: list[int] = []
        for index, ledger in enumerate(batch.ledgers):
            offset, body = batch.offset(index), batch.body(index)
            if self._torn.is_awaited(offset) and (self._directory.is_known(ledger) or proves_itself(body)):
                self._torn.begins(offset)
            is_rest = self._is_rest(offset, body)
            if (is_rest or self._tail.looks_torn(offset, body)) and not proves_itself(body):
                lacks_sector = is_rest or self._tail.lacks_a_sector(offset, body)
                self._torn.hold(offset, body, lacks_sector=lacks_sector)
            elif ledger in self._directory.skipped_until:
                if not self._doubted.hold_of_past_life(batch, index, self._file.path):
                    self._report.skipped_records += 1
            else:
                chosen.append(index)
        return batch if len(chosen) == len(batch.ledgers) else batch.select(chosen)

    def _replacing_none(self, batch: EntryBatch) -> EntryBatch:
        """Return the entries but those behind an unsynced hole that would take the place of a known one.

        Nothing behind such a hole was ever acknowledged, and what stands there may be a client's data, of an
        entry whose head is in the hole.
        """
        last = len(batch) - 1
        if last < 0 or not self._torn.is_behind_a_hole(batch.offset(last)):
            return batch
        chosen = []
        for index, ledger in enumerate(batch.ledgers):
            entry, body = batch.entries[index], batch.body(index)
            if self._torn.is_behind_a_hole(batch.offset(index)) and (
                self._doubted.holds(EntryIds(ledger, entry))
                or has_another(self._ledgers.storage_of(ledger), ledger, entry, body)
            ):
                self._report.torn_records += 1
            else:
                chosen.append(index)
        return batch if len(chosen) == len(batch.ledgers) else batch.select(chosen)

    def _end_life(self, ledger: int) -> None:
        """Judge the records of a ledger that look torn, and note that a life of it ends here."""
        if self._torn.holds(ledger):
            self._torn.judge()
        self._doubted.end_life(ledger)

    def _is_rest(self, offset: int, body: bytes) -> bool:
        """Return whether an entry is perhaps the rest of an explicit LAC, whose head is in an unsynced hole.

        It is too short for the header of an entry, and has the ledger and a number where that has its ids.
        """
        return len(body) < HEADER_BYTES and self._torn.is_behind_a_hole(offset)

    def _lacks_sector(self, record: MarkedRecord) -> bool:
        """Return whether a special record, whose lengths have been checked, is perhaps half written."""
        return self._tail.lacks_a_sector(record.offset, record.body)

    def _special(self, record: MarkedRecord) -> None:
        ledger = record.ledger
        if self._torn.is_awaited(record.offset):
            self._torn.begins(record.offset)
        life = self._directory.skipped_until.get(ledger)
        if life is not None:
            if self._position(record) < life:
                self._report.skipped_records += record.kind is not RecordKind.PADDING
                return
            self._end_life(ledger)
            del self._directory.skipped_until[ledger]
        if record.kind is RecordKind.MASTER_KEY:
            self._master_key(record)
        elif record.kind is RecordKind.FENCE:
            self._fence(ledger)
        elif record.kind is RecordKind.EXPLICIT_LAC:
            self._explicit_lac(record)

    def _position(self, record: MarkedRecord) -> LastMark:
        return LastMark(self._file.journal, record.offset)

    def _fence(self, ledger: int) -> None:
        row = self._directory.row(ledger) if self._directory.is_lossy(ledger) else self._ledgers.row(ledger)
        # Java journals the fence of a ledger without entries with no key. It is kept under a blank one: an
        # acknowledged fence must hold, and a ledger that was deleted is collected again.
        row = LedgerData(fenced=True, master_key=b"") if row is None else replace(row, fenced=True)
        self._ledgers.set_row(ledger, row)
        self._report.fences += 1

    def _explicit_lac(self, record: MarkedRecord) -> None:
        row = self._directory.row(record.ledger)
        if row is None:
            self._report.skipped_records += 1
            return
        blob = record.blob
        torn = self._lacks_sector(record) and is_torn_lac(blob, row.explicit_lac)
        if torn or (self._torn.is_behind_a_hole(record.offset) and is_lower_lac(blob, row.explicit_lac)):
            self._report.torn_records += 1
            return
        self._ledgers.set_row(record.ledger, replace(row, explicit_lac=blob))

    def _master_key(self, record: MarkedRecord) -> None:
        key = record.blob
        row = self._ledgers.row(record.ledger)
        if self._lacks_sector(record):
            # Cut within the key: the next client's key will do.
            self._report.torn_records += 1
            if row is not None:
                return
            key = b""
        if row is None:
            if not self._directory.is_lossy(record.ledger):
                # Entries of it in front of this were those of a ledger that was deleted.
                self._end_life(record.ledger)
            # Behind a loss the ledger's first entries and its fence may be among what is lost.
            row = LedgerData(fenced=False, master_key=key, limbo=self._directory.is_lossy(record.ledger))
            self._ledgers.set_row(record.ledger, row)
        elif is_blank(row.master_key):
            self._ledgers.set_row(record.ledger, replace(row, master_key=key))
        elif row.master_key != key and not is_blank(key):
            self._second_key(record, row, key)
        self._directory.keyed.add(record.ledger)

    def _second_key(self, record: MarkedRecord, row: LedgerData, key: bytes) -> None:
        """Handle another key than the row's: the ledger was deleted and made again (``second_keys``)."""
        directory, ledger = self._directory, record.ledger
        what = (
            f"{self._file.path}: the master key of ledger {ledger} at offset {record.offset} is not the one"
            " in the ledger index"
        )
        if self._torn.is_behind_a_hole(record.offset):
            # It was never acknowledged, and may be a client's data, of an entry whose head is in the hole.
            _log.warning("%s, behind sectors that were never synced; that in the index counts", what)
            self._ledgers.set_ledger_limbo(ledger)
            return
        if alike(row.master_key, key):
            directory.refuse_key_unless_accepted(f"{what}, but nearly: one of the two is damaged", ledger)
            return
        life = directory.lives.of(ledger)
        if directory.lossy or life is None or directory.lives.damaged:
            # Which of the two is the present one is perhaps what was lost. Nothing is forgotten.
            directory.refuse_unless_accepted(f"{what}, and a newer one may be lost")
            if life is not None:
                self._ledgers.set_row(
                    ledger, replace(self._directory.row(ledger) or row, master_key=life.key)
                )
            return
        # Records that are held come before this place; some may be of the life that ends here.
        self._end_life(ledger)
        if life.key != row.master_key or ledger in directory.keyed:
            self._ledgers.forget(ledger)
        _log.warning("%s: it was deleted and made again, what was there before is forgotten", what)
        if life.start == self._position(record):
            self._ledgers.set_row(ledger, LedgerData(fenced=False, master_key=key))
        else:
            directory.skipped_until[ledger] = life.start
