"""Records of an entry log that stand one behind the other, and their digests: the reference in Python."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from hashlib import sha1
from itertools import chain

from bkctl._kernels._columns import column_of, numbers_of

_RECORD_HEAD = struct.Struct(">iqq")
_I32 = struct.Struct(">i")
_KEY_BYTES = 16
_HEADER_BYTES = 32
#: Digests as they stand in an entry.
_CRC32C = struct.Struct(">I")
_CRC32 = struct.Struct(">q")
_MAC_BYTES = 20
_HMAC_BLOCK = 64


def walk_entries(
    buffer: bytes, start: int, end: int, size_min: int, size_max: int
) -> tuple[list[int], list[int], list[int], list[int], int]:
    """Return the chain of records as lists."""
    starts: list[int] = []
    sizes: list[int] = []
    ledgers: list[int] = []
    entries: list[int] = []
    add_start, add_size = starts.append, sizes.append
    add_ledger, add_entry = ledgers.append, entries.append
    unpack = _RECORD_HEAD.unpack_from
    position = start
    last = end - _RECORD_HEAD.size
    while position <= last:
        size, ledger, entry = unpack(buffer, position)
        if not size_min <= size <= size_max or ledger < 0 or entry < 0:
            break
        add_start(position)
        add_size(size)
        add_ledger(ledger)
        add_entry(entry)
        position += size + 4
    if position > end and starts:  # the last one is not whole
        position = starts.pop()
        sizes.pop()
        ledgers.pop()
        entries.pop()
    return starts, sizes, ledgers, entries, position


def walk_columns(
    buffer: bytes, start: int, end: int, size_min: int, size_max: int
) -> tuple[bytes, bytes, bytes, bytes, int]:
    """Return the chain of records as columns."""
    starts, sizes, ledgers, entries, stop = walk_entries(buffer, start, end, size_min, size_max)
    return column_of(starts), column_of(sizes), column_of(ledgers), column_of(entries), stop


def failing_crc32c(buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
    """Return the indices of the records whose CRC-32C does not check; too short ones included."""
    from crc32c import crc32c  # its import costs 20 ms, which commands that digest nothing need not pay

    return _failing(crc32c, _CRC32C, buffer, starts, sizes)


def failing_crc32(buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
    """Return the indices of the records whose CRC-32 does not check; too short ones included."""
    return _failing(zlib.crc32, _CRC32, buffer, starts, sizes)


def _failing(
    checksum: Callable[..., int],
    digest_form: struct.Struct,
    buffer: bytes,
    starts: list[int],
    sizes: list[int],
) -> list[int]:
    """Return the indices of the records whose digest is not the checksum of all that is not the digest."""
    failing = []
    view = memoryview(buffer)
    unpack = digest_form.unpack_from
    digest_bytes = digest_form.size
    smallest = _HEADER_BYTES + digest_bytes
    for index, start in enumerate(starts):
        size = sizes[index]
        if size < smallest:
            failing.append(index)
            continue
        digest = start + 4 + _HEADER_BYTES
        body = digest + digest_bytes
        value = checksum(view[body : start + 4 + size], checksum(buffer[start + 4 : digest]))
        if value != unpack(buffer, digest)[0]:
            failing.append(index)
    return failing


def failing_mac(buffer: bytes, starts: list[int], sizes: list[int], key: bytes) -> list[int]:
    """Return the indices of the records whose HMAC-SHA1 under ``key`` (at most 64 bytes) does not check."""
    failing = []
    view = memoryview(buffer)
    padded = key.ljust(_HMAC_BLOCK, b"\0")
    inner_start = sha1(bytes(octet ^ 0x36 for octet in padded), usedforsecurity=False)
    outer_start = sha1(bytes(octet ^ 0x5C for octet in padded), usedforsecurity=False)
    smallest = _HEADER_BYTES + _MAC_BYTES
    for index, start in enumerate(starts):
        size = sizes[index]
        if size < smallest:
            failing.append(index)
            continue
        digest = start + 4 + _HEADER_BYTES
        body = digest + _MAC_BYTES
        inner = inner_start.copy()
        inner.update(view[start + 4 : digest])
        inner.update(view[body : start + 4 + size])
        outer = outer_start.copy()
        outer.update(inner.digest())
        if outer.digest() != buffer[digest:body]:
            failing.append(index)
    return failing


def columns_failing_crc32c(buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
    """Return what :func:`failing_crc32c` does, for records given as columns."""
    return failing_crc32c(buffer, numbers_of(starts), numbers_of(sizes))


def columns_failing_crc32(buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
    """Return what :func:`failing_crc32` does, for records given as columns."""
    return failing_crc32(buffer, numbers_of(starts), numbers_of(sizes))


def join_rows(rows: list[tuple[bytes, bytes]], key_bytes: int, value_bytes: int) -> bytes:
    """Return the keys and values of rows one behind the other; every length is checked."""
    for index, (key, value) in enumerate(rows):
        if len(key) != key_bytes or len(value) != value_bytes:
            raise ValueError(f"row {index}: not of {key_bytes} and {value_bytes} bytes")
    return b"".join(chain.from_iterable(rows))


def leading_records(
    data: bytes, size_min: int, size_max: int, others_max: int, bytes_max: int
) -> tuple[bytes, bytes]:
    """Return the keys, joined, of the records that ``data`` begins with, and a column of their ends."""
    if size_min < _KEY_BYTES or size_max < size_min or others_max < 0 or bytes_max < 0:
        raise ValueError("bounds of no records")
    keys: list[bytes] = []
    ends: list[int] = []
    position = 0
    while len(keys) <= others_max and len(data) - position >= _RECORD_HEAD.size:
        size, ledger, entry = _RECORD_HEAD.unpack_from(data, position)
        key = data[position + 4 : position + 4 + _KEY_BYTES]
        stop = position + 4 + size
        if not size_min <= size <= size_max or stop > len(data) or ledger < 0 or entry < 0:
            break
        if keys:
            bytes_max -= size
            if bytes_max < 0 or key[:8] != keys[0][:8]:
                break
        keys.append(key)
        ends.append(stop)
        position = stop
    return b"".join(keys), column_of(ends)
