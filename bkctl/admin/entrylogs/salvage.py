"""``entrylog salvage``: the records of a damaged log that prove themselves, copied to a fresh log.

Of each record it is known how it is proved: by its digest, where the ledger's digest type is known (of the
MAC digest with the password), else only by its place in the chain of sizes and ids; a record of which the
digest says that it is wrong is not copied. Copied is what the index names, and what the index has nowhere; a
record of which the index has a newer place is garbage. So is one of a ledger of which neither the index has
a row, nor the metadata know anything, nor its digest a type: it was deleted, or its id is damaged.

An entry that the index names and no record proves is lost: it is listed, and its ledger is put into limbo.
Its row stays, and names a log that is not there, so that a read fails and never is "no such entry".

The steps: the fresh log's id (``lastId``), its records, map, header and name, all durable and read back; the
rows of the copied records, synced; the ledgers in limbo, synced; the manifest; and only then the source goes
into quarantine, where it stays. Until then every row names a record that is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from posixpath import dirname, join

from bkctl.admin.entrylogs.log_place import LogPlace
from bkctl.admin.entrylogs.quarantine import Move, note_id, refuse_taken, set_aside
from bkctl.admin.entrylogs.rows_of_log import RowsOfLog
from bkctl.admin.index.stopped_index import EntryRows, IndexDatabases, StoppedIndex, refuse_damaged
from bkctl.admin.journals.limbo_rows import known_ledgers, limbo_operations, put_rows
from bkctl.admin.journals.skipped_records import LedgerRecords
from bkctl.admin.repairs.repair_journal import (
    begin_repair,
    changes_file,
    makes_directory,
    moves_file,
)
from bkctl.clock import Clock
from bkctl.codec.entry import EntryBatch
from bkctl.codec.entrylog import log_name
from bkctl.codec.last_id import LAST_ID_NAME
from bkctl.codec.location import Location, decode_value, encode_key
from bkctl.codec.losses import Loss, Losses, Range, merged_ranges
from bkctl.codec.quarantine_manifest import QuarantineManifest, manifest_name
from bkctl.engine.entrylog.log_allocator import LogIds
from bkctl.engine.entrylog.log_writer import OFFSET_MAX, LogWriter
from bkctl.errors import CorruptionError, RefusedError
from bkctl.scan.checked import CheckedBatch, CheckedItem, checked
from bkctl.scan.damage import Damage, MissingEntries, Tail
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.files.entrylogs import survey_logs
from bkctl.scan.files.loss import LossTracker
from bkctl.scan.proof import Evidence
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.vfs.base import FileSystem, WritableFileSystem

MADE_BY = "entrylog salvage"
_CAUSE = "damage of an entry log"
_NOT_DECODED = "damage of an entry log, and rows of the index that do not decode"
_KEY_BYTES = 16
_SIZE_BYTES = 4
#: A damaged range is asked entry by entry only so far; what has a row is known from the rows.
_ASKED_MAX = 100_000


@dataclass(slots=True)
class Counts:
    """The records of a log: copied ``by_digest`` and ``by_structure``; left out are the others.

    ``superseded`` have a newer place, ``unknown`` are of ledgers that nobody knows. Of the copied ones
    ``unnamed`` had no row: they get one where their ledger is known.
    """

    by_digest: int = 0
    by_structure: int = 0
    superseded: int = 0
    unnamed: int = 0
    unknown: int = 0

    @property
    def copied(self) -> int:
        """All that are copied."""
        return self.by_digest + self.by_structure


@dataclass(frozen=True, slots=True)
class LogSalvage:
    """The effect of a salvage; ``target`` is the id of the fresh log, None where nothing is to be copied.

    ``lost`` is the number of entries that the index names and no record proves, ``moved`` are the ledgers
    with a record that is copied.
    """

    place: LogPlace
    target: int | None
    counts: Counts
    damage: tuple[Damage, ...]
    lost: int
    losses: Losses
    moved: frozenset[int] = frozenset()

    @property
    def is_needed(self) -> bool:
        """Whether anything is wrong with the log."""
        return bool(self.damage or self.losses.losses)


@dataclass(slots=True)
class _Reading:
    """One pass over the source, with what it is judged by."""

    rows: RowsOfLog
    locations: EntryRows
    ledgers: Set[int]
    book: DigestBook
    counts: Counts = field(default_factory=Counts)
    moved: set[int] = field(default_factory=set)


def plan_salvage(
    fs: WritableFileSystem, place: LogPlace, book: DigestBook, databases: IndexDatabases
) -> LogSalvage:
    """Return what a salvage keeps and what is lost; nothing is written.

    Raises RefusedError where it would not be safe, CorruptionError when the index cannot be read,
    StorageError.
    """
    if not place.in_quarantine:
        _quarantine_move(fs, place)
    survey_logs(fs, [place.log], book)
    tracker = LossTracker(place.log.path)
    index = StoppedIndex(fs, place.space, databases)
    store, ledgers = index.entries(), index.ledgers()
    try:
        reading = _read(place, store, set(known_ledgers(ledgers, lambda _: True)), book)
        for item in _items(fs, place, reading):
            if isinstance(item, CheckedBatch):
                _kept(item, reading)
                tracker.entries(item)
            elif isinstance(item, Damage):
                tracker.damaged(item)
        verdict = tracker.verdict()
        lost, ranges = _lost(reading, verdict.damage)
        # Whether the rows can be read is known before anything is written.
        limbo_operations(ledgers, {ledger: LedgerRecords() for ledger in ranges}, ())
    finally:
        store.close()
        ledgers.close()
    cause = _NOT_DECODED if reading.rows.damaged else _CAUSE
    losses = tuple(
        Loss(ledger, merged_ranges(ranges[ledger]), bool(reading.rows.damaged), cause)
        for ledger in sorted(ranges)
    )
    target = _next_id(fs, place) if reading.counts.copied else None
    return LogSalvage(
        place,
        target,
        reading.counts,
        verdict.damage,
        lost,
        Losses(place.bookie, MADE_BY, losses),
        frozenset(reading.moved),
    )


def salvage_log(
    fs: WritableFileSystem, clock: Clock, salvage: LogSalvage, book: DigestBook, databases: IndexDatabases
) -> None:
    """Do what was planned, in directories that a ``DirectoryLock`` holds.

    Raises CorruptionError when what is read or written is not what was planned, StorageError;
    ``settle_unfinished`` takes back what was reached.
    """
    place = salvage.place
    move = _kept_aside(place) if place.in_quarantine else _quarantine_move(fs, place)
    index = StoppedIndex(fs, place.space, databases)
    lost = [loss.ledger for loss in salvage.losses.losses]
    last_id = join(place.current_dir, LAST_ID_NAME)
    fresh = [] if salvage.target is None else [join(place.current_dir, log_name(salvage.target))]
    repair = begin_repair(
        fs,
        clock,
        place.every_dir,
        MADE_BY,
        f"log {place.log.log_id:x}" + (f" to {salvage.target:x}" if fresh else ""),
        [
            changes_file(last_id),
            *map(changes_file, fresh),
            *index.entry_changes(salvage.moved, also=lost),
            makes_directory(place.quarantine_dir),
            changes_file(move.manifest),
            *([] if place.in_quarantine else [moves_file(move.source, move.target)]),
        ],
    )
    note_id(fs, last_id, max(place.log.log_id, salvage.target or 0))
    if salvage.target is not None:
        _copy(fs, salvage, salvage.target, book, databases)
        _move_rows(fs, place, salvage.target, databases)
    put_rows(fs, [place.space], {ledger: LedgerRecords() for ledger in lost}, lost, databases)
    reason = f"salvaged: {len(salvage.damage)} damaged ranges, {salvage.lost} entries lost"
    set_aside(
        fs,
        move,
        QuarantineManifest(
            place.log.log_id,
            place.log.size_bytes,
            reason,
            clock.time_ms(),
            salvaged=True,
            salvaged_to=_salvaged_to(fs, salvage),
        ),
    )
    repair.finish()


def _salvaged_to(fs: FileSystem, salvage: LogSalvage) -> int | None:
    """Return where the log's records are: those of an earlier salvage, too, that left this one nothing."""
    if salvage.target is not None:
        return salvage.target
    for each in quarantined_logs(fs, salvage.place.current_dir):
        if each.log.log_id == salvage.place.log.log_id and each.manifest is not None:
            return each.manifest.salvaged_to
    return None


