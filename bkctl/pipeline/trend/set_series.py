"""Trends of what sets hold: bytes of entry logs and damage, by bookie and of the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from bkctl.errors import RefusedError, StorageError
from bkctl.pipeline.sets.choice import CUT_SHORT, Choice, Cluster, SetWish, choose_sets
from bkctl.pipeline.sets.manifest import Manifest
from bkctl.pipeline.sets.store import BrokenSet, CompleteSet, SetStore, time_of_set_id
from bkctl.pipeline.tables.schemas import VERIFICATION, chosen
from bkctl.pipeline.trend.points import (
    BOOKIE,
    CLUSTER,
    COLLECT,
    JUDGED,
    MISSING,
    STALE,
    UNEXAMINED,
    UNREADABLE,
    Point,
    Series,
    State,
    Trend,
    TrendWish,
    summed,
    with_changes,
)
from bkctl.reporting import counted

LOG_BYTES, DAMAGES, BAD_ENTRIES = "log_bytes", "damages", "bad_entries"
MEASURES = (LOG_BYTES, DAMAGES, BAD_ENTRIES)

_TABLE = "verification"
_COLUMNS = chosen(VERIFICATION, ["part", "digest_ok", "entries"])
#: Bookies whose manifests are read at once: an object store takes its time for each.
_THREADS = 8


@dataclass(frozen=True, slots=True)
class _Value:
    state: State
    value: float | None = None
    why: str | None = None


class BookieHistory(SetStore):
    """The sets of one bookie as they were at a time; each is read once.

    Of a manifest the list of files is not kept, only the bytes of its entry logs.
    """

    def __init__(self, store: SetStore, bookie: str) -> None:
        super().__init__(store.location)
        self.bookie = bookie
        self.at_ms = 0
        self._ids = [(time_of_set_id(name), name) for name in store.set_ids(bookie)]
        self._read: dict[str, CompleteSet | BrokenSet] = {}
        self._log_bytes: dict[str, int] = {}
        self._damage: dict[str, tuple[_Value, _Value]] = {}

    def began(self) -> bool:
        """Return whether a set had been begun by then; one whose name has no time may have been."""
        return bool(self.set_ids(self.bookie)) or not self._ids

    def bookies(self) -> list[str]:
        """Return the one bookie."""
        return [self.bookie]

    def set_ids(self, bookie: str) -> list[str]:
        """Return the sets that had been begun by then, the newest first."""
        return [name for time_ms, name in self._ids if time_ms is None or time_ms <= self.at_ms]

    def read(self, bookie: str, set_id: str) -> CompleteSet | BrokenSet:
        """Look at a set. Raises StorageError."""
        found = self._read.get(set_id)
        if found is None:
            found = super().read(bookie, set_id)
            if isinstance(found, CompleteSet):
                self._log_bytes[set_id] = _log_bytes(found.manifest)
                found = replace(found, manifest=replace(found.manifest, files=()))
            self._read[set_id] = found
        return found

    def values(self, one: CompleteSet) -> dict[str, _Value]:
        """Return what a set says, by measure."""
        name = one.manifest.set_id
        if name not in self._damage:
            self._damage[name] = _damage(one)
        damages, bad_entries = self._damage[name]
        lacking = one.manifest.not_read.get("logs")
        log_bytes = _Value(UNEXAMINED if lacking else JUDGED, self._log_bytes[name], lacking)
        return {LOG_BYTES: log_bytes, DAMAGES: damages, BAD_ENTRIES: bad_entries}


def _log_bytes(manifest: Manifest) -> int:
    return sum(file.bytes for file in manifest.files if file.kind == "entry_log" and file.state != "gone")


def _damage(one: CompleteSet) -> tuple[_Value, _Value]:
    """Count the damages and the entries whose digest fails, batch by batch."""
    if _TABLE not in one.manifest.tables:
        nothing = _Value(UNEXAMINED, None, f"{one.location.text} has no table {_TABLE}")
        return nothing, nothing
    damages = bad = unchecked = 0
    try:
        for batch in _batches(one):
            is_check = pc.equal(batch["part"], "checks")
            damages += len(batch) - (pc.sum(is_check).as_py() or 0)
            entries = pc.fill_null(batch["entries"], 0)
            fails = pc.and_(is_check, pc.fill_null(pc.invert(batch["digest_ok"]), False))
            unknown = pc.and_(is_check, pc.is_null(batch["digest_ok"]))
            bad += pc.sum(pc.if_else(fails, entries, 0)).as_py() or 0
            unchecked += pc.sum(pc.if_else(unknown, entries, 0)).as_py() or 0
    except (OSError, pa.ArrowException) as error:
        broken = _Value(UNREADABLE, None, f"{one.location.text}, table {_TABLE}: {error}")
        return broken, broken
    lacking = one.manifest.not_read.get(_TABLE)
    if lacking is not None:
        lower = f"{one.location.text}: {lacking}"
        return _Value(UNEXAMINED, damages, lower), _Value(UNEXAMINED, bad, lower)
    if unchecked:
        entries = counted(unchecked, "entry", "entries")
        why = f"{one.location.text}: whether the digests of {entries} are right is not known"
        return _Value(JUDGED, damages), _Value(UNEXAMINED, bad, why)
    return _Value(JUDGED, damages), _Value(JUDGED, bad)


def _batches(one: CompleteSet) -> Iterator[pa.RecordBatch]:
    import pyarrow.dataset as ds

    names = [f"{one.location.path}/{part.name}" for part in one.manifest.tables[_TABLE]]
    if names:
        data = ds.dataset(names, schema=_COLUMNS, format="parquet", filesystem=one.location.filesystem)
        yield from data.to_batches(batch_readahead=2, fragment_readahead=1)


def set_points(stores: Iterable[SetStore], wish: TrendWish) -> Trend:
    """Follow the sets of stores.

    Raises StorageError for a store that cannot be listed, RefusedError for two that hold one bookie.
    """
    trend = Trend()
    times = wish.times_ms()
    found: dict[tuple[str, int], list[Point]] = defaultdict(list)
    clusters: dict[int, set[str]] = defaultdict(set)
    for store, bookies in _once(stores):
        with ThreadPoolExecutor(_THREADS, "trend") as pool:
            for followed in pool.map(partial(_followed, store, wish), bookies):
                for point in followed.points:
                    found[point.series.measure, point.time_ms].append(point)
                for time_ms, instance in followed.instances.items():
                    clusters[time_ms].add(instance)
                trend.points += followed.points
                trend.notes += followed.notes
    for measure in MEASURES:
        series = Series(COLLECT, measure, CLUSTER)
        sums = [
            summed(series, time_ms, found[measure, time_ms], _several(clusters[time_ms]))
            for time_ms in times
            if found[measure, time_ms]
        ]
        trend.points += with_changes(sums)
    return trend


def _several(instances: set[str]) -> str | None:
    if len(instances) < 2:
        return None
    return f"the sets are of {len(instances)} clusters: instances {', '.join(sorted(instances))}"


@dataclass(frozen=True, slots=True)
class _Followed:
    points: list[Point]
    instances: dict[int, str]
    notes: list[str]


def _once(stores: Iterable[SetStore]) -> list[tuple[SetStore, list[str]]]:
    """Return the bookies of each store. Raises RefusedError for one of which two stores have sets."""
    found = [(store, store.bookies()) for store in stores]
    places: dict[str, str] = {}
    for store, bookies in found:
        for bookie in bookies:
            other = places.setdefault(bookie, store.location.text)
            if other != store.location.text:
                raise RefusedError(f"{other} and {store.location.text} both hold bookie {bookie}: name one")
    return found


def _followed(store: SetStore, wish: TrendWish, bookie: str) -> _Followed:
    """Follow one bookie through all points; whatever cannot be read is a point that says so."""
    points: dict[str, list[Point]] = {measure: [] for measure in MEASURES}
    instances: dict[int, str] = {}
    notes: dict[str, None] = {}
    try:
        history: BookieHistory | str = BookieHistory(store, bookie)
    except StorageError as error:
        history = str(error)
    for time_ms in wish.times_ms():
        if isinstance(history, str):
            values, one = dict.fromkeys(MEASURES, _Value(UNREADABLE, None, history)), None
        else:
            history.at_ms = time_ms
            if not history.began():
                continue
            values, one = _looked_at(history, wish, notes)
        if one is not None and one.manifest.instance_id is not None:
            instances[time_ms] = one.manifest.instance_id
        for measure, value in values.items():
            points[measure].append(
                Point(
                    Series(COLLECT, measure, BOOKIE, bookie),
                    time_ms,
                    value.state,
                    value=value.value,
                    read_ms=None if one is None else one.manifest.started_ms,
                    why=value.why,
                    source=None if one is None else one.location.text,
                )
            )
    return _Followed(
        [point for each in points.values() for point in with_changes(each)], instances, list(notes)
    )


def _looked_at(
    history: BookieHistory, wish: TrendWish, notes: dict[str, None]
) -> tuple[dict[str, _Value], CompleteSet | None]:
    """Return what the set of a point says, and the set."""
    try:
        choice: Choice = choose_sets(
            [history], SetWish(history.at_ms, wish.max_age_ms), history.at_ms, Cluster()
        )
    except StorageError as error:
        return dict.fromkeys(MEASURES, _Value(UNREADABLE, None, str(error))), None
    # A set's numbers are those of its time, whatever became of the pass after it: that is a note.
    problems = [problem for problem in choice.problems if problem.unknown != CUT_SHORT]
    why = "; ".join(problem.why for problem in problems) or None
    words = {problem.unknown for problem in problems}
    if not choice.sets or "sets_missing" in words:
        return dict.fromkeys(MEASURES, _Value(MISSING, None, why)), None
    notes.update(dict.fromkeys(choice.notes))
    (one,) = choice.sets
    if "sets_stale" in words:
        return dict.fromkeys(MEASURES, _Value(STALE, None, why)), one
    values = history.values(one)
    if why is not None:
        values = {name: _weakened(value, why) for name, value in values.items()}
    return values, one


def _weakened(value: _Value, why: str) -> _Value:
    """Return a value of which something else is wrong as well."""
    if value.state != JUDGED:
        return value
    return _Value(UNEXAMINED, value.value, why)
