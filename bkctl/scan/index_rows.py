"""The rows that reading an index gives, whichever kind of index it is."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import Location, LocationColumns
from bkctl.errors import CorruptionError, StorageError

#: Rows in one :class:`LocationColumns` at most, and where a database gives them as columns.
BATCH_ROWS = 8192
PACKED_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class IndexDamage:
    """A row or a part of a file that does not decode.

    ``path`` is the database's directory or the ``.idx`` file. ``key_hex`` is the row's key, empty where
    there is none; ``offset`` is the place in an ``.idx`` file, None for a database.
    """

    path: str
    key_hex: str
    reason: str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One ledger; ``key_bytes`` is 16 for a row that Java's index rebuild wrote, 8 otherwise."""

    ledger: int
    data: LedgerData
    key_bytes: int = 8


class LocationSource(Protocol):
    """The locations of entries. Absent entries (location 0) are never among the rows."""

    @property
    def path(self) -> str:
        """The directory it was read from."""

    def rows(
        self, ledger: int | None = None, entries: tuple[int, int] | None = None
    ) -> Iterator[LocationColumns | IndexDamage]:
        """Yield the rows in order of ledger and entry, in batches of 1 to ``PACKED_ROWS``.

        ``entries`` is the first and the last entry id wanted, both inclusive. Raises CorruptionError or
        StorageError when the index cannot be read any further.
        """

    def get(self, ledger: int, entry: int) -> Location | None:
        """Return the location of an entry, None when it is absent. Raises CorruptionError, StorageError."""

    def last_entry(self, ledger: int) -> int | None:
        """Return the largest entry id of a ledger, None when it has none.

        Raises CorruptionError, StorageError.
        """


class LedgerSource(Protocol):
    """The rows that are known of ledgers."""

    @property
    def path(self) -> str:
        """The directory it was read from."""

    def rows(self) -> Iterator[LedgerRow | IndexDamage]:
        """Yield every row, in order of ledgers. Raises CorruptionError, StorageError."""

    def merged(self) -> Iterator[LedgerRow | IndexDamage]:
        """Yield one row for each ledger: the 8-byte one where there are two."""

    def get(self, ledger: int) -> LedgerRow | None:
        """Return a ledger's merged row. Raises CorruptionError, StorageError."""

    def needs_integrity_check(self) -> bool:
        """Return whether Java asked for a data integrity check of this directory. Raises CorruptionError."""


def reason_of(error: CorruptionError | StorageError) -> str:
    """Return the error's text without the path, which damage has a field for."""
    return str(error.located("")) if isinstance(error, CorruptionError) else str(error)


def select(columns: LocationColumns, entries: tuple[int, int] | None) -> LocationColumns:
    """Return the rows that are not absent and, if given, lie within ``entries``."""
    # Four zeros side by side may be of two offsets: then they are looked at one by one.
    if entries is None and bytes(4) not in columns.offsets.tobytes():
        return columns
    first, last = entries or (0, 0)
    kept = [
        index
        for index, entry in enumerate(columns.entries)
        if (columns.offsets[index] or columns.log_ids[index]) and (entries is None or first <= entry <= last)
    ]
    if len(kept) == len(columns):
        return columns
    return LocationColumns(
        _pick(columns.ledgers, kept),
        _pick(columns.entries, kept),
        _pick(columns.log_ids, kept),
        _pick(columns.offsets, kept),
    )


def _pick(column: array[int], indices: list[int]) -> array[int]:
    return array(column.typecode, [column[index] for index in indices])
