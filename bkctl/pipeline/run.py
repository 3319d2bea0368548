"""One run of a job: read the tables it needs, run its queries, say what came of it.

Metadata is read before the bookies' files and, from a store, again after them, so that a change during the
run is distinguished from an error.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from bkctl.clock import SystemClock
from bkctl.errors import UsageError
from bkctl.pipeline.engine import Engine
from bkctl.pipeline.index_spaces import partial_spaces
from bkctl.pipeline.inherited import (
    MetadataTimes,
    at_odds,
    inherited_guards,
    inherited_unknown,
    unread_files_of,
)
from bkctl.pipeline.job import Statement, result_query
from bkctl.pipeline.kept_tables import KeptTables
from bkctl.pipeline.locations import is_url, local_path, refuse_foreign_schemes
from bkctl.pipeline.out_directory import claimed
from bkctl.pipeline.reservations import Reservations
from bkctl.pipeline.results import Outcome, judged, write_summary
from bkctl.pipeline.run_inputs import RunInputs
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.set_inputs import mixed_sources, published_sets, unknown_of
from bkctl.pipeline.sets.choice import Choice
from bkctl.pipeline.survey import (
    Survey,
    bookies_table,
    folded_ranges,
    logs_gone,
    noted_logs_gone,
    survey,
    survey_of_few,
)
from bkctl.pipeline.table_sets import (
    TableSet,
    lacking_directories,
    metadata_time_ms,
    read_table_set,
    refuse_twins,
    twin_directories,
)
from bkctl.pipeline.tables.ledger_source import is_uri
from bkctl.pipeline.tables.options import Range
from bkctl.pipeline.uploaded_run import claimed_url
from bkctl.reporting import Phase, counted, silent_phase
from bkctl.vfs import FileSystem

SPARK_FROM_BYTES = 50 << 30
#: More ledgers than these that a query names are read as one range, not one by one.
_EXPANDED_MAX = 1 << 16


def run_job(
    filesystem: FileSystem,
    engine: Engine,
    request: Request,
    surveyed: Survey | None = None,
    phase: Phase = silent_phase,
    queries: Phase = silent_phase,
) -> Outcome:
    """Run a job, write its tables and then ``summary.json``, which holds what is returned.

    ``phase`` gets the bytes that are read, ``queries`` the queries that are done.

    Raises UsageError for a call without meaning, NotFoundError when what the job needs was not given,
    RefusedError for an ``out`` that holds something else, and what reading the tables raises.
    """
    if request.job.needs_metadata and request.metadata is None:
        raise UsageError(f"{request.job.name} needs ledger metadata: give --metadata FILE or URI")
    if request.metadata_after is not None and request.metadata is None:
        raise UsageError("a second reading of metadata needs a first one: give --metadata too")
    started = time.time()
    refuse_foreign_schemes("--out", request.out)
    if is_url(request.out):
        with (
            claimed_url(request.out, SystemClock()) as there,
            tempfile.TemporaryDirectory(prefix="bkctl-run-") as staging,
        ):
            here = replace(request, out=staging)
            return there.upload(run_job(filesystem, engine, here, surveyed, phase, queries))
    refuse_foreign_schemes("PATH", *request.paths)
    request = replace(request, out=local_path(request.out))
    surveyed = surveyed or _survey(filesystem, engine, request.paths)
    _refuse_own_inputs(request, surveyed)
    now_ms = int(started * 1000)
    published = published_sets(filesystem, surveyed, request.metadata, request.wish, now_ms)
    sets = [*(read_table_set(path) for path in surveyed.table_sets), *published.sets]
    bookies = bookies_table(filesystem, surveyed, request.options.bookie, absolute_dirs=engine.absolute_dirs)
    rows = bookies.to_pylist()
    refuse_twins(sets, rows)
    with claimed(request.out) as work_dir:
        run = _Run(filesystem, engine, request, surveyed, bookies, sets, work_dir, phase, queries)
        run.inherit(now_ms)
        if published.choice is not None:
            run.heed(published.choice)
        run.look_for_twins(rows)
        run.look_for_lacking_directories(rows)
        run.look_for_partial_spaces(rows)
        run.read_inputs()
        run.run_statements()
        outcome = run.outcome(started)
        write_summary(outcome)
        return outcome


def _refuse_own_inputs(request: Request, surveyed: Survey) -> None:
    """Refuse to write over what is read. Raises UsageError."""
    metadata = (request.metadata, request.metadata_after)
    inputs = [*surveyed.table_sets, *(path for path in metadata if path is not None and not is_uri(path))]
    if os.path.realpath(request.out) in map(os.path.realpath, inputs):
        raise UsageError(f"--out {request.out}: is also read from; choose another directory")


def _survey(filesystem: FileSystem, engine: Engine, paths: Sequence[str]) -> Survey:
    """Look into the paths here, or by the engine's tasks where there is more than this process looks at."""
    few = engine.files_here_max
    if few is None:
        return survey(filesystem, paths)
    return survey_of_few(filesystem, paths, few) or survey(filesystem, paths, engine.each)


