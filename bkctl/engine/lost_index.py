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

Where one of the two databases is left, it may say so itself (``half_index``). A fence alone has a row, too.
So where a database of locations was never written to, as other bookies leave it, a fenced row counts only
with a record in front of the mark.

Where nothing but a last mark or a journal is left, the databases were made before it, and before the cluster
could place a ledger on this bookie. (A bookie that was formatted has neither.) A bookie of another kind over
index files makes none before its first flush; but then its journals have each of its ledgers from the first
entry on.

Where there are several ledger directories, the others may say so too. A start makes the databases of all of
them before it writes to any, or writes a mark. So where one has no database, and another one has some that
were written to, or that stand beside a mark, all that was in the first was lost, even if its cookie is there
or was put back. A mark alone would not do: marks may be lost as well, and a new disk has none.

Where one of several index directories never had an index file, although others have, a ledger of the logs
without such a file was deleted or has lost it. The cluster knows which. Nothing is decided without it. Where
no log is left, beside a last mark, it is asked for all ledgers.

A loss that was accepted by a start which did not come to its end is still one (``accepted_losses``).

The refusal of a start is in :mod:`bkctl.engine.lost_index_refusal`, and what becomes of an accepted loss in
:mod:`bkctl.engine.lost_index_limbo`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial

from bkctl.codec.entry import EntryBatch
from bkctl.engine.accepted_losses import ACCEPTED_NAME, HALF_BACK, accepted_parts
from bkctl.engine.gc.log_reading import read_log
from bkctl.engine.half_index import Trace, rows_without_limbo, trace_in_other
from bkctl.engine.journaled_entries import JournaledEntries, JournalPlace, journals_in
from bkctl.engine.ledger_storage import IndexPlace
from bkctl.engine.storage_parts import PlacedLedgers
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.scan.directory import (
    BookieDirectory,
    LogFile,
    home_of,
    inspect_directory,
    is_key_value_store,
)
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.index_databases import LEDGERS, open_store
from bkctl.scan.journal import JournalScan
from bkctl.vfs import FileSystem

_log = logging.getLogger(__name__)
_HALF_REBUILT = "shows that an index rebuild which restores it was interrupted (run it again)"
_CUT_OFF = "shows that a start which accepted this was interrupted (remove that file when the index is back)"


@dataclass(frozen=True, slots=True)
class LostIndex:
    """Databases of ledger directory ``number`` that are lost, each with "gone" or "empty".

    The entry, which stands in ``log``, is one that nothing but the logs has; with ``logs_lost``, ``log`` is a
    journal, and the entry stands in front of the last mark. Without an entry, ``log`` is where another
    directory of the bookie has its databases. With ``shows``, ``log`` is something else that is left, and
    this is what it shows. ``may_be_new``: a directory that was added behind the others, as Java's bookie does
    with ``allowStorageExpansion``, looks the same until its first flush.
    """

    number: int
    place: IndexPlace
    databases: dict[str, str]
    log: str
    ledger: int | None
    entry: int | None
    logs_lost: bool = False
    shows: str = ""
    may_be_new: bool = False

    @property
    def rows_lost(self) -> bool:
        """Whether it is no longer known which ledgers there are."""
        return _rows_lost(self.place, self.databases)

    @property
    def found(self) -> str:
        """The description of what is wrong, in one sentence without an end."""
        names = " and ".join(f"{name} is {state}" for name, state in sorted(self.databases.items()))
        if self.shows:
            return f"{self.place.databases}: {names}, but {self.log} {self.shows}: the index was lost"
        if self.ledger is None:
            return (
                f"{self.place.databases}: {names}, and so are the logs, but {self.log} has databases that"
                " were in use, and the databases of all ledger directories were made before that: the index"
                " was lost"
            )
        if self.logs_lost:
            return (
                f"{self.place.databases}: {names}, and so are the logs, but {self.log} has records before"
                f" the last mark, which were in both (such as ledger {self.ledger}, entry {self.entry}): the"
                " index was lost"
            )
        return (
            f"{self.place.databases}: {names}, but {self.log} holds records that no journal holds (such as"
            f" ledger {self.ledger}, entry {self.entry}): the index was lost"
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
    cluster: PlacedLedgers | None = None,
    has_row: Callable[[int, int], bool] | None = None,
) -> list[LostIndex]:
    """Find the ledger directories whose index is lost.

    ``lost_parts`` gives, by the number of the place, the parts of the index that are "gone" or "empty": that
    have, and had, no rows; or the paths of directories of index files that never had one, beside others that
    had. Journals and logs are read only where there is one. ``cluster`` is there where it can be asked;
    ``has_row`` says, by the number of the place, whether it has a row of a ledger. Raises StorageError,
    CorruptionError of a database, and what ``cluster`` raises.
    """
    search = _Search(filesystem, places, journals, cluster)
    found: list[LostIndex] = []
    for number, place in enumerate(places):
        accepted = accepted_parts(filesystem, place.databases, *place.others)
        parts = {**lost_parts(number), **accepted}
        if accepted:
            found.append(search.cut_off(number, parts))
            continue
        is_lost = None
        if _are_directories(parts):
            if cluster is None or has_row is None:
                continue
            is_lost = partial(_is_lost, partial(has_row, number), cluster.is_kept)
        if parts and (lost := search.lost_at(number, parts, is_lost)) is not None:
            found.append(lost)
    return found


