"""``journal salvage``: a damaged journal directory copied into a fresh one that a start replays.

A start of Java's ends a journal at the first record that it cannot follow, without a word, and ours is
refused there. The copy has every record that the scan finds, also those behind the damage, each at the very
offset where it stood: what lies between becomes padding, which every bookie steps over. So the last marks
stay right, and the copy can take the place of the old directory as it is.

What the damage took behind the last mark is listed, and its ledgers are put into limbo before there is a
copy: once the journal is whole nobody else would know of the loss. Where it is not certain what stood there,
these are all ledgers of the journal. The source is only read.

The cookie is written last of all: a bookie does not start on a directory without it, which a run that was
killed leaves.

In place, each damaged journal is replaced by its copy, in one step, when that is durable and was read back;
the damaged file is kept with the record of the repair. Other journals stay as they are.

A master key of which some bytes were changed, which nothing in a journal proves, refuses a start, or becomes
its ledger's. Where the password in the metadata proves the right one the copy has that.

A journal that is gone between others would refuse every start. An empty one takes its place, once all ledgers
of the journal are in limbo. A last mark that names a journal that is gone, or an offset behind the end of its
journal, says nothing of what is in the logs. So the copy is then replayed from its beginning: in place the
mark is set back to it, last of all. Where no journal is left, the mark then names none, and the bookie starts
with a new journal.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from posixpath import dirname, join, normpath

from bkctl.admin.index.check.journaled_keys import WrongKey, journaled_keys, wrong_keys
from bkctl.admin.index.check.master_keys import MetadataOf
from bkctl.admin.index.stopped_index import IndexDatabases, StoppedIndex
from bkctl.admin.journals.limbo_rows import known_ledgers, limbo_operations, put_rows, row_changes
from bkctl.admin.journals.mark_fit import misfit
from bkctl.admin.journals.skipped_records import (
    END,
    JournalRecords,
    LedgerRecords,
    missing_between,
    note_item,
)
from bkctl.admin.journals.stopped_bookie import JournalPlace, StoppedBookie
from bkctl.admin.repairs.repair_journal import (
    begin_repair,
    changes_file,
    makes_directory,
)
from bkctl.clock import Clock
from bkctl.codec.entry import EntryBatch, frame
from bkctl.codec.journal import (
    PADDED_FROM,
    PADDING_MARK,
    JournalHeader,
    RecordKind,
    encode_header,
    journal_name,
)
from bkctl.codec.last_mark import ZERO_MARK, LastMark, encode_last_mark
from bkctl.codec.losses import Loss, Losses, Range, merged_ranges
from bkctl.engine.second_keys import BLOB_AT
from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import COOKIE_NAME, JournalFile, current, read_small
from bkctl.scan.files.journals import verify_journals
from bkctl.scan.journal import JournalScan
from bkctl.scan.records import Item
from bkctl.vfs.base import FileSystem, WritableFile, WritableFileSystem
from bkctl.vfs.replacing import TEMPORARY_SUFFIX

MADE_BY = "journal salvage"
_CAUSE = "damage of a journal behind the last mark"
_PADDING = struct.Struct(">ii")
#: Java takes memory for all of a padding record at once.
_PADDING_BYTES_MAX = 1 << 20
_WRITE_BYTES = 1 << 20
#: More journals in a row do not get lost between others: an id is wrong, or files of two bookies are mixed.
_EMPTY_JOURNALS_MAX = 100
_COPY_SUFFIX = f".salvage{TEMPORARY_SUFFIX}"


@dataclass(frozen=True, slots=True)
class SalvagedJournal:
    """One journal: its records, and the ranges of which nothing could be kept.

    ``useless`` are the offsets of records whose digests fail: no reader takes them, and their ids may be any,
    so that they become padding as well. ``keys`` are master keys of which some bytes were changed: the copy
    has the right ones.
    """

    journal: JournalFile
    records: int
    damage: tuple[Damage, ...]
    useless: frozenset[int] = frozenset()
    keys: tuple[WrongKey, ...] = ()

    @property
    def is_damaged(self) -> bool:
        """Whether its copy differs from it: some bytes are not what a power cut leaves, and no record."""
        broken = any(not damage.readable and not damage.unsynced for damage in self.damage)
        return broken or bool(self.keys)

    @property
    def right_keys(self) -> dict[int, bytes]:
        """The master keys to be written, by the offsets of their records."""
        return {each.found.offset: each.right for each in self.keys if each.right is not None}


@dataclass(frozen=True, slots=True)
class Salvage:
    """The effect of a salvage; ``rows`` is what the journals say of the ledgers that are put into limbo.

    ``mark`` is where the copy is replayed from. ``wrong_marks`` are the files that say otherwise, which a
    salvage in place changes. ``empty`` are the ids of journals that are gone between others.
    """

    place: JournalPlace
    mark: LastMark
    wrong_marks: tuple[str, ...]
    empty: tuple[int, ...]
    journals: tuple[SalvagedJournal, ...]
    missing: tuple[str, ...]
    rows: dict[int, LedgerRecords]
    losses: Losses


def plan_salvage(
    fs: FileSystem,
    bookie: StoppedBookie,
    place: JournalPlace,
    book: DigestBook,
    databases: IndexDatabases,
    metadata_of: MetadataOf | None = None,
) -> Salvage:
    """Return what a salvage keeps and what is lost; nothing is written.

    ``metadata_of`` tells the metadata of ledgers, whose passwords prove their master keys.
    Raises RefusedError where a copy at the same offsets is not possible, or where ledgers that lost something
    cannot be put into limbo; StorageError.
    """
    mark, wrong_marks = bookie.mark(fs, place), list[str]()
    missing = missing_between(place, mark, END)
    unfit = misfit(fs, place.directory.journals, mark)
    if unfit is not None:
        wrong_marks = [join(directory, place.mark_name) for directory in bookie.mark_dirs]
        missing = [*missing, unfit]
        mark = LastMark(place.directory.journals[0].journal_id, 0) if place.directory.journals else ZERO_MARK
    journals, ranges, is_certain = [], dict[int, list[Range]](), True
    behind = JournalRecords(missing=missing)
    keys = _wrong_keys(fs, place, mark, metadata_of)
    for verdict, journal in zip(
        verify_journals(fs, list(place.directory.journals), book), place.directory.journals, strict=True
    ):
        useless = frozenset(
            damage.offset for damage in verdict.damage if damage.reason == "digest" and not damage.unsynced
        )
        salvaged = SalvagedJournal(journal, 0, verdict.damage, useless, keys.get(journal.path, ()))
        records = sum(1 for _, data in _pieces(fs, salvaged, mark, behind) if data)
        journals.append(replace(salvaged, records=records))
        if verdict.damages > len(verdict.damage):
            is_certain = False
        for damage in verdict.damage:
            if not _is_behind(mark, journal, damage) or damage.readable:
                continue
            # Bytes of a tail that a power cut explains may have been damaged all the same, without a trace.
            is_certain = is_certain and damage.reason == "digest"
            for gap in damage.missing:
                if gap.first_entry is not None and gap.last_entry is not None:
                    ranges.setdefault(gap.ledger, []).append((gap.first_entry, gap.last_entry))
    is_certain = is_certain and not behind.missing
    rows = {ledger: LedgerRecords() for ledger in ranges}
    if not is_certain:
        rows |= behind.ledgers
    if rows or not is_certain:
        _add_known(fs, bookie, place, rows, databases, is_certain=is_certain)
    losses = tuple(
        Loss(ledger, merged_ranges(ranges.get(ledger, ())), not is_certain, _CAUSE) for ledger in sorted(rows)
    )
    return Salvage(
        place,
        mark,
        tuple(wrong_marks),
        tuple(_gone_between(place, mark)),
        tuple(journals),
        tuple(behind.missing),
        rows,
        Losses(bookie.bookie, MADE_BY, losses),
    )


def _wrong_keys(
    fs: FileSystem, place: JournalPlace, mark: LastMark, metadata_of: MetadataOf | None
) -> dict[str, tuple[WrongKey, ...]]:
    """Return the damaged master keys behind the mark whose right ones are proved, by journal."""
    found: dict[str, tuple[WrongKey, ...]] = {}
    if metadata_of is not None:
        for each in wrong_keys(journaled_keys(fs, place.directory, mark), {}, metadata_of):
            if each.right is not None:
                found[each.found.path] = (*found.get(each.found.path, ()), each)
    return found


def _gone_between(place: JournalPlace, mark: LastMark) -> list[int]:
    """Return the ids of the journals that are gone between others, from a mark on. Raises RefusedError."""
    ids = [each.journal_id for each in place.directory.journals if each.journal_id >= mark.journal_id]
    gone: list[int] = []
    for before, behind in pairwise(ids):
        if behind - before > _EMPTY_JOURNALS_MAX:
            raise RefusedError(
                f"{place.directory.path}: {behind - before - 1} journals between {journal_name(before)} and "
                f"{journal_name(behind)} are gone; that many are not made again: is one of the two another "
                "bookie's?"
            )
        gone += range(before + 1, behind)
    return gone


def refuse_home(fs: FileSystem, home: str) -> None:
    """Raise RefusedError for a directory that is there already, NotFoundError without the one it lies in."""
    if fs.status(home) is not None:
        raise RefusedError(f"{home}: is there already; name a new directory")
    parent = dirname(normpath(home)) or "."
    status = fs.status(parent)
    if status is None or not status.is_dir:
        raise NotFoundError(f"{parent}: no such directory; the copy is made in one that is there")


def salvage_journals(
    fs: WritableFileSystem,
    bookie: StoppedBookie,
    salvage: Salvage,
    databases: IndexDatabases,
    home: str,
    clock: Clock,
) -> str:
    """Do what was planned, in directories that a ``DirectoryLock`` holds; ``current`` of the copy.

    Raises as :func:`refuse_home`, CorruptionError when what was written is not what was meant, StorageError;
    ``settle_unfinished`` takes back what was reached.
    """
    refuse_home(fs, home)
    directory = current(home)
    names = [journal_name(each.journal.journal_id) for each in salvage.journals]
    repair = begin_repair(
        fs,
        clock,
        (*bookie.mark_dirs, *bookie.every_dir),
        MADE_BY,
        f"{salvage.place.directory.path} to {home}",
        [
            *row_changes(fs, bookie.spaces, salvage.rows, databases),
            makes_directory(home),
            makes_directory(directory),
            *(changes_file(join(directory, name)) for name in (*names, COOKIE_NAME)),
            *(changes_file(path) for path in _empty_paths(salvage, directory)),
        ],
    )
    put_rows(fs, bookie.spaces, salvage.rows, salvage.rows, databases)
    copy_journals(fs, salvage, home)
    repair.finish()
    return directory


def salvage_in_place(
    fs: WritableFileSystem, bookie: StoppedBookie, salvage: Salvage, databases: IndexDatabases, clock: Clock
) -> list[str]:
    """Replace every damaged journal by its copy; the paths of the damaged files, which are kept.

    As :func:`salvage_journals`, and like it nothing is changed when no journal is damaged.
    """
    paths = [each.journal.path for each in salvage.journals if each.is_damaged]
    empty = _empty_paths(salvage, salvage.place.directory.path)
    if not paths and not salvage.rows and not empty and not salvage.wrong_marks:
        return []
    repair = begin_repair(
        fs,
        clock,
        (*bookie.mark_dirs, *bookie.every_dir),
        MADE_BY,
        f"{salvage.place.directory.path}, in place",
        [
            *row_changes(fs, bookie.spaces, salvage.rows, databases),
            *(changes_file(path) for path in (*paths, *empty, *salvage.wrong_marks)),
        ],
    )
    put_rows(fs, bookie.spaces, salvage.rows, salvage.rows, databases)
    for salvaged in salvage.journals:
        if salvaged.is_damaged:
            path = salvaged.journal.path
            copy = path + _COPY_SUFFIX
            _copy(fs, salvaged, salvage.mark, copy)
            fs.rename(copy, path)
            fs.sync_directory(dirname(path))
    for path in empty:
        _make_empty(fs, salvage, path)
    for path in salvage.wrong_marks:
        fs.replace(path, encode_last_mark(salvage.mark))
    repair.finish()
    return [kept for kept in map(repair.kept, (*paths, *salvage.wrong_marks)) if kept is not None]


def _empty_paths(salvage: Salvage, directory: str) -> list[str]:
    return [join(directory, journal_name(journal_id)) for journal_id in salvage.empty]


def _make_empty(fs: WritableFileSystem, salvage: Salvage, path: str) -> None:
    """Write a journal without records, durably, in the version of those around it."""
    with JournalScan(fs, salvage.place.directory.journals[-1].path) as scan:
        version = scan.head.version
    fs.replace(path, encode_header(version))


def copy_journals(fs: WritableFileSystem, salvage: Salvage, home: str) -> str:
    """Write the fresh directory below ``home``, which must not be there; its ``current``.

    Each file is read back. Raises RefusedError, CorruptionError when what was written is not what was meant,
    StorageError.
    """
    directory = current(home)
    if fs.status(home) is not None:
        raise RefusedError(f"{home}: is there already; name a new directory")
    fs.make_directories(directory)
    for salvaged in salvage.journals:
        _copy(fs, salvaged, salvage.mark, join(directory, journal_name(salvaged.journal.journal_id)))
    for path in _empty_paths(salvage, directory):
        _make_empty(fs, salvage, path)
    fs.sync_directory(directory)
    cookie = join(salvage.place.directory.path, COOKIE_NAME)
    if fs.status(cookie) is not None:
        fs.replace(join(directory, COOKIE_NAME), read_small(fs, cookie))
    return directory


def _is_behind(mark: LastMark, journal: JournalFile, damage: Damage) -> bool:
    return LastMark(journal.journal_id, damage.end) > mark


def _add_known(
    fs: FileSystem,
    bookie: StoppedBookie,
    place: JournalPlace,
    rows: dict[int, LedgerRecords],
    databases: IndexDatabases,
    *,
    is_certain: bool,
) -> None:
    for space in bookie.spaces:
        store = StoppedIndex(fs, space, databases).ledgers()
        try:
            for ledger in () if is_certain else known_ledgers(store, place.has):
                rows.setdefault(ledger, LedgerRecords())
            # Whether the rows can be read is known before anything is written.
            limbo_operations(store, rows, ())
        finally:
            store.close()


def _pieces(
    fs: FileSystem, salvaged: SalvagedJournal, mark: LastMark, behind: JournalRecords | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the framed records with their offsets, and where padding ends, with nothing.

    ``behind`` is given what stands behind the mark. No padding goes across the mark: a replay that begins
    within it would take it for the end of the file. Raises RefusedError where padding has no room.
    """
    journal, useless, keys = salvaged.journal, salvaged.useless, salvaged.right_keys
    marked = mark.offset if mark.journal_id == journal.journal_id else 0
    with JournalScan(fs, journal.path) as scan:
        version = scan.head.version
        position = JournalHeader(version).first_record
        for found_item in without_cut_keys(scan):
            item = _with_right_key(found_item, keys)
            if behind is not None and journal.journal_id >= mark.journal_id:
                note_item(_without(item, useless), marked, END.offset, behind)
            if isinstance(item, EntryBatch):
                found = [(item.offset(index), frame(item.body(index))) for index in range(len(item))]
            elif isinstance(item, MarkedRecord) and item.kind is RecordKind.PADDING:
                found = [(item.end, b"")]
            elif isinstance(item, MarkedRecord):
                found = [(item.offset, frame(item.body))]
            else:
                continue
            for offset, data in found:
                if offset in useless:
                    continue
                if position < marked < offset:
                    _check_gap(journal, version, position, marked)
                    yield marked, b""
                    position = marked
                _check_gap(journal, version, position, offset)
                yield offset, data
                position = offset + len(data)


