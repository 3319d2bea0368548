"""The replay of one journal directory, file by file from the last mark.

A loss is a state of the directory: the damage of one journal, or a journal that is gone, may have taken key
records, fences and entries of any of its ledgers, and the files behind it only seem to know nothing of them.
So once a loss was accepted, records of ledgers without a row are kept in all later files, under a row that is
fenced and in limbo, and at the end every ledger of the directory is in limbo.

A record whose digest fails may be another entry than it says (``doubted_entries``). That is no reason to
refuse a start; where it is so, all ledgers of the directory are in limbo as well.

A master key that nearly is its ledger's is a damage as well, but it took no entry: accepted, it puts its own
ledger into limbo.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from bkctl.codec.entry import HEADER_BYTES, EntryBatch
from bkctl.codec.journal import RecordKind, journal_name, parse_journal_name
from bkctl.codec.last_mark import ZERO_MARK, LastMark
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.doubted_entries import DoubtedEntries
from bkctl.engine.entries_there import has_another
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.replay_report import ReplayReport
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.engine.second_keys import LedgerLives, ReplayedFile, alike
from bkctl.engine.torn_lacs import is_lower_lac, is_torn_lac
from bkctl.engine.torn_records import TornEntries
from bkctl.engine.unsynced_tail import UnsyncedTail
from bkctl.engine.write_stage import ENTRY_BYTES_MIN
from bkctl.errors import RefusedError
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.journal_ends import JournalEnds
from bkctl.scan.proved_ids import EntryIds, proves_itself
from bkctl.vfs import FileSystem

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


class JournalReplay:
    """Replays journal directory ``number`` of ``journals``.

    ``lossy`` says that a loss was met and accepted.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        number: int,
        journals: int,
        directory: str,
        ledgers: ReplayedLedgers,
        report: ReplayReport,
        *,
        accept_loss: bool,
    ) -> None:
        self.filesystem = filesystem
        self.ledgers = ledgers
        self.report = report
        self.lossy = False
        #: Ledgers whose records are of a life that is over, and where their present life begins.
        self.skipped_until: dict[int, LastMark] = {}
        #: Ledgers of which this replay has met a key.
        self.keyed: set[int] = set()
        self._number = number
        self._journals = journals
        self._directory = directory
        self._accept_loss = accept_loss
        self._doubtful = False
        self.doubted = DoubtedEntries(ledgers, report, self.is_known, self.doubt)
        self._files: list[ReplayedFile] = []
        self._lives: LedgerLives | None = None

    def run(self, mark: LastMark) -> ReplayedEnd | None:
        """Replay what is behind ``mark``; the end of the last file, None without files."""
        found = map(parse_journal_name, self.filesystem.names(self._directory))
        every = sorted(journal for journal in found if journal is not None)
        ids = [journal for journal in every if journal >= mark.journal_id]
        if mark.journal_id > 0 and (not ids or ids[0] != mark.journal_id):
            name = journal_name(mark.journal_id)
            self._missing(f"{name}: the last mark names this journal and it is gone")
            if not ids:
                # Such a mark is none, or the newest journals are gone: what is there is replayed whole.
                mark, ids = ZERO_MARK, every
        # With no mark at all nothing was ever flushed: the newest journal has its tail all the same.
        paths = {journal: f"{self._directory}/{journal_name(journal)}" for journal in ids}
        ends = JournalEnds(self.filesystem, paths.items(), mark)
        self._files = [
            ReplayedFile(
                journal,
                path,
                mark.offset if journal == mark.journal_id else 0,
                ends.unsynced_from(journal),
                ends.known_end(journal),
            )
            for journal, path in paths.items()
        ]
        end: ReplayedEnd | None = None
        gaps = dict(missing_journals(ids))
        for file in self._files:
            if file.journal in gaps:
                self._missing(gaps[file.journal])
            end = _FileReplay(self, file).run()
            self.report.journals += 1
        self.doubted.judge()
        if self.lossy or self._doubtful:
            # Also those that became known behind the loss.
            self.ledgers.set_limbo(self._number, self._journals)
        return end

    def _missing(self, what: str) -> None:
        self.refuse_unless_accepted(f"{self._directory}/{what}")
        self.report.missing_journals += 1

    def refuse_unless_accepted(self, what: str) -> None:
        """Raise RefusedError for a loss that may have cost acknowledged entries, unless it is accepted."""
        if not self._accept_loss:
            raise RefusedError(
                f"{what}; acknowledged entries may be lost. Bring the file back, or start with --accept-loss:"
                " then every ledger of this journal is in limbo (a missing entry is answered as unknown)"
                " until bkctl index limbo --clear"
            )
        _log.warning("%s; accepted", what)
        self.lossy = True
        self.ledgers.set_limbo(self._number, self._journals)

    def refuse_key_unless_accepted(self, what: str, ledger: int) -> None:
        """Raise RefusedError for a key that is damaged here or in the row, unless that is accepted.

        No entry was lost with it: the row's key stays, and this one ledger is in limbo.
        """
        if not self._accept_loss:
            raise RefusedError(
                f"{what}. 'bkctl index check' with --metadata says which one, and how it is mended; or start"
                " with --accept-loss: then the key in the index counts, and this ledger is in limbo until"
                " bkctl index limbo --clear"
            )
        _log.warning("%s; accepted", what)
        self.ledgers.set_ledger_limbo(ledger)

    def doubt(self, what: str) -> None:
        """Note that a ledger of the directory may lack an entry: at the end all of them are put in limbo."""
        _log.warning(
            "%s; every ledger of this journal is in limbo (a missing entry is answered as unknown) until"
            " 'bkctl ledger repair' or 'bkctl index limbo --clear'",
            what,
        )
        self._doubtful = True

    def damaged(self, damage: Damage) -> None:
        """Note a range of a journal that cannot be read as records."""
        if damage.unsynced:
            self.report.unsynced_holes += 1
            _log.warning(
                "%s: %d bytes at offset %d were never synced (%s): what a power cut leaves",
                damage.path,
                damage.size_bytes,
                damage.offset,
                damage.reason,
            )
            return
        what = f"{damage.path}: damage at offset {damage.offset}, {damage.size_bytes} bytes: {damage.reason}"
        if damage.readable:
            _log.warning("%s; the record in it could be read", what)
            return
        self.refuse_unless_accepted(what)
        self.report.add_damage(damage)

    def is_known(self, ledger: int) -> bool:
        """Return whether entries of a ledger are kept; it has no row if it was deleted."""
        return ledger not in self.skipped_until and self.row(ledger) is not None

    def row(self, ledger: int) -> LedgerData | None:
        """Return the ledger's row; behind a loss, which may have taken its key record, one is made."""
        if self.is_lossy(ledger):
            return self.ledgers.row_behind_a_loss(ledger)
        return self.ledgers.kept_row(ledger)

    def is_lossy(self, ledger: int) -> bool:
        """Return whether something of the ledger may have been lost."""
        return self.lossy or self.ledgers.storage_of(ledger) in self.ledgers.without_rows

    @property
    def lives(self) -> LedgerLives:
        """The present lives of the ledgers in the files of this replay; reads all of them, once."""
        if self._lives is None:
            self._lives = LedgerLives(self.filesystem, self._files)
        return self._lives