class _Search:
    """The search for what shows that an index was lost, in the order of what it costs to look there."""

    def __init__(
        self,
        filesystem: FileSystem,
        places: Sequence[IndexPlace],
        journals: Callable[[], Iterable[JournalPlace]],
        cluster: PlacedLedgers | None,
    ) -> None:
        self._filesystem = filesystem
        self._places = places
        self._journals = journals
        self._cluster = cluster
        self._journaled = cache(lambda: JournaledEntries(filesystem, journals()))

    def cut_off(self, number: int, parts: dict[str, str]) -> LostIndex:
        """Return the loss at a place that a start has noted, which accepts it, or a rebuild."""
        place = self._places[number]
        note = f"{place.databases}/{ACCEPTED_NAME}"
        logs_lost = not logs_with_records(self._filesystem, place.logs)
        shows = _HALF_REBUILT if HALF_BACK in parts.values() else _CUT_OFF
        return LostIndex(number, place, parts, note, None, None, logs_lost, shows)

    def lost_at(
        self, number: int, parts: dict[str, str], is_lost: Callable[[int], bool] | None
    ) -> LostIndex | None:
        """Return the loss at a place where ``parts`` are gone or empty, None where nothing shows one.

        With ``is_lost`` only ledgers count of which it is so.
        """
        fs, place, cluster = self._filesystem, self._places[number], self._cluster
        found, of_place = partial(LostIndex, number, place, parts), (number, len(self._places))
        counts = is_lost if is_lost is not None or cluster is None else cluster.is_kept
        logs = logs_with_records(fs, place.logs)
        if (record := _unjournaled(fs, logs, self._journaled, is_lost)) is not None:
            return found(*record)
        if (trace := _trace(fs, place, parts, counts, self._journaled)) is not None:
            return found(*trace[:3], not logs, trace.shows)
        if (record := _flushed(fs, place, parts, self._journals, of_place, counts)) is not None:
            return found(*record, logs_lost=True)
        if not logs and (beside := _begun_beside(fs, self._places, number, parts)) is not None:
            return found(beside, None, None, logs_lost=True, may_be_new=not _has_mark(fs, place))
        if cluster is not None and is_lost is not None and not logs:
            trace = _without_file(fs, place, cluster, is_lost)
            return None if trace is None else found(*trace[:3], logs_lost=True, shows=trace.shows)
        if cluster is None or is_lost is not None:
            # Files of other directories are there: which ledgers are gone only their records would show.
            return None
        if parts.get(LEDGERS) != "gone" and not place.kind.has_file_per_ledger:
            return None
        begins = partial(self._begins, place)
        placed = _placed(fs, place, cluster, self._journals, of_place, begins)
        return None if placed is None else found(*placed[:3], not logs, placed.shows)

    def _begins(self, place: IndexPlace, ledger: int) -> bool:
        """Return whether a replay brings a ledger from its first entry on, where no file of it has to be."""
        return place.kind.has_file_per_ledger and self._journaled().has(ledger, 0)