def _with_right_key(item: Item, keys: Mapping[int, bytes]) -> Item:
    if keys and isinstance(item, MarkedRecord) and item.offset in keys:
        return replace(item, body=item.body[:BLOB_AT] + keys[item.offset])
    return item


def _without(item: Item, useless: Collection[int]) -> Item:
    if not useless or not isinstance(item, EntryBatch):
        return item
    return item.select([index for index in range(len(item)) if item.offset(index) not in useless])


def _check_gap(journal: JournalFile, version: int, position: int, offset: int) -> None:
    gap = offset - position
    if gap == 0:
        return
    if gap < _PADDING.size:
        raise RefusedError(
            f"{journal.path}: {gap} bytes between records at offset {position}: no padding fits, so that the "
            "records behind cannot keep their place"
        )
    if version < PADDED_FROM:
        raise RefusedError(f"{journal.path}: damage in a journal of version {version}, which has no padding")


def _copy(fs: WritableFileSystem, salvaged: SalvagedJournal, mark: LastMark, path: str) -> None:
    """Write the copy of a journal, durably, and read it back; its name is not durable yet."""
    file = fs.create(path)
    try:
        _write(fs, salvaged, mark, file)
        file.sync()
    finally:
        file.close()
    _read_back(fs, path, salvaged)


