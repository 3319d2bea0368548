"""Jobs on Spark: tables read through the data source into Parquet files; queries of few rows in this process,
of many in Spark."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bkctl.errors import UsageError
from bkctl.pipeline.engine import Extraction, Queries, Row
from bkctl.pipeline.extraction import extract
from bkctl.pipeline.local_engine import MEMORY_BYTES_DEFAULT, LocalEngine
from bkctl.pipeline.locations import is_url, located
from bkctl.pipeline.results import WrittenTable
from bkctl.pipeline.tables.ledger_source import is_uri
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.task_calls import plan_table, put_digests_aside
from bkctl.pipeline.uploaded_run import WORK_NAME
from bkctl.reporting import Advance, nobody
from bkctl.spark.exchange import Exchange
from bkctl.spark.index_rebuild import SparkWorkers, cores_of
from bkctl.spark.queries import SparkQueries, write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows of tables, all taken together, that are queried in this process. A query in Spark takes a third of a
#: second and more however little it reads (planning, compiling, tasks, committing files), and a job has
#: twenty; DuckDB takes a second or two for a job over so many rows.
HERE_ROWS_MAX = 1 << 20
#: Share of the memory that the engine may take, for queries in this process.
_HERE_MEMORY_SHARE = 4

#: Files of bookies, and bytes of a dump of metadata, that are looked at in this process, where a Spark job
#: takes longer. Beyond, tasks do all of it, and nothing here grows with logs and ledgers.
FILES_HERE_MAX = 256
DUMP_BYTES_HERE_MAX = 16 << 20

#: Length of what keys of MAC ledgers are sealed with.
_SECRET_BYTES = 32

_STEPS = ".steps"
_PLANS = "plans"


class SparkEngine:
    """A session in which the data source is registered. The session stays when the engine is closed.

    Queries go to DuckDB, on one thread, as long as there are no more than ``here_rows_max`` rows in the
    tables that have been loaded. With the table that exceeds it everything that was named is named in Spark
    as well, steps are computed once more there, and all further queries are Spark's.

    ``work_dir`` is where Spark's steps are kept until the end. With an ``exchange`` executors neither read
    nor write files of the driver's machine but the bookies' own: plans and digests go through the exchange,
    and dumps of metadata are read here. A quarter of ``memory_bytes`` bounds DuckDB, which spills to the
    directory for temporary files; what Spark takes is the session's.
    """

    name = "spark"
    absolute_dirs = True

    def __init__(
        self,
        spark: SparkSession,
        work_dir: str,
        *,
        here_rows_max: int = HERE_ROWS_MAX,
        memory_bytes: int = MEMORY_BYTES_DEFAULT,
        files_here_max: int = FILES_HERE_MAX,
        exchange: Exchange | None = None,
    ) -> None:
        self._spark = spark
        self._exchange = exchange
        self._files_here_max = files_here_max
        # With an exchange no directory of this machine is the executors' as well.
        self._tasks_folder = None if exchange is None else exchange.fresh().text
        self._digest_secret = None if exchange is None else secrets.token_bytes(_SECRET_BYTES)
        self._digest_files: dict[tuple[str | None, bytes | None], str] = {}
        # Names of its own: an engine is there, and goes, also where its run is refused the directory.
        self._steps_dir = os.path.join(work_dir, f"{_STEPS}-{secrets.token_hex(8)}")
        self._here_rows_max = here_rows_max
        self._here_memory_bytes = memory_bytes // _HERE_MEMORY_SHARE
        self._here_rows = 0
        self._queries: Queries
        self._here: LocalEngine | None = None
        if here_rows_max > 0:
            self._queries = self._here = LocalEngine(jobs=1, memory_bytes=self._here_memory_bytes)
        else:
            self._queries = SparkQueries(spark, self._steps_dir, exchange)
        self._named: list[Callable[[Queries], None]] = []

    @property
    def files_here_max(self) -> int | None:
        """How many files are looked at in this process before tasks do it."""
        return self._files_here_max

    @property
    def tasks_folder(self) -> str | None:
        """The URL of a folder for its tasks' files; None where tasks see this machine's directories."""
        return self._tasks_folder

    def each(self, call: Callable[..., Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the result of a call for each task, made in tasks of Spark."""
        return SparkWorkers(self._spark, cores_of(self._spark)).results(call, tasks)

    @property
    def queries_here(self) -> bool:
        """Whether queries run in this process, as there are few rows so far."""
        return self._here is not None

    def extract(self, work: Extraction, advance: Advance) -> None:
        """Read a table into Parquet files. Progress is reported when it is done."""
        if work.is_empty or (self._exchange is not None and _is_dump(work)):
            extract(work, 1, self._here_memory_bytes, advance)
            return
        source = self._source(work)
        if work.input.reduce is not None:
            source.createOrReplaceTempView(work.input.source)
            source = self._spark.sql(work.input.reduce)
        write_table(source, work.folder, self._exchange)
        if work.input.reduce is not None:
            self._spark.catalog.dropTempView(work.input.source)

    def _source(self, work: Extraction) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        reader = self._spark.read.format("bookkeeper").option("table", work.input.source)
        options = work.options
        if work.folders or self._is_large(options.metadata):
            options = self._with_stored_digests(work)
            reader = reader.option("plan", json.dumps(self._plans(work, options)))
        elif work.paths:
            reader = reader.option("paths", json.dumps([os.path.abspath(path) for path in work.paths]))
        for name, value in option_texts(options).items():
            reader = reader.option(name, value)
        return reader.schema(from_arrow_schema(work.source_schema)).load()

    def _is_large(self, metadata: str | None) -> bool:
        """Return whether tasks read metadata. A store may hold any number of ledgers; a dump is on a disk of
        this machine."""
        if metadata is None:
            return False
        if is_uri(metadata):
            return True
        return self._exchange is None and os.path.getsize(metadata) > DUMP_BYTES_HERE_MAX

    def _plans(self, work: Extraction, options: TableOptions) -> list[str]:
        """Have tasks plan the reading of a table; the files with the plans."""
        options = _with_absolute_paths(options)
        groups: list[tuple[str, ...]] = [(os.path.abspath(folder),) for folder in work.folders]
        paths = tuple(map(os.path.abspath, work.paths))
        tasks = [(work.input.source, group, options, self._plans_dir()) for group in groups or [paths]]
        answers = self.each(plan_table, tasks)
        return sorted(path for path, splits, _ in answers if splits)

    def _with_stored_digests(self, work: Extraction) -> TableOptions:
        """Return the options, for tables of files with the digests of metadata in a file of their own."""
        options = work.options
        if not work.paths or options.metadata is None:
            return options
        key = options.metadata, options.password
        sealed = replace(options, digest_secret=self._digest_secret)
        if key not in self._digest_files:
            task = _with_absolute_paths(sealed), self._plans_dir()
            if self._exchange is None or is_uri(options.metadata):
                (path,) = self.each(put_digests_aside, [task])
            else:
                path = put_digests_aside(task, nobody)  # a dump that only this machine has
            self._digest_files[key] = path
        return replace(sealed, metadata=None, stored_digests=self._digest_files[key])

    def _plans_dir(self) -> str:
        if self._tasks_folder is not None:
            return self._tasks_folder
        path = os.path.abspath(os.path.join(self._steps_dir, _PLANS))
        os.makedirs(path, exist_ok=True)
        return path

    def load(self, name: str, folders: Sequence[str]) -> None:
        if self._here is not None:
            self._here_rows += sum(WrittenTable.of(name, "input", folder).rows for folder in folders)
            if self._here_rows > self._here_rows_max:
                self._go_to_spark(self._here)
        self._define(lambda queries: queries.load(name, folders))

    def view(self, name: str, query: str) -> None:
        self._define(lambda queries: queries.view(name, query))

    def step(self, name: str, query: str) -> None:
        self._define(lambda queries: queries.step(name, query))

    def _define(self, name_it: Callable[[Queries], None]) -> None:
        name_it(self._queries)
        if self._here is not None:
            self._named.append(name_it)

    def _go_to_spark(self, here: LocalEngine) -> None:
        self._queries = SparkQueries(self._spark, self._steps_dir, self._exchange)
        self._here = None
        here.close()
        for name_it in self._named:
            name_it(self._queries)
        self._named.clear()

    def write(self, query: str, folder: str) -> None:
        self._queries.write(query, folder)

    def rows(self, query: str) -> list[Row]:
        return self._queries.rows(query)

    def close(self) -> None:
        """Take away what was named, and what tasks were given."""
        self._queries.close()
        if self._exchange is not None:
            self._exchange.close()
        shutil.rmtree(self._steps_dir, ignore_errors=True)

    def __enter__(self) -> SparkEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_dump(work: Extraction) -> bool:
    return not work.paths and work.options.metadata is not None and not is_uri(work.options.metadata)