class _Run:
    def __init__(
        self,
        filesystem: FileSystem,
        engine: Engine,
        request: Request,
        surveyed: Survey,
        bookies: pa.Table,
        sets: Sequence[TableSet],
        work_dir: str,
        phase: Phase,
        queries: Phase,
    ) -> None:
        self._filesystem = filesystem
        self._engine = engine
        self._request = request
        self._surveyed = surveyed
        self._sets = sets
        self._queries = queries
        self._parameters = replace(request.parameters, two_snapshots=request.two_snapshots)
        self._reservations = Reservations()
        self._tables = KeptTables(work_dir, request.out)
        self._inputs = RunInputs(
            filesystem,
            engine,
            request,
            surveyed,
            bookies,
            sets,
            self._parameters,
            tables=self._tables,
            reservations=self._reservations,
            phase=phase,
        )

    def read_inputs(self) -> None:
        """Read everything that waits for no query."""
        self._inputs.read()

    def inherit(self, started_ms: int) -> None:
        """Take over what the runs that wrote the table sets could not see."""
        job, request = self._request.job, self._request
        for guard in inherited_guards(self._sets):
            self._reservations.guard(guard)
        self._reservations.unknown += inherited_unknown(self._sets, job)
        for unknown, why in unknown_of(self._sets, job):
            self._reservations.unknown.append(unknown)
            self._reservations.guard(why)
        if self._sets:
            read_ms = [
                None if metadata is None else metadata_time_ms(metadata, started_ms)
                for metadata in (request.metadata, request.metadata_after)
            ]
            for unknown, why in at_odds(self._sets, job, MetadataTimes(*read_ms)):
                self._reservations.unknown.append(unknown)
                self._reservations.guard(why)

    def heed(self, choice: Choice) -> None:
        """Take over what is wrong with the stores that sets were chosen from."""
        for problem in choice.problems:
            self._reservations.unknown.append(problem.unknown)
            self._reservations.guard(problem.why)
        for note in choice.notes:
            self._reservations.guard(note)
        why = mixed_sources(self._request.job, self._surveyed)
        if why is not None:
            self._reservations.unknown.append("blocks_not_compared")
            self._reservations.guard(why)

    def look_for_twins(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Report two copies of a bookie (two backups, say), which would be taken for one that holds both: of
        the directories that were given, or of those that a set is of."""
        for source in (rows, *(one.bookies for one in self._sets)):
            for bookie, why in twin_directories(source).items():
                self._reservations.guard(
                    f"bookie {bookie}: {why}; are there two copies of it? Name one of them"
                )
                self._reservations.unknown.append("twin_directories")

    def look_for_lacking_directories(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Report directories that cookies name and that were not given; sets have a guard of their own."""
        for why in lacking_directories(rows):
            self._reservations.guard(why)

    def look_for_partial_spaces(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Report indexes that are left out because not all that they take was given; sets report theirs."""
        if all(item.source != "index_locations" for item in self._request.job.inputs):
            return
        sources = [rows, *(one.bookies for one in self._sets if not one.is_published)]
        for why in (why for source in sources for why in partial_spaces(source)):
            self._reservations.guard(why)

    # ---------------------------------------------------------------------------------------------- queries

    def run_statements(self) -> None:
        """Run the job's queries in their order; between them, read what waited for one."""
        statements = list(self._request.job.statements())
        for kind, group in groupby(statements, lambda statement: statement.kind == "expand"):
            if kind:
                for statement in group:
                    self._expand(statement.name)
                continue
            queries = list(group)
            with self._queries(f"{self._request.job.name}: queries", len(queries)) as advance:
                for statement in queries:
                    self._run(statement)
                    advance(1)

    def _expand(self, name: str) -> None:
        columns = "count(DISTINCT ledger) AS ledgers, min(ledger) AS low, max(ledger) AS high"
        (found,) = self._engine.rows(f"SELECT {columns} FROM {name}")  # noqa: S608 - names of ours
        if found["ledgers"] > _EXPANDED_MAX:
            ledgers: tuple[Range, ...] = ((int(found["low"]), int(found["high"])),)
        else:
            rows = self._engine.rows(f"SELECT DISTINCT ledger FROM {name}")  # noqa: S608 - a name of ours
            ledgers = folded_ranges([int(row["ledger"]) for row in rows]) if rows else ()
        for item in self._request.job.inputs:
            if item.expands == name:
                self._inputs.read_one(item, ledgers)

    def _run(self, statement: Statement) -> None:
        if statement.kind == "view":
            self._engine.view(statement.name, statement.query)
        elif statement.kind == "step":
            self._engine.step(statement.name, statement.query)
        else:
            result = self._request.job.result(statement.name)
            making = self._tables.fresh(statement.name)
            self._engine.write(result_query(result, statement.query), making)
            self._engine.load(statement.name, [self._tables.keep(statement.name, making, "result")])

    # ---------------------------------------------------------------------------------------------- outcome

    def outcome(self, started_s: float) -> Outcome:
        """Return the outcome of the run."""
        if self._surveyed.by_tasks:
            gone = noted_logs_gone(self._inputs.log_notes, self._engine.each)
        else:
            gone = logs_gone(self._filesystem, self._surveyed)
        if gone:
            self._reservations.guard(
                f"{counted(gone, 'entry log')} went away while files were read: a running bookie compacts. "
                "What it copied out of them may be in no table: run again, or over a copy, before "
                "believing that something is missing"
            )
        job, request = self._request.job, self._request
        unknown = ["unread_indexes"] if self._inputs.unread_indexes else []
        if self._inputs.unread_files:
            unknown.append("unread_files")
        if gone and job.trusts_absence:
            unknown.append("logs_gone")
        unknown = list(dict.fromkeys((*unknown, *self._reservations.unknown)))
        (counts,) = self._engine.rows("SELECT * FROM summary")
        return judged(
            Outcome(
                job=job.name,
                engine=self._engine.name,
                out=request.out,
                paths=request.paths,
                metadata=request.metadata,
                metadata_after=request.metadata_after
                or (request.metadata if request.two_snapshots else None),
                started_ms=int(started_s * 1000),
                seconds=round(time.time() - started_s, 3),
                parameters=self._parameters,
                counts={column.name: counts[column.name] for column in job.result("summary").columns},
                tables=tuple(self._tables.written.values()),
                guards=tuple(
                    dict.fromkeys(
                        (*self._reservations.guards, *job.notes_for(two_snapshots=request.two_snapshots))
                    )
                ),
                unread_indexes=(
                    *self._inputs.unread_indexes,
                    *(x for one in self._sets for x in one.unread_indexes),
                ),
                unread_files=(
                    *sorted(self._inputs.unread_files),
                    *(path for one in self._sets for path in unread_files_of(one, job)),
                ),
                unread_tables=tuple(sorted(self._inputs.unread_tables)),
                logs_gone=gone + sum(one.logs_gone for one in self._sets),
            ),
            job,
            unknown,
        )


def worth_spark(bytes_total: int) -> bool:
    """Answer ``--engine auto``: for fewer bytes of logs, starting Spark takes longer than it gains."""
    return bytes_total > SPARK_FROM_BYTES
