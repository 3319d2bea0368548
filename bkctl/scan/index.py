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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from posixpath import join
from typing import TypeVar

from bkctl.codec import entry_log_metadata, location
from bkctl.codec.entry_log_metadata import EntryLogMetadata
from bkctl.codec.ledger_data import (
    FLAGS_ID,
    NEEDS_INTEGRITY_CHECK,
    REBUILT_KEY_BYTES,
    decode_flags,
    decode_ledger_data,
    decode_ledger_key,
    encode_ledger_key,
)
from bkctl.codec.location import ID_MAX, Location, LocationColumns
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.kvstore.base import KeyValueReader, PackedRows, Row
from bkctl.scan.idx_tree import IdxLedgers, IdxLocations, IdxTree, has_idx_files
from bkctl.scan.index_rows import (
    BATCH_ROWS,
    PACKED_ROWS,
    IndexDamage,
    LedgerRow,
    LedgerSource,
    LocationSource,
    reason_of,
    select,
)
from bkctl.storage_kinds import DB, IDX, KINDS, StorageKind
from bkctl.vfs import FileSystem

__all__ = [
    "DirectoryIndex",
    "IdxTree",
    "IndexDamage",
    "LedgerIndex",
    "LedgerRow",
    "LedgerSource",
    "LocationIndex",
    "LocationSource",
    "LogMetadataCache",
    "open_index",
    "open_store",
]

_PREFIX_BYTES = 8
_PREFIX_MAX = (1 << 64) - 1

LOCATIONS = "locations"
LEDGERS = "ledgers"
METADATA_CACHE = "metadata-cache"

_T = TypeVar("_T")

StoreOpener = Callable[[str], KeyValueReader]


def open_store(directory: str) -> KeyValueReader:
    """Open a RocksDB directory read-only, without a trace. Raises as ``kvstore.rocksdb.open_read_only``."""
    from bkctl.kvstore.rocksdb import open_read_only  # keeps commands on other formats free of RocksDB

    return open_read_only(directory)


