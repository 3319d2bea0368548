"""Rows of the ``metadata-cache`` database: what GC remembers of an entry log.

====== ======= =======================================================
offset size    field
====== ======= =======================================================
key    i64     log id
0      i16     format, 0
2      i64     log id, again
10     i64     total bytes of entries in the log, size words included
18     i64     remaining bytes: those of ledgers still live
26     i64     n
34     n x 16  i64 ledger id, i64 bytes of that ledger in the log
====== ======= =======================================================

All integers are big-endian and signed. The database is a cache: rows are put without sync, and deleting it
costs only the time to read the logs again.

Source: ``org.apache.bookkeeper.bookie.EntryLogMetadata.EntryLogMetadataRecyclable`` and
``storage.ldb.PersistentEntryLogMetadataMap``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bkctl.errors import CorruptionError
from bkctl.reporting import counted

FORMAT = 0
KEY_BYTES = 8

_KEY = struct.Struct(">q")
_HEAD = struct.Struct(">hqqqq")
_PAIR = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class EntryLogMetadata:
    """One log; ``ledgers`` holds (ledger id, bytes) in the order of the row."""

    log_id: int
    total_bytes: int
    remaining_bytes: int
    ledgers: tuple[tuple[int, int], ...] = ()


def encode_log_key(log_id: int) -> bytes:
    """Return the 8 bytes of a key."""
    return _KEY.pack(log_id)


def decode_log_key(key: bytes) -> int:
    """Return the log id. Raises CorruptionError unless there are 8 bytes of an id >= 0."""
    if len(key) != KEY_BYTES:
        raise CorruptionError(
            "metadata-cache key", expected=f"{KEY_BYTES} bytes", found=counted(len(key), "byte")
        )
    log_id: int = _KEY.unpack(key)[0]
    if log_id < 0:
        raise CorruptionError("metadata-cache key", expected="a log id >= 0", found=str(log_id))
    return log_id


def decode_entry_log_metadata(value: bytes) -> EntryLogMetadata:
    """Return the row's value. Raises CorruptionError when the format or the length is not as it should be."""
    if len(value) < _HEAD.size:
        raise CorruptionError(
            "entry log metadata",
            offset=len(value),
            expected=f"{_HEAD.size} bytes",
            found=counted(len(value), "byte"),
        )
    layout, log_id, total, remaining, count = _HEAD.unpack_from(value)
    if layout != FORMAT:
        raise CorruptionError("entry log metadata format", expected=str(FORMAT), found=str(layout))
    if count < 0 or _HEAD.size + count * _PAIR.size != len(value):
        raise CorruptionError(
            "entry log metadata",
            offset=26,
            expected=f"{(len(value) - _HEAD.size) / _PAIR.size:g} ledgers",
            found=f"{count}",
        )
    return EntryLogMetadata(log_id, total, remaining, tuple(_PAIR.iter_unpack(value[_HEAD.size :])))


def encode_entry_log_metadata(metadata: EntryLogMetadata) -> bytes:
    """Return the row's value."""
    head = _HEAD.pack(
        FORMAT, metadata.log_id, metadata.total_bytes, metadata.remaining_bytes, len(metadata.ledgers)
    )
    return head + b"".join(_PAIR.pack(ledger, size) for ledger, size in metadata.ledgers)
