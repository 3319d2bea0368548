"""External sort of location rows: runs on disk, and the merge of one key range at a time.

A row is (ledger, entry, location). A run is a file of rows in order of ledger and entry, one column behind
the other:

====== ==== =====================================
offset size field
====== ==== =====================================
0      8 n  ledger ids, i64, little-endian
8 n    8 n  entry ids
16 n   8 n  locations (``codec.location``, packed)
====== ==== =====================================

Runs are numbered in the order of the places that their rows point to (log id, then offset), so that of two
rows with one key the one of the later run is the one to keep.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO

import numpy as np
from numpy.typing import NDArray

from bkctl.codec.location import ID_MAX, LocationColumns
from bkctl.errors import StorageError, as_storage_errors, storage_error
from bkctl.scan.columns.column import Column
from bkctl.scan.columns.stretches import stretches

#: Memory that sorting and writing one row takes at the peak: its three columns, twice, the sort key, the
#: order, and the row as bytes.
ROW_BYTES_AT_PEAK = 128
ROW_BYTES = 24

_DTYPE = np.dtype("<i8")
_PACKED_BITS = 63
_SEARCHED_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as columns of one length."""

    ledgers: Column
    entries: Column
    locations: Column

    def __len__(self) -> int:
        return len(self.ledgers)

    def select(self, which: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Rows:
        """Select the rows at ``which``, an index array, a mask or a slice."""
        return Rows(self.ledgers[which], self.entries[which], self.locations[which])


@dataclass(frozen=True, slots=True)
class Run:
    """A run file: ``rows`` rows whose bytes have the CRC-32 ``checksum``."""

    path: str
    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class RunSlice:
    """Rows ``first`` to ``stop`` (excluded) of a run."""

    run: Run
    first: int
    stop: int


#: The rows of one range of keys, as slices in the order of the runs.
Partition = tuple[RunSlice, ...]


def no_rows() -> Rows:
    """Return an empty set of rows."""
    empty = np.empty(0, np.int64)
    return Rows(empty, empty, empty)


def concatenated(parts: Sequence[Rows]) -> Rows:
    """Concatenate all rows of ``parts`` in their order."""
    if not parts:
        return no_rows()
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([part.ledgers for part in parts]),
        np.concatenate([part.entries for part in parts]),
        np.concatenate([part.locations for part in parts]),
    )


def sorted_rows(rows: Rows) -> Rows:
    """Sort rows by ledger and entry; of rows with one key only the last in ``rows`` stays.

    Ids are 0 or more.
    """
    ordered = ordered_rows(rows)
    if len(rows) < 2:
        return ordered
    last = np.ones(len(rows), np.bool_)
    last[:-1] = (ordered.ledgers[1:] != ordered.ledgers[:-1]) | (ordered.entries[1:] != ordered.entries[:-1])
    return ordered if bool(last.all()) else ordered.select(last)


def ordered_rows(rows: Rows) -> Rows:
    """Sort rows by ledger and entry; rows with one key all stay, in their order. Ids are 0 or more."""
    if len(rows) < 2:
        return rows
    ledger_min = int(rows.ledgers.min())
    entry_bits = int(rows.entries.max()).bit_length()
    if entry_bits + (int(rows.ledgers.max()) - ledger_min).bit_length() <= _PACKED_BITS:
        key = ((rows.ledgers - ledger_min) << entry_bits) | rows.entries
        if bool((key[1:] >= key[:-1]).all()):
            return rows
        order = np.argsort(key, kind="stable")
        del key
    else:
        order = np.lexsort((rows.entries, rows.ledgers))
    return rows.select(order)


def write_run(path: str, rows: Rows, *, durable: bool = True) -> Run:
    """Write a run whole or not at all; on disk when this returns if it is to be. Raises StorageError."""
    checksum = 0
    half = f"{path}.{uuid.uuid4().hex}.tmp"  # containers share process ids
    try:
        with open(half, "wb") as file:
            for column in (rows.ledgers, rows.entries, rows.locations):
                data = np.ascontiguousarray(column, _DTYPE).data
                checksum = zlib.crc32(data, checksum)
                file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())  # the manifest that names the run must not outlive it
        os.replace(half, path)  # the directory is synced with the manifest
    except OSError as error:
        raise storage_error(error, path) from error
    return Run(path, len(rows), checksum)


