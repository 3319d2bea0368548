"""Entries as they lie in journals and entry logs, one behind the other in one piece."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from bkctl import _kernels

_SIZE = struct.Struct(">i")
_KEY_BYTES = 16
_ID = struct.Struct(">q")
_ID_BYTES = 8
#: Offset of the entry id in a record: behind the size and the ledger.
_ENTRY_AT = 12


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Entries in the order of their keys, or as they stand in a log.

    ``keys`` are joined, ``records`` are length words and bodies, and ``ends`` has for each entry where in
    ``records`` the next one begins.
    """

    keys: bytes
    records: bytes
    ends: array[int]

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self.ends)

    @property
    def body_bytes(self) -> int:
        """The bytes of all bodies."""
        return len(self.records) - _SIZE.size * self.count

    def key_list(self) -> list[bytes]:
        """Return the keys, each by itself."""
        return keys_of(self.keys)

    def bodies(self) -> list[bytes]:
        """Return the bodies, each by itself."""
        return [self.records[start + _SIZE.size : end] for start, end in pairwise(chain((0,), self.ends))]


def joined_batch(batches: Sequence[RecordBatch]) -> RecordBatch:
    """Return the entries of one or more batches as one."""
    if len(batches) == 1:
        return batches[0]
    ends = array("q")
    for batch in batches:
        ends.frombytes(_kernels.shifted(batch.ends.tobytes(), ends[-1] if ends else 0))
    keys = b"".join([batch.keys for batch in batches])
    return RecordBatch(keys, b"".join([batch.records for batch in batches]), ends)


def keys_of(keys: bytes) -> list[bytes]:
    """Return keys that are joined, each by itself."""
    return _kernels.pieces_of(keys, _KEY_BYTES)


def bodies_of(records: bytes) -> list[bytes]:
    """Return the bodies of records."""
    bodies: list[bytes] = []
    position = 0
    while position < len(records):
        start = position + _SIZE.size
        position = start + _SIZE.unpack_from(records, position)[0]
        bodies.append(records[start:position])
    return bodies


def entries_of(records: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and the bodies of records."""
    bodies = bodies_of(records)
    return [body[:_KEY_BYTES] for body in bodies], bodies


def has_entry_from(records: bytes, count: int, bits: int) -> bool:
    """Return whether one of ``count`` records has an entry id of 2^``bits`` or more, or a negative one.

    No object is made for an entry where all records are of one length, as those of a client mostly are.
    """
    step = len(records) // max(count, 1)
    size = _SIZE.pack(step - _SIZE.size) if step > _ENTRY_AT else b""
    if size and all(records[at::step] == size[at : at + 1] * count for at in range(_SIZE.size)):
        high, rest = divmod(bits, 8)
        columns = [records[_ENTRY_AT + at :: step] for at in range(_ID_BYTES - high)]
        return any(column.strip(b"\0") for column in columns[:-1]) or max(columns[-1]) >= 1 << rest
    position = 0
    while position < len(records):
        entry: int = _ID.unpack_from(records, position + _ENTRY_AT)[0]
        if entry >> bits:
            return True
        position += _SIZE.size + _SIZE.unpack_from(records, position)[0]
    return False
