"""Locations of entries, and the rows of the ``locations`` database.

====== ==== ==========================================================
offset size field
====== ==== ==========================================================
key    16   i64 ledger id, i64 entry id
value  8    i64 location = (log id << 32) | offset; 0 means absent
====== ==== ==========================================================

All integers are big-endian and signed. The offset is that of the entry's body in its log, so the size word
stands 4 bytes before it and the smallest one is 1028. For ids that are not negative the bytewise order of
keys is the numeric one; negative entry ids, which Java does not refuse, sort behind all others of a ledger.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.EntryLocationIndex``, ``LongPairWrapper`` and
``LongWrapper``; the packing is in ``DefaultEntryLogger.addEntry``.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from bkctl.errors import CorruptionError
from bkctl.reporting import counted

KEY_BYTES = 16
VALUE_BYTES = 8
#: The location that means "no such entry".
ABSENT = 0
LOG_ID_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 32) - 1
ID_MAX = (1 << 63) - 1

_KEY = struct.Struct(">qq")
_I64 = struct.Struct(">q")
_SWAP = sys.byteorder == "little"


@dataclass(frozen=True, slots=True)
class Location:
    """The place of an entry's body: byte ``offset`` of entry log ``log_id``."""

    log_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LocationColumns:
    """Rows of an index as columns of one length.

    ``ledgers`` and ``entries`` are i64, ``log_ids`` i32, ``offsets`` u32. Unlike an ``EntryBatch`` they have
    no bytes of a file behind them. A row with log id 0 and offset 0 is absent.
    """

    ledgers: array[int]
    entries: array[int]
    log_ids: array[int]
    offsets: array[int]

    def __len__(self) -> int:
        return len(self.ledgers)


def pack_location(log_id: int, offset: int) -> int:
    """Return the i64 of a location. Raises ValueError outside i32 >= 0 and u32."""
    if not 0 <= log_id <= LOG_ID_MAX or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"log id {log_id}, offset {offset}: not a location")
    return log_id << 32 | offset


def unpack_location(location: int) -> Location | None:
    """Return a location's log id and offset, None for 0. Raises CorruptionError when it is negative."""
    if location < 0:
        raise CorruptionError("location", expected="a log id >= 0", found=str(location >> 32))
    if location == ABSENT:
        return None
    return Location(location >> 32, location & OFFSET_MAX)


def encode_key(ledger: int, entry: int) -> bytes:
    """Return the 16 bytes of a key."""
    return _KEY.pack(ledger, entry)


def decode_key(key: bytes) -> tuple[int, int]:
    """Return the ledger and the entry id of a key.

    Raises CorruptionError unless there are 16 bytes and the ledger id is >= 0.
    """
    if len(key) != KEY_BYTES:
        raise CorruptionError("locations key", expected=f"{KEY_BYTES} bytes", found=counted(len(key), "byte"))
    ledger, entry = _KEY.unpack(key)
    if ledger < 0:
        raise CorruptionError("locations key", expected="a ledger id >= 0", found=str(ledger))
    return ledger, entry


def encode_value(location: Location | None) -> bytes:
    """Return the 8 bytes of a value; None is absent."""
    return _I64.pack(ABSENT if location is None else pack_location(location.log_id, location.offset))


def decode_value(value: bytes) -> Location | None:
    """Return the location, None when absent. Raises CorruptionError unless there are 8 bytes of one."""
    if len(value) != VALUE_BYTES:
        raise CorruptionError("location", expected=f"{VALUE_BYTES} bytes", found=counted(len(value), "byte"))
    return unpack_location(_I64.unpack(value)[0])


def decode_rows(rows: Sequence[tuple[bytes, bytes]]) -> LocationColumns:
    """Return many rows at once. Raises CorruptionError when one of them does not decode, naming its key."""
    if not rows:
        return LocationColumns(array("q"), array("q"), array("i"), array("I"))
    keys, values = zip(*rows, strict=True)
    if set(map(len, keys)) == {KEY_BYTES} and set(map(len, values)) == {VALUE_BYTES}:
        columns = decode_columns(b"".join(keys), b"".join(values))
        if columns is not None:
            return columns
    for key, value in rows:
        try:
            decode_key(key)
            decode_value(value)
        except CorruptionError as error:
            raise CorruptionError(
                f"row {key.hex()}: {error.what}", expected=error.expected, found=error.found
            ) from None
    raise AssertionError("rows that decode one by one decode together")


def decode_columns(keys: bytes, values: bytes) -> LocationColumns | None:
    """Decode joined keys and as many joined values; None when one of them does not decode."""
    # The first bytes of the ledger ids and of the locations: "ASCII" when no sign bit is set.
    if not (keys[::KEY_BYTES].isascii() and values[::VALUE_BYTES].isascii()):
        return None
    columns = _big_endian("q", keys)
    log_ids, offsets = split_locations(values)
    return LocationColumns(columns[::2], columns[1::2], log_ids, offsets)


def split_locations(packed: bytes) -> tuple[array[int], array[int]]:
    """Return the log ids (i32) and offsets (u32) of the locations in a multiple of 8 bytes."""
    return _big_endian("i", packed)[::2], _big_endian("I", packed)[1::2]


def _big_endian(typecode: str, data: bytes) -> array[int]:
    column: array[int] = array(typecode, data)
    if _SWAP:
        column.byteswap()
    return column