def target_path(salvage: LogSalvage) -> str:
    """Return the path of the fresh log."""
    assert salvage.target is not None, "something is copied"
    return join(salvage.place.current_dir, log_name(salvage.target))


def kept_path(salvage: LogSalvage) -> str:
    """Return the path at which the source is kept."""
    return join(salvage.place.quarantine_dir, log_name(salvage.place.log.log_id))


def _quarantine_move(fs: FileSystem, place: LogPlace) -> Move:
    move = Move(
        place,
        place.log.path,
        join(place.quarantine_dir, log_name(place.log.log_id)),
        join(place.quarantine_dir, manifest_name(place.log.log_id)),
    )
    refuse_taken(fs, move.target, move.manifest)
    return move


def _kept_aside(place: LogPlace) -> Move:
    manifest = join(place.quarantine_dir, manifest_name(place.log.log_id))
    return Move(place, place.log.path, place.log.path, manifest)


def _read(place: LogPlace, store: EntryRows, ledgers: Set[int], book: DigestBook) -> _Reading:
    """Read the rows that the index has of a log.

    Raises CorruptionError where rows may be missing, RefusedError for an index that is lost.
    """
    refuse_damaged(store)
    rows = RowsOfLog(store, place.log.log_id)
    if rows.is_empty_index:
        raise RefusedError(f"{store.path}: has no row; rebuild the index first: bkctl index rebuild")
    return _Reading(rows, store, ledgers, book)


