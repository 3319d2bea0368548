"""Indexes that are lost while entry logs hold records: a start that went on would hide all of these records.

The first start of a directory writes to both databases (``LedgerStorage.note_written``) before the first
record goes to its logs. So where logs hold records, a database that is gone, or that was never written to,
was lost. A database whose rows were all deleted was written to, and does not count as lost.

Other bookies, older ones of this program among them, write nothing before their first flush. When such a
bookie is killed in that time, its logs have records and its index has none; but the acknowledged records
also stand in the journals behind the last mark. So an index counts as lost only when a log holds a record
that no journal behind the mark has. A missing mark proves nothing, because the mark may be lost as well. One
case is refused although nothing was lost: a young bookie of another kind that was killed within its first
flush, and whose journal lacks a record of its log.

Where no log is left to say so, the journals may: what stands in front of a directory's last mark was in its
logs and in its index when the mark was set. So with the rows of its ledgers lost, and a mark of its own, such
an entry in a journal that is kept says that the index was lost with the logs. But where its ledger was
deleted, nothing was lost. The cluster knows that. Without a cluster to ask, folders of index files count as
the trace of a storage over such files that has lost its last ledger.

Where there are several ledger directories, the others may say so too. A start makes the databases of all of
them before it writes a mark. So where one has no database, and another one has databases and a mark, all that
was in the first was lost, even if its cookie is there or was put back.

Where one of several index directories never had an index file, although others have, a ledger of the logs
without such a file was deleted or has lost it. The cluster knows which. Nothing is decided without it.

An accepted loss puts every ledger of the directory into limbo: where the ledger rows are lost, the ledgers of
the logs and of all kept journals; else those that have a row.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import journal_name, parse_journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.engine.checkpoint import LastMarks
from bkctl.engine.gc.log_reading import read_log
from bkctl.engine.ledger_storage import IndexPlace
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.engine.settings import BookieSettings
from bkctl.errors import BkctlError, CorruptionError, NotFoundError, RefusedError
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import (
    BookieDirectory,
    LogFile,
    current,
    home_of,
    inspect_directory,
    is_key_value_store,
)
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.scan.journal import JournalScan
from bkctl.vfs import FileSystem, WritableFileSystem

_log = logging.getLogger(__name__)


class JournalPlace(NamedTuple):
    """One journal directory and the last mark that counts for it."""

    directory: str
    mark: LastMark


@dataclass(frozen=True, slots=True)
class LostIndex:
    """Databases of ledger directory ``number`` that are lost, each with "gone" or "empty".

    The entry, which stands in ``log``, is one that nothing but the logs has; with ``logs_lost``, ``log`` is a
    journal, and the entry stands in front of the last mark. Without an entry, ``log`` is where another
    directory of the bookie has its databases.
    """

    number: int
    place: IndexPlace
    databases: dict[str, str]
    log: str
    ledger: int | None
    entry: int | None
    logs_lost: bool = False

    @property
    def rows_lost(self) -> bool:
        """Whether it is no longer known which ledgers there are."""
        return _rows_lost(self.place, self.databases)

    @property
    def found(self) -> str:
        """The description of what is wrong, in one sentence without an end."""
        names = " and ".join(f"{name} is {state}" for name, state in sorted(self.databases.items()))
        if self.ledger is None:
            return (
                f"{self.place.databases}: {names}, and so are the logs, while {self.log} has databases and a"
                " last mark, in front of which those of all ledger directories were made: the index was lost"
            )
        if self.logs_lost:
            return (
                f"{self.place.databases}: {names}, and so are the logs, while {self.log} has records in"
                f" front of the last mark, which were in both (ledger {self.ledger}, entry {self.entry} is"
                " one): the index was lost"
            )
        return (
            f"{self.place.databases}: {names}, while {self.log} holds records that no journal holds (ledger"
            f" {self.ledger}, entry {self.entry} is one): the index was lost"
        )

    def rebuild(self, filesystem: FileSystem) -> tuple[str, ...]:
        """Return the words of the command that rebuilds the index."""
        # The command guesses the kind from what is left. It must be named where nothing is left of the index,
        # or only an index of another kind.
        present = inspect_directory(filesystem, self.place.databases).indexes
        kind = self.place.kind
        told = () if kind.is_in(present) else ("--storage", kind.name)
        return ("index", "rebuild", home_of(self.place.logs[0]), *told)


def find_lost_indexes(
    filesystem: FileSystem,
    places: Sequence[IndexPlace],
    journals: Callable[[], Iterable[JournalPlace]],
    lost_parts: Callable[[int], Mapping[str, str]],
    is_kept: Callable[[int], bool] | None = None,
    has_row: Callable[[int, int], bool] | None = None,
) -> list[LostIndex]:
    """Find the ledger directories whose index is lost.

    ``lost_parts`` gives, by the number of the place, the parts of the index that are "gone" or "empty": that
    have, and had, no rows; or the paths of directories of index files that never had one, beside others that
    had. Journals and logs are read only where there is one. ``is_kept`` says, where the cluster can be asked,
    whether it places a ledger on this bookie; ``has_row``, by the number of the place, whether it has a row.
    Raises StorageError.
    """
    found: list[LostIndex] = []
    journaled = cache(lambda: _JournaledEntries(filesystem, journals()))
    for number, place in enumerate(places):
        parts = dict(lost_parts(number))
        if not parts:
            continue
        counts, only = is_kept, None
        if _are_directories(parts):
            if is_kept is None or has_row is None:
                continue
            counts = only = partial(_is_lost, partial(has_row, number), is_kept)
        logs = _logs(filesystem, place.logs)
        for log in logs:
            record = _unjournaled(filesystem, log, journaled, only)
            if record is not None:
                found.append(LostIndex(number, place, parts, log.path, *record))
                break
        else:
            flushed = _flushed(filesystem, place, parts, journals, (number, len(places)), counts)
            if flushed is not None:
                found.append(LostIndex(number, place, parts, *flushed, logs_lost=True))
            elif not logs and (beside := _begun_beside(filesystem, places, number, parts)) is not None:
                found.append(LostIndex(number, place, parts, beside, None, None, logs_lost=True))
    return found


def _are_directories(parts: Mapping[str, str]) -> bool:
    return any("/" in part for part in parts)


def _is_lost(has_row: Callable[[int], bool], is_kept: Callable[[int], bool], ledger: int) -> bool:
    return ledger >= 0 and not has_row(ledger) and is_kept(ledger)


def index_places(settings: BookieSettings) -> list[IndexPlace]:
    """Return the ledger directories of a bookie, in their order."""
    pairs = zip(settings.ledger_directories, settings.indexes, strict=True)
    return [IndexPlace((current(ledgers),), current(index)) for ledgers, index in pairs]


def journal_places(settings: BookieSettings, marks: LastMarks) -> list[JournalPlace]:
    """Return the journal directories of a bookie, in their order. Raises StorageError."""
    return [
        JournalPlace(current(directory), marks.read(number))
        for number, directory in enumerate(settings.journal_directories)
    ]


def refuse_gone_indexes(
    filesystem: WritableFileSystem, settings: BookieSettings, is_kept: Callable[[int], bool]
) -> None:
    """Raise RefusedError where databases are gone, and logs, journals or other directories show a loss.

    To be asked before an engine opens the databases, which makes those that are missing.
    """
    places = index_places(settings)
    journals = len(settings.journal_directories)
    marks = LastMarks(filesystem, [current(path) for path in settings.ledger_directories], journals)

    def gone(number: int) -> dict[str, str]:
        databases = places[number].databases
        return {
            name: "gone"
            for name in (LOCATIONS, LEDGERS)
            if not is_key_value_store(filesystem, f"{databases}/{name}")
        }

    lost = find_lost_indexes(filesystem, places, lambda: journal_places(settings, marks), gone, is_kept)
    refuse_lost_indexes(filesystem, lost)


def refuse_lost_indexes(filesystem: FileSystem, lost: Sequence[LostIndex]) -> None:
    """Raise RefusedError with the way out when an index is lost."""
    if not lost:
        return
    first = lost[0]
    more = f" (and so in {len(lost) - 1} more directories)" if len(lost) > 1 else ""
    rebuilt = "" if first.logs_lost else f", or rebuild it with 'bkctl {' '.join(first.rebuild(filesystem))}'"
    raise RefusedError(
        f"{first.found}{more}. Bring it back{rebuilt}, or start with --accept-loss: then every ledger of this"
        " directory is in limbo (a missing entry is answered as unknown) until bkctl index limbo --clear"
    )


def damaged_index(settings: BookieSettings, error: CorruptionError) -> BkctlError:
    """Return the refusal of a start over a database that cannot be opened; ``error`` itself for all else."""
    for number, place in enumerate(index_places(settings)):
        for name in (LOCATIONS, LEDGERS):
            if f"{error.path}/".startswith(f"{place.databases}/{name}/"):
                return RefusedError(
                    f"{error}: the index is damaged. Bring it back from a copy, or rebuild it with 'bkctl"
                    f" index rebuild {settings.ledger_directories[number]} --{name}'"
                )
    return error


def put_in_limbo(
    filesystem: FileSystem, lost: LostIndex, journals: Sequence[str], ledgers: ReplayedLedgers
) -> None:
    """Put every ledger of a directory whose index is lost in limbo.

    ``journals`` are the journal directories: a ledger whose log was cut or lost may stand in a kept journal
    alone. Raises StorageError.
    """
    storage = ledgers.storages[lost.number]
    if not lost.rows_lost:
        for ledger in storage.ledgers.ledgers():
            ledgers.set_ledger_limbo(ledger)
        return
    found = {*_ledgers_of_logs(filesystem, lost.place.logs), *_ledgers_of_journals(filesystem, journals)}
    for ledger in sorted(found):
        if ledger >= 0 and ledgers.storage_of(ledger) is storage:
            ledgers.row_behind_a_loss(ledger)


def _logs(filesystem: FileSystem, directories: Sequence[str]) -> list[LogFile]:
    """Return the logs of ledger directories that may hold records."""
    logs = (log for directory in _inspected(filesystem, directories) for log in directory.logs)
    return [log for log in logs if log.size_bytes and not log.compaction]


def _inspected(filesystem: FileSystem, directories: Sequence[str]) -> list[BookieDirectory]:
    there = [directory for directory in directories if filesystem.status(directory) is not None]
    return [inspect_directory(filesystem, directory) for directory in there]


def _rows_lost(place: IndexPlace, parts: Mapping[str, str]) -> bool:
    return LEDGERS in parts or place.kind.has_file_per_ledger


def _flushed(
    filesystem: FileSystem,
    place: IndexPlace,
    parts: Mapping[str, str],
    journals: Callable[[], Iterable[JournalPlace]],
    number_of: tuple[int, int],
    is_kept: Callable[[int], bool] | None,
) -> tuple[str, int, int] | None:
    """Return a journal, and ledger and entry of a record in front of its mark, which the place has had.

    ``number_of`` are the number of the place and how many there are. None unless the rows of the ledgers are
    lost, and the place has a mark of its own: a new directory has none.
    """
    if not _rows_lost(place, parts):
        return None
    if not _has_mark(filesystem, place):
        return None
    if is_kept is None and _had_index_files(filesystem, place):
        return None
    number, count = number_of
    for journal_place in journals():
        for path, journal in _journals(filesystem, journal_place.directory):
            if journal > journal_place.mark.journal_id:
                break
            end = journal_place.mark.offset if journal == journal_place.mark.journal_id else None
            with JournalScan(filesystem, path) as scan:
                for batch in scan.batches(end):
                    for ledger, entry in zip(batch.ledgers, batch.entries, strict=True):
                        if not (ledger % count == number and ledger >= 0 <= entry):
                            continue
                        if is_kept is None or is_kept(ledger):
                            return path, ledger, entry
    return None


def _begun_beside(
    filesystem: FileSystem, places: Sequence[IndexPlace], number: int, parts: Mapping[str, str]
) -> str | None:
    """Return another place's databases that were there before a mark, None where this one may be new."""
    place = places[number]
    state = parts.get(LEDGERS)
    if state is None or _had_index_files(filesystem, place):
        return None
    if state == "empty" and _has_mark(filesystem, place):
        # Another bookie's directory that never had a ledger; nothing is gone of it.
        return None
    for other in places:
        begun = other is not place and is_key_value_store(filesystem, f"{other.databases}/{LEDGERS}")
        if begun and _has_mark(filesystem, other):
            return other.databases
    return None


