"""The client's tight loops over successful answers to plain adds and reads, for load generators.

====== ==== ===================================================================
offset size v2 answer
====== ==== ===================================================================
0      i32  frame length: 24, and the entry's size for a read
4      4    02010000 (add) or 02020000 (read)
8      i32  0: success
12     16   the key: ledger id, entry id, as asked
28     n    the entry, for a read
====== ==== ===================================================================

A v3 answer, of which the front tells what is needed (hex; ``<>`` is a varint)::

    i32 n, 0a n 0803 10 operation 18 <txnId>, 10 00, ...

A loop stops before the first frame that looks otherwise; ``v2`` and ``v3`` decode that one. What stands
behind the status of a v3 answer is not looked at: a client that keeps data uses ``ClientConnection``.
"""

from __future__ import annotations

import struct

from bkctl.protocol.scan_v3 import ADD_WIDTHS, READ_WIDTHS

_V2_ADDED = struct.Struct(">12s16s")
_V2_ADDED_FRONT = bytes.fromhex("000000180201000000000000")
_V2_READ = struct.Struct(">i8s16s")
_V2_READ_FRONT = bytes.fromhex("0202000000000000")
_V2_ANSWER_BYTES = 28
_V3_FRONT = struct.Struct(">i7s")
_V3_STATUS_OK = b"\x10\x00"
_CONTINUES = 0x80


def added_v2(data: bytes, start: int, end: int) -> tuple[list[bytes], int]:
    """Keys of the adds that are stored by the frames from ``start`` on, and where those end."""
    keys: list[bytes] = []
    add_key, unpack = keys.append, _V2_ADDED.unpack_from
    position, last = start, end - _V2_ANSWER_BYTES
    while position <= last:
        front, key = unpack(data, position)
        if front != _V2_ADDED_FRONT:
            break
        add_key(key)
        position += _V2_ANSWER_BYTES
    return keys, position


def read_v2(data: bytes, start: int, end: int) -> tuple[list[bytes], list[int], int]:
    """Keys of the reads that are answered from ``start`` on, sizes of their entries, and where they end."""
    keys: list[bytes] = []
    sizes: list[int] = []
    unpack = _V2_READ.unpack_from
    position, last = start, end - _V2_ANSWER_BYTES
    while position <= last:
        length, front, key = unpack(data, position)
        stop = position + 4 + length
        if front != _V2_READ_FRONT or length < _V2_ANSWER_BYTES - 4 or stop > end:
            break
        keys.append(key)
        sizes.append(length + 4 - _V2_ANSWER_BYTES)
        position = stop
    return keys, sizes, position


def added_v3(data: bytes, start: int, end: int) -> tuple[list[int], int]:
    """TxnIds of the adds that are stored by the frames from ``start`` on, and where those end."""
    return _succeeded_v3(data, start, end, ADD_WIDTHS)


def read_v3(data: bytes, start: int, end: int) -> tuple[list[int], int]:
    """TxnIds of the reads that are answered from ``start`` on, and where the frames end."""
    return _succeeded_v3(data, start, end, READ_WIDTHS)


def _succeeded_v3(data: bytes, start: int, end: int, widths: dict[bytes, int]) -> tuple[list[int], int]:
    txns: list[int] = []
    unpack = _V3_FRONT.unpack_from
    position, last = start, end - _V3_FRONT.size
    while position <= last:
        length, header = unpack(data, position)
        width = widths.get(header)
        stop = position + 4 + length
        if width is None or stop > end:
            break
        middle = position + _V3_FRONT.size + width
        if middle + 2 > stop or data[middle : middle + 2] != _V3_STATUS_OK:
            break
        txn = 0
        for byte in reversed(data[middle - width : middle]):
            txn = txn << 7 | byte & 0x7F
        if data[middle - 1] >= _CONTINUES or (width > 1 and data[middle - 2] < _CONTINUES):
            break
        txns.append(txn)
        position = stop
    return txns, position
