"""The locations of the old index: which ledgers have any, and which of them the logs no longer confirm.

A new index has every entry of the old one, or the rebuild reports that it is missing. An entry that the old
index knew and that stands in no log is lost: its ledger is put into limbo, as after any other loss.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from posixpath import join

import numpy as np

from bkctl import _kernels
from bkctl.admin.index.rows.location_runs import Rows, Run, of_ledgers, rows_of
from bkctl.admin.index.rows.lost_entries import LostEntries, note_lost, note_missing, run_rows
from bkctl.codec.location import ID_MAX, KEY_BYTES, VALUE_BYTES, decode_key, encode_key
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.kvstore.base import KeyValueReader, Row
from bkctl.reporting import Advance, nobody
from bkctl.scan.columns.column import Column
from bkctl.scan.directory import LogFile
from bkctl.scan.idx_tree import IdxLocations, IdxTree
from bkctl.scan.index_databases import LOCATIONS, open_store
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import FileSystem

_BATCH_ROWS = 1 << 14
#: Rows read at a time to find a ledger's first one.
_FIRST_ROWS = 64
NO_LOCATIONS = "there is no locations database"
#: An empty database was made in place of one that was lost.
NEVER_WRITTEN = "nothing was ever written to the locations database"

#: Reads the rows of an old index in order of their keys: those of the ledgers given, ascending. The keys of
#: rows that do not decode are put into the last argument.
OldRows = Callable[[FileSystem, str, Column, set[tuple[int, int]]], Iterator[Rows]]


@dataclass(slots=True)
class OldLocations:
    """``ledgers`` had locations; ``problem`` says why they may not be all.

    ``last_only`` had none but that of the largest entry id, 2^63-1. Java's deletion of a ledger leaves such a
    row behind, so it proves no ledger; of one that is there it is a location like any other.
    """

    ledgers: set[int] = field(default_factory=set)
    last_only: set[int] = field(default_factory=set)
    problem: str | None = None


def old_ledgers(current_dir: str) -> OldLocations:
    """Find the ledgers with a location in a directory's ``locations`` database, by one read for each.

    Rows with negative entry ids, which Java's deletion leaves behind, do not count. Raises StorageError when
    the disk fails.
    """
    found = OldLocations()
    try:
        store = open_store(join(current_dir, LOCATIONS))
    except NotFoundError:
        found.problem = NO_LOCATIONS
        return found
    except CorruptionError as error:
        found.problem = str(error)
        return found
    try:
        found.problem = NEVER_WRITTEN if store.never_written else store.damage
        for ledger, entry in _first_rows(store):
            (found.last_only if entry == ID_MAX else found.ledgers).add(ledger)
    except CorruptionError as error:
        found.problem = str(error)
    finally:
        store.close()
    return found


def _first_rows(store: KeyValueReader) -> Iterator[tuple[int, int]]:
    """Yield each ledger with its first entry id that is not negative."""
    start: bytes | None = None
    while batch := next(iter(store.batches(start, None, rows_max=_FIRST_ROWS)), None):
        last = None
        for key, _ in batch:
            try:
                ledger, entry = decode_key(key)
            except CorruptionError:
                continue  # no ledger's key; the next one may be
            # Keys are unsigned: a ledger's first row has its lowest entry, negative ones come last.
            if ledger >= 0 and ledger != last and entry >= 0:
                yield ledger, entry
            last = ledger
        if last is None:
            start = batch[-1][0] + b"\0"
        elif not 0 <= last < ID_MAX:
            return  # negative ledger ids sort last, and no ledger has one
        else:
            start = encode_key(last + 1, 0)


def lost_entries(
    filesystem: FileSystem,
    index_dirs: Sequence[str],
    old_rows: OldRows,
    runs: Sequence[Run],
    ledgers: Collection[int],
    rows_max: int,
    advance: Advance = nobody,
) -> dict[int, LostEntries]:
    """Find what the old index has of some ledgers and the logs' rows do not. Raises StorageError.

    Rows that do not decode are looked for by their keys; where even the store breaks off, the rest of it is
    not compared, because nobody knows it.
    """
    wanted = np.array(sorted(ledgers), np.int64)
    lost: dict[int, LostEntries] = {}
    for directory in index_dirs:
        damaged: set[tuple[int, int]] = set()
        old = old_rows(filesystem, directory, wanted, damaged)
        note_missing(lost, old, run_rows(runs, rows_max), advance)
        if damaged:
            note_lost(lost, _unfound(damaged, runs, rows_max))
    return lost


def dangling_entries(
    filesystem: FileSystem,
    index_dirs: Sequence[str],
    old_rows: OldRows,
    logs: Sequence[LogFile],
    ledgers: Collection[int],
) -> dict[int, LostEntries]:
    """Find what the old index has of some ledgers in logs that are not there.

    This is for a dry run, which keeps no rows of the logs and goes by the logs that are there alone.
    """
    wanted = np.array(sorted(ledgers), np.int64)
    there = np.array(sorted(log.log_id for log in logs), np.int64)
    lost: dict[int, LostEntries] = {}
    for directory in index_dirs:
        for rows in old_rows(filesystem, directory, wanted, set()):
            note_lost(lost, rows.select(~np.isin(rows.locations >> 32, there)))
    return lost


def rows_in_logs(
    filesystem: FileSystem,
    index_dirs: Sequence[str],
    old_rows: OldRows,
    logs: Sequence[LogFile],
    ledgers: Collection[int],
) -> Iterator[Rows]:
    """Yield the rows of ``ledgers`` in the old index whose log is there, each directory's in order of keys.

    Raises StorageError.
    """
    wanted = np.array(sorted(ledgers), np.int64)
    there = np.array(sorted(log.log_id for log in logs), np.int64)
    for directory in index_dirs:
        for rows in old_rows(filesystem, directory, wanted, set()):
            yield rows.select(np.isin(rows.locations >> 32, there))


def rows_of_databases(
    filesystem: FileSystem, directory: str, wanted: Column, damaged: set[tuple[int, int]]
) -> Iterator[Rows]:
    """Yield the rows of a ``locations`` database; see ``OldRows``."""
    store = None
    try:
        store = open_store(join(directory, LOCATIONS))
        for batch in store.batches(rows_max=_BATCH_ROWS):
            yield from _chosen(_decoded(batch, wanted, damaged), wanted)
    except (CorruptionError, NotFoundError):
        return  # what cannot be read says nothing
    finally:
        if store is not None:
            store.close()


def rows_of_idx_files(
    filesystem: FileSystem, directory: str, wanted: Column, damaged: set[tuple[int, int]]
) -> Iterator[Rows]:
    """Yield the rows of ``.idx`` files; see ``OldRows``."""
    try:
        for item in IdxLocations(IdxTree(filesystem, directory)).rows():
            if not isinstance(item, IndexDamage):
                yield from _chosen(rows_of(item), wanted)
    except (CorruptionError, NotFoundError):
        return  # what cannot be read says nothing


def _decoded(batch: list[Row], wanted: Column, damaged: set[tuple[int, int]]) -> Rows:
    try:
        joined = _kernels.join_rows(batch, KEY_BYTES, VALUE_BYTES)
    except ValueError:
        sound = [row for row in batch if len(row[0]) == KEY_BYTES and len(row[1]) == VALUE_BYTES]
        for key, value in batch:
            if len(key) == KEY_BYTES and len(value) != VALUE_BYTES:
                damaged |= _key_of(key, wanted)
        joined = _kernels.join_rows(sound, KEY_BYTES, VALUE_BYTES) if sound else b""
    table = np.frombuffer(joined, ">i8").reshape(-1, 3).T.astype(np.int64)
    return Rows(table[0], table[1], table[2])


def _chosen(rows: Rows, wanted: Column) -> Iterator[Rows]:
    if len(rows) and int(rows.entries.min()) < 0:
        rows = rows.select(rows.entries >= 0)
    rows = of_ledgers(rows, wanted)
    if len(rows):
        yield rows


def _key_of(key: bytes, wanted: Column) -> set[tuple[int, int]]:
    ledger, entry = decode_key(key)
    return {(ledger, entry)} if ledger in wanted and entry >= 0 else set()


def _unfound(keys: set[tuple[int, int]], runs: Sequence[Run], rows_max: int) -> Rows:
    ledgers = np.array(sorted({ledger for ledger, _ in keys}), np.int64)
    left = set(keys)
    for rows in run_rows(runs, rows_max):
        mine = rows.select(np.isin(rows.ledgers, ledgers))
        left.difference_update(zip(mine.ledgers.tolist(), mine.entries.tolist(), strict=True))
    listed = np.array(sorted(left), np.int64).reshape(-1, 2)
    return Rows(listed[:, 0], listed[:, 1], np.zeros(len(listed), np.int64))