def _with_absolute_paths(options: TableOptions) -> TableOptions:
    """Return the options as a task takes them, whose current directory is another one."""
    metadata = options.metadata
    if metadata is not None and not is_uri(metadata):
        metadata = os.path.abspath(metadata)
    return replace(
        options,
        metadata=metadata,
        without_indexes=frozenset(map(os.path.abspath, options.without_indexes)),
        without_files=frozenset(map(os.path.abspath, options.without_files)),
    )


def option_texts(options: TableOptions) -> dict[str, str]:
    """Return the options as texts for the data source, those that differ from the defaults."""
    standard = TableOptions()
    texts: dict[str, str] = {}
    if options.ledgers:
        texts["ledgers"] = ",".join(f"{first}-{last}" for first, last in options.ledgers)
    for name in ("without_indexes", "without_files"):
        if left_out := getattr(options, name):
            texts[name] = json.dumps(sorted(map(os.path.abspath, left_out)))
    if options.password is not None:
        texts["password"] = _as_text(options.password)
    if options.digest_secret is not None:
        texts["digest_secret"] = options.digest_secret.hex()
    for name in ("digest", "metadata", "bookie", "damage", "stored_digests", "unread_notes"):
        value = getattr(options, name)
        if value != getattr(standard, name):
            texts[name] = os.path.abspath(value) if name == "metadata" and os.path.exists(value) else value
    return texts


