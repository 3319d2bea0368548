"""Trends of what past runs counted: of the cluster by their summaries, of bookies, applications and topics by
their tables."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from bkctl.errors import StorageError
from bkctl.pipeline.duckdb_connection import connected, failures, literal_glob
from bkctl.pipeline.results import remote_datasets
from bkctl.pipeline.trend.past_runs import PastRun, table_files
from bkctl.pipeline.trend.points import (
    APPLICATION,
    BOOKIE,
    CLUSTER,
    JUDGED,
    MISSING,
    STALE,
    TOPIC,
    UNEXAMINED,
    UNREADABLE,
    Point,
    Series,
    State,
    Trend,
    TrendWish,
    with_changes,
)

#: Counts of summaries beside those of findings and of what was not judged.
_AMOUNTS = {
    "garbage": ("bytes", "live_bytes", "unknown_bytes", "dead_bytes", "removable_bytes"),
    "stats": ("ledgers", "ledgers_not_closed", "bytes", "log_bytes"),
    "replication-audit": (
        "copies_missing",
        "ledgers_short",
        "entries_short",
        "entries_below_ack_quorum",
        "entries_lost",
    ),
    "orphans": ("orphan_bytes",),
}


@dataclass(frozen=True, slots=True)
class SubjectTable:
    """A result with rows of subjects.

    A subject that it lacks counts as 0 when ``none_is_zero``: an application without ledgers has none. A
    bookie that was not among the paths is missing.
    """

    job: str
    table: str
    scope: str
    measures: tuple[str, ...]
    none_is_zero: bool = False

    @property
    def key(self) -> str:
        """Return the subject of a row, as SQL; rows without one are of no topic, or of no named
        application."""
        return "coalesce(application, '(none)')" if self.scope == APPLICATION else self.scope


SUBJECT_TABLES = (
    SubjectTable("garbage", "bookie_garbage", BOOKIE, ("live_bytes", "unknown_bytes", "dead_bytes")),
    SubjectTable("replication-audit", "bookie_audit", BOOKIE, ("missing", "slots_missing")),
    SubjectTable("stats", "ledger_owners", APPLICATION, ("bytes", "disk_bytes", "ledgers"), True),
    SubjectTable("stats", "ledger_owners", TOPIC, ("bytes", "disk_bytes", "ledgers"), True),
)

_Sums = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The run of a point, and what is wrong with it."""

    time_ms: int
    run: PastRun
    state: State
    why: str | None


def run_points(runs: Iterable[PastRun], wish: TrendWish, memory_bytes: int) -> Trend:
    """Follow the runs of each job. Raises StorageError for what cannot be spilled."""
    trend = Trend()
    of_job: dict[str, list[PastRun]] = defaultdict(list)
    for run in runs:
        of_job[run.job.name].append(run)
    with (
        tempfile.TemporaryDirectory(prefix="bkctl-trend-") as spill,
        connected(1, memory_bytes, f"{spill}/spill") as connection,
    ):
        for name, mine in sorted(of_job.items()):
            chosen = _chosen_runs(mine, wish)
            if not chosen:
                continue
            trend.points += _of_summaries(name, chosen)
            for table in SUBJECT_TABLES:
                if table.job == name:
                    trend.points += _Subjects(connection, table, chosen, wish).points()
    return trend


def _newest(runs: Sequence[PastRun], time_ms: int) -> PastRun | None:
    """Return the newest run that had ended by then."""
    return max((run for run in runs if run.ended_ms <= time_ms), key=_began, default=None)


def _began(run: PastRun) -> int:
    return run.started_ms


def _chosen_runs(runs: Sequence[PastRun], wish: TrendWish) -> list[_Chosen]:
    """Choose the run of every point; there is none before the first run."""
    last = _newest(runs, wish.until_ms)
    if last is None:
        return []
    return [one for time_ms in wish.times_ms() if (one := _chosen(runs, time_ms, wish, last.asked))]


def _chosen(runs: Sequence[PastRun], time_ms: int, wish: TrendWish, asked: str) -> _Chosen | None:
    run = _newest(runs, time_ms)
    if run is None:
        return None
    if wish.is_stale(run.started_ms, time_ms):
        age_h = (time_ms - run.started_ms) / 3_600_000
        why = f"the newest run was {age_h:.1f} h old: {run.place.text}"
        return _Chosen(time_ms, run, STALE, why)
    if run.asked != asked:
        return _Chosen(
            time_ms, run, UNEXAMINED, "it was run over other paths, or with other options, than the newest"
        )
    if run.not_judged is not None:
        return _Chosen(time_ms, run, UNEXAMINED, run.not_judged)
    return _Chosen(time_ms, run, JUDGED, None)


def _of_summaries(name: str, chosen: Sequence[_Chosen]) -> list[Point]:
    job = chosen[0].run.job
    columns = {column.name for column in job.result("summary").columns}
    measures = dict.fromkeys((*_AMOUNTS.get(name, ()), *job.found, *job.unexamined))
    points: list[Point] = []
    for measure in measures:
        if measure in columns:
            series = Series(name, measure, CLUSTER)
            points += with_changes(_summary_point(series, one) for one in chosen)
    return points


