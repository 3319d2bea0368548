"""New ``.idx`` files from merged rows: whole pages, sparse where a ledger has no entries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from bkctl.admin.index.rebuild.state import sync_directory, sync_file
from bkctl.admin.index.rebuild.verification import check_rows
from bkctl.admin.index.rows.location_runs import Rows, Run, concatenated, merged, of_ledgers, partitions
from bkctl.codec.file_info import (
    HEADER_BYTES,
    PAGE_BYTES,
    SLOT_BYTES,
    FileInfoHeader,
    encode_header,
    index_path,
)
from bkctl.errors import CorruptionError, as_storage_errors
from bkctl.reporting import Advance, counted
from bkctl.scan.columns.column import Column
from bkctl.scan.columns.stretches import slices
from bkctl.scan.directory import LogFile
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import PosixFileSystem

_PAGE_SLOTS = PAGE_BYTES // SLOT_BYTES


def write_idx_files(
    roots: Mapping[int, str],
    headers: Mapping[int, FileInfoHeader],
    runs: Sequence[Run],
    rows_max: int,
    advance: Advance,
) -> int:
    """Write a file for each ledger of ``headers`` below ``roots[ledger]``; number of slots in use.

    The files are on disk when this returns, their directories are the caller's to sync. Raises StorageError.
    """
    for ledger in headers:
        _create(_path(roots, ledger), encode_header(headers[ledger]))
    wanted = np.array(sorted(headers), np.int64)
    slots = 0
    for partition in partitions(runs, rows_max):
        rows = of_ledgers(merged(partition), wanted)
        for ledger, part in _by_ledger(rows):
            _write_slots(_path(roots, ledger), part)
        slots += len(rows)
        advance(sum(part.stop - part.first for part in partition))
    for ledger in headers:
        sync_file(_path(roots, ledger))
    return slots


def _path(roots: Mapping[int, str], ledger: int) -> str:
    return os.path.join(roots[ledger], index_path(ledger))


def _create(path: str, header: bytes) -> None:
    with as_storage_errors(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(header)


def _by_ledger(rows: Rows) -> Iterator[tuple[int, Rows]]:
    for part in slices(rows.ledgers):
        yield int(rows.ledgers[part.start]), rows.select(part)


def _write_slots(path: str, rows: Rows) -> None:
    """Put the rows of one ledger, in order of entries, into their pages; a page may have slots already."""
    numbers = rows.entries // _PAGE_SLOTS
    cuts = np.flatnonzero(np.diff(numbers) > 1) + 1
    bounds = [0, *cuts.tolist(), len(rows)]
    with as_storage_errors(path), open(path, "r+b", buffering=0) as file:
        for first, stop in pairwise(bounds):
            page = int(numbers[first])
            count = int(numbers[stop - 1]) - page + 1
            offset = HEADER_BYTES + page * PAGE_BYTES
            block = bytearray(os.pread(file.fileno(), count * PAGE_BYTES, offset))
            block.extend(bytes(count * PAGE_BYTES - len(block)))
            slots = np.frombuffer(block, ">i8")
            slots[rows.entries[first:stop] - page * _PAGE_SLOTS] = rows.locations[first:stop]
            _write_all(file.fileno(), block, offset)


def _write_all(descriptor: int, block: bytearray, offset: int) -> None:
    view = memoryview(block)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def sync_tree(root: str) -> None:
    """Make the names in a tree of directories durable, the lowest first. Raises StorageError."""
    for path, _, _ in os.walk(root, topdown=False):
        sync_directory(path)


def verify_idx_files(
    roots: Sequence[str], logs: Sequence[LogFile], slots: int, rows_max: int, advance: Advance
) -> None:
    """Read every slot back and compare it with the record that it points to.

    Raises CorruptionError for the first that is wrong, and when their number is. Rows are compared in
    batches of at most ``rows_max``, each in order of locations.
    """
    files = {log.log_id: log for log in logs}
    seen = 0
    for root in roots:
        for rows in _batches(root, rows_max):
            _check(files, rows)
            seen += len(rows)
            advance(len(rows))
    if seen != slots:
        raise CorruptionError("new .idx files", expected=f"{counted(slots, 'slot')} in use", found=str(seen))


def _batches(root: str, rows_max: int) -> Iterator[Rows]:
    parts: list[Rows] = []
    count = 0
    for columns in IdxTree(PosixFileSystem(), root).locations():
        if isinstance(columns, IndexDamage):
            raise CorruptionError(f"new .idx file: {columns.reason}", path=columns.path)
        locations = (np.array(columns.log_ids, np.int64) << 32) | np.array(columns.offsets, np.int64)
        parts.append(
            Rows(np.array(columns.ledgers, np.int64), np.array(columns.entries, np.int64), locations)
        )
        count += len(columns)
        if count >= rows_max:
            yield concatenated(parts)
            parts, count = [], 0
    if parts:
        yield concatenated(parts)


def _check(files: Mapping[int, LogFile], rows: Rows) -> None:
    rows = rows.select(np.argsort(rows.locations, kind="stable"))
    log_ids: Column = rows.locations >> 32
    for part in slices(log_ids):
        log_id = int(log_ids[part.start])
        log = files.get(log_id)
        if log is None:
            raise CorruptionError("new .idx files", expected="an existing log", found=str(log_id))
        file = SteadyFile(PosixFileSystem().open(log.path))
        try:
            check_rows(file, rows.select(part))
        finally:
            file.close()
