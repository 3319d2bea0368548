"""The reference kernels for blocks of RocksDB's table files; ``_api`` says what each of them does."""

from __future__ import annotations

import struct
from itertools import pairwise

_TRAILER_BYTES = 5
_NOT_PACKED, _LZ4 = 0, 4
_UNPACKED_MAX = 1 << 24
_TABLE_KEY_MAX = 64
#: Behind a key: whether it was put (1), and when.
_NUMBER_BYTES = 8
_ROW_PUT = 1
_COLUMN_BYTES = 8
_U32_MAX = (1 << 32) - 1
_XXH_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def table_block(buffer: bytes, start: int, size: int) -> bytes | None:
    """Return the content of a block of a table file, None unless it is whole and unpacked or LZ4."""
    stop = start + size
    if start < 0 or size < 0 or stop + _TRAILER_BYTES > len(buffer):
        raise ValueError("outside of the buffer")
    if xxh32(buffer[start : stop + 1]) != int.from_bytes(buffer[stop + 1 : stop + _TRAILER_BYTES], "little"):
        return None
    kind = buffer[stop]
    if kind == _NOT_PACKED:
        return buffer[start:stop]
    try:
        unpacked_bytes, at = _varint32(buffer, start, stop)
        if kind != _LZ4 or unpacked_bytes > _UNPACKED_MAX:
            return None
        return _unpack_lz4(buffer[at:stop], unpacked_bytes)
    except IndexError:
        return None


def table_rows(
    buffer: bytes, starts: bytes, sizes: bytes, key_bytes: int, value_bytes: int
) -> tuple[bytes, bytes] | None:
    """Return the rows of plain blocks as joined keys and joined values."""
    if len(starts) % _COLUMN_BYTES or len(starts) != len(sizes):
        raise ValueError("columns of different lengths")
    if not 1 <= key_bytes <= _TABLE_KEY_MAX or not 1 <= value_bytes <= _TABLE_KEY_MAX:
        raise ValueError(f"keys and values have 1 to {_TABLE_KEY_MAX} bytes")
    places = list(zip(memoryview(starts).cast("q"), memoryview(sizes).cast("q"), strict=True))
    if any(start < 0 or size < 0 or start + size + _TRAILER_BYTES > len(buffer) for start, size in places):
        raise ValueError("outside of the buffer")
    keys: list[bytes] = []
    values: list[bytes] = []
    for start, size in places:
        content = table_block(buffer, start, size)
        try:
            if content is None or not _add_rows(content, key_bytes, value_bytes, keys, values):
                return None
        except IndexError:
            return None
    if any(one >= other for one, other in pairwise(keys)):
        return None
    return b"".join(keys), b"".join(values)


def _add_rows(
    content: bytes, key_bytes: int, value_bytes: int, keys: list[bytes], values: list[bytes]
) -> bool:
    """Add the rows of an unpacked block; return whether they are plain. Raises IndexError behind its end."""
    end = len(content) - 4
    if end < 0:
        return False
    end -= 4 * int.from_bytes(content[end:], "little")
    if end < 0:
        return False
    at = 0
    key = b""
    while at < end:
        shared, at = _varint32(content, at, end)
        own, at = _varint32(content, at, end)
        value, at = _varint32(content, at, end)
        whole = shared + own == key_bytes + _NUMBER_BYTES and shared <= len(key)
        if not whole or value != value_bytes or at + own + value > end:
            return False
        key = key[:shared] + content[at : at + own]
        if key[key_bytes] != _ROW_PUT:
            return False
        at += own + value
        keys.append(key[:key_bytes])
        values.append(content[at - value : at])
    return True


def _varint32(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of up to 32 bits and where it ends. Raises IndexError when it is none."""
    number = 0
    for shift in range(0, 35, 7):
        if at == end:
            break
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128 and number <= _U32_MAX:
            return number, at
    raise IndexError("no number of 32 bits")


def _unpack_lz4(packed: bytes, wanted: int) -> bytes | None:
    """Unpack a block of LZ4, None unless it has so many bytes. Raises IndexError when it ends early."""
    unpacked = bytearray()
    at = 0
    while at < len(packed):
        token = packed[at]
        length, at = _lengthened(packed, at + 1, token >> 4)
        if at + length > len(packed) or len(unpacked) + length > wanted:
            return None
        unpacked += packed[at : at + length]
        at += length
        if at == len(packed):
            return bytes(unpacked) if len(unpacked) == wanted else None
        distance = packed[at] | packed[at + 1] << 8
        length, at = _lengthened(packed, at + 2, token & 15)
        length += 4
        if not 0 < distance <= len(unpacked) or len(unpacked) + length > wanted:
            return None
        repeated = bytes(unpacked[-distance:][:length])
        unpacked += (repeated * (length // len(repeated) + 1))[:length]
    return None


def _lengthened(packed: bytes, at: int, length: int) -> tuple[int, int]:
    more = 255 if length == 15 else 0
    while more == 255:
        more = packed[at]
        at += 1
        length += more
    return length, at


def xxh32(data: bytes) -> int:
    """Return the XXH32 of some bytes, with seed 0."""
    first, second, third, fourth, fifth = _XXH_PRIMES
    value, at = fifth, 0
    if len(data) >= 16:
        lanes = [(first + second) & _U32_MAX, second, 0, -first & _U32_MAX]
        for words in struct.iter_unpack("<4I", data[: len(data) & ~15]):
            lanes = [
                _turned(lane + word * second, 13) * first & _U32_MAX
                for lane, word in zip(lanes, words, strict=True)
            ]
        value = sum(_turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        at = len(data) & ~15
    value += len(data)
    for (word,) in struct.iter_unpack("<I", data[at : len(data) & ~3]):
        value = _turned(value + word * third, 17) * fourth
    for byte in data[len(data) & ~3 :]:
        value = _turned(value + byte * fifth, 11) * first
    value &= _U32_MAX
    value = (value ^ value >> 15) * second & _U32_MAX
    value = (value ^ value >> 13) * third & _U32_MAX
    return value ^ value >> 16


def _turned(value: int, bits: int) -> int:
    value &= _U32_MAX
    return (value << bits | value >> 32 - bits) & _U32_MAX