def is_whole(run: Run) -> bool:
    """Return whether the file still is what was written."""
    checksum = 0
    try:
        with open(run.path, "rb") as file:
            if os.fstat(file.fileno()).st_size != run.rows * ROW_BYTES:
                return False
            while block := file.read(1 << 20):
                checksum = zlib.crc32(block, checksum)
    except OSError:
        return False
    return checksum == run.checksum


def read_slice(part: RunSlice) -> Rows:
    """Read rows of a run. Raises StorageError when the file cannot be read or is shorter than it was."""
    count = part.stop - part.first
    columns = []
    with as_storage_errors(part.run.path), open(part.run.path, "rb", buffering=0) as file:
        for number in range(3):
            offset = (number * part.run.rows + part.first) * 8 - file.tell()
            columns.append(np.fromfile(file, _DTYPE, count, offset=offset))
    if any(len(column) != count for column in columns):
        raise StorageError(f"{part.run.path}: shorter than it was written", path=part.run.path)
    return Rows(*(column.astype(np.int64, copy=False) for column in columns))


class RunWriter:
    """Collects rows in the order of their locations and writes a run for every ``rows_max`` of them.

    ``name`` gives the path of the run with a number; ``runs`` are complete after :meth:`close`.
    """

    def __init__(self, name: Callable[[int], str], rows_max: int) -> None:
        self._name = name
        self._rows_max = rows_max
        self._parts: list[Rows] = []
        self._count = 0
        self.runs: list[Run] = []

    def add(self, rows: Rows) -> None:
        """Take rows over. Raises StorageError."""
        if self._count + len(rows) > self._rows_max:
            self._spill()
        if len(rows):
            self._parts.append(rows)
            self._count += len(rows)

    def _spill(self) -> None:
        if not self._count:
            return
        rows = concatenated(self._parts)
        self._parts.clear()
        self._count = 0
        self.runs.append(write_run(self._name(len(self.runs)), sorted_rows(rows)))

    def close(self) -> list[Run]:
        """Write what is left; all runs in order. Raises StorageError."""
        self._spill()
        return self.runs