def _are_directories(parts: Mapping[str, str]) -> bool:
    return any("/" in part for part in parts)


def _is_lost(has_row: Callable[[int], bool], is_kept: Callable[[int], bool], ledger: int) -> bool:
    return ledger >= 0 and not has_row(ledger) and is_kept(ledger)


def _has_row_and_is_kept(rows: set[int], is_kept: Callable[[int], bool] | None, ledger: int) -> bool:
    return ledger in rows and (is_kept is None or is_kept(ledger))


def logs_with_records(filesystem: FileSystem, directories: Sequence[str]) -> list[LogFile]:
    """Return the logs of ledger directories that may hold records. Raises StorageError."""
    logs = (log for directory in _inspected(filesystem, directories) for log in directory.logs)
    return [log for log in logs if log.size_bytes and not log.compaction]


def _inspected(filesystem: FileSystem, directories: Sequence[str]) -> list[BookieDirectory]:
    there = [directory for directory in directories if filesystem.status(directory) is not None]
    return [inspect_directory(filesystem, directory) for directory in there]


def _rows_lost(place: IndexPlace, parts: Mapping[str, str]) -> bool:
    return LEDGERS in parts or place.kind.has_file_per_ledger


def _trace(
    filesystem: FileSystem,
    place: IndexPlace,
    parts: Mapping[str, str],
    is_kept: Callable[[int], bool] | None,
    journaled: Callable[[], JournaledEntries],
) -> Trace | None:
    """Return what the one database that is left shows of the one that is lost."""
    if not place.kind.has_databases or len(parts) != 1:
        return None
    return trace_in_other(
        filesystem,
        place.databases,
        parts,
        is_kept or (lambda ledger: True),
        lambda ledger, entry: journaled().has(ledger, entry),
    )


def _without_file(
    filesystem: FileSystem, place: IndexPlace, cluster: PlacedLedgers, is_lost: Callable[[int], bool]
) -> Trace | None:
    """Return a last mark, and a ledger without a file that the cluster places there; None without."""
    for directory in _inspected(filesystem, place.logs):
        if directory.last_marks:
            ledger = next(filter(is_lost, cluster.all_kept()), None)
            if ledger is not None:
                shows = f"has a last mark, and the cluster places ledger {ledger} here, which has no file"
                return Trace(directory.path, ledger, None, shows)
    return None


def _placed(
    filesystem: FileSystem,
    place: IndexPlace,
    cluster: PlacedLedgers,
    journals: Callable[[], Iterable[JournalPlace]],
    number_of: tuple[int, int],
    begins: Callable[[int], bool],
) -> Trace | None:
    """Return the place's last mark or a journal, and a ledger that the cluster places there; None without.

    A ledger that ``begins`` in the journals does not count.
    """
    if _had_index_files(filesystem, place):
        return None
    marked = (each.path for each in _inspected(filesystem, place.logs) if each.last_marks)
    begun = (path for each in journals() for path, _ in journals_in(filesystem, each.directory))
    left = next(((path, "has a last mark") for path in marked), None)
    left = left or next(((path, "is there") for path in begun), None)
    if left is None:
        return None
    number, count = number_of
    here = (each for each in cluster.all_kept() if each % count == number)
    ledger = next((each for each in here if not begins(each)), None)
    if ledger is None:
        return None
    return Trace(left[0], ledger, None, f"{left[1]}, and the cluster places ledger {ledger} here")


