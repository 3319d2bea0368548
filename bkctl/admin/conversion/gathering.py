"""Copies of entries in the ledger directory that serves their ledger.

Sorted- and InterleavedLedgerStorage write a ledger's entries to the logs of any directory; DbLedgerStorage
looks for them in the logs of the ledger's own one. (BookKeeper's own conversion copies nothing, so that
entries elsewhere cannot be read any more.) What lies elsewhere is copied to fresh logs, whose ids nobody
had: byte by byte, in the order in which it lies, read back and compared. The records that were copied
become garbage.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from posixpath import join

import numpy as np

from bkctl.admin.index.rebuild.run_merging import LocationSearch
from bkctl.admin.index.rebuild.verification import WINDOW_BYTES, check_rows
from bkctl.admin.index.rows.location_runs import (
    Rows,
    Run,
    RunWriter,
    concatenated,
    partitions,
    read_slice,
    write_run,
)
from bkctl.codec.entrylog import log_name
from bkctl.codec.location import OFFSET_MAX
from bkctl.engine.entrylog.log_writer import LogWriter
from bkctl.errors import CorruptionError, StorageError
from bkctl.reporting import Advance
from bkctl.scan.columns.log_columns import gather_i32
from bkctl.scan.columns.stretches import slices
from bkctl.scan.directory import LogFile
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs.base import WritableFile, WritableFileSystem

_SIZE_BYTES = 4
_KEY_BYTES = 16
_LOG_SHIFT = 32


class LocationRuns:
    """Collects rows and writes a run in order of locations for every ``rows_max`` of them; not durable."""

    def __init__(self, name: Callable[[int], str], rows_max: int) -> None:
        self._name, self._rows_max = name, rows_max
        self._parts: list[Rows] = []
        self._count = 0
        self._runs: list[Run] = []

    def add(self, rows: Rows) -> None:
        """Take rows over. Raises StorageError."""
        if not len(rows):
            return
        if self._count + len(rows) > self._rows_max:
            self._spill()
        self._parts.append(rows)
        self._count += len(rows)

    def _spill(self) -> None:
        if self._parts:
            rows = concatenated(self._parts)
            ordered = rows.select(np.argsort(rows.locations, kind="stable"))
            self._runs.append(write_run(self._name(len(self._runs)), ordered, durable=False))
            self._parts, self._count = [], 0

    def close(self) -> list[Run]:
        """Write what is left; all runs. Raises StorageError."""
        self._spill()
        return self._runs


class Gatherer:
    """Writes fresh logs in ``folder``, for one ledger directory.

    ``new_id`` gives the logs' ids, and ``tell`` gets the new rows. ``logs`` and ``rows`` are complete after
    :meth:`finish`: the logs, and the rows of the records that were copied.
    """

    def __init__(
        self,
        fs: WritableFileSystem,
        folder: str,
        size_bytes_max: int,
        new_id: Callable[[], int],
        rows: RunWriter,
        tell: Callable[[Rows], None],
    ) -> None:
        self._fs, self._folder, self._new_id = fs, folder, new_id
        self._size_bytes_max = size_bytes_max
        self._log: LogWriter | None = None
        self._file: WritableFile | None = None
        self._written: list[tuple[int, int]] = []
        self._checksum = 0
        self.logs: list[LogFile] = []
        self.rows = rows
        self._tell = tell
        self.entries = 0

    def copy(
        self, runs: Sequence[Run], sources: Mapping[int, LogFile], rows_max: int, advance: Advance
    ) -> None:
        """Copy the records that rows name; the runs are in order of locations, ``sources`` the logs by id.

        Raises CorruptionError for a row whose record is not there, StorageError.
        """
        for partition in partitions(runs, rows_max, LocationSearch):
            rows = concatenated([read_slice(part) for part in partition])
            rows = rows.select(np.argsort(rows.locations, kind="stable"))
            ids = rows.locations >> _LOG_SHIFT
            for part in slices(ids):
                self._copy_from(sources[int(ids[part.start])], rows.select(part), advance)

    def _copy_from(self, source: LogFile, rows: Rows, advance: Advance) -> None:
        file = SteadyFile(self._fs.open(source.path))
        try:
            check_rows(file, rows)
            starts = (rows.locations & OFFSET_MAX) - _SIZE_BYTES
            at = 0
            while at < len(rows):
                base = int(starts[at])
                stop = int(np.searchsorted(starts, base + WINDOW_BYTES))
                part = starts[at:stop] - base
                window = file.read_at(base, int(part[-1]) + _SIZE_BYTES)
                last = int(gather_i32(window, part[-1:])[0])
                window = file.read_at(base, int(part[-1]) + _SIZE_BYTES + last)
                if file.unreadable:
                    raise StorageError(
                        f"{source.path}: cannot be read at {file.unreadable[0][0]}", path=source.path
                    )
                sizes = gather_i32(window, part).tolist()
                begins = (part + _SIZE_BYTES).tolist()
                bodies = [window[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
                self._append(bodies, rows.select(slice(at, stop)))
                advance(stop - at)
                at = stop
        finally:
            file.close()

    def _append(self, bodies: list[bytes], rows: Rows) -> None:
        sizes = list(map(len, bodies))
        first = 0
        while first < len(bodies):
            log = self._log or self._begin()
            places = log.fitting(sizes[first:], self._size_bytes_max)
            count = len(places) - 1
            if not count:
                self._end()
                continue
            stop = first + count
            log.write(
                [body[:_KEY_BYTES] for body in bodies[first:stop]],
                bodies[first:stop],
                sizes[first:stop],
                places,
            )
            for body in bodies[first:stop]:
                self._checksum = zlib.crc32(body, self._checksum)
            part = rows.select(slice(first, stop))
            copied = Rows(part.ledgers, part.entries, np.array(places[:-1], np.int64))
            self.rows.add(copied)
            self._tell(copied)
            self.entries += count
            first = stop

    def _begin(self) -> LogWriter:
        log_id = self._new_id()
        path = join(self._folder, log_name(log_id))
        self._file = self._fs.create(path)
        self._log = LogWriter(log_id, self._file)
        self._log.write_header()
        self._checksum = 0
        return self._log

    def _end(self) -> None:
        log, file = self._log, self._file
        if log is None or file is None:
            return
        try:
            end = log.position
            log.finish()
            log.sync()
            size_bytes = file.size_bytes
        finally:
            file.close()
        self._log = self._file = None
        path = join(self._folder, log_name(log.log_id))
        self._read_back(path, end)
        self.logs.append(LogFile(path, log.log_id, size_bytes))

    def _read_back(self, path: str, end: int) -> None:
        """Compare what is in the file with what was read from the sources."""
        from bkctl.scan.entrylog import EntryLogScan

        checksum = 0
        with EntryLogScan(self._fs, path) as scan:
            for batch in scan.batches():
                for index in range(len(batch)):
                    checksum = zlib.crc32(batch.body(index), checksum)
        if checksum != self._checksum:
            raise CorruptionError(
                "copied log", offset=end, expected="the records as read", found="others", path=path
            )

    def finish(self) -> list[Run]:
        """End the last log; the runs of all rows. Raises as :meth:`copy`."""
        self._end()
        self._fs.sync_directory(self._folder)
        return self.rows.close()

    def abort(self) -> None:
        """Close what is open, after an error."""
        if self._file is not None:
            self._file.close()
            self._log = self._file = None