def _places(store: EntryRows, keys: list[bytes]) -> list[Location | None]:
    """Return where the index has entries; a row that does not decode says nothing."""
    return [None if value is None else _place(value) for value in store.get_many(keys)]


def _place(value: bytes) -> Location | None:
    try:
        return decode_value(value)
    except CorruptionError:
        return None


def _items(fs: FileSystem, place: LogPlace, reading: _Reading) -> Iterator[CheckedItem]:
    evidence = Evidence(digesters=reading.book.digesters, located=reading.rows.located)
    with EntryLogScan(fs, place.log.path, evidence) as scan:
        yield from scan.head.damage
        for item in checked(scan, scan.records, reading.book):
            if isinstance(item, Tail) and item.kind == "torn" and scan.head.header.has_map:
                size_bytes = scan.file.size_bytes - item.offset
                yield Damage(
                    place.log.path, item.offset, size_bytes, "rolled log is cut", "whole records", item.found
                )
            yield item


def _kept(item: CheckedBatch, reading: _Reading) -> list[int]:
    """Return which records of a batch are copied, and count them."""
    batch, check, counts = item.batch, item.check, reading.counts
    sound = [
        index for index in range(len(batch)) if index not in check.failing and index not in check.strangers
    ]
    named = {
        index
        for index in sound
        if reading.rows.take(batch.offset(index), batch.ledgers[index], batch.entries[index])
    }
    others = [index for index in sound if index not in named]
    found = _places(reading.locations, [_key(batch, index) for index in others])
    nowhere = {index for index, place in zip(others, found, strict=True) if place is None}
    unnamed = {index for index in nowhere if not _is_of_nobody(reading, batch.ledgers[index])}
    kept = [index for index in sound if index in named or index in unnamed]
    by_digest = sum(check.ok(index, batch.ledgers[index]) is True for index in kept)
    reading.moved.update(batch.ledgers[index] for index in kept)
    counts.by_digest += by_digest
    counts.by_structure += len(kept) - by_digest
    counts.unnamed += len(unnamed)
    counts.unknown += len(nowhere) - len(unnamed)
    counts.superseded += len(others) - len(nowhere)
    return kept


def _is_of_nobody(reading: _Reading, ledger: int) -> bool:
    """Return whether nothing speaks for a ledger, though the metadata were asked."""
    is_asked = reading.book.enabled and reading.book.has_metadata
    return is_asked and ledger not in reading.ledgers and reading.book.digester(ledger) is None


def _key(batch: EntryBatch, index: int) -> bytes:
    start = batch.starts[index] + _SIZE_BYTES
    return bytes(batch.buffer[start : start + _KEY_BYTES])


def _lost(reading: _Reading, damage: Iterable[Damage]) -> tuple[int, dict[int, list[Range]]]:
    """Return the entries that are lost: rows without a record, and what damage names and no row has."""
    count, ranges = 0, dict[int, list[Range]]()
    for ledger, entry in reading.rows.left():
        ranges.setdefault(ledger, []).append((entry, entry))
        count += 1
    for missing in _named_by(reading, damage):
        first, last = missing.first_entry, missing.last_entry
        if (
            missing.ledger not in reading.ledgers
            or first is None
            or last is None
            or last - first >= _ASKED_MAX
        ):
            continue
        entries = list(range(first, last + 1))
        found = _places(reading.locations, [encode_key(missing.ledger, entry) for entry in entries])
        nowhere = [(entry, entry) for entry, there in zip(entries, found, strict=True) if there is None]
        if nowhere:
            ranges.setdefault(missing.ledger, []).extend(nowhere)
            count += len(nowhere)
    return count, ranges


