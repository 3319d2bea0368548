"""Reading the entry logs of a set: tasks for several processes, what each wrote, and what need not be read.

A log is taken over from the set before when nothing about it changed: size, time, both ends, and that all was
well with it. A task that is done leaves a file in ``progress``, so that a pass that was ended can go on.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from bkctl.errors import NotFoundError
from bkctl.pipeline.locations import Location, located
from bkctl.pipeline.sets.base_rows import base_rows
from bkctl.pipeline.sets.log_pass import UNREAD_END, LogPass
from bkctl.pipeline.sets.manifest import PartFile, SetFile
from bkctl.pipeline.sets.pace import Pace
from bkctl.pipeline.sets.parts import PartWriters
from bkctl.pipeline.sets.set_tables import OF_LOGS
from bkctl.pipeline.sets.store import PROGRESS, CompleteSet
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.split import SplitFile
from bkctl.pipeline.tables.stored_digests import StoredDigests
from bkctl.reporting import Advance

_PROGRESS_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Logs that one process reads; ``place`` is the set's directory as text.

    ``read_as`` is how: the version of the program, and how digests are known.
    """

    place: str
    files: tuple[SplitFile, ...]
    looked_at: tuple[SetFile, ...]
    known: KnownDigests | StoredDigests
    options: TableOptions
    rate_bytes: float
    read_as: str


@dataclass(frozen=True, slots=True)
class ReadLogs:
    """The result of a reading task: the logs' states and the files that it wrote, by table."""

    files: tuple[SetFile, ...]
    parts: Mapping[str, PartFile] = field(default_factory=dict)


def read_logs(task: ReadTask, advance: Advance) -> ReadLogs:
    """Read the logs of a task into files of the set. Raises StorageError."""
    place = located(task.place)
    pace = Pace(task.rate_bytes)

    def spend(size_bytes: int) -> None:
        advance(size_bytes)
        pace.spend(size_bytes)

    with PartWriters(place, OF_LOGS) as writers:
        log_pass = LogPass(task.options, writers.add, spend)
        states = []
        for file, looked_at in zip(task.files, task.looked_at, strict=True):
            state = log_pass.read(file, task.known, looked_at)
            states.append(replace(state, read_ms=int(time.time() * 1000)))
        done = ReadLogs(tuple(states), writers.close())
    _write_progress(place, done, task.read_as)
    return done


def _write_progress(place: Location, done: ReadLogs, read_as: str) -> None:
    text = json.dumps(
        {
            "read_as": read_as,
            "files": [asdict(file) for file in done.files],
            "parts": {name: asdict(part) for name, part in done.parts.items()},
        }
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    place.write(f"{PROGRESS}/{secrets.token_hex(8)}.json", f"{digest}\n{text}".encode())


def earlier_progress(
    place: Location, now: Mapping[tuple[str, int], SetFile], read_as: str
) -> Iterator[ReadLogs]:
    """Give what an ended pass of the same set had read, as far as none of a task's logs has changed, and it
    was read as this one reads: a pass that checked no digests leaves nothing to one that does."""
    sizes = place.sizes()
    for name in sorted(sizes):
        if not name.startswith(f"{PROGRESS}/"):
            continue
        done = _progress(place, name, read_as)
        if done is None or any(sizes.get(part.name) != part.bytes for part in done.parts.values()):
            continue
        if all(unchanged(file, now.get((file.dir, file.id))) for file in done.files):
            yield done


def _progress(place: Location, name: str, read_as: str) -> ReadLogs | None:
    """Return what a task left; None of one that was cut short, or read in another way."""
    try:
        digest, _, text = place.read(name, _PROGRESS_BYTES_MAX).partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != digest:
            return None
        found = json.loads(text)
    except (NotFoundError, ValueError):
        return None
    if found.get("read_as") != read_as:
        return None
    parts = {name: PartFile(**part) for name, part in found["parts"].items()}
    return ReadLogs(tuple(SetFile(**file) for file in found["files"]), parts)


def unchanged(before: SetFile, now: SetFile | None) -> bool:
    """Return whether a file is what it was when it was read, and all was well with it."""
    if now is None or before.state not in ("read", "carried") or not before.whole:
        return False
    if UNREAD_END in (now.head, now.tail):
        return False
    return (before.bytes, before.mtime_ms, before.head, before.tail, before.path) == (
        now.bytes,
        now.mtime_ms,
        now.head,
        now.tail,
        now.path,
    )


def carried_rows(
    base: CompleteSet, table: str, schema: pa.Schema, logs: Mapping[str, Sequence[int]]
) -> Iterator[pa.RecordBatch]:
    """Give the rows of some logs, by directory, out of an earlier set. Raises BaseUnreadError."""
    wanted: pc.Expression | None = None
    for folder, ids in logs.items():
        here = (pc.field("dir") == folder) & pc.field("log_id").isin(list(ids))
        wanted = here if wanted is None else wanted | here
    if wanted is not None:
        yield from base_rows(base, table, schema, wanted)


def grouped_tasks(
    groups: Iterable[tuple[SplitFile, ...]],
    looked_at: Mapping[tuple[str, int], SetFile],
    make: Callable[[tuple[SplitFile, ...], tuple[SetFile, ...]], ReadTask],
) -> Iterator[ReadTask]:
    """Give a task for each group of logs."""
    for group in groups:
        yield make(group, tuple(looked_at[file.dir, file.id] for file in group))