def _summary_point(series: Series, one: _Chosen) -> Point:
    value = one.run.counts.get(series.measure)
    if one.state in (JUDGED, UNEXAMINED) and value is None:
        return _point(series, one, UNREADABLE, None, "the run's summary has no such count")
    return _point(series, one, one.state, value, one.why)


def _point(series: Series, one: _Chosen, state: State, value: float | None, why: str | None) -> Point:
    return Point(
        series,
        one.time_ms,
        state,
        value=value if state in (JUDGED, UNEXAMINED) else None,
        read_ms=one.run.started_ms,
        why=why,
        source=one.run.place.text,
    )


class _Subjects:
    """The subjects of a table of one job, and their points."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        table: SubjectTable,
        chosen: Sequence[_Chosen],
        wish: TrendWish,
    ) -> None:
        self._connection = connection
        self._table = table
        self._chosen = chosen
        self._wish = wish
        #: Sums by place of a run, or why they cannot be read: a run may serve several points.
        self._sums: dict[str, _Sums | str] = {}

    def points(self) -> list[Point]:
        """Return the points of the subjects. Raises StorageError."""
        names = self._names()
        found: list[Point] = []
        for subject in names:
            for place, measure in enumerate(self._table.measures):
                series = Series(self._table.job, measure, self._table.scope, subject)
                points = [self._one(series, one, place, names) for one in self._chosen]
                # Before a bookie's first row it was not there.
                begins = next((at for at, point in enumerate(points) if point.value is not None), len(points))
                found += with_changes(points[begins:] if not self._table.none_is_zero else points)
        return found

    def _one(self, series: Series, one: _Chosen, place: int, names: Sequence[str]) -> Point:
        if one.state not in (JUDGED, UNEXAMINED):
            return _point(series, one, one.state, None, one.why)
        sums = self._of(one.run, names)
        if isinstance(sums, str):
            return _point(series, one, UNREADABLE, None, sums)
        row = sums.get(series.subject or "")
        if row is None and not self._table.none_is_zero:
            return _point(series, one, MISSING, None, "the run has no row of it")
        return _point(series, one, one.state, 0 if row is None else row[place], one.why)

    def _names(self) -> list[str]:
        """Return the subjects: all bookies; of the others those that changed most from the first run that can
        be read to the last. Raises StorageError for what cannot be spilled."""
        runs = [one.run for one in self._chosen if one.state != STALE]
        with failures():
            self._connection.execute("CREATE OR REPLACE TEMP TABLE ends (name VARCHAR, v DOUBLE)")
        if self._table.scope == BOOKIE:
            for run in runs:
                self._keep(run, "")
            limit = ""
        else:
            next((run for run in runs if self._keep(run, "-")), None)
            next((run for run in reversed(runs) if self._keep(run, "")), None)
            limit = f"LIMIT {self._wish.top}"
        query = (
            f"SELECT name FROM ends GROUP BY name ORDER BY abs(sum(v)) DESC, max(abs(v)) DESC, name {limit}"  # noqa: S608
        )
        with failures():
            return sorted(row[0] for row in self._connection.execute(query).fetchall())

    def _keep(self, run: PastRun, sign: str) -> bool:
        """Note the first measure of a run's subjects; False for a run that cannot be read, whose points say
        why."""
        try:
            query = self._query(run)
            self._connection.execute(f"INSERT INTO ends SELECT name, {sign}v0 FROM ({query})")  # noqa: S608
        except (StorageError, duckdb.Error):
            return False
        return True

    def _of(self, run: PastRun, names: Sequence[str]) -> _Sums | str:
        found = self._sums.get(run.place.text)
        if found is None:
            self._connection.register("wanted", pa.table({"name": pa.array(names, pa.string())}))
            try:
                query = f"SELECT * FROM ({self._query(run)}) WHERE name IN (SELECT name FROM wanted)"  # noqa: S608
                with failures():
                    rows = self._connection.execute(query).fetchall()
                found = {row[0]: row[1:] for row in rows}
            except (StorageError, duckdb.Error) as error:
                found = f"table {self._table.table}: {error}"
            self._sums[run.place.text] = found
        return found

    def _query(self, run: PastRun) -> str:
        """Return the sums of a run's table by subject, as a query. Raises StorageError."""
        files = table_files(run, self._table.table)
        remote = next(remote_datasets(files), None)
        if remote is None:
            listed = ", ".join("'" + literal_glob(path).replace("'", "''") + "'" for path in files)
            source = f"read_parquet([{listed}])"
        else:
            source = "files_of_the_run"
            self._connection.register(source, remote)
        sums = ", ".join(f"sum({each}) AS v{place}" for place, each in enumerate(self._table.measures))
        return (
            f"SELECT {self._table.key} AS name, {sums} FROM {source} "  # noqa: S608 - names of ours
            f"WHERE {self._table.key} IS NOT NULL GROUP BY ALL"
        )
