"""Reading records of entry logs by their index location, and ahead of it.

A read that fails, a record that is not the wanted one and a log that is gone are errors, never "no such
entry": the index has said that the entry is there.

Source: ``DefaultEntryLogger.readEntry`` and ``SingleDirectoryDbLedgerStorage.fillReadAheadCache``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from bkctl import _kernels
from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.codec.location import KEY_BYTES, OFFSET_MAX
from bkctl.engine.cache.record_batch import RecordBatch, bodies_of
from bkctl.engine.entrylog.open_logs import OpenLogs
from bkctl.engine.entrylog.scattered_records import ScatteredRecords, records_of
from bkctl.errors import BkctlError, CorruptionError
from bkctl.reporting import counted
from bkctl.vfs.base import ReadableFile
from bkctl.vfs.posix import PosixFile

_SIZE_BYTES = 4
_KEY_END = _SIZE_BYTES + KEY_BYTES
_LEDGER_BYTES = 8

#: Bytes of the first read of an entry whose size is not known; most entries need no second one.
FIRST_READ_BYTES = 4096 + _SIZE_BYTES

#: Bodies that are read with others in one call are no larger.
TOGETHER_BYTES_MAX = 64 << 10
#: Records read in one call.
_TOGETHER_MAX = 256


class RecordReader:
    """Reads from the logs that ``logs`` opens; thread-safe."""

    def __init__(self, logs: OpenLogs) -> None:
        self._logs = logs
        # Guesses of what the next read has to bring, from those before it; any thread changes them.
        self._largest_bytes = FIRST_READ_BYTES
        self._average_bytes = FIRST_READ_BYTES

    def read(self, location: int, key: bytes) -> bytes:
        """Return the body at ``location``, which begins with ``key``.

        Raises CorruptionError when something else is there, or no log; StorageError when it cannot be read.
        """
        log = self._logs.borrow(_log_id(location))
        try:
            return _read_body(log.file, (location & OFFSET_MAX) - _SIZE_BYTES, key)
        finally:
            self._logs.give_back(log)

    def read_scattered(self, locations: Sequence[int], keys: Sequence[bytes]) -> list[ScatteredRecords]:
        """Return the entries at ``locations``, which begin with ``keys``, that few calls for each log bring.

        :meth:`read` reads the others one by one, or says what is wrong. Never raises BkctlError.
        """
        parts: list[ScatteredRecords] = []
        by_log: dict[int, list[int]] = {}
        for index, location in enumerate(locations):
            by_log.setdefault(location >> 32, []).append(index)
        for indices in by_log.values():
            try:
                log = self._logs.borrow(_log_id(locations[indices[0]]))
            except BkctlError:
                continue
            try:
                if isinstance(log.file, PosixFile):
                    for first in range(0, len(indices), _TOGETHER_MAX):
                        some = indices[first : first + _TOGETHER_MAX]
                        parts.append(self._read_together(log.file.descriptor, locations, keys, some))
            finally:
                self._logs.give_back(log)
        return parts

    def _read_together(
        self, descriptor: int, locations: Sequence[int], keys: Sequence[bytes], indices: Sequence[int]
    ) -> ScatteredRecords:
        starts = array("q", [(locations[index] & OFFSET_MAX) - _SIZE_BYTES for index in indices])
        joined = b"".join([keys[index] for index in indices])
        records, column = _kernels.read_records(
            descriptor, starts.tobytes(), joined, self._largest_bytes, TOGETHER_BYTES_MAX
        )
        sizes: Sequence[int] = array("q", column)
        self._largest_bytes = min(max(max(sizes), BODY_BYTES_MIN) + _SIZE_BYTES, FIRST_READ_BYTES)
        if min(sizes) < BODY_BYTES_MIN:
            return _of_entries(indices, records, sizes)
        return ScatteredRecords(indices, records, sizes)

    def read_span(self, location: int, key: bytes, entries_max: int, bytes_max: int) -> RecordBatch | None:
        """Return the record at ``location`` and what :meth:`read_ahead` gives, in one piece.

        None when the first one is not as it should be, or is large: then :meth:`read` reads it, or says what
        is wrong.
        """
        batch = self.read_following(location, key[:_LEDGER_BYTES], entries_max + 1, bytes_max)
        return batch if batch is not None and batch.keys.startswith(key) else None

    def read_following(
        self, location: int, ledger: bytes, entries_max: int, bytes_max: int
    ) -> RecordBatch | None:
        """Return the records of a ledger (its id as 8 bytes) that stand at ``location`` and behind it.

        At most ``entries_max``, with bodies of at most ``bytes_max`` together behind the first one; there may
        always be fewer. None when there is not one, or it is large. The caller keeps only those
        that the index has at the place where they stand; see :meth:`read_ahead`.
        """
        if entries_max <= 0 or bytes_max < 0:
            return None
        try:
            log = self._logs.borrow(_log_id(location))
        except BkctlError:
            return None
        try:
            return self._following(
                log.file, (location & OFFSET_MAX) - _SIZE_BYTES, ledger, entries_max, bytes_max
            )
        except BkctlError:
            return None
        finally:
            self._logs.give_back(log)

    def _following(
        self, file: ReadableFile, start: int, ledger: bytes, entries_max: int, bytes_max: int
    ) -> RecordBatch | None:
        """Return what :meth:`read_following` gives, by one read, or two when the entries are large."""
        wanted = min(entries_max * self._average_bytes, bytes_max + FIRST_READ_BYTES)
        data = file.read_at(start, max(wanted, FIRST_READ_BYTES))
        ends = array("q")
        for is_last in (False, True):
            bounds = (BODY_BYTES_MIN, BODY_BYTES_MAX, entries_max - 1, bytes_max)
            keys, column = _kernels.leading_records(data, *bounds)
            ends = array("q", column)
            if not ends or not keys.startswith(ledger):
                return None
            more = min((entries_max - len(ends)) * (ends[-1] // len(ends) + 1), bytes_max - ends[-1])
            if is_last or more <= 0 or len(data) < wanted or not _is_cut(data, ends[-1], ledger):
                break
            data += file.read_at(start + len(data), more)
        self._average_bytes = min(-(-ends[-1] // len(ends)), FIRST_READ_BYTES)
        return RecordBatch(keys, data[: ends[-1]], ends)

    def read_ahead(
        self, location: int, key: bytes, entries_max: int, bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        """Return (key, body) of the records behind the one at ``location``; maybe fewer, or none.

        They are of the same ledger, at most ``entries_max``, their bodies at most ``bytes_max`` together.
        Another ledger, the end of the log, a failed read and anything odd end them: what is wrong there is
        said when that entry itself is read.

        The caller keeps only those that the index has at the place where they stand. A log also holds older
        copies of entries, and behind its last forced record what a failed flush or a power cut has left,
        possibly with the right key and half of the body.
        """
        if entries_max <= 0:
            return []
        try:
            log = self._logs.borrow(_log_id(location))
        except BkctlError:
            return []
        try:
            window = _Window(log.file, (location & OFFSET_MAX) - _SIZE_BYTES)
            head = window.peek(0, _KEY_END)
            return window.following(head, entries_max, bytes_max) if head[_SIZE_BYTES:] == key else []
        except BkctlError:
            return []
        finally:
            self._logs.give_back(log)


class _Window:
    """Bytes of a file from ``start``, read in pieces as they are needed."""

    def __init__(self, file: ReadableFile, start: int) -> None:
        self._file = file
        self._start = start
        self._base = start
        self._data = b""

    def peek(self, position: int, length: int, ahead: int = 0) -> bytes:
        """Return ``length`` bytes at ``position`` behind the start; may read ``ahead`` more.

        At the end there are fewer bytes.
        """
        at = self._start + position - self._base
        if at + length > len(self._data):
            self._base = self._start + position
            self._data = self._file.read_at(self._base, max(length, ahead))
            at = 0
        return self._data[at : at + length]

    def following(self, head: bytes, entries_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """Return (key, body) of the records behind the one at the start, which begins with ``head``."""
        ledger = head[_SIZE_BYTES : _SIZE_BYTES + _LEDGER_BYTES]
        size = int.from_bytes(head[:_SIZE_BYTES], "big")
        # Entries of a ledger are mostly of one size, so this is about what one read has to bring.
        ahead = min(bytes_max + _KEY_END, (entries_max + 1) * (size + _SIZE_BYTES))
        found: list[tuple[bytes, bytes]] = []
        room = bytes_max
        position = _SIZE_BYTES + size
        while len(found) < entries_max:
            head = self.peek(position, _KEY_END, ahead)
            size = int.from_bytes(head[:_SIZE_BYTES], "big")
            if len(head) < _KEY_END or head[_SIZE_BYTES : _SIZE_BYTES + _LEDGER_BYTES] != ledger:
                break
            if not BODY_BYTES_MIN <= size <= room:
                break
            body = self.peek(position + _SIZE_BYTES, size, ahead)
            if len(body) < size:
                break
            found.append((head[_SIZE_BYTES:], body))
            room -= size
            position += _SIZE_BYTES + size
        return found


def _is_cut(data: bytes, start: int, ledger: bytes) -> bool:
    """Return whether what begins at ``start`` may be a record of the ledger whose end is not there."""
    return len(data) - start < _KEY_END or data.startswith(ledger, start + _SIZE_BYTES)


def _log_id(location: int) -> int:
    if location <= 0 or location & OFFSET_MAX < HEADER_BYTES + _SIZE_BYTES:
        raise CorruptionError("entry location", expected="a log and an offset", found=f"{location:#x}")
    return location >> 32


def _of_entries(indices: Sequence[int], records: bytes, sizes: Sequence[int]) -> ScatteredRecords:
    """Return the entries that were read, without records that are smaller than any entry.

    Of an entry that was not read, whose size is negative, there is no record.
    """
    there = [index for index, size in zip(indices, sizes, strict=True) if size >= 0]
    read = zip(there, bodies_of(records), strict=True)
    rows = [(index, body) for index, body in read if len(body) >= BODY_BYTES_MIN]
    bodies = [body for _, body in rows]
    return ScatteredRecords([index for index, _ in rows], records_of(bodies), list(map(len, bodies)))


def _read_body(file: ReadableFile, start: int, key: bytes) -> bytes:
    data = file.read_at(start, FIRST_READ_BYTES)
    size = int.from_bytes(data[:_SIZE_BYTES], "big", signed=True)
    if data[_SIZE_BYTES:_KEY_END] != key or not BODY_BYTES_MIN <= size <= BODY_BYTES_MAX:
        raise CorruptionError(
            "entry log record",
            offset=start,
            expected=f"an entry {key.hex()}",
            found=f"size {size}, key {data[_SIZE_BYTES:_KEY_END].hex() or 'none'}",
            path=file.path,
        )
    end = _SIZE_BYTES + size
    if end > len(data) == FIRST_READ_BYTES:
        data += file.read_at(start + len(data), end - len(data))
    if len(data) < end:
        raise CorruptionError(
            "entry log record",
            offset=start,
            expected=f"{counted(size, 'byte')} of an entry",
            found=f"{counted(len(data) - _SIZE_BYTES, 'byte')} before the end of the log",
            path=file.path,
        )
    return data[_SIZE_BYTES:end]
