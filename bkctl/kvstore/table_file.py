"""Rows of a RocksDB table file as columns, read without RocksDB.

Its binding gives a row at a time, as Python objects: that is twenty times what the row itself costs. A table
of the one *plain* kind is read here instead: format version 5, checksums XXH32, blocks as they are or packed
with LZ4, an index in one level, rows that were put and nothing else. That is what a bookie's ``locations``
are made of, Java's as ours (``kvstore.profile``). Everything else is left to RocksDB, which also says what is
wrong where something is.

::

    data blocks, from the beginning, each with 5 bytes behind it: how it is packed, checksum
    other blocks: filter, properties, index of the data blocks, index of these others
    footer, 53 bytes: kind of checksum, places of both indexes, format version, magic number

A place is an offset and a size, as numbers of seven bits a byte. That nothing is left out is checked by the
data blocks' joining, by the number of rows in the properties, and by the first and the last key.

Source: ``table/format.cc``, ``block_based/block.cc`` and ``block_based/index_builder.h`` of RocksDB.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from bkctl import _kernels
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import PackedRows, TableFile
from bkctl.kvstore.synced_log import opened_log

_FOOTER = struct.Struct("<B40sIQ")
_MAGIC = 0x88E241B785F4CFF7
_FORMAT = 5
_XXH32 = 2
_TRAILER_BYTES = 5
#: Of blocks other than those of rows.
_BLOCK_BYTES_MAX = 16 << 20
#: Data blocks that are read in one go, and their bytes at most, unless a single one has more.
_BLOCKS = 16
_WINDOW_BYTES = 4 << 20
_U32 = struct.Struct("<I")

_PROPERTIES = b"rocksdb.properties"
_RANGE_DELETIONS = b"rocksdb.range_del"
_ROWS, _DATA_BYTES = b"rocksdb.num.entries", b"rocksdb.data.size"
#: Properties that are 0 in a plain table, or not there.
_NOTHING = (
    b"rocksdb.deleted.keys",
    b"rocksdb.merge.operands",
    b"rocksdb.num.range-deletions",
    b"rocksdb.index.partitions",
)
_INDEX_KIND = b"rocksdb.block.based.table.index.type"
_BINARY_SEARCH = bytes(4)


class NotPlainError(Exception):
    """A table, or a block of it, is to be read by RocksDB."""


@dataclass(frozen=True, slots=True)
class _Place:
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        """Return the place of what follows the block."""
        return self.offset + self.size_bytes + _TRAILER_BYTES


def plain_rows(path: str, table: TableFile, key_bytes: int, value_bytes: int) -> Iterator[PackedRows]:
    """Give the rows of a plain table in order; each key and each value has so many bytes.

    Raises NotPlainError before the first row or between rows, CorruptionError for a table that is whole and
    lacks rows that it should have.
    """
    try:
        with opened_log(path, follow=True) as file:
            if os.fstat(file.fileno()).st_size != table.size_bytes:
                raise NotPlainError
            blocks, rows_wanted = _data_blocks(file.fileno(), table.size_bytes)
            rows, last = 0, b""
            for starts, window in _windows(file.fileno(), blocks):
                found = _kernels.table_rows(window, *_columns(starts), key_bytes, value_bytes)
                if found is None or not found[0] or found[0][:key_bytes] <= last:
                    raise NotPlainError
                keys = found[0]
                if not rows and keys[:key_bytes] != table.start:
                    raise NotPlainError
                rows += len(keys) // key_bytes
                last = keys[-key_bytes:]
                yield PackedRows(keys, found[1])
    except OSError as error:
        raise NotPlainError from error
    if rows != rows_wanted or last != table.last:
        raise CorruptionError(
            f"RocksDB table {table.name}",
            expected=f"{rows_wanted} rows up to {table.last.hex()}",
            found=f"{rows} up to {last.hex()}",
            path=os.path.dirname(path),
        )


def _columns(places: Sequence[_Place]) -> tuple[bytes, bytes]:
    starts = array("q", [place.offset for place in places])
    sizes = array("q", [place.size_bytes for place in places])
    return starts.tobytes(), sizes.tobytes()


def _windows(descriptor: int, blocks: Sequence[_Place]) -> Iterator[tuple[list[_Place], bytes]]:
    """Give some blocks at a time: their bytes, and their places in these."""
    waiting = iter(blocks)
    while some := list(islice(waiting, _BLOCKS)):
        begin = 0
        for end in range(1, len(some) + 1):
            whole = end == len(some)
            if whole or some[end].end - some[begin].offset > _WINDOW_BYTES:
                first = some[begin].offset
                window = _read(descriptor, first, some[end - 1].end - first)
                yield [_Place(each.offset - first, each.size_bytes) for each in some[begin:end]], window
                begin = end


def _data_blocks(descriptor: int, file_bytes: int) -> tuple[list[_Place], int]:
    """Return the places of all data blocks, and the number of their rows."""
    if file_bytes < _FOOTER.size:
        raise NotPlainError
    footer = _read(descriptor, file_bytes - _FOOTER.size, _FOOTER.size)
    checksum, places, version, magic = _FOOTER.unpack(footer)
    if (checksum, version, magic) != (_XXH32, _FORMAT, _MAGIC):
        raise NotPlainError
    others_at, at = _place(places, 0)
    index_at, _ = _place(places, at)
    others = {key: value for _, key, value in _rows(_block(descriptor, others_at))}
    if _RANGE_DELETIONS in others or _PROPERTIES not in others:
        raise NotPlainError
    properties_at, _ = _place(others[_PROPERTIES], 0)
    properties = {key: value for _, key, value in _rows(_block(descriptor, properties_at))}
    if any(_number(properties[name]) for name in _NOTHING if name in properties):
        raise NotPlainError
    if properties.get(_INDEX_KIND) != _BINARY_SEARCH or not {_ROWS, _DATA_BYTES} <= properties.keys():
        raise NotPlainError
    blocks = list(_indexed(_block(descriptor, index_at)))
    offset = 0
    for block in blocks:
        if block.offset != offset:
            raise NotPlainError
        offset = block.end
    if not blocks or offset != _number(properties[_DATA_BYTES]):
        raise NotPlainError
    return blocks, _number(properties[_ROWS])


def _indexed(content: bytes) -> Iterator[_Place]:
    """Give the places in the index, each of which stands there whole."""
    end = _rows_end(content)
    at = 0
    while at < end:
        shared, at = _varint(content, at)
        own, at = _varint(content, at)
        if shared:
            raise NotPlainError  # what follows is a difference
        place, at = _place(content, at + own)
        yield place


def _rows(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Give place, key and value of the rows of a block that is not one of data."""
    end = _rows_end(content)
    at, key = 0, b""
    while at < end:
        begin = at
        shared, at = _varint(content, at)
        own, at = _varint(content, at)
        value_bytes, at = _varint(content, at)
        if shared > len(key) or at + own + value_bytes > end:
            raise NotPlainError
        key = key[:shared] + content[at : at + own]
        at += own + value_bytes
        yield begin, key, content[at - value_bytes : at]


def _rows_end(content: bytes) -> int:
    if len(content) < _U32.size:
        raise NotPlainError
    (restarts,) = _U32.unpack_from(content, len(content) - _U32.size)
    end = len(content) - _U32.size * (restarts + 1)
    if end < 0:
        raise NotPlainError
    return int(end)


def _block(descriptor: int, place: _Place) -> bytes:
    if place.size_bytes > _BLOCK_BYTES_MAX:
        raise NotPlainError
    data = _read(descriptor, place.offset, place.size_bytes + _TRAILER_BYTES)
    content = _kernels.table_block(data, 0, place.size_bytes)
    if content is None:
        raise NotPlainError
    return content


def _read(descriptor: int, offset: int, size_bytes: int) -> bytes:
    if offset < 0 or offset >= 1 << 62:
        raise NotPlainError
    data = os.pread(descriptor, size_bytes, offset)
    if len(data) != size_bytes:
        raise NotPlainError
    return data


def _place(data: bytes, at: int) -> tuple[_Place, int]:
    offset, at = _varint(data, at)
    size_bytes, at = _varint(data, at)
    return _Place(offset, size_bytes), at


def _number(data: bytes) -> int:
    return _varint(data, 0)[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise NotPlainError