def missing_journals(ids: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Find the gaps between journals, ascending: the id behind each, and what to say of it.

    The ids of a directory follow each other, in Java's journals too, and files go when the mark has passed
    them. So nothing may be missing between two that are at the mark or behind it.
    """
    for before, behind in pairwise(ids):
        if behind != before + 1:
            count = behind - before - 1
            gone = journal_name(before + 1) + (f" to {journal_name(behind - 1)}" if count > 1 else "")
            yield (
                behind,
                f"{gone}: {count} journal{'s' * (count > 1)} between {journal_name(before)} and"
                f" {journal_name(behind)} {'are' if count > 1 else 'is'} gone",
            )


class _FileReplay:
    """One journal file."""

    def __init__(self, replay: JournalReplay, file: ReplayedFile) -> None:
        self._replay = replay
        self._ledgers = replay.ledgers
        self._report = replay.report
        self._file = file
        self._torn = TornEntries(replay.ledgers, replay.report, file.path, replay.doubted)
        self._doubted = replay.doubted
        self._tail: UnsyncedTail

    def run(self) -> ReplayedEnd:
        """Replay the file."""
        file = self._file
        mark, end = file.start, 0
        with file.scan(self._replay.filesystem) as scan:
            self._tail = UnsyncedTail(scan, file.hole_from)
            for damage in scan.head.damage:
                self._replay.damaged(damage)
            for item in without_cut_keys(scan):
                if isinstance(item, EntryBatch):
                    self._entries(item)
                    last = len(item) - 1
                    end = item.offset(last) + 4 + item.sizes[last]
                elif isinstance(item, MarkedRecord):
                    self._special(item)
                    end = item.end
                elif isinstance(item, Damage):
                    self._replay.damaged(item)
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
        short = [index for index, size in enumerate(batch.sizes) if size < ENTRY_BYTES_MIN]
        if short:
            offset, size = batch.offset(short[0]), batch.sizes[short[0]]
            unsynced = self._torn.is_behind_a_hole(offset) or self._tail.looks_torn(
                offset, batch.body(short[0])
            )
            reason = "an entry without a header"
            self._replay.damaged(Damage(self._file.path, offset, 4 + size, reason, unsynced=unsynced))
            batch = batch.select([index for index, size in enumerate(batch.sizes) if size >= ENTRY_BYTES_MIN])
        if not len(batch):
            return
        batch = self._doubted.hold(self._replacing_none(self._present(batch)), self._file.path)
        by_storage: dict[LedgerStorage, tuple[list[bytes], list[bytes]]] = {}
        known = {ledger: self._replay.is_known(ledger) for ledger in set(batch.ledgers)}
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
        if not self._replay.skipped_until and batch.offset(last) not in self._tail:
            return batch
        chosen: list[int] = []
        for index, ledger in enumerate(batch.ledgers):
            offset, body = batch.offset(index), batch.body(index)
            if self._torn.is_awaited(offset) and (self._replay.is_known(ledger) or proves_itself(body)):
                self._torn.begins(offset)
            is_rest = self._is_rest(offset, body)
            if (is_rest or self._tail.looks_torn(offset, body)) and not proves_itself(body):
                lacks_sector = is_rest or self._tail.lacks_a_sector(offset, body)
                self._torn.hold(offset, body, lacks_sector=lacks_sector)
            elif ledger in self._replay.skipped_until:
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
        life = self._replay.skipped_until.get(ledger)
        if life is not None:
            if self._position(record) < life:
                self._report.skipped_records += record.kind is not RecordKind.PADDING
                return
            self._end_life(ledger)
            del self._replay.skipped_until[ledger]
        if record.kind is RecordKind.MASTER_KEY:
            self._master_key(record)
        elif record.kind is RecordKind.FENCE:
            self._fence(ledger)
        elif record.kind is RecordKind.EXPLICIT_LAC:
            self._explicit_lac(record)

    def _position(self, record: MarkedRecord) -> LastMark:
        return LastMark(self._file.journal, record.offset)

    def _fence(self, ledger: int) -> None:
        row = self._replay.row(ledger) if self._replay.is_lossy(ledger) else self._ledgers.row(ledger)
        # Java journals the fence of a ledger without entries with no key. It is kept under a blank one: an
        # acknowledged fence must hold, and a ledger that was deleted is collected again.
        row = LedgerData(fenced=True, master_key=b"") if row is None else replace(row, fenced=True)
        self._ledgers.set_row(ledger, row)
        self._report.fences += 1

    def _explicit_lac(self, record: MarkedRecord) -> None:
        row = self._replay.row(record.ledger)
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
            if not self._replay.is_lossy(record.ledger):
                # Entries of it in front of this were those of a ledger that was deleted.
                self._end_life(record.ledger)
            # Behind a loss the ledger's first entries and its fence may be among what is lost.
            row = LedgerData(fenced=False, master_key=key, limbo=self._replay.is_lossy(record.ledger))
            self._ledgers.set_row(record.ledger, row)
        elif is_blank(row.master_key):
            self._ledgers.set_row(record.ledger, replace(row, master_key=key))
        elif row.master_key != key and not is_blank(key):
            self._second_key(record, row, key)
        self._replay.keyed.add(record.ledger)

    def _second_key(self, record: MarkedRecord, row: LedgerData, key: bytes) -> None:
        """Handle another key than the row's: the ledger was deleted and made again (``second_keys``)."""
        replay, ledger = self._replay, record.ledger
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
            replay.refuse_key_unless_accepted(f"{what}, but nearly: one of the two is damaged", ledger)
            return
        life = replay.lives.of(ledger)
        if replay.lossy or life is None or replay.lives.damaged:
            # Which of the two is the present one is perhaps what was lost. Nothing is forgotten.
            replay.refuse_unless_accepted(f"{what}, and a newer one may be lost")
            if life is not None:
                self._ledgers.set_row(ledger, replace(self._replay.row(ledger) or row, master_key=life.key))
            return
        # Records that are held come before this place; some may be of the life that ends here.
        self._end_life(ledger)
        if life.key != row.master_key or ledger in replay.keyed:
            self._ledgers.forget(ledger)
        _log.warning("%s: it was deleted and made again, what was there before is forgotten", what)
        if life.start == self._position(record):
            self._ledgers.set_row(ledger, LedgerData(fenced=False, master_key=key))
        else:
            replay.skipped_until[ledger] = life.start
