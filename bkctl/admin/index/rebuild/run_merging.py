"""Merge many runs into few, in groups.

Every log leaves a run, and nearly every range of keys has rows in nearly every run where ledgers are written
side by side: a hundred thousand logs would be opened again for each of a thousand ranges. So runs are first
merged in groups, each row once more read and written; then a range takes as many slices as there are groups.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bkctl.admin.index.rebuild.state import WorkDirectory
from bkctl.admin.index.rows.location_runs import (
    Rows,
    Run,
    RunSearch,
    concatenated,
    ordered_rows,
    partitions,
    read_slice,
)
from bkctl.errors import as_storage_errors
from bkctl.reporting import Advance, nobody
from bkctl.workers import Workers

#: Runs that are merged into one.
GROUP_RUNS = 512
#: Runs that tables are made of: each is opened for nearly every table.
RUNS_MAX = 1024
#: Folder of a work directory for merged runs.
MERGED = "merged"

_DTYPE = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Runs to merge into one at ``path``, in order of keys, or of locations with ``by_location``."""

    number: int
    runs: tuple[Run, ...]
    path: str
    rows_max: int
    by_location: bool


def fewer_runs(
    work: WorkDirectory,
    folder: str,
    runs: Sequence[Run],
    runs_max: int,
    rows_max: int,
    workers: Workers,
    *,
    by_location: bool = False,
) -> list[Run]:
    """Return at most ``runs_max`` runs with the rows of ``runs``, in their order.

    Rows of one key stay, the last one last. New runs are made below ``folder`` of the work directory; the
    caller discards it. They are not made durable: a rerun after a kill merges again. Raises StorageError.
    """
    found = list(runs)
    level = 0
    while len(found) > runs_max:
        below = f"{folder}/{level}"
        work.prepare(folder, below)
        groups = [tuple(found[first : first + GROUP_RUNS]) for first in range(0, len(found), GROUP_RUNS)]
        tasks = (
            MergeTask(number, group, work.at(below, f"{number}.run"), rows_max, by_location)
            for number, group in enumerate(groups)
        )
        merged = dict(workers.results(merge_group, tasks, nobody))
        if level:
            work.discard(f"{folder}/{level - 1}")
        found = [merged[number] for number in range(len(groups))]
        level += 1
    return found


def merge_group(task: MergeTask, advance: Advance) -> tuple[int, Run]:
    """Merge the runs of a task; its number and the new run. Raises StorageError."""
    total = sum(run.rows for run in task.runs)
    search = LocationSearch if task.by_location else RunSearch
    done = 0
    with as_storage_errors(task.path), open(task.path, "wb", buffering=0) as file:
        for partition in partitions(task.runs, task.rows_max, search):
            rows = concatenated([read_slice(part) for part in partition])
            rows = _by_location(rows) if task.by_location else ordered_rows(rows)
            for number, column in enumerate((rows.ledgers, rows.entries, rows.locations)):
                _write(file.fileno(), np.ascontiguousarray(column, _DTYPE).data, number * total + done)
            done += len(rows)
            advance(len(rows))
    # Without a checksum: a run that is not kept over a kill is never taken up again.
    return task.number, Run(task.path, total, 0)


def _by_location(rows: Rows) -> Rows:
    return rows.select(np.argsort(rows.locations, kind="stable"))


def _write(descriptor: int, values: memoryview, first: int) -> None:
    data, offset = values.cast("B"), first * _DTYPE.itemsize
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


class LocationSearch(RunSearch):
    """The search in a run in order of locations, which are its keys."""

    def key(self, index: int) -> tuple[int, int]:
        return self.location(index), 0

    def key_position(self, key: tuple[int, int], first: int, stop: int) -> int:
        return self.location_position(key[0], first, stop)
