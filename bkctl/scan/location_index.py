"""The ``locations`` database of a ledger directory: the place of every entry in the entry logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.codec import location
from bkctl.codec.ledger_data import encode_ledger_key
from bkctl.codec.location import ID_MAX, Location, LocationColumns
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import KeyValueReader, PackedRows, Row
from bkctl.scan.index_databases import decoded, open_store
from bkctl.scan.index_rows import BATCH_ROWS, PACKED_ROWS, IndexDamage, reason_of, select

_PREFIX_BYTES = 8
_PREFIX_MAX = (1 << 64) - 1


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
        return decoded(location.decode_value, value, key, self.path)

    def last_entry(self, ledger: int) -> int | None:
        """Find the last entry as Java does, below (ledger, 2^63 - 1), so that negative ids do not count."""
        key = location.encode_key(ledger, ID_MAX)
        while (row := self._store.below(key)) is not None:
            key = row[0]
            found_ledger, entry = decoded(location.decode_key, key, key, self.path)
            if found_ledger != ledger:
                return None
            if decoded(location.decode_value, row[1], key, self.path) is not None:
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
