"""Traces of a lost database in the other one of its directory, which is left.

Both databases of a directory are written to at its first start, and a flush writes the locations of entries
in front of the rows of their ledgers. So a row of a ledger says that there were locations, unless the ledger
was only fenced, and a location says that there were rows. A row in limbo says nothing: a new disk in the
place of a lost one has rows and no location, and no entry of it is denied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from posixpath import join
from typing import NamedTuple

from bkctl.codec.location import LocationColumns
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.ledger_index import LedgerIndex
from bkctl.scan.location_index import LocationIndex
from bkctl.vfs import FileSystem


class Trace(NamedTuple):
    """A trace of a lost database: what is left and shows it, a ledger and an entry of it, and the words."""

    path: str
    ledger: int
    entry: int | None
    shows: str


def trace_in_other(
    filesystem: FileSystem,
    databases: str,
    lost: Mapping[str, str],
    is_kept: Callable[[int], bool],
    is_journaled: Callable[[int, int], bool],
) -> Trace | None:
    """Return a trace of the lost one of two ``databases`` in the other one, None without it.

    ``lost`` has "gone" or "empty" of the one that is lost. ``is_kept`` says whether a ledger counts, and
    ``is_journaled`` whether a replay brings an entry back. Raises CorruptionError, StorageError.
    """
    if LEDGERS in lost:
        path = join(databases, LOCATIONS)
        for ledger, entry in located_entries(filesystem, path):
            if is_kept(ledger) and not is_journaled(ledger, entry):
                return Trace(path, ledger, entry, f"has ledger {ledger}, entry {entry}")
        return None
    path = join(databases, LEDGERS)
    # A flush of another bookie may have written rows of fences alone, and no location.
    fences_count = lost[LOCATIONS] == "gone"
    for ledger, is_fenced in rows_without_limbo(filesystem, path):
        if (fences_count or not is_fenced) and is_kept(ledger):
            return Trace(path, ledger, None, f"has a row of ledger {ledger}")
    return None


def rows_without_limbo(filesystem: FileSystem, path: str) -> Iterator[tuple[int, bool]]:
    """Yield each ledger of a database of rows that is in no limbo, and whether it is fenced."""
    if not is_key_value_store(filesystem, path):
        return
    with closing(LedgerIndex.open(path)) as index:
        for row in index.merged():
            # A start reads all rows, too, and is refused for one that is damaged.
            if not isinstance(row, IndexDamage) and not row.data.limbo:
                yield row.ledger, row.data.fenced


def located_entries(filesystem: FileSystem, path: str) -> Iterator[tuple[int, int]]:
    """Yield ledger and entry of each row of a database of locations, none of one that is gone."""
    if not is_key_value_store(filesystem, path):
        return
    with closing(LocationIndex.open(path)) as index:
        for rows in index.rows():
            if isinstance(rows, LocationColumns):
                yield from (
                    (ledger, entry)
                    for ledger, entry in zip(rows.ledgers, rows.entries, strict=True)
                    if ledger >= 0 <= entry
                )