class RunSearch:
    """Looks values up in the columns of a run, by small reads: pages of a mapped file would count as memory
    of this process, and in the end that is the whole run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def key(self, index: int) -> tuple[int, int]:
        """Read the ledger and the entry of a row. Raises StorageError."""
        with self._opened() as file:
            return int(self._read(file, 0, index, 1)[0]), int(self._read(file, 1, index, 1)[0])

    def key_position(self, key: tuple[int, int], first: int, stop: int) -> int:
        """Find the first row in ``[first, stop)`` whose key is at least ``key``. Raises StorageError."""
        ledger, entry = key
        with self._opened() as file:
            low = self._position(file, 0, ledger, first, stop)
            high = self._position(file, 0, ledger + 1, low, stop) if ledger < ID_MAX else stop
            return self._position(file, 1, entry, low, high)

    def location(self, index: int) -> int:
        """Read the location of a row. Raises StorageError."""
        with self._opened() as file:
            return int(self._read(file, 2, index, 1)[0])

    def location_position(self, location: int, first: int = 0, stop: int | None = None) -> int:
        """Find the first row in ``[first, stop)`` with at least this location, in a run in their order."""
        with self._opened() as file:
            return self._position(file, 2, location, first, self._run.rows if stop is None else stop)

    def _opened(self) -> FileIO:
        with as_storage_errors(self._run.path):
            return FileIO(self._run.path)

    def _position(self, file: FileIO, column: int, value: int, low: int, high: int) -> int:
        while high - low > _SEARCHED_ROWS:
            middle = (low + high) // 2
            if int(self._read(file, column, middle, 1)[0]) < value:
                low = middle + 1
            else:
                high = middle
        return low + int(np.searchsorted(self._read(file, column, low, high - low), value))

    def _read(self, file: FileIO, column: int, first: int, count: int) -> Column:
        with as_storage_errors(self._run.path):
            data = os.pread(file.fileno(), count * 8, (column * self._run.rows + first) * 8)
        if len(data) != count * 8:
            raise StorageError(f"{self._run.path}: shorter than it was written", path=self._run.path)
        return np.frombuffer(data, _DTYPE).astype(np.int64, copy=False)


def located(run: Run, low: int, high: int) -> RunSlice | None:
    """Find the rows with locations in ``[low, high)`` of a run in order of locations. Raises StorageError."""
    search = RunSearch(run)
    first, stop = search.location_position(low), search.location_position(high)
    return RunSlice(run, first, stop) if first < stop else None


def by_location(rows: Rows) -> Rows:
    """Sort rows by location; those of one place stay in their order."""
    return rows.select(np.argsort(rows.locations, kind="stable"))


def partitions(
    runs: Sequence[Run], rows_max: int, search: Callable[[Run], RunSearch] = RunSearch
) -> Iterator[Partition]:
    """Cut the runs into consecutive ranges of keys of at most ``rows_max`` rows (more only for one key).

    ``search`` finds keys in a run that is in their order. Raises StorageError.
    """
    whole = tuple(RunSlice(run, 0, run.rows) for run in runs if run.rows)
    if whole:
        yield from _cut(whole, [search(part.run) for part in whole], rows_max)


def _cut(parts: Partition, keys: list[RunSearch], rows_max: int) -> Iterator[Partition]:
    """Cut a partition into halves until they are small enough; both lists stay in step."""
    if sum(part.stop - part.first for part in parts) <= rows_max:
        yield parts
        return
    middle = _middle_key(parts, keys)
    if middle is None:
        yield parts
        return
    cuts = [key.key_position(middle, part.first, part.stop) for part, key in zip(parts, keys, strict=True)]
    for left in (True, False):
        chosen = [
            (RunSlice(part.run, part.first, cut) if left else RunSlice(part.run, cut, part.stop), key)
            for part, key, cut in zip(parts, keys, cuts, strict=True)
        ]
        kept = [(part, key) for part, key in chosen if part.stop > part.first]
        if kept:
            yield from _cut(tuple(part for part, _ in kept), [key for _, key in kept], rows_max)


def _middle_key(parts: Partition, keys: list[RunSearch]) -> tuple[int, int] | None:
    """Choose a key that leaves rows on both sides, about as many; None when all rows have the same key."""
    middles = sorted(
        (key.key((part.first + part.stop) // 2), part.stop - part.first)
        for part, key in zip(parts, keys, strict=True)
    )
    half = sum(count for _, count in middles) // 2
    seen = 0
    chosen = middles[-1][0]
    for middle, count in middles:
        seen += count
        if seen > half:
            chosen = middle
            break
    lowest = min(key.key(part.first) for part, key in zip(parts, keys, strict=True))
    if chosen > lowest:
        return chosen
    above = [middle for middle, _ in middles if middle > lowest]
    highest = max(key.key(part.stop - 1) for part, key in zip(parts, keys, strict=True))
    if above:
        return above[0]
    return highest if highest > lowest else None


def merged(partition: Partition) -> Rows:
    """Merge the rows of a partition in key order, one for each key: the one of the last run."""
    return sorted_rows(concatenated([read_slice(part) for part in partition]))


def of_ledgers(rows: Rows, ledgers: Column) -> Rows:
    """Select the rows whose ledger is one of ``ledgers`` (ascending); ``rows`` are in key order."""
    if not len(rows) or not len(ledgers):
        return rows.select(slice(0, 0))
    starts, lengths = stretches(rows.ledgers)
    present = rows.ledgers[starts]
    at = np.minimum(np.searchsorted(ledgers, present), len(ledgers) - 1)
    wanted = ledgers[at] == present
    if bool(wanted.all()):
        return rows
    return rows.select(np.repeat(wanted, lengths))


def rows_of(columns: LocationColumns) -> Rows:
    """Make rows with packed locations from the columns of rows."""
    log_ids = np.asarray(columns.log_ids, np.int64)
    locations = log_ids << 32 | np.asarray(columns.offsets, np.int64)
    return Rows(np.array(columns.ledgers, np.int64), np.array(columns.entries, np.int64), locations)
