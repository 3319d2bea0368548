"""The inputs of a run: metadata and files read into tables, and tables of earlier runs taken as they are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.errors import NotFoundError
from bkctl.pipeline.engine import Engine, Extraction
from bkctl.pipeline.job import Input, Parameters, Snapshot
from bkctl.pipeline.kept_tables import KeptTables
from bkctl.pipeline.locations import located
from bkctl.pipeline.reservations import Reservations
from bkctl.pipeline.results import parquet_schema
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.set_inputs import STRIPED, files_of, load_published, load_striped
from bkctl.pipeline.survey import (
    BOOKIES,
    INDEXES,
    JOURNALS,
    KIND_OF,
    LOGS,
    Survey,
    kinds_of,
    notes_of_logs,
    unread_files,
    unread_indexes,
)
from bkctl.pipeline.table_sets import (
    TableSet,
    check_columns,
    may_lack_ledgers,
    metadata_folder,
    refuse_undo_file,
)
from bkctl.pipeline.tables.ledger_source import is_uri
from bkctl.pipeline.tables.options import Range, TableOptions
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.tables.unread_notes import unread_in
from bkctl.reporting import Phase
from bkctl.vfs import FileSystem

BOOKIES_TABLE = "bookies"


class RunInputs:
    """Reads the inputs of one run into its engine.

    ``unread_indexes`` has the reasons of the indexes that are left out, ``unread_files`` those of entry logs
    and journals that are left out, or that could not be read whole, ``unread_tables`` the inputs that may
    lack rows for it, ``log_notes`` the files in which tasks noted which logs they read.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        engine: Engine,
        request: Request,
        surveyed: Survey,
        bookies: pa.Table,
        sets: Sequence[TableSet],
        parameters: Parameters,
        *,
        tables: KeptTables,
        reservations: Reservations,
        phase: Phase,
    ) -> None:
        self.unread_indexes: dict[str, str] = {}
        self.unread_files: dict[str, str] = {}
        self.unread_tables: set[str] = set()
        self._left_out: frozenset[str] = frozenset()
        self.log_notes: list[str] = []
        self._filesystem = filesystem
        self._engine = engine
        self._request = request
        self._surveyed = surveyed
        self._bookies = bookies
        self._sets = sets
        self._parameters = parameters
        self._tables = tables
        self._reservations = reservations
        self._phase = phase

    def read(self) -> None:
        """Read metadata first, then files, then metadata again; what waits for a query is read later.

        Of the files journals come first: a running bookie flushes what is behind their mark into logs that
        are listed afterwards. The other way around, what it flushed in between would be in neither.
        """
        if self._surveyed.by_tasks:
            self.log_notes = notes_of_logs(self._surveyed, self._engine.each, self._notes_folder("logs"))
        inputs = [item for item in self._request.job.inputs if self._parameters.wants(item.wanted_by)]
        wanted = [item for item in inputs if item.expands is None]
        if self._request.options.damage != "fail":
            self._leave_out_files({KIND_OF[item.source] for item in inputs if item.source in KIND_OF})
            if any(_is_of_index(item) for item in wanted):
                self._leave_out_indexes()
        for when in (Snapshot.BEFORE, None, Snapshot.AFTER):
            for item in sorted(wanted, key=lambda item: KIND_OF.get(item.source) != JOURNALS):
                if item.snapshot is when:
                    self.read_one(item)
        for name, query in self._parameters.views().items():
            self._engine.view(name, query)

    def _notes_folder(self, name: str) -> str:
        """Return a folder, or the URL of one, for the notes of tasks; it need not be there."""
        top = self._engine.tasks_folder or os.path.abspath(os.path.join(self._tables.work_dir, ".notes"))
        return located(top).text_of(name)

    def _leave_out_indexes(self) -> None:
        """Leave out the indexes that cannot be opened, and report them: they end no run over a fleet."""
        options = self._request.options
        self.unread_indexes = unread_indexes(
            self._filesystem, self._surveyed, options.bookie, self._engine.each
        )
        for path, reason in sorted(self.unread_indexes.items()):
            self._reservations.guard(
                f"the index of {path} is left out: {reason}; 'bkctl doctor' says what to do"
            )

    def _leave_out_files(self, kinds: set[str]) -> None:
        """Leave out the entry logs and journals that cannot be opened, and report them by directory."""
        if not kinds & {LOGS, JOURNALS}:
            return
        self.unread_files = unread_files(self._filesystem, self._surveyed, kinds, self._engine.each)
        self._left_out = frozenset(self.unread_files)
        for item in self._request.job.inputs:
            kind = KIND_OF.get(item.source)
            if kind in kinds and any(kind in kinds_of(path) for path in self.unread_files):
                self.unread_tables.add(item.name)
        self._tell("left out, because it cannot be opened", self.unread_files)

    def _tell(self, what: str, reasons: Mapping[str, str]) -> None:
        """Report files by directory."""
        for folder, group in groupby(sorted(reasons.items()), lambda one: os.path.dirname(one[0])):
            (_, reason), *more = group
            others = f", and {len(more)} more of {folder}" if more else ""
            self._reservations.guard(f"{what}: {reason}{others}; what it holds is not known")

    def read_one(self, item: Input, ledgers: tuple[Range, ...] | None = None) -> None:
        """Read one input, of these ledgers only where some are given."""
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
            without_indexes=frozenset(self.unread_indexes) if _is_of_index(item) else frozenset(),
            without_files=self._left_out,
        )
        if ledgers is not None:
            options = replace(options, ledgers=ledgers)
            paths = paths if ledgers else ()
        if paths and options.damage != "fail" and KIND_OF.get(item.source) in (LOGS, JOURNALS):
            options = replace(options, unread_notes=self._notes_folder(f"unread-{item.name}"))
        self._extract(item, paths, options, sets, published)
        if options.unread_notes is not None:
            self._heed_notes(item, options.unread_notes)

    def _heed_notes(self, item: Input, folder: str) -> None:
        """Take over which files the tasks that made a table could not read, or not whole."""
        found = {
            os.path.abspath(one.path): one.why
            for one in unread_in(folder)
            if one.behind_mark or not item.behind_mark_only
        }
        if found:
            self.unread_tables.add(item.name)
        new = {path: why for path, why in found.items() if path not in self.unread_files}
        self.unread_files |= new
        self._tell("not read, or not whole", new)

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
        if may_lack_ledgers(chosen):
            self._reservations.guard(
                f"{chosen} has no end marker, so that it may be incomplete: a ledger that it lacks may exist"
            )
        if not self._filesystem_has_directory(chosen):
            options = TableOptions(metadata=chosen, digest="off", damage="fail")
            self._extract(item, (), options, [], [])
            return
        folder = metadata_folder(chosen, item.source)
        if folder is None:
            raise NotFoundError(f"--metadata {chosen}: a directory without table {item.source}")
        check_columns(folder, item)
        self._engine.load(item.name, [folder])

    def _filesystem_has_directory(self, path: str) -> bool:
        facts = None if is_uri(path) else self._filesystem.status(path)
        return facts is not None and facts.is_dir

    def _sets_with(self, item: Input) -> list[str]:
        """Return the folders of the table in directories that earlier runs wrote."""
        folders = []
        for one in self._sets:
            if one.is_published:
                continue
            folder = one.folder_of(item.name)
            if folder is not None:
                if item.name != BOOKIES_TABLE:
                    check_columns(folder, item, self._sets)
                folders.append(folder)
            elif item.may_lack:
                self._reservations.guard(
                    f"{one.path}: the run that wrote this directory wrote no table {item.name}, which is "
                    "empty for its bookies"
                )
            else:
                raise NotFoundError(
                    f"{one.path}: an earlier run wrote this directory, but not table {item.name}, which "
                    f"{self._request.job.name} needs; job inventory writes what most jobs need"
                )
        return folders

    def _tell_lack(self, item: Input) -> None:
        kind = KIND_OF.get(item.source, "files")
        if not item.may_lack:
            raise NotFoundError(
                f"{self._request.job.name} needs {kind}: none in {', '.join(self._request.paths)}"
            )
        self._reservations.guard(f"no {kind} were given: table {item.name} is empty")

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
            making = self._tables.fresh(item.name)
            size = sum(path.bytes for path in self._surveyed.paths if path.path in paths)
            with self._phase(f"reading {item.name}", size) as advance:
                planned = self._surveyed.folders_of(item.source) if self._surveyed.by_tasks and paths else ()
                self._engine.extract(Extraction(item, paths, options, making, planned), advance)
            folders.append(self._tables.keep(item.name, making, "input"))
        if item.source in STRIPED:
            load_striped(self._engine, item, folders, published)
        else:
            self._engine.load(item.name, [*folders, *published])

    def _write_bookies(self, item: Input) -> None:
        folders = [*self._sets_with(item), *files_of(self._sets, item, self._request.job)]
        # Its columns are those of now, also where all sets are of a version that had fewer.
        if self._surveyed.paths or not set(BOOKIES.names) <= set(parquet_schema(folders).names):
            making = self._tables.fresh(item.name)
            pq.write_table(self._bookies, os.path.join(making, "part-00000.parquet"))
            folders.append(self._tables.keep(item.name, making, "input"))
        self._engine.load(item.name, folders)


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