def _has_mark(filesystem: FileSystem, place: IndexPlace) -> bool:
    return any(directory.last_marks for directory in _inspected(filesystem, place.logs))


def _had_index_files(filesystem: FileSystem, place: IndexPlace) -> bool:
    """Return whether a storage over index files was here last: their folders stay."""
    directories = dict.fromkeys((*place.logs, place.databases))
    return any(directory.has_idx_folders for directory in _inspected(filesystem, tuple(directories)))


def _journals(filesystem: FileSystem, directory: str) -> list[tuple[str, int]]:
    """Return path and id of each journal in a directory, which may not be there, the oldest first."""
    if filesystem.status(directory) is None:
        return []
    found = map(parse_journal_name, filesystem.names(directory))
    ids = sorted(each for each in found if each is not None)
    return [(f"{directory}/{journal_name(each)}", each) for each in ids]


def _unjournaled(
    filesystem: FileSystem,
    log: LogFile,
    journaled: Callable[[], _JournaledEntries],
    only: Callable[[int], bool] | None,
) -> tuple[int, int] | None:
    """Return ledger and entry of the first record of a log that no journal has; ``only`` of some ledgers."""
    if only is not None and not any(map(only, _ledgers_of_log(filesystem, log))):
        return None  # its map of ledgers says so, and its records need not be read
    try:
        scan = EntryLogScan(filesystem, log.path)
    except NotFoundError:
        return None
    with scan:
        for item in scan:
            if isinstance(item, EntryBatch):
                for ledger, entry in zip(item.ledgers, item.entries, strict=True):
                    if (only is None or only(ledger)) and not journaled().has(ledger, entry):
                        return ledger, entry
    return None


