"""The index of a stopped bookie's directory, and which entry logs it speaks of.

DbLedgerStorage has one index and one space of log ids for each ledger directory; the index of the ledger
directory at position i of the configuration serves the ledgers with ``id mod N == i``. Sorted- and
InterleavedLedgerStorage have one space over all ledger directories, and put an ``.idx`` file into any of the
index directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bkctl.directories.found_bookies import FoundBookie, bookies_of, indexes_in
from bkctl.errors import NotFoundError, UsageError
from bkctl.scan.directory import BookieDirectory, LogFile
from bkctl.scan.ledger_places import place_of
from bkctl.storage_kinds import IDX, StorageKind, kind_in
from bkctl.vfs import FileSystem

#: Said of directories without an index; the common reason is that the index has directories of its own.
NO_INDEX = (
    "no index in it (locations/ and ledgers/, or .idx files); where indexDirectories are set, name one of "
    "them, or the folder that holds all of the bookie's directories"
)


@dataclass(frozen=True, slots=True)
class IndexSpace:
    """One index, or the ``.idx`` files of one bookie, with the logs that its locations are about.

    ``index_dirs`` is empty where there is no index, or none yet. ``other_logs`` are the logs of the bookie's
    other ledger directories. ``position`` among ``directories`` decides which ledgers belong here; None is
    unknown. All ledgers belong to a storage over all directories. ``mark_dirs`` are the bookie's directories
    with a last mark. ``empty_journal_dirs`` are journal directories by the cookie, and hold no journal.

    Two fields are about a storage over all directories. ``absent`` are places of the cookie where no
    directory was found. ``blank`` are places of index directories that no index file was ever in.
    """

    kind: StorageKind
    index_dirs: tuple[str, ...]
    log_dirs: tuple[str, ...]
    logs: tuple[LogFile, ...]
    other_logs: tuple[LogFile, ...]
    journal_dirs: tuple[BookieDirectory, ...]
    bookie: str | None
    position: int | None = None
    directories: int = 1
    mark_dirs: tuple[str, ...] = ()
    empty_journal_dirs: tuple[BookieDirectory, ...] = ()
    absent: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()

    @property
    def dir(self) -> str:
        """The directory that findings about the whole space carry."""
        return (self.index_dirs or self.log_dirs)[0]

    @property
    def bytes_total(self) -> int:
        """Bytes of its logs."""
        return sum(log.size_bytes for log in self.logs)

    def is_elsewhere(self, ledger: int) -> bool:
        """Return whether a ledger is another directory's."""
        return self.position is not None and place_of(ledger, self.directories) != self.position


def index_spaces(
    filesystem: FileSystem, given: Sequence[BookieDirectory], *, emptied: bool = False
) -> list[IndexSpace]:
    """Return the spaces that the given directories have a part in, bookie by bookie.

    With ``emptied`` a ledger directory that holds a cookie and nothing else has a space, too. This is so only
    where each directory has its own index, and another one has it still.

    Raises NotFoundError when there is no index at all, UsageError when two of the given directories claim one
    place of a bookie, and StorageError.
    """
    spaces: list[IndexSpace] = []
    for bookie in bookies_of(filesystem, given):
        kind = kind_in([name for member in bookie.with_index() for name in indexes_in(member)])
        if kind is not None and not kind.shares_log_ids:
            spaces += _spaces_of_directories(bookie, kind, emptied=emptied)
        elif kind is not None or bookie.with_logs():
            # Without any index it is not known which storage this is; a space without index directories
            # says so.
            spaces.append(_shared_space(bookie, kind or IDX))
    if not spaces:
        listed = ", ".join(directory.path for directory in given)
        raise NotFoundError(f"{listed}: {NO_INDEX}")
    return spaces


def emptied_spaces(filesystem: FileSystem, given: Sequence[BookieDirectory]) -> list[IndexSpace]:
    """Return the spaces, without index and logs, of bookies whose ledger directories have a cookie alone."""
    return [
        _shared_space(bookie, IDX, left)
        for bookie in bookies_of(filesystem, given)
        if not bookie.with_index() and not bookie.with_logs() and (left := bookie.emptied())
    ]


