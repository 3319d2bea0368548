"""Rows of ledgers that are lost, so that no repair can put ledgers into limbo.

An empty database may be what a start has made in the place of a lost one. Rows in limbo would be the first
ones in it, and the next start would take it for the bookie's: all ledgers without such a row are denied then.
"""

from __future__ import annotations

from posixpath import join

from bkctl.admin.index.stopped_index import IndexDatabases
from bkctl.admin.journals.stopped_bookie import StoppedBookie
from bkctl.engine.journaled_entries import JournalPlace
from bkctl.engine.ledger_storage import IndexPlace
from bkctl.engine.lost_index import find_lost_indexes
from bkctl.engine.lost_index_refusal import refuse_lost_indexes
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.vfs import FileSystem


def refuse_lost_rows(fs: FileSystem, bookie: StoppedBookie, databases: IndexDatabases) -> None:
    """Raise RefusedError with the way out where a database was lost; CorruptionError, StorageError.

    A database that is not there at all is refused by whoever opens it.
    """
    spaces = sorted(
        (space for space in bookie.spaces if space.kind.has_databases and space.index_dirs),
        key=lambda space: space.position or 0,
    )

    def empty(number: int) -> dict[str, str]:
        paths = {name: join(spaces[number].index_dirs[0], name) for name in (LOCATIONS, LEDGERS)}
        return {
            name: "empty"
            for name, path in paths.items()
            if is_key_value_store(fs, path) and databases.is_unused(path)
        }

    lost = find_lost_indexes(
        fs,
        [IndexPlace(space.log_dirs, space.index_dirs[0], space.kind) for space in spaces],
        lambda: [JournalPlace(each.directory.path, bookie.mark(fs, each)) for each in bookie.journals],
        empty,
    )
    refuse_lost_indexes(fs, lost)