def _ledgers_of_logs(filesystem: FileSystem, directories: Sequence[str]) -> Iterator[int]:
    for log in _logs(filesystem, directories):
        yield from _ledgers_of_log(filesystem, log)


def _ledgers_of_log(filesystem: FileSystem, log: LogFile) -> Iterable[int]:
    try:
        return read_log(filesystem, log.path, log.log_id).usage.ledgers
    except CorruptionError as error:
        _log.warning("%s; which ledgers it holds is not known", error)
    except NotFoundError:
        pass
    return ()


def _ledgers_of_journals(filesystem: FileSystem, directories: Sequence[str]) -> Iterator[int]:
    """Return the ledgers of all records in the journals that are kept, also in front of the last mark."""
    for directory in directories:
        if filesystem.status(directory) is None:
            continue
        for journal in inspect_directory(filesystem, directory).journals:
            with JournalScan(filesystem, journal.path) as scan:
                for item in scan:
                    if isinstance(item, EntryBatch):
                        yield from set(item.ledgers)
                    elif isinstance(item, MarkedRecord):
                        yield item.ledger


class _JournaledEntries:
    """Which entries stand in journals behind the last marks: 8 bytes each."""

    def __init__(self, filesystem: FileSystem, journals: Iterable[JournalPlace]) -> None:
        self._entries: dict[int, array[int]] = {}
        for place in journals:
            self._read(filesystem, place)
        for ledger, entries in self._entries.items():
            self._entries[ledger] = array("q", sorted(entries))

    def has(self, ledger: int, entry: int) -> bool:
        """Return whether a journal has the entry."""
        entries = self._entries.get(ledger)
        if entries is None:
            return False
        at = bisect_left(entries, entry)
        return at < len(entries) and entries[at] == entry

    def _read(self, filesystem: FileSystem, place: JournalPlace) -> None:
        for path, journal in _journals(filesystem, place.directory):
            if journal < place.mark.journal_id:
                continue
            start = place.mark.offset if journal == place.mark.journal_id else 0
            with JournalScan(filesystem, path, start=start) as scan:
                for batch in scan.batches():
                    for ledger, entry in zip(batch.ledgers, batch.entries, strict=True):
                        self._entries.setdefault(ledger, array("q")).append(entry)
