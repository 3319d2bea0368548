"""Jobs on this machine: tables read by processes, SQL run by DuckDB, both within a bound on memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import duckdb

from bkctl.pipeline.duckdb_connection import connected, failures, literal_glob
from bkctl.pipeline.engine import Extraction, Row
from bkctl.pipeline.extraction import extract
from bkctl.pipeline.locations import is_url, local_path
from bkctl.pipeline.portable_sql import FUNCTIONS, for_duckdb
from bkctl.pipeline.results import remote_datasets
from bkctl.reporting import Advance, nobody

MEMORY_BYTES_DEFAULT = 2 << 30


class LocalEngine:
    """An engine of ``jobs`` processes and threads.

    Data that exceed ``memory_bytes`` are spilled below ``work_dir``, which should be on a disk with room and
    has to be there by then; without one, in the directory for temporary files.
    """

    name = "local"
    files_here_max: int | None = None
    tasks_folder: str | None = None
    absolute_dirs = False

    def __init__(
        self,
        work_dir: str | None = None,
        *,
        jobs: int | None = None,
        memory_bytes: int = MEMORY_BYTES_DEFAULT,
    ) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._memory_bytes = memory_bytes
        self._own_dir: str | None = None
        if work_dir is None:
            work_dir = self._own_dir = tempfile.mkdtemp(prefix="bkctl-spill-")
        self._connection = connected(self._jobs, memory_bytes, os.path.join(work_dir, ".spill"))
        for function in FUNCTIONS:
            self._connection.execute(function.for_duckdb())

    def each(self, call: Callable[..., Any], tasks: Iterable[Any]) -> Iterator[Any]:
        return (call(task, nobody) for task in tasks)

    def extract(self, work: Extraction, advance: Advance) -> None:
        extract(work, self._jobs, self._memory_bytes, advance)

    def load(self, name: str, folders: Sequence[str]) -> None:
        globs = ", ".join(_quoted(_glob(folder)) for folder in folders if not is_url(folder))
        parts = [f"FROM read_parquet([{globs}], union_by_name = true)"] if globs else []
        for number, dataset in enumerate(remote_datasets(folders)):
            self._connection.register(f"{name}__{number}", dataset)
            parts.append(f"FROM {name}__{number}")
        self._run(f"CREATE OR REPLACE TEMP VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}")

    def view(self, name: str, query: str) -> None:
        self._run(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")

    def step(self, name: str, query: str) -> None:
        self._run(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def write(self, query: str, folder: str) -> None:
        path = os.path.join(folder, "part-00000.parquet")
        self._run(f"COPY ({query}) TO {_quoted(path)} (FORMAT parquet, COMPRESSION zstd)")

    def rows(self, query: str) -> list[Row]:
        found = self._run(query)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, values, strict=True)) for values in found.fetchall()]

    def close(self) -> None:
        self._connection.close()
        if self._own_dir is not None:
            shutil.rmtree(self._own_dir, ignore_errors=True)

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, statement: str) -> duckdb.DuckDBPyConnection:
        with failures():
            return self._connection.execute(for_duckdb(statement))


def _glob(folder: str) -> str:
    """Return the pattern of the files in a folder; a file is its own pattern."""
    path = literal_glob(local_path(folder))
    return path if folder.endswith(".parquet") else f"{path}/*.parquet"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
