"""Logs of RocksDB with a damage at which its reader would stay for ever.

The first record of a log says whether the log was recycled. A record with a kind of recycled logs in any
other log is damage: RocksDB's reader takes it for a bad record, but does not go on behind it, and reads the
same bytes for ever. That is true of the write-ahead logs and of the MANIFEST, which has the same blocks of
32 KiB (``kvstore.synced_log``). These files are examined before RocksDB opens the database.

Source: ``log::Reader::ReadRecord`` and ``ReadPhysicalRecord`` of RocksDB.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import BinaryIO

from bkctl.errors import CorruptionError, as_storage_errors
from bkctl.kvstore.synced_log import BLOCK_BYTES, HEAD, RECYCLED_KINDS, opened_log, whole_records


def refuse_endless_logs(directory: str, shown: str) -> None:
    """Refuse a database with a MANIFEST or a write-ahead log that RocksDB would read for ever.

    ``shown`` is the directory that errors name; for a copy it is the directory of the original.

    Raises CorruptionError naming the file and the offset of the record, StorageError.
    """
    # Another process may change the database; an open of it reports the missing file.
    with as_storage_errors(shown), suppress(FileNotFoundError):
        for name in sorted(os.listdir(directory)):
            if name.endswith(".log") or name.startswith("MANIFEST-"):
                _refuse_endless(os.path.join(directory, name), os.path.join(shown, name))


def _refuse_endless(path: str, shown: str) -> None:
    with opened_log(path, follow=True) as file:
        offset = _endless_at(file)
    if offset is not None:
        raise CorruptionError(
            "RocksDB log",
            offset=offset,
            expected="a record as the first of the log is",
            found="one of a recycled log, at which RocksDB would read for ever",
            path=shown,
        )


def _endless_at(file: BinaryIO) -> int | None:
    """Return the offset of the first record that ends all reading, None without one."""
    start = 0
    while block := file.read(BLOCK_BYTES):
        if start == 0 and len(block) >= HEAD.size and HEAD.unpack_from(block)[2] in RECYCLED_KINDS:
            return None  # a recycled log
        at = _recycled_kind_in(block)
        # Behind a record that is not whole the reader leaves the rest of the block out.
        if at is not None and whole_records(block[:at]) is None:
            return start + at
        start += len(block)
    return None


def _recycled_kind_in(block: bytes) -> int | None:
    at = 0
    while len(block) - at >= HEAD.size:
        _, length, kind = HEAD.unpack_from(block, at)
        if kind in RECYCLED_KINDS:
            return at
        at += HEAD.size + length
    return None
