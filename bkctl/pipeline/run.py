"""One run of a job: read the tables it needs, run its queries, say what came of it.

Metadata is read before the bookies' files and, from a store, again after them, so that a change during the
run is distinguished from an error.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.errors import NotFoundError, UsageError
from bkctl.pipeline.engine import Engine, Extraction
from bkctl.pipeline.index_spaces import partial_spaces
from bkctl.pipeline.inherited import MetadataTimes, at_odds, inherited_guards, inherited_unknown
from bkctl.pipeline.job import Input, Job, Parameters, Snapshot, Statement, result_query
from bkctl.pipeline.locations import is_url, local_path, refuse_foreign_schemes
from bkctl.pipeline.out_directory import claimed, put
from bkctl.pipeline.results import Outcome, WrittenTable, judged, parquet_schema, write_summary
from bkctl.pipeline.set_inputs import (
    STRIPED,
    files_of,
    load_published,
    load_striped,
    mixed_sources,
    published_sets,
    unknown_of,
)
from bkctl.pipeline.sets.choice import Choice, SetWish
from bkctl.pipeline.survey import (
    BOOKIES,
    INDEXES,
    KIND_OF,
    Survey,
    bookies_table,
    folded_ranges,
    logs_gone,
    noted_logs_gone,
    notes_of_logs,
    survey,
    survey_of_few,
    unread_indexes,
)
from bkctl.pipeline.table_sets import (
    TableSet,
    check_columns,
    metadata_time_ms,
    read_table_set,
    refuse_twins,
    refuse_undo_file,
    twin_directories,
)
from bkctl.pipeline.tables.ledger_source import is_uri
from bkctl.pipeline.tables.options import Range, TableOptions
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.uploaded_run import claimed_url, upload
from bkctl.reporting import Phase, silent_phase
from bkctl.vfs import FileSystem

BOOKIES_TABLE = "bookies"
SPARK_FROM_BYTES = 50 << 30
#: More ledgers than these that a query names are read as one range, not one by one.
_EXPANDED_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a run: what to run on what.

    ``metadata`` is a URI, a dump, or a directory with tables ``ledgers`` and ``fragments``;
    ``metadata_after`` is a second one, of after the files.

    ``options`` say how tables are read: a bookie's name, digests, a password, damage. ``out`` is a directory
    that is made, is empty, or was written by an earlier run, whose tables of the same names are replaced.
    ``wish`` says which sets of a store are read.
    """

    job: Job
    paths: tuple[str, ...]
    out: str
    metadata: str | None = None
    metadata_after: str | None = None
    parameters: Parameters = field(default_factory=Parameters)
    options: TableOptions = field(default_factory=lambda: TableOptions(damage="rows"))
    wish: SetWish = field(default_factory=SetWish)

    @property
    def digest_metadata(self) -> str | None:
        """Return where digests can be learnt from: tables do not hold ledgers' passwords."""
        return None if self.metadata is None or os.path.isdir(self.metadata) else self.metadata

    @property
    def two_snapshots(self) -> bool:
        """Whether metadata is known from before the files were read and from after."""
        return self.metadata_after is not None or (self.metadata is not None and is_uri(self.metadata))


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
        with claimed_url(request.out) as place, tempfile.TemporaryDirectory(prefix="bkctl-run-") as staging:
            here = replace(request, out=staging)
            return upload(run_job(filesystem, engine, here, surveyed, phase, queries), place)
    refuse_foreign_schemes("PATH", *request.paths)
    request = replace(request, out=local_path(request.out))
    surveyed = surveyed or _survey(filesystem, engine, request.paths)
    if os.path.normpath(request.out) in surveyed.table_sets:
        raise UsageError(f"--out {request.out}: is also a PATH to read from; choose another directory")
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
        run.look_for_partial_spaces(rows)
        run.read_inputs()
        run.run_statements()
        outcome = run.outcome(started)
        write_summary(outcome)
        return outcome


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
        self._bookies = bookies
        self._sets = sets
        self._work_dir = work_dir
        self._phase = phase
        self._queries = queries
        self._guards: list[str] = []
        self._unread_indexes: dict[str, str] = {}
        self._unknown: list[str] = []
        self._written: dict[str, WrittenTable] = {}
        self._parameters = replace(request.parameters, two_snapshots=request.two_snapshots)
        self._log_notes: list[str] = []

    # ------------------------------------------------------------------------------------------ tables in

    def read_inputs(self) -> None:
        """Read metadata first, then files, then metadata again; what waits for a query is read later."""
        if self._surveyed.by_tasks:
            notes = self._engine.tasks_folder
            if notes is None:
                notes = os.path.join(self._work_dir, ".notes")
                os.makedirs(notes)
            self._log_notes = notes_of_logs(self._surveyed, self._engine.each, notes)
        wanted = [
            item
            for item in self._request.job.inputs
            if self._parameters.wants(item.wanted_by) and item.expands is None
        ]
        if self._request.options.damage != "fail" and any(_is_of_index(item) for item in wanted):
            self._leave_out_indexes()
        for when in (Snapshot.BEFORE, None, Snapshot.AFTER):
            for item in wanted:
                if item.snapshot is when:
                    self._read(item)
        for name, query in self._parameters.views().items():
            self._engine.view(name, query)

    def inherit(self, started_ms: int) -> None:
        """Take over what the runs that wrote the table sets could not see."""
        job, request = self._request.job, self._request
        for guard in inherited_guards(self._sets):
            self._guard(guard)
        self._unknown += inherited_unknown(self._sets, job)
        for unknown, why in unknown_of(self._sets, job):
            self._unknown.append(unknown)
            self._guard(why)
        if self._sets:
            read_ms = [
                None if metadata is None else metadata_time_ms(metadata, started_ms)
                for metadata in (request.metadata, request.metadata_after)
            ]
            for unknown, why in at_odds(self._sets, job, MetadataTimes(*read_ms)):
                self._unknown.append(unknown)
                self._guard(why)

    def heed(self, choice: Choice) -> None:
        """Take over what is wrong with the stores that sets were chosen from."""
        for problem in choice.problems:
            self._unknown.append(problem.unknown)
            self._guard(problem.why)
        for note in choice.notes:
            self._guard(note)
        why = mixed_sources(self._request.job, self._surveyed)
        if why is not None:
            self._unknown.append("blocks_not_compared")
            self._guard(why)

    def _leave_out_indexes(self) -> None:
        """Leave out the indexes that cannot be opened, and report them: they end no run over a fleet."""
        options = self._request.options
        self._unread_indexes = unread_indexes(
            self._filesystem, self._surveyed, options.bookie, self._engine.each
        )
        for path, reason in sorted(self._unread_indexes.items()):
            self._guard(f"the index of {path} is left out: {reason}; 'bkctl doctor' says what to do")

    def _read(self, item: Input, ledgers: tuple[Range, ...] | None = None) -> None:
        if item.name == BOOKIES_TABLE:
            self._write_bookies(item)
            return
        if item.published_only:
            load_published(self._engine, item, files_of(self._sets, item, self._request.job))
            return
        twin = self._same_snapshot(item)
        if twin is not None:
            columns = ", ".join(item.columns) or "*"
            self._engine.view(item.name, f"SELECT {columns} FROM {twin}")  # noqa: S608 - our names
            return
        if item.snapshot is not None:
            self._read_metadata(item)
            return
        paths = self._surveyed.paths_with(item.source)
        sets = self._sets_with(item)
        published = files_of(self._sets, item, self._request.job)
        if not paths and not sets and not published:
            self._tell_lack(item)
        options = replace(
            self._request.options,
            digest=self._request.options.digest if item.digest else "off",
            metadata=self._request.digest_metadata if item.digest else None,
            without_indexes=frozenset(self._unread_indexes) if _is_of_index(item) else frozenset(),
        )
        if ledgers is not None:
            options = replace(options, ledgers=ledgers)
            paths = paths if ledgers else ()
        self._extract(item, paths, options, sets, published)

    def _same_snapshot(self, item: Input) -> str | None:
        """Return the table of before that serves as the one of after: with one snapshot only, else None."""
        if item.snapshot is not Snapshot.AFTER or self._request.two_snapshots:
            return None
        for other in self._request.job.inputs:
            enough = not other.columns or (item.columns and set(item.columns) <= set(other.columns))
            if other.snapshot is Snapshot.BEFORE and other.source == item.source and enough:
                return other.name
        return None

    def _read_metadata(self, item: Input) -> None:
        first, second = self._request.metadata, self._request.metadata_after
        chosen = second if item.snapshot is Snapshot.AFTER and second is not None else first
        if chosen is None:
            self._engine.view(item.name, empty_query(item))
            return
        refuse_undo_file(chosen)
        if not self._filesystem_has_directory(chosen):
            options = TableOptions(metadata=chosen, digest="off", damage="fail")
            self._extract(item, (), options, [], [])
            return
        folder = os.path.join(chosen, item.source)
        if not os.path.isdir(folder):
            raise NotFoundError(f"--metadata {chosen}: a directory without table {item.source}")
        check_columns(folder, item)
        self._engine.load(item.name, [folder])

    def _filesystem_has_directory(self, path: str) -> bool:
        facts = None if is_uri(path) else self._filesystem.status(path)
        return facts is not None and facts.is_dir

    def _sets_with(self, item: Input) -> list[str]:
        """Return the folders of the table in directories that earlier runs wrote."""
        folders = []
        for path in self._surveyed.table_sets:
            folder = os.path.join(path, item.name)
            if os.path.isdir(folder):
                if item.name != BOOKIES_TABLE:
                    check_columns(folder, item, self._sets)
                folders.append(folder)
            elif not item.may_lack:
                raise NotFoundError(
                    f"{path}: an earlier run wrote this directory, but not table {item.name}, which "
                    f"{self._request.job.name} needs; job inventory writes what most jobs need"
                )
        return folders

    def _tell_lack(self, item: Input) -> None:
        kind = KIND_OF.get(item.source, "files")
        if not item.may_lack:
            raise NotFoundError(
                f"{self._request.job.name} needs {kind}: none in {', '.join(self._request.paths)}"
            )
        self._guard(f"no {kind} were given: table {item.name} is empty")

    def _extract(
        self,
        item: Input,
        paths: tuple[str, ...],
        options: TableOptions,
        sets: list[str],
        published: list[str],
    ) -> None:
        folders = list(sets)
        if paths or not (sets or published):
            making = self._fresh(item.name)
            size = sum(path.bytes for path in self._surveyed.paths if path.path in paths)
            with self._phase(f"reading {item.name}", size) as advance:
                planned = self._surveyed.folders_of(item.source) if self._surveyed.by_tasks and paths else ()
                self._engine.extract(Extraction(item, paths, options, making, planned), advance)
            folders.append(self._keep(item.name, making, "input"))
        if item.source in STRIPED:
            load_striped(self._engine, item, folders, published)
        else:
            self._engine.load(item.name, [*folders, *published])

    def _write_bookies(self, item: Input) -> None:
        folders = [*self._sets_with(item), *files_of(self._sets, item, self._request.job)]
        # Its columns are those of now, also where all sets are of a version that had fewer.
        if self._surveyed.paths or not set(BOOKIES.names) <= set(parquet_schema(folders).names):
            making = self._fresh(item.name)
            pq.write_table(self._bookies, os.path.join(making, "part-00000.parquet"))
            folders.append(self._keep(item.name, making, "input"))
        self._engine.load(item.name, folders)

    def look_for_twins(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Report two copies of a bookie (two backups, say), which would be taken for one that holds both."""
        for bookie, why in twin_directories(rows).items():
            self._guard(f"bookie {bookie}: {why}; are there two copies of it? Name one of them")
            self._unknown.append("twin_directories")

    def look_for_partial_spaces(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Report indexes that are left out because not all that they take was given; sets report theirs."""
        if all(item.source != "index_locations" for item in self._request.job.inputs):
            return
        sources = [rows, *(one.bookies for one in self._sets if not one.is_published)]
        for why in (why for source in sources for why in partial_spaces(source)):
            self._guard(why)

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
                self._read(item, ledgers)

    def _run(self, statement: Statement) -> None:
        if statement.kind == "view":
            self._engine.view(statement.name, statement.query)
        elif statement.kind == "step":
            self._engine.step(statement.name, statement.query)
        else:
            result = self._request.job.result(statement.name)
            making = self._fresh(statement.name)
            self._engine.write(result_query(result, statement.query), making)
            self._engine.load(statement.name, [self._keep(statement.name, making, "result")])

    def _fresh(self, name: str) -> str:
        folder = os.path.join(self._work_dir, name)
        os.makedirs(folder)
        return folder

    def _keep(self, name: str, making: str, role: str) -> str:
        """Put a finished table in its place, and count it."""
        folder = os.path.join(self._request.out, name)
        put(making, folder)
        self._written[name] = WrittenTable.of(name, role, folder)
        return folder

    def _guard(self, text: str) -> None:
        if text not in self._guards:
            self._guards.append(text)

    # ---------------------------------------------------------------------------------------------- outcome

    def outcome(self, started_s: float) -> Outcome:
        """Return the outcome of the run."""
        if self._surveyed.by_tasks:
            gone = noted_logs_gone(self._log_notes, self._engine.each)
        else:
            gone = logs_gone(self._filesystem, self._surveyed)
        if gone:
            self._guard(
                f"{gone} entry logs went away while files were read: a running bookie compacts. What it "
                "copied out of them may be in no table: run again, or over a copy, before believing that "
                "something is missing"
            )
        job, request = self._request.job, self._request
        unknown = ["unread_indexes"] if self._unread_indexes else []
        if gone and job.trusts_absence:
            unknown.append("logs_gone")
        unknown = list(dict.fromkeys((*unknown, *self._unknown)))
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
                tables=tuple(self._written.values()),
                guards=tuple(
                    dict.fromkeys((*self._guards, *job.notes_for(two_snapshots=request.two_snapshots)))
                ),
                unread_indexes=(
                    *self._unread_indexes,
                    *(x for one in self._sets for x in one.unread_indexes),
                ),
                logs_gone=gone + sum(one.logs_gone for one in self._sets),
            ),
            job,
            unknown,
        )


def _is_of_index(item: Input) -> bool:
    return KIND_OF.get(item.source) == INDEXES


def empty_query(item: Input) -> str:
    """Return a query with the columns of an input and no row, for a job that can do without it."""
    schema = table_named(item.source).schema
    columns = ", ".join(
        f"CAST(NULL AS {'STRING' if schema.field(name).type == pa.string() else 'BIGINT'}) AS {name}"
        for name in item.columns
    )
    return f"SELECT * FROM (SELECT {columns}) q WHERE 1 = 0"  # noqa: S608 - names of ours


def worth_spark(bytes_total: int) -> bool:
    """Answer ``--engine auto``: for fewer bytes of logs, starting Spark takes longer than it gains."""
    return bytes_total > SPARK_FROM_BYTES
