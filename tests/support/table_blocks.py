"""Blocks of RocksDB's table files as RocksDB writes them, made here so that they can be made wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bkctl._kernels._tables import xxh32

NOT_PACKED, LZ4 = 0, 4
TRAILER_BYTES = 5


def varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def row(shared: int, key: bytes, value: bytes, kind: int = 1, number: int = 7) -> bytes:
    """A row of which so many bytes are the key's before it; ``kind`` 1 is one that was put."""
    own = (key + struct.pack("<Q", number << 8 | kind))[shared:]
    return varint(shared) + varint(len(own)) + varint(len(value)) + own + value


def content(rows: Sequence[tuple[bytes, bytes]], restart_every: int = 16) -> bytes:
    """The content of a block of rows."""
    made = bytearray()
    restarts = []
    before = b""
    for index, (key, value) in enumerate(rows):
        shared = 0
        if index % restart_every == 0:
            restarts.append(len(made))
        else:
            while shared < len(key) and before[shared] == key[shared]:
                shared += 1
        made += row(shared, key, value)
        before = key
    return bytes(made) + ends(restarts)


def ends(restarts: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def literal(data: bytes) -> bytes:
    """A stretch of LZ4's with no repetition behind it."""
    length, more = min(15, len(data)), b""
    if length == 15:
        left = len(data) - 15
        more = b"\xff" * (left // 255) + bytes([left % 255])
    return bytes([length << 4]) + more + data


def block(data: bytes, kind: int = NOT_PACKED) -> bytes:
    """A block with the trailer that belongs to it."""
    covered = data + bytes([kind])
    return covered + struct.pack("<I", xxh32(covered))


def packed(data: bytes, unpacked_bytes: int) -> bytes:
    """A block of LZ4."""
    return block(varint(unpacked_bytes) + data, LZ4)
