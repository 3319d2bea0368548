"""Past runs of jobs: where their results are, and what of their summaries a trend needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bkctl.errors import NotFoundError, StorageError
from bkctl.pipeline.job import REBUILD_NAME, Job
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.locations import Location, is_url, located
from bkctl.pipeline.out_directory import MARK_NAME, SUMMARY_NAME
from bkctl.pipeline.results import UNEXAMINED
from bkctl.pipeline.sets.store import SetStore
from bkctl.pipeline.survey import STORE_MARK
from bkctl.pipeline.trend.points import Problem

#: A summary is some kilobytes; guards of a fleet may make it longer.
_SUMMARY_BYTES_MAX = 64 << 20
_THREADS = 8
_NUMBERS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class PastRun:
    """A finished run. ``not_judged`` says which questions it left open; ``asked`` is what it was run on, with
    numbers left out: two runs that differ in it answer two questions."""

    place: Location
    job: Job
    started_ms: int
    ended_ms: int
    counts: Mapping[str, float]
    not_judged: str | None
    asked: str


@dataclass(frozen=True, slots=True)
class Sources:
    """The contents of paths: stores of sets, finished runs, the oldest first, and places that are neither."""

    stores: tuple[SetStore, ...]
    runs: tuple[PastRun, ...]
    problems: tuple[Problem, ...]


def find_sources(paths: Iterable[str]) -> Sources:
    """Look what paths hold: sets, a run, or a folder of several such.

    Raises NotFoundError for a path that holds neither, UsageError, StorageError.
    """
    stores: list[SetStore] = []
    folders: list[Location] = []
    for path in dict.fromkeys(paths):
        place = located(path)
        names = set(place.names())
        inside = {place: names} if _is_one(names) else dict(_folders(place, names))
        if not any(map(_is_one, inside.values())):
            raise NotFoundError(
                f"{path}: holds no sets ('bkctl pipeline collect') and no --out of 'bkctl pipeline run'"
            )
        for child, there in inside.items():
            if STORE_MARK in there:
                stores.append(SetStore(child))
            else:
                folders.append(child)
    problems: list[Problem] = []
    with ThreadPoolExecutor(_THREADS, "trend") as pool:
        runs = []
        for one in pool.map(_looked_at, folders):
            if isinstance(one, Problem):
                problems.append(one)
            elif one is not None:
                runs.append(one)
    return Sources(
        tuple(stores), tuple(sorted(runs, key=lambda run: (run.started_ms, run.place.text))), tuple(problems)
    )


def _is_one(names: set[str]) -> bool:
    """Return whether a directory is a store of sets, or was made by a run."""
    return bool({STORE_MARK, MARK_NAME, SUMMARY_NAME} & names)


def _folders(place: Location, names: Iterable[str]) -> Iterator[tuple[Location, set[str]]]:
    """Give the directories in a place, and the names in them; what begins with a dot is nobody's."""
    for name in sorted(names):
        child = place.child(name)
        if not name.startswith(".") and child.is_directory():
            yield child, set(child.names())


def _looked_at(place: Location) -> PastRun | Problem | None:
    """Read the summary of a run; None of a repair, which has no counts to follow."""
    try:
        found = json.loads(place.read(SUMMARY_NAME, _SUMMARY_BYTES_MAX))
    except NotFoundError:
        return Problem(place.text, f"has no {SUMMARY_NAME}: no run is finished there")
    except StorageError as error:
        return Problem(place.text, str(error))
    except (ValueError, RecursionError) as error:
        return Problem(place.text, f"its {SUMMARY_NAME} is no JSON: {error}")
    if isinstance(found, dict) and found.get("job") == REBUILD_NAME:
        return None
    try:
        return _past_run(place, found)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return Problem(place.text, f"its {SUMMARY_NAME} is not that of a run: {error!r}")


def _past_run(place: Location, found: Mapping[str, Any]) -> PastRun:
    job = JOBS[found["job"]]
    started_ms = int(found["started_ms"])
    counts = {
        name: value
        for name, value in dict(found["counts"]).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    open_questions = [str(name) for name in found["found"] if name not in job.found]
    unexamined = found["verdict"] == UNEXAMINED
    not_judged = f"the run could not judge {', '.join(open_questions) or 'a part'}" if unexamined else None
    return PastRun(
        place,
        job,
        started_ms,
        started_ms + int(1000 * found["seconds"]),
        counts,
        not_judged,
        "\n".join(_asked(found)),
    )


def _asked(found: Mapping[str, Any]) -> Iterator[str]:
    """Give what a run was run on; the number of paths counts, dates in them do not."""
    yield from sorted(_NUMBERS.sub("#", str(path)) for path in found["paths"])
    yield "with metadata" if found.get("metadata") else "without metadata"
    parameters = dict(found["parameters"])
    for name in ("now_ms", "two_snapshots", "top"):
        parameters.pop(name, None)
    yield json.dumps(parameters, sort_keys=True)


def table_files(run: PastRun, table: str) -> list[str]:
    """Return the files of a table, wherever the results were copied to since. Raises StorageError."""
    folder = run.place.child(table)
    names = [name for name in folder.names() if name.endswith(".parquet")]
    if not names:
        raise StorageError(f"{folder.text}: holds no Parquet file", path=folder.text)
    texts = [folder.text_of(name) for name in names]
    return texts if is_url(folder.text) else [f"{folder.path}/{name}" for name in names]
