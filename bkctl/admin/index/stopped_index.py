"""The index of a stopped bookie as repairs read and write it, whichever kind it is.

Rows of ledgers and of entries have the keys and values that DbLedgerStorage gives them; of ``.idx`` files
``admin.index.stopped_idx_files`` makes such rows. A table has a row for each way in which a kind keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from posixpath import basename, join
from typing import Protocol

from bkctl.admin.index.stopped_idx_files import HeaderRows, SlotRows, header_intents, slot_intents
from bkctl.admin.next_step import index_rebuild_line
from bkctl.admin.repairs.repair_journal import Intent, changes_database
from bkctl.codec.location import LocationColumns
from bkctl.directories.index_spaces import IndexSpace
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.errors import CorruptionError, RefusedError
from bkctl.kvstore.base import KeyValueReader, KeyValueStore, Operation, Row
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.location_index import LocationIndex
from bkctl.vfs import FileSystem, WritableFileSystem


class LedgerRows(Protocol):
    """The rows of ledgers; they raise CorruptionError and StorageError."""

    @property
    def path(self) -> str:
        """The path that messages name them by."""

    @property
    def damage(self) -> str | None:
        """Why rows may be missing, or None."""

    def get(self, key: bytes) -> bytes | None:
        """Return the row of a key, None where there is none."""

    def iterate(self) -> Iterator[Row]:
        """Yield all rows in the order of their keys."""

    def close(self) -> None:
        """Close what the rows are read from."""


class WritableLedgerRows(LedgerRows, Protocol):
    """The rows of ledgers, to be changed."""

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """Do all operations; with ``sync`` they are durable when this returns."""


class EntryRows(Protocol):
    """The rows of entries; they raise CorruptionError and StorageError."""

    @property
    def path(self) -> str:
        """The path that messages name them by."""

    @property
    def damage(self) -> str | None:
        """Why rows may be missing, or None."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""

    def columns(self) -> Iterator[LocationColumns | IndexDamage]:
        """Yield all rows in the order of their keys, and what does not decode."""

    def close(self) -> None:
        """Close what the rows are read from."""


class WritableEntryRows(EntryRows, Protocol):
    """The rows of entries, to be changed."""

    def put_many(self, keys: Sequence[bytes], locations: Sequence[int]) -> None:
        """Set places of entries; they are durable with the next :meth:`sync`."""

    def sync(self) -> None:
        """Make what was set durable."""


@dataclass(frozen=True, slots=True)
class IndexDatabases:
    """The way to open the databases ``ledgers`` and ``locations``: to look, and to write."""

    read: Callable[[str], KeyValueReader]
    write: Callable[[str], KeyValueStore]

    def is_unused(self, path: str) -> bool:
        """Return whether a database was never written to. Raises CorruptionError, StorageError."""
        with closing(self.read(path)) as store:
            return store.never_written


def rocks_databases() -> IndexDatabases:
    """Return the databases on disk."""
    from bkctl.kvstore import rocksdb_store
    from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
    from bkctl.scan.index_databases import open_store

    def to_write(path: str) -> KeyValueStore:
        profile = LOCATIONS_PROFILE if basename(path) == LOCATIONS else LEDGERS_PROFILE
        return rocksdb_store.open_store(path, profile, create=False)

    return IndexDatabases(open_store, to_write)


class StoppedIndex:
    """The index of one space.

    Raises RefusedError where there is none; the methods raise CorruptionError, RefusedError, StorageError.
    """

    def __init__(self, fs: FileSystem, space: IndexSpace, databases: IndexDatabases) -> None:
        if not space.index_dirs:
            raise RefusedError(
                f"{space.dir}: has no index; rebuild it first: {index_rebuild_line(space.dir)}"
            )
        self._fs = fs
        self._space = space
        self._databases = databases

    def ledgers(self) -> LedgerRows:
        """Return the rows of ledgers, to be read; nothing is written."""
        if self._space.kind.has_databases:
            return self._databases.read(self._database(LEDGERS))
        return HeaderRows(self._fs, self._space.index_dirs)

    def refuse_lost_ledgers(self) -> None:
        """Raise RefusedError where an empty database is in the place of the rows of ledgers.

        Of an index that has rows of entries; rows in limbo would be the first ones and hide the loss.
        """
        if not self._space.kind.has_databases:
            return
        path = self._database(LEDGERS)
        if self._databases.is_unused(path):
            line = index_rebuild_line(self._space.index_dirs[0])
            raise RefusedError(f"{path}: has no row; rebuild the index first: {line}")

    def entries(self) -> EntryRows:
        """Return the rows of entries, to be read; nothing is written."""
        if self._space.kind.has_databases:
            return _StoredEntries(self._databases.read(self._database(LOCATIONS)))
        return SlotRows(self._fs, self._space.index_dirs)

    def ledgers_to_write(self, fs: WritableFileSystem) -> WritableLedgerRows:
        """Return the rows of ledgers, to be changed."""
        if self._space.kind.has_databases:
            return self._databases.write(self._database(LEDGERS))
        return HeaderRows(fs, self._space.index_dirs, fs)

    def entries_to_write(self, fs: WritableFileSystem) -> WritableEntryRows:
        """Return the rows of entries, to be changed."""
        if self._space.kind.has_databases:
            return _WritableEntries(self._databases.write(self._database(LOCATIONS)))
        return SlotRows(fs, self._space.index_dirs, fs)

    def ledger_changes(self, ledgers: Collection[int]) -> list[Intent]:
        """Return what changing the rows of ledgers changes."""
        if self._space.kind.has_databases:
            return [changes_database(self._database(LEDGERS))]
        return header_intents(self._fs, self._space.index_dirs, ledgers)

    def entry_changes(self, ledgers: Collection[int], *, also: Collection[int] = ()) -> list[Intent]:
        """Return what changing rows of entries of ledgers, and the rows of ``also``, changes."""
        if self._space.kind.has_databases:
            return [changes_database(self._database(name)) for name in (LOCATIONS, LEDGERS)]
        return slot_intents(self._fs, self._space.index_dirs, ledgers, also)

    def _database(self, name: str) -> str:
        path = join(self._space.index_dirs[0], name)
        if not is_key_value_store(self._fs, path):
            raise RefusedError(
                f"{self._space.dir}: has no {name}/ database; bring it back first "
                f"({index_rebuild_line(self._space.dir)})"
            )
        return path


class _StoredEntries:
    """A database ``locations``, to be read."""

    def __init__(self, store: KeyValueReader) -> None:
        self._store = store

    @property
    def path(self) -> str:
        return self._store.path

    @property
    def damage(self) -> str | None:
        return self._store.damage

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._store.get_many(keys)

    def columns(self) -> Iterator[LocationColumns | IndexDamage]:
        return LocationIndex(self._store).rows()

    def close(self) -> None:
        self._store.close()


class _WritableEntries(_StoredEntries):
    """A database ``locations``, to be written."""

    def __init__(self, store: KeyValueStore) -> None:
        super().__init__(store)
        self._locations = EntryLocationIndex(store)

    def put_many(self, keys: Sequence[bytes], locations: Sequence[int]) -> None:
        self._locations.put_many(keys, locations)

    def sync(self) -> None:
        """Do nothing: every call of :meth:`put_many` was durable."""


def refuse_damaged(rows: LedgerRows | EntryRows) -> None:
    """Raise CorruptionError where rows may be missing: one that is not found may be one that is damaged."""
    if rows.damage is not None:
        raise CorruptionError(rows.damage, path=rows.path)
