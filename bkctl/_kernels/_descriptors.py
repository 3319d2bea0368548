"""Reading from files, writing to them with a sync, and sending to sockets: the reference in Python."""

from __future__ import annotations

import errno
import os
import time

from bkctl._kernels._columns import column_of, numbers_of

_KEY_BYTES = 16
_RECORD_BYTES_MAX = 1 << 20
_RECORDS_MAX = 1 << 14


def read_records(
    descriptor: int, starts: bytes, keys: bytes, first_bytes: int, size_max: int
) -> tuple[bytes, bytes]:
    """Return the records of a file that begin at ``starts`` with their keys, and the sizes of all."""
    if len(keys) % _KEY_BYTES or len(starts) != len(keys) // 2:
        raise ValueError("columns of different lengths")
    count = len(keys) // _KEY_BYTES
    if not 1 <= first_bytes <= 4 + size_max or size_max > _RECORD_BYTES_MAX or count > _RECORDS_MAX:
        raise ValueError("more than is read at once")
    records = [
        _read_record(descriptor, start, keys[_KEY_BYTES * number :][:_KEY_BYTES], first_bytes, size_max)
        for number, start in enumerate(numbers_of(starts))
    ]
    return b"".join(records), column_of([len(record) - 4 if record else -1 for record in records])


def _read_record(descriptor: int, start: int, key: bytes, first_bytes: int, size_max: int) -> bytes:
    """Return the record, or nothing."""
    try:
        data = os.pread(descriptor, first_bytes, start) if start >= 0 else b""
        if data[4:20] != key:
            return b""
        size = int.from_bytes(data[:4], "big")
        if not _KEY_BYTES <= size <= size_max:
            return b""
        stop = 4 + size
        if stop > len(data) == first_bytes:
            data += os.pread(descriptor, stop - len(data), start + len(data))
    except (OSError, OverflowError):
        return b""
    return data[:stop] if len(data) >= stop else b""


def write_and_sync(descriptor: int, data: bytes | memoryview, offset: int) -> tuple[int, int, int, int]:
    """Write data at an offset and sync the file; return bytes written, errors and the sync's time."""
    wrote = 0
    try:
        while wrote < len(data):
            more = os.pwrite(descriptor, data[wrote:] if wrote else data, offset + wrote)
            if not more:
                return wrote, 0, 0, -1
            wrote += more
    except OSError as error:
        return wrote, error.errno or errno.EIO, 0, -1
    began_ns = time.monotonic_ns()
    failed = 0
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        failed = error.errno or errno.EIO
    except ValueError:
        # A negative number is no descriptor.
        failed = errno.EBADF
    return wrote, 0, failed, time.monotonic_ns() - began_ns


def send_pieces(descriptors: list[int], pieces: list[bytes]) -> list[int]:
    """Send each piece to its socket, and return how many bytes each took at once."""
    return [_sent(descriptor, piece) for descriptor, piece in zip(descriptors, pieces, strict=True)]


def _sent(descriptor: int, piece: bytes) -> int:
    try:
        return os.write(descriptor, piece) if descriptor >= 0 else 0
    except OSError:
        return 0
