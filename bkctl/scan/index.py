"""Reading the indexes of a ledger directory.

DbLedgerStorage keeps ``current/locations`` and ``current/ledgers`` (RocksDB), Sorted- and
InterleavedLedgerStorage a tree of ``.idx`` files (``scan.idx_tree``). Every kind is read through the same two
interfaces, :class:`~bkctl.scan.index_rows.LocationSource` and
:class:`~bkctl.scan.index_rows.LedgerSource`; :func:`open_index` finds out which one a directory has.

A row that does not decode is a value among the rows, :class:`~bkctl.scan.index_rows.IndexDamage`. A store
that cannot be read any further raises; it never looks like the end of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from posixpath import join

from bkctl.errors import CorruptionError, NotFoundError
from bkctl.kvstore.base import KeyValueReader
from bkctl.scan.idx_tree import IdxLedgers, IdxLocations, IdxTree, has_idx_files
from bkctl.scan.index_databases import LEDGERS, LOCATIONS, StoreOpener, open_store
from bkctl.scan.index_rows import LedgerSource, LocationSource
from bkctl.scan.ledger_index import LedgerIndex
from bkctl.scan.location_index import LocationIndex
from bkctl.storage_kinds import DB, IDX, KINDS, StorageKind
from bkctl.vfs import FileSystem


class DirectoryIndex(ABC):
    """The index of one ``current`` directory, of the kind ``kind``.

    A context manager; ``close`` closes what was opened.
    """

    kind: StorageKind

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    @abstractmethod
    def locations(self) -> LocationSource:
        """The locations. Raises CorruptionError when they are not there beside the ledgers, StorageError."""

    @property
    @abstractmethod
    def ledgers(self) -> LedgerSource:
        """The ledgers. Raises CorruptionError when they are not there beside the locations, StorageError."""

    @abstractmethod
    def close(self) -> None:
        """Close what was opened."""

    def __enter__(self) -> DirectoryIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DatabaseIndex(DirectoryIndex):
    """The databases ``locations`` and ``ledgers``.

    They are opened when first asked for, so that one that is damaged does not keep the other from being read.
    """

    kind = DB

    def __init__(self, path: str, opener: StoreOpener) -> None:
        super().__init__(path)
        self._opener = opener
        self._locations: LocationIndex | None = None
        self._ledgers: LedgerIndex | None = None

    @property
    def locations(self) -> LocationSource:
        if self._locations is None:
            self._locations = LocationIndex(self._store(LOCATIONS))
        return self._locations

    @property
    def ledgers(self) -> LedgerSource:
        if self._ledgers is None:
            self._ledgers = LedgerIndex(self._store(LEDGERS))
        return self._ledgers

    def _store(self, name: str) -> KeyValueReader:
        directory = join(self.path, name)
        try:
            return self._opener(directory)
        except NotFoundError:
            raise CorruptionError(
                "index of DbLedgerStorage", expected=f"a directory {name}", found="none", path=self.path
            ) from None

    def close(self) -> None:
        for index in (self._locations, self._ledgers):
            if index is not None:
                index.close()


class IdxIndex(DirectoryIndex):
    """A tree of ``.idx`` files, each of which is open only while it is read."""

    kind = IDX

    def __init__(self, path: str, tree: IdxTree) -> None:
        super().__init__(path)
        self._tree = tree

    @property
    def locations(self) -> LocationSource:
        return IdxLocations(self._tree)

    @property
    def ledgers(self) -> LedgerSource:
        return IdxLedgers(self._tree)

    def close(self) -> None:
        """Close nothing: a file is open only while it is read."""


def _databases(fs: FileSystem, current_dir: str, opener: StoreOpener) -> DirectoryIndex | None:
    names = fs.names(current_dir)
    for name in (LOCATIONS, LEDGERS):
        facts = fs.status(join(current_dir, name)) if name in names else None
        if facts is not None and facts.is_dir:
            return DatabaseIndex(current_dir, opener)
    return None


def _idx_files(fs: FileSystem, current_dir: str, _: StoreOpener) -> DirectoryIndex | None:
    return IdxIndex(current_dir, IdxTree(fs, current_dir)) if has_idx_files(fs, current_dir) else None


#: Opens the index of a kind in a ``current`` directory; returns None when the directory has none.
READERS: Mapping[StorageKind, Callable[[FileSystem, str, StoreOpener], DirectoryIndex | None]] = {
    DB: _databases,
    IDX: _idx_files,
}


def open_index(fs: FileSystem, current_dir: str, opener: StoreOpener = open_store) -> DirectoryIndex | None:
    """Return the index in a ``current`` directory, None when there is no kind of it.

    Of several the first of ``KINDS`` counts: the databases win over ``.idx`` files, which a conversion may
    leave behind. Directories that tools leave, such as ``ledgers.PREV-<time>``, do not count. Raises
    NotFoundError, StorageError.
    """
    for kind in KINDS:
        index = READERS[kind](fs, current_dir, opener)
        if index is not None:
            return index
    return None
