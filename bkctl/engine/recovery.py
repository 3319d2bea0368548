"""Start-up: bring what the journals hold behind the last mark into storage.

Source: ``BookieImpl.readJournal``.

Java stops reading a journal at the first zero word and takes what follows for absent. Here the scanner
looks behind it. In the newest journal, behind the last mark, a hole in front of records that prove
themselves is what a power cut leaves: those records were never acknowledged, they are replayed all the
same. Anywhere else a hole is damage, and acknowledged entries may have stood in it: the start is refused,
naming file and offset. Who accepts the loss gets every ledger of that journal in limbo, so that no missing
entry is called absent.

Records of ledgers without a key, in the journal or in the index, belong to deleted ledgers and are skipped;
behind an accepted damage, where the key may be what was lost, they are kept under a blank key, fenced.
So is a fence without a key.

In that same tail a record may be half written (``torn_records``): it replaces nothing that is known.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bkctl.clock import Clock
from bkctl.codec.entry import EntryBatch
from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.journal import RecordKind, parse_journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.checkpoint import LastMarks
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.torn_records import lacks_sector, looks_torn
from bkctl.engine.write_stage import ENTRY_BYTES_MIN
from bkctl.errors import BookieError, CorruptionError, RefusedError
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.journal import JournalScan, unsynced_from
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)
_BLOB_AT = 20

#: Damages named in a report; the others are only counted.
DAMAGES_MAX = 100


@dataclass(slots=True)
class RecoveryReport:
    """What a start found. ``damages`` are the accepted ones; they put ``limbo_ledgers`` in limbo."""

    journals: int = 0
    entries: int = 0
    bytes: int = 0
    fences: int = 0
    skipped_records: int = 0
    unsynced_holes: int = 0
    torn_records: int = 0
    damages: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    limbo_ledgers: int = 0
    seconds: float = 0.0


class Recovery:
    """Replays the journals of a bookie that does not serve yet.

    ``journal_directories`` and ``storages`` are in the order of the configuration; ``lock`` is the engine
    lock.
    """

    def __init__(
        self,
        filesystem: WritableFileSystem,
        journal_directories: Sequence[str],
        storages: Sequence[LedgerStorage],
        marks: LastMarks,
        lock: threading.Lock,
        clock: Clock,
        *,
        accept_loss: bool = False,
    ) -> None:
        self._filesystem = filesystem
        self._journal_directories = journal_directories
        self._storages = storages
        self._marks = marks
        self._lock = lock
        self._clock = clock
        self._accept_loss = accept_loss
        self._report = RecoveryReport()

    def run(self) -> RecoveryReport:
        """Replay every journal, flush everything, move the marks.

        Raises RefusedError for damage that may have cost acknowledged entries, for a journal that the last
        mark names and that is gone, and for a master key that contradicts the ledger's; StorageError when
        reading or flushing fails. Nothing was lost then: a later start finds the same.
        """
        started_s = self._clock.monotonic()
        ends: list[LastMark | None] = []
        for number, directory in enumerate(self._journal_directories):
            ends.append(self._replay_directory(number, directory))
        # Entries, locations and rows are durable before any mark says so.
        for storage in self._storages:
            storage.flush()
        for number, end in enumerate(ends):
            if end is not None:
                self._marks.write(number, end)
        self._report.seconds = self._clock.monotonic() - started_s
        return self._report

    def _replay_directory(self, number: int, directory: str) -> LastMark | None:
        """Replay one journal directory; where its last file ends, None without files."""
        mark = self._marks.read(number)
        found = [parse_journal_name(name) for name in self._filesystem.names(directory)]
        ids = sorted(journal for journal in found if journal is not None and journal >= mark.journal_id)
        if mark.journal_id > 0 and (not ids or ids[0] != mark.journal_id):
            self._refuse_unless_accepted(
                number,
                f"{directory}/{mark.journal_id:x}.txn: the last mark names this journal and it is gone",
            )
        end: LastMark | None = None
        for journal in ids:
            start = mark.offset if journal == mark.journal_id else 0
            # With no mark at all nothing was ever flushed: the newest journal has its tail all the same.
            hole_from = unsynced_from(journal, ids[-1], mark)
            replay = _FileReplay(self, number, f"{directory}/{journal:x}.txn")
            end = LastMark(journal, max(start, replay.run(start, hole_from)))
            self._report.journals += 1
        return end

    def _refuse_unless_accepted(self, number: int, what: str) -> None:
        if not self._accept_loss:
            raise RefusedError(
                f"{what}; acknowledged entries may be lost. Bring the file back, or start with --accept-loss:"
                " then every ledger of this journal is in limbo (a missing entry is answered as unknown)"
                " until bkctl index limbo --clear"
            )
        _log.warning("%s; accepted", what)
        self._set_limbo(number)

    def _set_limbo(self, number: int) -> None:
        """Every known ledger of a journal may have lost entries."""
        for storage in self._storages:
            for ledger in storage.ledgers.ledgers():
                row = storage.ledgers.get(ledger)
                if row is not None and not row.limbo and ledger % len(self._journal_directories) == number:
                    storage.ledgers.set(ledger, replace(row, limbo=True))
                    self._report.limbo_ledgers += 1

    def damaged(self, number: int, damage: Damage) -> None:
        """A range of a journal that cannot be read as records."""
        if damage.unsynced:
            self._report.unsynced_holes += 1
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
        self._refuse_unless_accepted(number, what)
        self._report.damage_count += 1
        if len(self._report.damages) < DAMAGES_MAX:
            self._report.damages.append(damage)

    def storage_of(self, ledger: int) -> LedgerStorage:
        """The directory of a ledger."""
        return self._storages[ledger % len(self._storages)]

    def put(self, storage: LedgerStorage, keys: list[bytes], bodies: list[bytes]) -> None:
        """Put entries into a directory's cache, flushing as often as it is full."""
        size_bytes = sum(map(len, bodies))
        while True:
            with self._lock:
                if storage.has_room(size_bytes, len(keys)):
                    storage.put_many(keys, bodies, size_bytes)
                    break
            storage.flush()
        self._report.entries += len(keys)
        self._report.bytes += size_bytes

    @property
    def report(self) -> RecoveryReport:
        """Counted so far."""
        return self._report

    @property
    def filesystem(self) -> WritableFileSystem:
        """Where the journals are."""
        return self._filesystem


