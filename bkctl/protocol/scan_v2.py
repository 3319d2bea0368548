"""The tight loops over plain v2 adds and reads in a receive buffer.

====== ==== ===================================================================
offset size add
====== ==== ===================================================================
0      i32  frame length, 48 or more
4      4    02010000: version 2, opcode 1, no flags
8      20   master key \\
28     8    ledger id  / the grant
36     8    entry id
28     n    the entry: ledger id, entry id, ...
====== ==== ===================================================================

====== ==== ===================================================================
offset size read
====== ==== ===================================================================
0      i32  frame length, 20
4      4    02020000: version 2, opcode 2, no flags
8      16   the key: ledger id, entry id
====== ==== ===================================================================

A loop stops before the first frame that looks otherwise. Signs that no honest client sends are looked at
afterwards, for all keys at once; where one is negative the caller takes that stretch frame by frame.
"""

from __future__ import annotations

import struct

from bkctl import _kernels
from bkctl.protocol.messages import Wire
from bkctl.protocol.runs import KEY_OF, AddRun, PackedAddRun, PackedReadRun, ReadRun

ADD_HEAD = b"\x02\x01\x00\x00"
READ_HEAD = b"\x02\x02\x00\x00"

_ADD = struct.Struct(">i4s28s")
_ADD_LENGTH_MIN = 48
_ADD_FRAME_BYTES_MIN = 4 + _ADD_LENGTH_MIN
_ADD_OVERHEAD_BYTES = 28
_READ = struct.Struct(">i4s16s")
_READ_LENGTH = 20
_NEGATIVE = 0x80
_READ_FRAME_BYTES = 4 + _READ_LENGTH


def are_positive(keys: list[bytes]) -> bool:
    """Return whether no ledger and no entry id is negative: the first byte of each has its top bit clear."""
    return b"".join(keys)[::8].isascii()


def scan_adds(data: bytes, start: int, end: int) -> tuple[AddRun | None, int]:
    """Return the adds from ``start`` on, and where they stop; None without any or when an id is negative.

    No frame between ``start`` and ``end`` may be over the frame limit.
    """
    if _kernels.IMPL == "native":
        columns, position = _kernels.scan_adds(data, start, end)
        return (None if columns is None else PackedAddRun(Wire.V2, columns)), position
    return list_adds(data, start, end)


def list_adds(data: bytes, start: int, end: int) -> tuple[AddRun | None, int]:
    """Do what :func:`scan_adds` does, with an object for each entry, where the kernels are not compiled."""
    grants: list[bytes] = []
    bodies: list[bytes] = []
    add_grant = grants.append
    add_body = bodies.append
    unpack = _ADD.unpack_from
    position = start
    last = end - _ADD_FRAME_BYTES_MIN
    while position <= last:
        length, head, grant = unpack(data, position)
        if head != ADD_HEAD or length < _ADD_LENGTH_MIN:
            break
        stop = position + length + 4
        if stop > end:
            break
        add_grant(grant)
        add_body(data[position + 28 : stop])
        position = stop
    keys = list(map(KEY_OF, bodies))
    if not keys or not are_positive(keys):
        return None, position
    size_bytes = position - start - _ADD_OVERHEAD_BYTES * len(keys)
    return AddRun(Wire.V2, grants, keys, bodies, keys, size_bytes), position


def scan_reads(data: bytes, start: int, end: int) -> tuple[ReadRun | None, int]:
    """Return the reads from ``start`` on, and where they stop; None when an id among them is negative."""
    if _kernels.IMPL == "native":
        packed, position = _kernels.scan_reads(data, start, end)
        return (None if packed is None else PackedReadRun(packed)), position
    return list_reads(data, start, end)


def list_reads(data: bytes, start: int, end: int) -> tuple[ReadRun | None, int]:
    """Do what :func:`scan_reads` does, with an object for each entry, where the kernels are not compiled."""
    keys: list[bytes] = []
    add_key = keys.append
    unpack = _READ.unpack_from
    position = start
    last = end - _READ_FRAME_BYTES
    while position <= last:
        length, head, key = unpack(data, position)
        if head != READ_HEAD or length != _READ_LENGTH or key[8] >= _NEGATIVE:  # -1 is a read of the newest
            break
        add_key(key)
        position += _READ_FRAME_BYTES
    if not are_positive(keys):
        return None, position
    return ReadRun(Wire.V2, keys, keys), position