def _as_text(password: bytes) -> str:
    try:
        return password.decode()
    except UnicodeDecodeError:
        raise UsageError(
            "options of Spark are texts, and this password is none: give --metadata, which holds passwords"
        ) from None


@contextmanager
def open_spark_engine(
    master: str, work_dir: str, memory_bytes: int, settings: Mapping[str, str] | None = None
) -> Iterator[SparkEngine]:
    """Open an engine in a session that ends with it, unless it was there before. Raises as ``session`` does.

    A ``work_dir`` that is a URL is what executors on other machines share with this one. An error of Spark's
    is raised as one of ours (:func:`~bkctl.spark.failures.failures`).
    """
    from bkctl.spark.failures import failures
    from bkctl.spark.local_session import on_this_machine, session_for_work

    exchange = None
    if is_url(work_dir) and not on_this_machine(master):
        exchange = Exchange(located(work_dir).child(WORK_NAME).child(f"exchange-{secrets.token_hex(8)}"))
    with (
        tempfile.TemporaryDirectory(prefix="bkctl-steps-")
        if is_url(work_dir)
        else nullcontext(work_dir) as steps_dir,
        session_for_work(master, memory_bytes, settings) as spark,
        failures(),
        SparkEngine(
            spark, steps_dir, here_rows_max=HERE_ROWS_MAX, memory_bytes=memory_bytes, exchange=exchange
        ) as engine,
    ):
        yield engine
