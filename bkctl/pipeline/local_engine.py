"""Jobs on this machine: tables read by processes, SQL run by DuckDB, both within a bound on memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from types import TracebackType

import duckdb

from bkctl.admin.offline.reporting import Advance
from bkctl.errors import StorageError
from bkctl.pipeline.engine import Extraction, Row
from bkctl.pipeline.extraction import extract
from bkctl.pipeline.portable_sql import FUNCTIONS

MEMORY_BYTES_DEFAULT = 2 << 30


class LocalEngine:
    """``jobs`` processes and threads. What exceeds ``memory_bytes`` is spilled to ``work_dir``, which
    should be on
    a disk with room; it is made when needed and removed on the way out."""

    name = "local"

    def __init__(
        self,
        work_dir: str | None = None,
        *,
        jobs: int | None = None,
        memory_bytes: int = MEMORY_BYTES_DEFAULT,
    ) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._memory_bytes = memory_bytes
        self._work = tempfile.mkdtemp(prefix=".bkctl-spill-", dir=work_dir)
        self._connection = duckdb.connect(
            config={
                "threads": self._jobs,
                "memory_limit": f"{max(memory_bytes >> 20, 64)}MB",
                "temp_directory": self._work,
                "preserve_insertion_order": False,
            }
        )
        for function in FUNCTIONS:
            self._connection.execute(function.for_duckdb())

    def extract(self, work: Extraction, advance: Advance) -> None:
        extract(work, self._jobs, self._memory_bytes, advance)

    def load(self, name: str, folders: Sequence[str]) -> None:
        globs = ", ".join(_quoted(f"{_literal_glob(folder)}/*.parquet") for folder in folders)
        self._run(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM read_parquet([{globs}], union_by_name = true)")

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
        shutil.rmtree(self._work, ignore_errors=True)

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, statement: str) -> duckdb.DuckDBPyConnection:
        try:
            return self._connection.execute(statement)
        except duckdb.OutOfMemoryException as error:
            raise StorageError(f"{error}; give more with --memory") from None
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            # The latter: a file of an earlier run that is no Parquet file any more.
            raise StorageError(str(error)) from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal_glob(path: str) -> str:
    """A path in which nothing is a pattern."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in path)
