"""A note, in a small file of the database's directory, of how much of RocksDB's write-ahead logs was synced.

A power cut may leave a hole in the unsynced end of a log, because pages are written back in any order.
RocksDB cannot distinguish that hole from damage: it either refuses the database or takes the hole for the
end. The note distinguishes the two. In front of the noted length every record must be whole: any other is
damage to rows that were durable. Behind it nothing was noted as durable, and the first record that is not
whole is the end of the log.

::

    synced
        MANIFEST-000005
        000008.log 135123
        crc32 1a2b3c4d                  of the lines above

A note counts for the database as it was opened last, whose MANIFEST it names: every open begins a new one,
also that of another program, which keeps no note. Without a note that counts, all records of the logs are
taken for synced.

A log is made of blocks of 32 KiB, which records do not cross::

    checksum: u32   CRC-32C of what follows the length, rotated and shifted as RocksDB does
    length:   u16   of the payload
    kind:     u8    a whole batch or a part of one
    log:      u32   of recycled logs alone

all little-endian; fewer than seven bytes at the end of a block are filler.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from bkctl.errors import CorruptionError, as_storage_errors

NAME = "synced"
_NOTE_BYTES_MAX = 1 << 20
_LINE = re.compile(r"([0-9]+\.log) ([0-9]+)")
#: Records do not cross the end of a block.
BLOCK_BYTES = 32 << 10
#: The checksum, the length of the payload and the kind of a record.
HEAD = struct.Struct("<IHB")
#: Offset in a record of the bytes that its checksum covers.
_COVERED_FROM = 6
_RECYCLED_HEAD_BYTES = 11
#: Kinds of records of recycled logs, whose heads are longer.
RECYCLED_KINDS = frozenset({5, 6, 7, 8, 11, 131})
_MASK_DELTA = 0xA282EAD8


@dataclass(frozen=True, slots=True)
class SyncedLogs:
    """The MANIFEST of an open database, and the lengths of its write-ahead logs when they were synced."""

    manifest: str
    sizes: dict[str, int] = field(default_factory=dict)


def current_logs(directory: str) -> SyncedLogs:
    """Return the logs as they are now. Raises OSError."""
    sizes: dict[str, int] = {}
    for name in os.listdir(directory):
        if name.endswith(".log"):
            with suppress(FileNotFoundError):  # RocksDB has just removed it
                sizes[name] = os.stat(os.path.join(directory, name)).st_size
    return SyncedLogs(_manifest(directory), sizes)


def write_note(directory: str, logs: SyncedLogs) -> None:
    """Note ``logs`` durably; their lengths were read before they were synced. Raises OSError."""
    lines = [logs.manifest, *(f"{name} {size}" for name, size in sorted(logs.sizes.items()))]
    text = "".join(f"{line}\n" for line in lines).encode("ascii")
    temporary = os.path.join(directory, f"{NAME}.tmp")
    with suppress(FileNotFoundError):
        os.unlink(temporary)  # a kill has left it, perhaps one of a tool of another user
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    try:
        content = text + b"crc32 %08x\n" % zlib.crc32(text)
        while content:
            content = content[os.write(descriptor, content) :]
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, os.path.join(directory, NAME))
    # Until the directory is synced, a power cut may bring back the old note, which claims less. That is no
    # harm before the caller relies on this one.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_note(directory: str) -> SyncedLogs | None:
    """Return the note that counts for a database, None when there is none. Raises OSError."""
    try:
        with opened_log(os.path.join(directory, NAME)) as file:
            content = file.read(_NOTE_BYTES_MAX)
        manifest = _manifest(directory)
    except FileNotFoundError:
        return None
    *lines, last = content.decode("ascii", "replace").splitlines() or [""]
    text = "".join(f"{line}\n" for line in lines)
    if not lines or last != f"crc32 {zlib.crc32(text.encode()):08x}" or lines[0] != manifest:
        return None
    found = [_LINE.fullmatch(line) for line in lines[1:]]
    sizes = {line[1]: int(line[2]) for line in found if line is not None}
    return SyncedLogs(manifest, sizes) if len(sizes) == len(found) else None


def check_synced(directory: str) -> bool:
    """Return whether a note says how much was synced; then all synced records are whole.

    Raises CorruptionError naming the log and the place of a record that is not, StorageError.
    """
    with as_storage_errors(directory):
        note = read_note(directory)
        if note is None:
            return False
        for name, size in sorted(note.sizes.items()):
            # RocksDB did not need a log that is gone: its rows are in tables.
            with suppress(FileNotFoundError):
                _check_log(os.path.join(directory, name), size)
    return True


def _manifest(directory: str) -> str:
    with opened_log(os.path.join(directory, "CURRENT")) as file:
        return file.read(256).decode("ascii", "replace").rstrip("\n")


@contextmanager
def opened_log(path: str, *, follow: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file for reading, a link to one only with ``follow``.

    Raises OSError.
    """
    # A pipe in the place of the file would keep an open waiting for ever.
    added = os.O_NONBLOCK if follow else os.O_NONBLOCK | os.O_NOFOLLOW
    # A folder fails within open, which names the path and closes only what its opener has opened.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | added)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", path)
        yield file


def _check_log(path: str, synced_bytes: int) -> None:
    """Check that the synced part of a log is whole. Raises CorruptionError, OSError."""
    with opened_log(path) as file:
        for start in range(0, synced_bytes, BLOCK_BYTES):
            wanted = min(BLOCK_BYTES, synced_bytes - start)
            block = file.read(wanted)
            whole = whole_records(block) if len(block) == wanted else len(block)
            if whole is not None:
                raise CorruptionError(
                    "write-ahead log",
                    offset=start + whole,
                    expected=f"whole records up to {synced_bytes}, which were synced",
                    found="damage" if len(block) == wanted else "the end of the file",
                    path=path,
                )


def whole_records(block: bytes) -> int | None:
    """Return the offset of the first record of a block that is not whole, None without one."""
    from crc32c import crc32c  # only stores that were not closed in order pay for this import

    at = 0
    while len(block) - at >= HEAD.size:
        checksum, length, kind = HEAD.unpack_from(block, at)
        end = at + length + (_RECYCLED_HEAD_BYTES if kind in RECYCLED_KINDS else HEAD.size)
        value = crc32c(block[at + _COVERED_FROM : end])
        rotated = (value >> 15 | value << 17) & 0xFFFFFFFF
        if end > len(block) or (rotated + _MASK_DELTA) & 0xFFFFFFFF != checksum:
            return at
        at = end
    return None if not any(block[at:]) else at