class _FileReplay:
    """One journal file."""

    def __init__(self, recovery: Recovery, number: int, path: str) -> None:
        self._recovery = recovery
        self._number = number
        self._path = path
        self._damaged = False
        self._hole_from: int | None = None

    def run(self, start: int, hole_from: int | None) -> int:
        """Replay from ``start``; the offset where the file's records end.

        ``hole_from``: from there on the file may never have been synced.
        """
        self._hole_from = hole_from
        end = start
        with JournalScan(self._recovery.filesystem, self._path, unsynced_from=hole_from, start=start) as scan:
            for damage in scan.head.damage:
                self._note(damage)
            for item in scan:
                if isinstance(item, EntryBatch):
                    self._entries(item)
                    last = len(item) - 1
                    end = max(end, item.offset(last) + 4 + item.sizes[last])
                elif isinstance(item, MarkedRecord):
                    self._special(item)
                    end = max(end, item.end)
                elif isinstance(item, Damage):
                    self._note(item)
                    # Whatever follows was looked at. A mark in front of the hole would make it, once a newer
                    # journal exists, damage to the next start.
                    end = scan.file.size_bytes
                elif item.kind == "torn":
                    _log.info("%s: a torn record at offset %d ends it", self._path, item.offset)
        return end

    def _note(self, damage: Damage) -> None:
        self._recovery.damaged(self._number, damage)
        self._damaged = self._damaged or not (damage.unsynced or damage.readable)

    def _entries(self, batch: EntryBatch) -> None:
        short = [index for index, size in enumerate(batch.sizes) if size < ENTRY_BYTES_MIN]
        if short:
            offset, size = batch.offset(short[0]), batch.sizes[short[0]]
            unsynced = self._may_be_unsynced(offset) and looks_torn(offset, batch.body(short[0]))
            self._note(Damage(self._path, offset, 4 + size, "an entry without a header", unsynced=unsynced))
            batch = batch.select([index for index, size in enumerate(batch.sizes) if size >= ENTRY_BYTES_MIN])
        by_storage: dict[LedgerStorage, tuple[list[bytes], list[bytes]]] = {}
        known = {ledger: self._row(ledger) is not None for ledger in set(batch.ledgers)}
        for index, ledger in enumerate(batch.ledgers):
            if not known[ledger]:
                self._recovery.report.skipped_records += 1
                continue
            body = batch.body(index)
            storage = self._recovery.storage_of(ledger)
            keys, bodies = by_storage.setdefault(storage, ([], []))
            if self._may_be_unsynced(batch.offset(index)) and looks_torn(batch.offset(index), body):
                self._recovery.put(storage, keys, bodies)
                keys, bodies = by_storage[storage] = ([], [])
                if _has_another(storage, ledger, batch.entries[index], body):
                    self._recovery.report.torn_records += 1
                    continue
            keys.append(body[:16])
            bodies.append(body)
        for storage, (keys, bodies) in by_storage.items():
            if keys:
                self._recovery.put(storage, keys, bodies)

    def _may_be_unsynced(self, offset: int) -> bool:
        return self._hole_from is not None and offset >= self._hole_from

    def _lacks_sector(self, record: MarkedRecord) -> bool:
        """Whether a special record, whose lengths have been checked, is perhaps half written."""
        return self._may_be_unsynced(record.offset) and lacks_sector(record.offset, record.body)

    def _row(self, ledger: int) -> LedgerData | None:
        """The ledger's row; behind a damage, which may have taken its key record, one is made."""
        ledgers = self._recovery.storage_of(ledger).ledgers
        row = ledgers.get(ledger)
        if row is None and self._damaged:
            row = LedgerData(fenced=True, master_key=b"", limbo=True)
            ledgers.set(ledger, row)
            self._recovery.report.limbo_ledgers += 1
        return row

    def _special(self, record: MarkedRecord) -> None:
        if record.kind is RecordKind.MASTER_KEY:
            self._master_key(record)
        elif record.kind in (RecordKind.FENCE, RecordKind.EXPLICIT_LAC):
            row = self._row(record.ledger)
            if record.kind is RecordKind.FENCE:
                # Java journals the fence of a ledger without entries with no key. It is kept under a blank
                # one: an acknowledged fence must hold, and a ledger that was deleted is collected again.
                row = LedgerData(fenced=True, master_key=b"") if row is None else replace(row, fenced=True)
                self._recovery.report.fences += 1
            elif row is None:
                self._recovery.report.skipped_records += 1
                return
            else:
                blob = record.body[_BLOB_AT:]
                if self._lacks_sector(record) and _is_behind(blob, row.explicit_lac):
                    self._recovery.report.torn_records += 1
                    return
                row = replace(row, explicit_lac=blob)
            self._recovery.storage_of(record.ledger).ledgers.set(record.ledger, row)

    def _master_key(self, record: MarkedRecord) -> None:
        key = record.body[_BLOB_AT:]
        ledgers = self._recovery.storage_of(record.ledger).ledgers
        row = ledgers.get(record.ledger)
        if self._lacks_sector(record):
            # Cut within the key, nothing behind it was acknowledged: the next client's key will do.
            self._recovery.report.torn_records += 1
            if row is not None:
                return
            key = b""
        if row is None:
            ledgers.set(record.ledger, LedgerData(fenced=False, master_key=key))
        elif is_blank(row.master_key):
            ledgers.set(record.ledger, replace(row, master_key=key))
        elif row.master_key != key and not is_blank(key):
            raise RefusedError(
                f"{self._path}: the master key of ledger {record.ledger} at offset {record.offset} is not the"
                " one in the ledger index; one of the two is from another bookie or damaged"
            )


def _has_another(storage: LedgerStorage, ledger: int, entry: int, body: bytes) -> bool:
    """Whether the entry is there with other bytes; one that cannot be read counts as not there."""
    if entry < 0:
        return False
    try:
        return storage.read(ledger, entry) != body
    except BookieError:
        return False


def _is_behind(blob: bytes, known: bytes | None) -> bool:
    """Whether an explicit LAC is lower than the one that is known."""
    try:
        return known is not None and decode_explicit_lac(blob).lac < decode_explicit_lac(known).lac
    except CorruptionError:
        return True