@dataclass(frozen=True, slots=True)
class LocationTable:
    """A table file of ``locations``, and the ledgers of its first and its last row."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """The tables of a database, and stretches of ledgers with rows that are in none of them.

    The rows of a ledger in the database depend on the tables around it and on these rows alone. Ledgers are
    the first 8 bytes of keys without a sign; a table reaches to its last ledger, that included.
    """

    tables: tuple[LocationTable, ...]
    unsettled: tuple[tuple[int, int], ...]


class LocationIndex:
    """The ``locations`` database; implements :class:`LocationSource`. ``close`` closes the store."""

    def __init__(self, store: KeyValueReader) -> None:
        self._store = store

    @classmethod
    def open(cls, directory: str) -> LocationIndex:
        """Open a ``locations`` directory. Raises NotFoundError, CorruptionError, StorageError."""
        return cls(open_store(directory))

    @property
    def path(self) -> str:
        return self._store.path

    def rows(
        self, ledger: int | None = None, entries: tuple[int, int] | None = None
    ) -> Iterator[LocationColumns | IndexDamage]:
        if self._store.damage is not None:
            yield IndexDamage(self.path, "", self._store.damage)
        prefix = start = stop = None
        if ledger is not None:
            prefix = encode_ledger_key(ledger)
            if entries is not None and 0 <= entries[0] <= entries[1]:
                start = location.encode_key(ledger, entries[0])
                stop = location.encode_key(ledger, entries[1]) + b"\0"
                entries = None
        if ledger is None and entries is None:
            for piece in self._store.packed(location.KEY_BYTES, location.VALUE_BYTES):
                yield from self._decoded(piece) if isinstance(piece, list) else self._unpacked(piece)
            return
        for batch in self._store.batches(start, stop, prefix=prefix, rows_max=BATCH_ROWS):
            yield from self._decoded(batch, entries)

    def ledger_rows(self, first: int, last: int) -> Iterator[LocationColumns | IndexDamage]:
        """Yield the rows of ledgers whose keys begin with ``first`` to ``last``, 8 bytes each without a sign.

        Damage of the store as a whole is not among them. Raises as :meth:`rows`.
        """
        stop = None if last >= _PREFIX_MAX else _prefix(last + 1)
        for piece in self._store.packed(location.KEY_BYTES, location.VALUE_BYTES, _prefix(first), stop):
            yield from self._decoded(piece) if isinstance(piece, list) else self._unpacked(piece)

    def layout(self) -> IndexLayout | None:
        """Return where the rows are, None where that is not known. Raises CorruptionError, StorageError."""
        unsettled = self._store.unsettled()
        if unsettled is None:
            return None
        return IndexLayout(
            tuple(
                LocationTable(table.name, _leading(table.start), _leading(table.last))
                for table in self._store.tables()
            ),
            tuple((_leading(first), _leading(last)) for first, last in unsettled),
        )

    def _unpacked(self, rows: PackedRows) -> Iterator[LocationColumns | IndexDamage]:
        count = len(rows.values) // location.VALUE_BYTES
        for first in range(0, count, PACKED_ROWS):
            last = first + PACKED_ROWS
            keys = rows.keys[first * location.KEY_BYTES : last * location.KEY_BYTES]
            values = rows.values[first * location.VALUE_BYTES : last * location.VALUE_BYTES]
            columns = location.decode_columns(keys, values)
            if columns is None:
                yield from self._decoded(_single_rows(keys, values))
                continue
            columns = select(columns, None)
            if columns:
                yield columns

    def _decoded(
        self, batch: list[Row], entries: tuple[int, int] | None = None
    ) -> Iterator[LocationColumns | IndexDamage]:
        damage: list[IndexDamage] = []
        try:
            columns = location.decode_rows(batch)
        except CorruptionError:
            columns = location.decode_rows([row for row in batch if not self._is_damaged(row, damage)])
        columns = select(columns, entries)
        if columns:
            yield columns
        yield from damage

    def _is_damaged(self, row: Row, damage: list[IndexDamage]) -> bool:
        try:
            location.decode_key(row[0])
            location.decode_value(row[1])
        except CorruptionError as error:
            damage.append(IndexDamage(self.path, row[0].hex(), reason_of(error)))
            return True
        return False

    def get(self, ledger: int, entry: int) -> Location | None:
        key = location.encode_key(ledger, entry)
        value = self._store.get(key)
        if value is None:
            return None
        return _decode(location.decode_value, value, key, self.path)

    def last_entry(self, ledger: int) -> int | None:
        """Find the last entry as Java does, below (ledger, 2^63 - 1), so that negative ids do not count."""
        key = location.encode_key(ledger, ID_MAX)
        while (row := self._store.below(key)) is not None:
            key = row[0]
            found_ledger, entry = _decode(location.decode_key, key, key, self.path)
            if found_ledger != ledger:
                return None
            if _decode(location.decode_value, row[1], key, self.path) is not None:
                return entry
        return None

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def _prefix(ledger: int) -> bytes:
    return ledger.to_bytes(_PREFIX_BYTES, "big")


def _leading(key: bytes) -> int:
    return int.from_bytes(key[:_PREFIX_BYTES].ljust(_PREFIX_BYTES, b"\0"), "big")


def _single_rows(keys: bytes, values: bytes) -> list[Row]:
    return [
        (
            keys[number * location.KEY_BYTES : (number + 1) * location.KEY_BYTES],
            values[number * location.VALUE_BYTES : (number + 1) * location.VALUE_BYTES],
        )
        for number in range(len(keys) // location.KEY_BYTES)
    ]


class LedgerIndex:
    """The ``ledgers`` database; implements :class:`LedgerSource`. ``close`` closes the store."""

    def __init__(self, store: KeyValueReader) -> None:
        self._store = store

    @classmethod
    def open(cls, directory: str) -> LedgerIndex:
        """Open a ``ledgers`` directory. Raises NotFoundError, CorruptionError, StorageError."""
        return cls(open_store(directory))

    @property
    def path(self) -> str:
        return self._store.path

    def rows(self) -> Iterator[LedgerRow | IndexDamage]:
        """Yield every row but that of the flags, which is among them only when it is damaged."""
        if self._store.damage is not None:
            yield IndexDamage(self.path, "", self._store.damage)
        for key, value in self._store.iterate():
            try:
                ledger, key_bytes = decode_ledger_key(key)
                if ledger == FLAGS_ID:
                    decode_flags(value)
                else:
                    yield LedgerRow(ledger, decode_ledger_data(value), key_bytes)
            except CorruptionError as error:
                yield IndexDamage(self.path, key.hex(), reason_of(error))

    def merged(self) -> Iterator[LedgerRow | IndexDamage]:
        last: int | None = None
        for row in self.rows():
            if isinstance(row, LedgerRow):
                # The 8-byte key is a prefix of the 16-byte one, so its row comes first.
                if row.ledger == last:
                    continue
                last = row.ledger
            yield row

    def get(self, ledger: int) -> LedgerRow | None:
        key = encode_ledger_key(ledger)
        for candidate in (key, key.ljust(REBUILT_KEY_BYTES, b"\0")):
            value = self._store.get(candidate) if ledger >= 0 else None
            if value is not None:
                data = _decode(decode_ledger_data, value, candidate, self.path)
                return LedgerRow(ledger, data, len(candidate))
        return None

    def needs_integrity_check(self) -> bool:
        key = encode_ledger_key(FLAGS_ID)
        value = self._store.get(key)
        return value is not None and bool(
            _decode(decode_flags, value, key, self.path) & NEEDS_INTEGRITY_CHECK
        )

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class LogMetadataCache:
    """The ``metadata-cache`` database. ``close`` closes the store."""

    def __init__(self, store: KeyValueReader) -> None:
        self._store = store

    @classmethod
    def open(cls, directory: str) -> LogMetadataCache:
        """Open a ``metadata-cache`` directory. Raises NotFoundError, CorruptionError, StorageError."""
        return cls(open_store(directory))

    @property
    def path(self) -> str:
        """The directory it was read from."""
        return self._store.path

    def rows(self) -> Iterator[EntryLogMetadata | IndexDamage]:
        """Yield every row, in order of log ids. Raises CorruptionError, StorageError."""
        if self._store.damage is not None:
            yield IndexDamage(self.path, "", self._store.damage)
        for key, value in self._store.iterate():
            try:
                yield _decode_metadata(key, value)
            except CorruptionError as error:
                yield IndexDamage(self.path, key.hex(), reason_of(error))

    def get(self, log_id: int) -> EntryLogMetadata | None:
        """Return the row of a log, None when it has none. Raises CorruptionError, StorageError."""
        key = entry_log_metadata.encode_log_key(log_id)
        value = self._store.get(key)
        if value is None:
            return None
        return _decode(lambda data: _decode_metadata(key, data), value, key, self.path)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


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


def _decode_metadata(key: bytes, value: bytes) -> EntryLogMetadata:
    log_id = entry_log_metadata.decode_log_key(key)
    metadata = entry_log_metadata.decode_entry_log_metadata(value)
    if metadata.log_id != log_id:
        raise CorruptionError(
            "entry log metadata", offset=2, expected=f"log id {log_id}", found=str(metadata.log_id)
        )
    return metadata


def _decode(decoder: Callable[[bytes], _T], data: bytes, key: bytes, path: str) -> _T:
    """Decode one row's bytes; a failure names the database and the row."""
    try:
        return decoder(data)
    except CorruptionError as error:
        raise CorruptionError(
            f"row {key.hex()}: {error.what}",
            offset=error.offset,
            expected=error.expected,
            found=error.found,
            path=path,
        ) from None