def _named_by(reading: _Reading, damage: Iterable[Damage]) -> Iterator[MissingEntries]:
    """Yield what damage names, without the ids in headers of places where the index says whose they are."""
    for one in damage:
        if not one.readable:
            is_known = reading.rows.is_named(one.offset)
            yield from (missing for missing in one.missing if not (is_known and missing.evidence == "header"))


def _next_id(fs: WritableFileSystem, place: LogPlace) -> int:
    ids = LogIds(place.log_dirs, fs)
    ids.open()
    return ids.next()


def _copy(
    fs: WritableFileSystem, salvage: LogSalvage, target: int, book: DigestBook, databases: IndexDatabases
) -> None:
    """Write the fresh log, durably, and read it back."""
    place = salvage.place
    path = join(place.current_dir, log_name(target))
    ledgers = _ledgers(fs, place, databases)
    store = StoppedIndex(fs, place.space, databases).entries()
    written = hashlib.sha256()
    try:
        reading = _read(place, store, ledgers, book)
        file = fs.create(path)
        try:
            log = LogWriter(target, file)
            log.write_header()
            for item in _items(fs, place, reading):
                if isinstance(item, CheckedBatch):
                    _append(log, item.batch, _kept(item, reading), written)
            log.finish()
            log.sync()
        finally:
            file.close()
    finally:
        store.close()
    fs.sync_directory(dirname(path))
    if reading.counts != salvage.counts:
        raise CorruptionError(
            "entry log", expected=f"{salvage.counts}", found=f"{reading.counts}", path=place.log.path
        )
    _read_back(fs, path, salvage.counts.copied, written.digest())


def _append(log: LogWriter, batch: EntryBatch, kept: list[int], written: hashlib._Hash) -> None:
    bodies = [bytes(batch.body(index)) for index in kept]
    if not bodies:
        return
    sizes = list(map(len, bodies))
    places = log.fitting(sizes, OFFSET_MAX)
    if len(places) <= len(sizes):
        # The kept records are a part of a log that was small enough.
        raise CorruptionError("salvaged log", expected="less than 2 GiB", found=f"{sum(sizes)} bytes more")
    log.write([body[:_KEY_BYTES] for body in bodies], bodies, sizes, places)
    for body in bodies:
        written.update(body)


def _read_back(fs: FileSystem, path: str, records: int, digest: bytes) -> None:
    found, count = hashlib.sha256(), 0
    with EntryLogScan(fs, path) as scan:
        for item in (*scan.head.damage, *scan):
            if isinstance(item, Damage):
                raise CorruptionError(
                    "salvaged log", offset=item.offset, expected="no damage", found=item.reason, path=path
                )
            if isinstance(item, EntryBatch):
                count += len(item)
                for index in range(len(item)):
                    found.update(item.body(index))
    if count != records or found.digest() != digest:
        raise CorruptionError(
            "salvaged log", expected=f"{records} records as written", found=f"{count} records", path=path
        )


def _move_rows(fs: WritableFileSystem, place: LogPlace, target: int, databases: IndexDatabases) -> None:
    """Let every row that names the source name the copy, durably; records of known ledgers get one."""
    known = _ledgers(fs, place, databases)
    store = StoppedIndex(fs, place.space, databases).entries_to_write(fs)
    try:
        with EntryLogScan(fs, join(place.current_dir, log_name(target))) as scan:
            for batch in scan.batches():
                keys = [_key(batch, index) for index in range(len(batch))]
                chosen = [
                    index
                    for index, there in enumerate(_places(store, keys))
                    if (batch.ledgers[index] in known if there is None else there.log_id == place.log.log_id)
                ]
                if chosen:
                    fresh = [(target << 32) + batch.offset(index) + _SIZE_BYTES for index in chosen]
                    store.put_many([keys[index] for index in chosen], fresh)
        store.sync()
    finally:
        store.close()


def _ledgers(fs: FileSystem, place: LogPlace, databases: IndexDatabases) -> Set[int]:
    """Return the ledgers that have a row."""
    store = StoppedIndex(fs, place.space, databases).ledgers()
    try:
        return set(known_ledgers(store, lambda _: True))
    finally:
        store.close()
