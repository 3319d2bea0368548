"""``journal salvage``: a damaged journal directory copied into a fresh one that a start replays.

A start of Java's ends a journal at the first record that it cannot follow, without a word, and ours is
refused there. The copy has every record that the scan finds, also those behind the damage, each at the
offset where it stood, where that can be: what lies between becomes padding, which every bookie steps over. So
the last marks stay right, and the copy can take the place of the old directory as it is. Where padding has no
room, and in formats without padding, records move; a mark that is then within a record or padding, as one
that was so before, goes back to the beginning of its journal.

Entries that the damage took behind the last mark are listed, and their ledgers are put into limbo before
there is a copy: once the journal is whole nobody else would know of the loss. Where it is not certain what
stood there, these are all ledgers of the journal. The source is only read.

The cookie is written last of all: a bookie does not start on a directory without it, which a run that was
killed leaves.

A journal that was cut gets padding up to where its records ended, or it would go on refusing every start.

In place, each damaged journal is replaced by its copy, in one step, when that is durable and was read back;
the damaged file is kept with the record of the repair. Other journals stay as they are.

A record with the ledger id of another ledger, whose own one its digest proves, has the right id in the copy.

A master key of which some bytes were changed, which nothing in a journal proves, refuses a start, or becomes
its ledger's. Where the password in the metadata proves the right one the copy has that.

A journal that is gone between others would refuse every start. An empty one takes its place, once all ledgers
of the journal are in limbo. A last mark that names a journal that is gone, or an offset behind the end of its
journal, says nothing of what is in the logs. So the mark is set back, and all is replayed from the oldest
journal on. Where no journal is left, the mark then names none, and the bookie starts with a new journal. The
same holds where the marks are lost as well.
Marks change before journals do: a start that replays too much loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from posixpath import dirname, join, normpath
from typing import NamedTuple

from bkctl.admin.index.check.journaled_keys import WrongKey, journaled_keys, wrong_keys
from bkctl.admin.index.check.master_keys import MetadataOf
from bkctl.admin.index.stopped_index import IndexDatabases, StoppedIndex
from bkctl.admin.journals.closing_padding import write_padding
from bkctl.admin.journals.examined_journals import examined
from bkctl.admin.journals.journal_copy import SalvagedJournal, copy_journal
from bkctl.admin.journals.journal_losses import JournalLosses
from bkctl.admin.journals.limbo_rows import known_ledgers, limbo_operations, put_rows, row_changes
from bkctl.admin.journals.lost_rows import refuse_lost_rows
from bkctl.admin.journals.mark_fit import misfit
from bkctl.admin.journals.skipped_records import (
    END,
    JournalRecords,
    LedgerRecords,
    missing_between,
)
from bkctl.admin.journals.stopped_bookie import JournalPlace, StoppedBookie
from bkctl.admin.logs.digests import LedgersMetadata
from bkctl.admin.logs.unchecked import UncheckedEntries
from bkctl.admin.repairs.repair_journal import (
    begin_repair,
    changes_file,
    makes_directory,
)
from bkctl.clock import Clock
from bkctl.codec.journal import (
    VERSION_MAX,
    encode_header,
    journal_name,
)
from bkctl.codec.last_mark import ZERO_MARK, LastMark, encode_last_mark
from bkctl.codec.losses import Loss, Losses, merged_ranges
from bkctl.errors import NotFoundError, RefusedError
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import COOKIE_NAME, current, read_small
from bkctl.scan.files.journals import verify_journals
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.journal_ends import JournalEnds
from bkctl.scan.lost_marks import ALL_GONE, marks_are_lost
from bkctl.vfs.base import FileSystem, WritableFileSystem
from bkctl.vfs.replacing import TEMPORARY_SUFFIX

MADE_BY = "journal salvage"
_CAUSE = "damage of a journal behind the last mark"
#: More journals in a row do not get lost between others: an id is wrong, or files of two bookies are mixed.
_EMPTY_JOURNALS_MAX = 100
_COPY_SUFFIX = f".salvage{TEMPORARY_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Salvage:
    """The effect of a salvage; ``rows`` is what the journals say of the ledgers that are put into limbo.

    ``mark`` is where the copy is replayed from. Unless it ``is_certain`` more than what is named may be lost.
    ``wrong_marks`` are the files that say otherwise, which a salvage changes. ``empty`` are the ids
    of journals that are gone between others. ``unchecked`` is a sentence on the entries that no digest
    proves, and empty without any: one of which the length is damaged may have taken the place of others.
    """

    place: JournalPlace
    mark: LastMark
    is_certain: bool
    wrong_marks: tuple[str, ...]
    empty: tuple[int, ...]
    journals: tuple[SalvagedJournal, ...]
    missing: tuple[str, ...]
    rows: dict[int, LedgerRecords]
    losses: Losses
    unchecked: str


def plan_salvage(
    fs: FileSystem,
    bookie: StoppedBookie,
    place: JournalPlace,
    book: DigestBook,
    databases: IndexDatabases,
    metadata_of: LedgersMetadata | None = None,
) -> Salvage:
    """Return what a salvage keeps and what is lost; nothing is written.

    ``metadata_of`` has the metadata of ledgers, whose passwords prove their master keys; where it is not
    certain what is lost, the ledgers that they place on the bookie are among those of the journal.
    Raises RefusedError where no start would take a copy, or where ledgers that lost something cannot be put
    into limbo; StorageError.
    """
    marked = mark = bookie.mark(fs, place)
    missing = missing_between(place, mark, END)
    no_marks = not place.directory.journals and marks_are_lost(fs, bookie.mark_dirs)
    if no_marks:
        missing = [*missing, ALL_GONE]
    unfit = misfit(fs, place.directory.journals, mark)
    if unfit is not None:
        missing = [*missing, unfit]
        mark = LastMark(place.directory.journals[0].journal_id, 0) if place.directory.journals else ZERO_MARK
    keys = partial(_wrong_keys, fs, place, metadata_of=metadata_of)
    seen = _seen(fs, place, mark, keys(mark), book, missing)
    if not all(each.keeps_mark for each in seen.journals):
        mark = LastMark(mark.journal_id, 0)
        seen = _seen(fs, place, mark, keys(mark), book, missing)
    journals, lost, behind = seen.journals, seen.lost, seen.behind
    lost.compare(behind.ledgers)
    strange = _strange(behind, book, metadata_of, lambda: _rows(fs, bookie, databases))
    ranges, is_certain = lost.ranges, lost.is_certain and not behind.missing and not strange
    rows = {ledger: LedgerRecords() for ledger in ranges}
    if not is_certain:
        rows |= {ledger: found for ledger, found in behind.ledgers.items() if ledger not in strange}
    if rows or not is_certain:
        refuse_lost_rows(fs, bookie, databases)
        named = () if metadata_of is None or is_certain else metadata_of.naming(bookie.bookie)
        # A ledger that began in the damaged bytes has no row, and no other record: only the metadata know it.
        rows |= {ledger: LedgerRecords() for ledger in named if ledger not in rows and place.has(ledger)}
        _add_known(fs, bookie, place, rows, databases, is_certain=is_certain)
    marks = (join(path, place.mark_name) for path in bookie.mark_dirs)
    losses = tuple(
        Loss(ledger, merged_ranges(ranges.get(ledger, ())), not is_certain, _CAUSE) for ledger in sorted(rows)
    )
    return Salvage(
        place,
        mark,
        is_certain,
        () if mark == marked and not no_marks else tuple(marks),
        tuple(_gone_between(place, mark)),
        tuple(journals),
        tuple(behind.missing),
        rows,
        Losses(bookie.bookie, MADE_BY, losses),
        _unchecked(seen.verdicts, book),
    )


class _Seen(NamedTuple):
    """The journals of a directory, as they are seen from a last mark."""

    verdicts: Sequence[FileVerdict]
    journals: Sequence[SalvagedJournal]
    lost: JournalLosses
    behind: JournalRecords


def _seen(
    fs: FileSystem,
    place: JournalPlace,
    mark: LastMark,
    keys: Mapping[str, tuple[WrongKey, ...]],
    book: DigestBook,
    missing: Iterable[str],
) -> _Seen:
    """Return what a salvage keeps of journals, and what is lost behind a mark. Raises as :func:`examined`."""
    behind = JournalRecords(missing=list(missing))
    verdicts = list(verify_journals(fs, list(place.directory.journals), book, mark=mark))
    return _Seen(verdicts, *examined(fs, place, mark, verdicts, keys, book, behind), behind)


def _unchecked(verdicts: Sequence[FileVerdict], book: DigestBook) -> str:
    """Say which entries no digest proves, and what would; an empty text where every entry was checked."""
    entries = UncheckedEntries.of(verdicts)
    return entries.with_remedy(book) if entries.unchecked else ""


def _strange(
    behind: JournalRecords,
    book: DigestBook,
    metadata_of: LedgersMetadata | None,
    rows: Callable[[], Iterable[int]],
) -> set[int]:
    """Return the ledgers that may be none: some entry's damaged id names them, and nothing else.

    Few entries are said to be theirs, which no digest proves, and neither the metadata nor a row nor a master
    key speaks of them. Most such ledgers were deleted; the journal alone does not show the difference.
    """
    found = {
        ledger
        for ledger, records in behind.ledgers.items()
        if records.key is None and book.is_strange(ledger)
    }
    if found and metadata_of is not None:
        found -= metadata_of(found).keys()
    return found.difference(rows()) if found else found


def _rows(fs: FileSystem, bookie: StoppedBookie, databases: IndexDatabases) -> Iterator[int]:
    """Yield the ledgers that have a row."""
    for space in bookie.spaces:
        store = StoppedIndex(fs, space, databases).ledgers()
        try:
            yield from known_ledgers(store, lambda _: True)
        finally:
            store.close()


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
                f"{journal_name(behind)} are gone. This is too many to replace: check whether one of the two "
                "is another bookie's"
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
            *(changes_file(path) for path in (*_empty_paths(salvage, directory), *salvage.wrong_marks)),
        ],
    )
    put_rows(fs, bookie.spaces, salvage.rows, salvage.rows, databases)
    _set_marks_back(fs, salvage)
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
    _set_marks_back(fs, salvage)
    for salvaged in salvage.journals:
        if salvaged.is_damaged:
            path = salvaged.journal.path
            copy = path + _COPY_SUFFIX
            copy_journal(fs, salvaged, salvage.mark, copy)
            fs.rename(copy, path)
            fs.sync_directory(dirname(path))
    for journal_id, path in zip(salvage.empty, empty, strict=True):
        _make_empty(fs, salvage, journal_id, path)
    repair.finish()
    return [kept for kept in map(repair.kept, (*paths, *salvage.wrong_marks)) if kept is not None]


def _set_marks_back(fs: WritableFileSystem, salvage: Salvage) -> None:
    for path in salvage.wrong_marks:
        fs.replace(path, encode_last_mark(salvage.mark))


def _empty_paths(salvage: Salvage, directory: str) -> list[str]:
    return [join(directory, journal_name(journal_id)) for journal_id in salvage.empty]


def _make_empty(fs: WritableFileSystem, salvage: Salvage, journal_id: int, path: str) -> None:
    """Write a journal without records, durably: padding takes their place, or its end would be missing."""
    every = {each.journal_id: each.path for each in salvage.place.directory.journals}
    ends = JournalEnds(fs, every.items(), salvage.mark)
    header = encode_header(VERSION_MAX)
    file = fs.create(path)
    try:
        file.write_at(0, header)
        write_padding(file, len(header), ends.known_end(journal_id).stated or 0)
        file.sync()
    finally:
        file.close()
    fs.sync_directory(dirname(path))


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
        copy_journal(fs, salvaged, salvage.mark, join(directory, journal_name(salvaged.journal.journal_id)))
    for journal_id, path in zip(salvage.empty, _empty_paths(salvage, directory), strict=True):
        _make_empty(fs, salvage, journal_id, path)
    fs.sync_directory(directory)
    cookie = join(salvage.place.directory.path, COOKIE_NAME)
    if fs.status(cookie) is not None:
        fs.replace(join(directory, COOKIE_NAME), read_small(fs, cookie))
    return directory


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