def _write(fs: FileSystem, salvaged: SalvagedJournal, mark: LastMark, file: WritableFile) -> None:
    with JournalScan(fs, salvaged.journal.path) as scan:
        head = scan.head
        if head.short:
            file.write_at(0, scan.file.read_at(0, scan.file.size_bytes))
            return
        size_bytes = scan.file.size_bytes
    buffer, base = bytearray(encode_header(head.version)), 0
    for offset, data in _pieces(fs, salvaged, mark):
        for piece in (*_padding(base + len(buffer), offset), data):
            buffer += piece
            if len(buffer) >= _WRITE_BYTES:
                file.write_at(base, buffer)
                base, buffer = base + len(buffer), bytearray()
    file.write_at(base, buffer)
    if base + len(buffer) < size_bytes:
        # Preallocated zeros: a last mark may stand at the end of the file.
        file.write_at(size_bytes - 1, b"\0")


def _padding(start: int, stop: int) -> Iterator[bytes]:
    """Yield padding records from one offset up to another, which is 0 or at least 8 bytes behind it."""
    while start < stop:
        size = min(stop - start, _PADDING_BYTES_MAX)
        if 0 < stop - start - size < _PADDING.size:
            size -= _PADDING.size
        yield _PADDING.pack(PADDING_MARK, size - _PADDING.size) + bytes(size - _PADDING.size)
        start += size


def _read_back(fs: FileSystem, path: str, salvaged: SalvagedJournal) -> None:
    """Raise CorruptionError unless the copy holds every record and no damage."""
    records = 0
    with JournalScan(fs, path) as scan:
        for item in (*scan.head.damage, *scan):
            if isinstance(item, Damage):
                raise CorruptionError(
                    "copy of a journal",
                    offset=item.offset,
                    expected="no damage",
                    found=item.reason,
                    path=path,
                )
            if isinstance(item, EntryBatch):
                records += len(item)
            elif isinstance(item, MarkedRecord) and item.kind is not RecordKind.PADDING:
                records += 1
    if records != salvaged.records:
        raise CorruptionError(
            "copy of a journal", expected=f"{salvaged.records} records", found=f"{records}", path=path
        )