def _shared_space(
    bookie: FoundBookie, kind: StorageKind, emptied: Sequence[BookieDirectory] = ()
) -> IndexSpace:
    log_members = bookie.one_per_place(bookie.with_logs(), bookie.ledger_paths)
    members = bookie.one_per_place(bookie.with_index(), bookie.index_paths)
    logs_absent, _ = bookie.gaps(log_members, bookie.ledger_paths)
    indexes_absent, blank = bookie.gaps(members, bookie.index_paths)
    return IndexSpace(
        kind,
        tuple(member.path for member in members),
        tuple(member.path for member in log_members or members or emptied),
        tuple(log for member in log_members for log in _finished(member)),
        (),
        bookie.journals(),
        bookie.host,
        mark_dirs=bookie.with_mark(),
        empty_journal_dirs=bookie.empty_journals(),
        absent=tuple(dict.fromkeys((*logs_absent, *indexes_absent))),
        blank=blank,
    )


def _spaces_of_directories(bookie: FoundBookie, kind: StorageKind, *, emptied: bool) -> list[IndexSpace]:
    log_paths, index_paths = bookie.ledger_paths, bookie.index_paths
    indexes = [member for member in bookie.with_index() if kind.is_in(member.indexes)]
    index_places = bookie.places(indexes, index_paths)
    log_places = bookie.places(bookie.with_logs(), log_paths)
    if index_places is None or log_places is None or len(index_places) != len(log_places):
        return _unplaced_spaces(bookie, kind, indexes)
    pairs = list(zip(index_places, log_places, strict=True))
    left = (bookie.places(bookie.emptied(), log_paths) if emptied else None) or [None] * len(pairs)
    found = [(index, logs or rest) for (index, logs), rest in zip(pairs, left, strict=True)]
    return [
        _space_of_directory(bookie, kind, index, logs, [other for _, other in pairs], place, len(pairs))
        for place, (index, logs) in enumerate(found)
        if bookie.is_given(index, logs)
    ]


def _unplaced_spaces(
    bookie: FoundBookie, kind: StorageKind, indexes: list[BookieDirectory]
) -> list[IndexSpace]:
    """Make spaces where no cookie fits: an index is about the logs beside it, else pairs are made by name."""
    by_name = sorted(indexes, key=lambda member: member.path)
    log_members = sorted(bookie.with_logs(), key=lambda member: member.path)
    apart = [member for member in log_members if member not in by_name]
    pairs: list[tuple[BookieDirectory, BookieDirectory | None]] = []
    for index in by_name:
        has_logs = index in log_members or not apart
        pairs.append((index, index if has_logs else apart.pop(0)))
    count = max(len(pairs), len(bookie.index_paths))
    return [
        _space_of_directory(bookie, kind, index, logs, log_members, None if count > 1 else 0, count)
        for index, logs in pairs
        if bookie.is_given(index, logs)
    ]


def _space_of_directory(
    bookie: FoundBookie,
    kind: StorageKind,
    index: BookieDirectory | None,
    logs: BookieDirectory | None,
    all_logs: Iterable[BookieDirectory | None],
    position: int | None,
    directories: int,
) -> IndexSpace:
    if index is not None and logs is None:
        if bookie.cookie is not None and bookie.cookie.index_paths != bookie.cookie.ledger_paths:
            raise UsageError(f"{index.path}: its ledger directory is not found; name that as well")
        logs = index
    assert logs is not None, "a space has an index or logs"
    others = (other for other in all_logs if other is not None and other.path != logs.path)
    return IndexSpace(
        kind,
        () if index is None else (index.path,),
        (logs.path,),
        tuple(_finished(logs)),
        tuple(log for other in others for log in _finished(other)),
        bookie.journals(),
        bookie.host,
        position,
        directories,
        bookie.with_mark(),
        bookie.empty_journals(),
    )


def _finished(directory: BookieDirectory) -> list[LogFile]:
    return [log for log in directory.logs if not log.compaction]
