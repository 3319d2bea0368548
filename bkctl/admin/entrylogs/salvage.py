"""``entrylog salvage``: the records of a damaged log that prove themselves, copied to a fresh log.

Which records prove themselves, ``salvaged_records`` says. An entry whose record does not is searched for in
all logs of the bookie, those in quarantine among them (``second_copies``), and a whole copy that is found
there goes into the fresh log as well.

An entry that the index names and no record of any log proves is lost: it is listed, and its ledger is put
into limbo. Its row stays, and names a log that is not there, so that a read fails and never is "no such
entry".

The steps: the fresh log's id (``lastId``), its records, map, header and name, all durable and read back; the
rows of the copied records, synced; the ledgers in limbo, synced; the manifest; and only then the source goes
into quarantine, where it stays. Until then every row names a record that is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Set
from dataclasses import dataclass, field
from posixpath import dirname, join

from bkctl.admin.entrylogs.journal_copies import find_journal_copies
from bkctl.admin.entrylogs.log_place import LogPlace
from bkctl.admin.entrylogs.open_ends import OpenEnd
from bkctl.admin.entrylogs.quarantine import Move, note_id, refuse_taken, set_aside
from bkctl.admin.entrylogs.salvaged_records import Counts, SecondCopy, places, read_rows
from bkctl.admin.entrylogs.second_copies import find_second_copies, read_second_copies
from bkctl.admin.index.stopped_index import IndexDatabases, StoppedIndex
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
from bkctl.codec.location import encode_key
from bkctl.codec.losses import Loss, Losses, Range, merged_ranges
from bkctl.codec.quarantine_manifest import QuarantineManifest, manifest_name
from bkctl.directories.exchanged_disks import placed_directories, refuse_exchanged_disks
from bkctl.engine.entrylog.log_allocator import LogIds
from bkctl.engine.entrylog.log_writer import OFFSET_MAX, LogWriter
from bkctl.errors import CorruptionError
from bkctl.reporting import Advance, counted, nobody
from bkctl.scan.checked import CheckedBatch
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.files.loss import LossTracker
from bkctl.scan.proved_ids import EntryIds
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.vfs.base import FileSystem, WritableFileSystem

MADE_BY = "entrylog salvage"
_CAUSE = "damage of an entry log"
_NOT_DECODED = "damage of an entry log, and rows of the index that do not decode"
_KEY_BYTES = 16
_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class LogSalvage:
    """The effect of a salvage; ``target`` is the id of the fresh log, None where nothing is to be copied.

    ``moved`` are the ledgers with a record that is copied, ``second_copies`` the entries whose record is
    damaged, and that stand whole elsewhere. ``unproved`` are those among the losses that may never have been
    here, ``open_ends`` copied records of which nothing proves the length: they may be cut.
    ``journaled`` are the places of lost entries that journals of the bookie still have.
    """

    place: LogPlace
    target: int | None
    counts: Counts
    damage: tuple[Damage, ...]
    losses: Losses
    moved: frozenset[int] = frozenset()
    second_copies: Mapping[EntryIds, SecondCopy] = field(default_factory=dict)
    unproved: frozenset[EntryIds] = frozenset()
    open_ends: tuple[OpenEnd, ...] = ()
    journaled: Mapping[EntryIds, SecondCopy] = field(default_factory=dict)

    @property
    def lost(self) -> str:
        """The number of entries that no record proves, for people."""
        listed = sum(last - first + 1 for loss in self.losses.losses for first, last in loss.entries)
        were_here = listed - len(self.unproved)
        if not self.unproved:
            return counted(were_here, "entry", "entries")
        if not were_here:
            return f"up to {counted(listed, 'entry', 'entries')}"
        return f"{counted(were_here, 'entry', 'entries')} and up to {len(self.unproved)} more"

    def perhaps_never_here(self, ledger: int) -> tuple[Range, ...]:
        """Return the lost entries of a ledger of which nothing proves that they were here."""
        return merged_ranges((ids.entry, ids.entry) for ids in self.unproved if ids.ledger == ledger)

    @property
    def is_needed(self) -> bool:
        """Whether anything is wrong with the log."""
        return bool(self.damage or self.losses.losses or self.second_copies)


def plan_salvage(
    fs: WritableFileSystem,
    place: LogPlace,
    book: DigestBook,
    databases: IndexDatabases,
    advance: Advance = nobody,
) -> LogSalvage:
    """Return what a salvage keeps and what is lost; write nothing. ``advance`` gets bytes that are read.

    Raises RefusedError where it would not be safe, CorruptionError when the index cannot be read,
    StorageError.
    """
    refuse_exchanged_disks(fs, placed_directories([place.space]))
    if not place.in_quarantine:
        _quarantine_move(fs, place)
    tracker = LossTracker(place.log.path)
    index = StoppedIndex(fs, place.space, databases)
    index.refuse_lost_ledgers()
    store, ledgers = index.entries(), index.ledgers()
    try:
        reading = read_rows(place, store, set(known_ledgers(ledgers, lambda _: True)), book)
        reading.learn_digests(fs, place)
        for item in reading.items(fs, place, advance):
            if isinstance(item, CheckedBatch):
                reading.kept(item)
                tracker.entries(item)
            elif isinstance(item, Damage):
                tracker.damaged(item)
        damage = tracker.verdict().damage
        lost = reading.lost(damage)
        missing = {ledger: merged_ranges(ranges) for ledger, ranges in lost.ranges.items()}
        copies = find_second_copies(fs, place, missing, book, reading, advance)
        reading.counts.count_second_copies(copies.values())
        losses = _losses(missing, copies, is_partial=bool(reading.rows.damaged))
        left = {loss.ledger: loss.entries for loss in losses}
        journaled = find_journal_copies(fs, place, left, ledgers, book, advance)
        # Whether the rows can be read is known before anything is written.
        limbo_operations(ledgers, {loss.ledger: LedgerRecords() for loss in losses}, ())
    finally:
        store.close()
        ledgers.close()
    return LogSalvage(
        place,
        _next_id(fs, place) if reading.counts.copied else None,
        reading.counts,
        damage,
        Losses(place.bookie, MADE_BY, losses),
        frozenset(reading.moved.union(ids.ledger for ids in copies)),
        copies,
        frozenset(lost.unproved.difference(copies)),
        (*reading.open_ends, *(copy.open_end for copy in copies.values() if copy.open_end is not None)),
        journaled,
    )


def _losses(
    missing: Mapping[int, tuple[Range, ...]], copies: Container[EntryIds], *, is_partial: bool
) -> tuple[Loss, ...]:
    """Return what is lost of each ledger: entries without a record, of which no other log has a copy.

    ``is_partial`` says that rows of the index do not decode, so that there may be more.
    """
    losses = []
    for ledger in sorted(missing):
        left = merged_ranges(
            (entry, entry)
            for first, last in missing[ledger]
            for entry in range(first, last + 1)
            if EntryIds(ledger, entry) not in copies
        )
        if left:
            losses.append(Loss(ledger, left, is_partial, _NOT_DECODED if is_partial else _CAUSE))
    return tuple(losses)


def salvage_log(
    fs: WritableFileSystem,
    clock: Clock,
    salvage: LogSalvage,
    book: DigestBook,
    databases: IndexDatabases,
    advance: Advance = nobody,
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
    note_id(fs, place, max(place.log.log_id, salvage.target or 0))
    if salvage.target is not None:
        _copy(fs, salvage, salvage.target, book, databases, advance)
        _move_rows(fs, place, salvage.target, databases)
    put_rows(fs, [place.space], {ledger: LedgerRecords() for ledger in lost}, lost, databases)
    reason = f"salvaged: {counted(len(salvage.damage), 'damaged range')}, {salvage.lost} lost"
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


def _next_id(fs: WritableFileSystem, place: LogPlace) -> int:
    ids = LogIds(place.log_dirs, fs)
    ids.open()
    return ids.next()


def _copy(
    fs: WritableFileSystem,
    salvage: LogSalvage,
    target: int,
    book: DigestBook,
    databases: IndexDatabases,
    advance: Advance,
) -> None:
    """Write the fresh log, durably, and read it back."""
    place = salvage.place
    path = join(place.current_dir, log_name(target))
    ledgers = _ledgers(fs, place, databases)
    store = StoppedIndex(fs, place.space, databases).entries()
    written = hashlib.sha256()
    try:
        reading = read_rows(place, store, ledgers, book)
        file = fs.create(path)
        try:
            log = LogWriter(target, file)
            log.write_header()
            for item in reading.items(fs, place, advance):
                if isinstance(item, CheckedBatch):
                    _append(log, reading.kept(item).bodies(), written)
            for kept, copies in read_second_copies(fs, place, salvage.second_copies, book, reading):
                reading.counts.count_second_copies(copies)
                _append(log, kept.bodies(), written)
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


def _append(log: LogWriter, bodies: list[bytes], written: hashlib._Hash) -> None:
    if not bodies:
        return
    sizes = list(map(len, bodies))
    places = log.fitting(sizes, OFFSET_MAX)
    if len(places) <= len(sizes):
        # The records stood in a log that was small enough, or are copies of those that did.
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
            "salvaged log",
            expected=f"{counted(records, 'record')} as written",
            found=counted(count, "record"),
            path=path,
        )


def _move_rows(fs: WritableFileSystem, place: LogPlace, target: int, databases: IndexDatabases) -> None:
    """Let every row that names the source name the copy, durably; records of known ledgers get one."""
    known = _ledgers(fs, place, databases)
    store = StoppedIndex(fs, place.space, databases).entries_to_write(fs)
    try:
        with EntryLogScan(fs, join(place.current_dir, log_name(target))) as scan:
            for batch in scan.batches():
                keys = [encode_key(*ids) for ids in zip(batch.ledgers, batch.entries, strict=True)]
                chosen = [
                    index
                    for index, there in enumerate(places(store, keys))
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
