"""DuckDB with a bound on memory, and its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from bkctl.errors import StorageError

_MEMORY_BYTES_MIN = 64 << 20


def connected(threads: int, memory_bytes: int, spill_dir: str) -> duckdb.DuckDBPyConnection:
    """Open a database of its own in memory.

    Data that exceed ``memory_bytes`` are written to ``spill_dir``, which DuckDB makes when it needs it, in a
    directory that is there by then, and removes at the end.
    """
    return duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": f"{max(memory_bytes, _MEMORY_BYTES_MIN) >> 20}MiB",
            "temp_directory": spill_dir,
            "preserve_insertion_order": False,
        }
    )


@contextmanager
def failures() -> Iterator[None]:
    """Raise StorageError for what DuckDB cannot hold, read or write; anything else is a bug of ours."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise StorageError(f"{error}; give more with --memory") from None
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        # The latter: a file of an earlier run that is no Parquet file any more.
        raise StorageError(str(error)) from None


def literal_glob(path: str) -> str:
    """Return a path in which nothing is a pattern to DuckDB."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in path)