def _flushed(
    filesystem: FileSystem,
    place: IndexPlace,
    parts: Mapping[str, str],
    journals: Callable[[], Iterable[JournalPlace]],
    number_of: tuple[int, int],
    is_kept: Callable[[int], bool] | None,
) -> tuple[str, int, int] | None:
    """Return a journal, and ledger and entry of a record in front of its mark, which the place has had.

    ``number_of`` are the number of the place and how many there are. None unless the place has a mark of its
    own: a new directory has none. Where the rows of the ledgers are left, only what has one counts.
    """
    if not _has_mark(filesystem, place):
        return None
    if not _rows_lost(place, parts):
        if not place.kind.has_databases:
            return None
        rows = rows_without_limbo(filesystem, f"{place.databases}/{LEDGERS}")
        is_kept = partial(_has_row_and_is_kept, {ledger for ledger, _ in rows}, is_kept)
    if is_kept is None and _had_index_files(filesystem, place):
        return None
    number, count = number_of
    for journal_place in journals():
        for path, journal in journals_in(filesystem, journal_place.directory):
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
    """Return another place's databases that were in use, None where this one may be new."""
    place = places[number]
    state = parts.get(LEDGERS)
    if state is None or _had_index_files(filesystem, place):
        return None
    if state == "empty" and _has_mark(filesystem, place):
        # Another bookie's directory that never had a ledger; nothing is gone of it.
        return None
    for other in places:
        rows = f"{other.databases}/{LEDGERS}"
        if other is place or not is_key_value_store(filesystem, rows):
            continue
        # An empty database may be that of a bookie which flushes for the first time, one after the other.
        if _has_mark(filesystem, other) or (state == "gone" and _was_written(rows)):
            return other.databases
    return None


def _was_written(path: str) -> bool:
    """Return whether a database was ever written to. Raises CorruptionError, StorageError."""
    with closing(open_store(path)) as store:
        return not store.never_written


def _has_mark(filesystem: FileSystem, place: IndexPlace) -> bool:
    return any(directory.last_marks for directory in _inspected(filesystem, place.logs))


def _had_index_files(filesystem: FileSystem, place: IndexPlace) -> bool:
    """Return whether a storage over index files was here last: their folders stay."""
    directories = dict.fromkeys((*place.logs, place.databases))
    return any(directory.has_idx_folders for directory in _inspected(filesystem, tuple(directories)))


def _unjournaled(
    filesystem: FileSystem,
    logs: Iterable[LogFile],
    journaled: Callable[[], JournaledEntries],
    is_lost: Callable[[int], bool] | None,
) -> tuple[str, int, int] | None:
    """Return a log, and ledger and entry of its first record that no journal has.

    With ``is_lost`` only ledgers count of which it is so.
    """
    for log in logs:
        if is_lost is not None and not any(map(is_lost, ledgers_of_log(filesystem, log))):
            continue  # its map of ledgers says so, and its records need not be read
        for ledger, entry in _records(filesystem, log):
            if (is_lost is None or is_lost(ledger)) and not journaled().has(ledger, entry):
                return log.path, ledger, entry
    return None


def _records(filesystem: FileSystem, log: LogFile) -> Iterator[tuple[int, int]]:
    """Yield ledger and entry of each record; none of a log that is gone."""
    try:
        scan = EntryLogScan(filesystem, log.path)
    except NotFoundError:
        return
    with scan:
        for item in scan:
            if isinstance(item, EntryBatch):
                yield from zip(item.ledgers, item.entries, strict=True)


def ledgers_of_log(filesystem: FileSystem, log: LogFile) -> Iterable[int]:
    """Return the ledgers of a log, none of one that is gone or whose ledgers cannot be known."""
    try:
        return read_log(filesystem, log.path, log.log_id).usage.ledgers
    except CorruptionError as error:
        _log.warning("%s; which ledgers it holds is not known", error)
    except NotFoundError:
        pass
    return ()
