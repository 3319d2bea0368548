"""Ledger directories in each other's place: what a repair wrote into them would go to the wrong disk.

A repair puts ledger rows, and limbo with them, into the directory at the ledger's place. On disks that are
mounted in each other's place these are on the wrong one once the disks are mounted right: what the repair
found lost is then answered with "no such entry". A new index would even leave out all that a directory holds,
and a collector would remove its logs. A start refuses such directories, too, by what it has read of them
(:mod:`bkctl.engine.db_storage.exchanged_directories`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from bkctl.directories.index_spaces import IndexSpace, index_spaces
from bkctl.directories.placement import LedgerDirectory
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError, UsageError
from bkctl.scan.directory import inspect_directory
from bkctl.scan.index import open_index
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.ledger_places import (
    copied_places,
    count_places,
    describe_copy,
    describe_exchange,
    exchanged_places,
    one_of_place,
)
from bkctl.scan.ledgers_of_logs import ledgers_of_logs
from bkctl.vfs import FileSystem


def refuse_exchanged_disks(fs: FileSystem, directories: Sequence[LedgerDirectory]) -> None:
    """Raise RefusedError where directories of databases hold each other's ledgers.

    Rows show it; logs where an index was lost, or is apart from them. The bookie's other directories are
    looked for; one that is not found counts as one that holds nothing.
    """
    if not directories or directories[0].count < 2:
        return
    every = [*directories, *_others(fs, directories)]
    rows = [_read(partial(_rows, fs, each.index_dir)) for each in every]
    _refuse(every, rows, "")
    if not all(rows) or any(each.index_dir != each.ledger_dir for each in every):
        _refuse(
            every, [_read(partial(_ledgers_in_logs, fs, each.ledger_dir)) for each in every], " (its logs)"
        )


def placed_directories(spaces: Iterable[IndexSpace]) -> list[LedgerDirectory]:
    """Return the directories of one bookie's indexes whose places are known; none of ``.idx`` files."""
    return [
        LedgerDirectory(space.position, space.directories, (space.log_dirs or space.index_dirs)[0], space.dir)
        for space in spaces
        if space.position is not None and not space.kind.shares_log_ids
    ]


def _others(fs: FileSystem, directories: Sequence[LedgerDirectory]) -> list[LedgerDirectory]:
    """Return the bookie's directories that were not named, as far as they are found."""
    known = {each.position for each in directories}
    if len(known) == directories[0].count:
        return []
    try:
        spaces = index_spaces(fs, [inspect_directory(fs, each.ledger_dir) for each in directories])
        paths = dict.fromkeys(path for space in spaces for path in space.mark_dirs)
        placed = placed_directories(index_spaces(fs, [inspect_directory(fs, path) for path in paths]))
    except (NotFoundError, StorageError, UsageError):
        return []
    return [each for each in placed if each.position not in known and each.count == directories[0].count]


def _refuse(directories: Sequence[LedgerDirectory], held: Sequence[set[int]], what: str) -> None:
    count = directories[0].count
    names = [f"directory {place} (counted from 0)" for place in range(count)]
    counts = [[0] * count for _ in range(count)]
    ledgers: dict[int, set[int]] = {}
    for each, found in zip(directories, held, strict=True):
        names[each.position] = f"{each.ledger_dir}{what}"
        counts[each.position] = count_places(found, count)
        ledgers[each.position] = found
    exchanged = exchanged_places(counts)
    if exchanged:
        examples = [one_of_place(ledgers[place], home, count) for place, home in exchanged.items()]
        raise RefusedError(
            f"{describe_exchange(names, exchanged, examples)}, so a repair would write to the wrong disk. "
            "Nothing was changed. Mount each disk where its ledgers belong, or name all ledger directories "
            "in the order of the cookie; then repair"
        )
    copied = copied_places(counts, lambda position, other: len(ledgers[position] & ledgers[other]))
    if copied:
        examples = [one_of_place(ledgers[place], home, count) for place, home in copied.items()]
        raise RefusedError(
            f"{describe_copy(names, copied, examples)}, so a repair would write to the wrong disk. Nothing "
            "was changed. Mount the disk that belongs there; then repair. If that disk is lost for good, "
            "replace it by an empty one ('bkctl bookie rebuild')"
        )


def _ledgers_in_logs(fs: FileSystem, directory: str) -> set[int]:
    return ledgers_of_logs(fs, inspect_directory(fs, directory).logs)


def _read(read: Callable[[], set[int]]) -> set[int]:
    """Return nothing of what cannot be read: the repair itself says so."""
    try:
        return read()
    except (CorruptionError, NotFoundError, StorageError):
        return set()


def _rows(fs: FileSystem, directory: str) -> set[int]:
    index = open_index(fs, directory)
    if index is None:
        return set()
    with index:
        return {row.ledger for row in index.ledgers.rows() if not isinstance(row, IndexDamage)}
