"""Engines that run a job's SQL and read tables for it: DuckDB in this process, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from bkctl.pipeline.job import Input
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.tables.schemas import default_columns
from bkctl.reporting import Advance

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Extraction:
    """One input to be read from ``paths`` into Parquet files in ``folder``, which is there and empty.

    Without paths the table is empty: nothing of the kind was given. ``folders``, if any, are what the paths
    come to by bookie: each is planned by a task of its own, and nothing of it is looked at in this process.
    """

    input: Input
    paths: tuple[str, ...]
    options: TableOptions
    folder: str
    folders: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns that are read from the source."""
        return list(self.input.columns) or default_columns(table_named(self.input.source).schema)

    @property
    def source_schema(self) -> pa.Schema:
        """The schema of the columns that are read from the source."""
        schema = table_named(self.input.source).schema
        return pa.schema([schema.field(name) for name in self.columns])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return not self.paths and self.options.metadata is None


class Queries(Protocol):
    """A place where SQL is run over Parquet files. Names live until it is closed.

    Every method raises StorageError when files cannot be read or written.
    """

    def load(self, name: str, folders: Sequence[str]) -> None:
        """Give Parquet files a name, all that are directly in the folders."""

    def view(self, name: str, query: str) -> None:
        """Give a query a name."""

    def step(self, name: str, query: str) -> None:
        """Run a query and keep what it gives under a name, for the queries after it."""

    def write(self, query: str, folder: str) -> None:
        """Run a query into Parquet files in ``folder``, which is there and empty."""

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query that gives few."""

    def close(self) -> None:
        """Forget all names and give back what was held."""


class Engine(Queries, Protocol):
    """Queries, and the reading of the tables that they are over. A context manager."""

    @property
    def name(self) -> str:
        """``local`` or ``spark``."""

    @property
    def files_here_max(self) -> int | None:
        """How many files are looked at in this process before tasks do it; None for any number."""

    @property
    def tasks_folder(self) -> str | None:
        """The URL of a folder for its tasks' files; None where tasks reach the directory of the run."""

    @property
    def absolute_dirs(self) -> bool:
        """Whether directories in the tables that it reads are absolute, however their paths were given."""

    def each(self, call: Callable[..., Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield ``call(task, advance)`` of every task, where tables are read, in any order.

        Calls are those of ``bkctl.pipeline.task_calls``. Raises what they raise.
        """

    def extract(self, work: Extraction, advance: Advance) -> None:
        """Read a table into Parquet files; there is at least one, so that columns are known.

        Raises what reading tables raises, and StorageError when files cannot be written.
        """
