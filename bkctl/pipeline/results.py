"""The outcome of a run: counts, tables, the notes to report with them, and ``summary.json``."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bkctl import __version__
from bkctl.errors import CorruptionError, StorageError, as_storage_errors, storage_error
from bkctl.pipeline.job import Job, Parameters, ResultTable
from bkctl.pipeline.locations import is_url, located, opened_file
from bkctl.pipeline.out_directory import SUMMARY_NAME

CLEAN, FOUND, UNEXAMINED = "clean", "found", "unexamined"
#: A file's columns are a request or two to an object store, of which so many are under way at once.
_FOOTER_READERS = 16


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table of Parquet files: ``role`` is ``input`` or ``result``."""

    name: str
    role: str
    path: str
    rows: int
    bytes: int

    @classmethod
    def of(cls, name: str, role: str, folder: str) -> WrittenTable:
        """Return the table in a folder, counted by its files' footers.

        Raises StorageError, CorruptionError for a file that is no Parquet file.
        """
        rows = size = 0
        with as_storage_errors(folder):
            for path in parquet_files(folder):
                rows += _rows_in(path)
                size += _size_of(path)
        return cls(name, role, folder, rows, size)


def _rows_in(path: str) -> int:
    filesystem, name = opened_file(path)
    try:
        with filesystem.open_input_file(name) as stream:
            return int(pq.read_metadata(stream).num_rows)
    except pa.ArrowException as error:
        raise CorruptionError("table", expected="a Parquet file", found=str(error), path=path) from None


def _size_of(path: str) -> int:
    filesystem, name = opened_file(path)
    return int(filesystem.get_file_info(name).size)


def parquet_files(folder: str) -> list[str]:
    """List the Parquet files directly in a folder, or a file that is named itself. Folders may be URLs."""
    if folder.partition("?")[0].endswith(".parquet"):
        return [folder]
    if is_url(folder):
        place = located(folder)
        return [place.text_of(name) for name in place.names() if name.endswith(".parquet")]
    return sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(".parquet"))


def parquet_schema(folders: Iterable[str]) -> pa.Schema:
    """Return all columns of tables in folders, as their first files have them; a folder's files are alike.

    Raises StorageError for a folder without a file, CorruptionError for one that is no Parquet file or has a
    column with another type than the others.
    """
    firsts = []
    for folder in folders:
        files = parquet_files(folder)
        if not files:
            raise StorageError(f"{folder}: holds no Parquet file", path=folder)
        firsts.append(files[0])
    return _united_schema(firsts)


def _united_schema(files: Sequence[str]) -> pa.Schema:
    """Return all columns of some files. Raises CorruptionError as :func:`parquet_schema`, StorageError."""
    united = pa.schema([])
    with ThreadPoolExecutor(_FOOTER_READERS, "footers") as pool:
        for path, schema in zip(files, pool.map(_schema_in, files), strict=True):
            try:
                united = pa.unify_schemas([united, schema])
            except pa.ArrowException as error:
                raise _other_columns(path, error) from None
    return united


def _schema_in(path: str) -> pa.Schema:
    filesystem, name = opened_file(path)
    try:
        return pq.read_schema(name, filesystem=filesystem).remove_metadata()
    except pa.ArrowException as error:
        raise _other_columns(path, error) from None
    except OSError as error:
        raise storage_error(error, path) from error


def _other_columns(path: str, error: Exception) -> CorruptionError:
    return CorruptionError(
        "table", expected="a Parquet file with the columns of the others", found=str(error), path=path
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run. ``counts`` are the row of table ``summary``; ``guards`` say what was taken for granted.

    ``unread_indexes`` are directories whose index could not be read, ``unread_files`` entry logs and journals
    that could not be opened, or not be read whole, ``logs_gone`` counts entry logs that went away during the
    run; all with those of the table sets that were read. ``unread_tables`` are the inputs which for want of
    those files lack rows, or may.

    ``verdict`` is ``clean``, ``found`` or ``unexamined`` (a part could not be judged, whatever was found in
    the rest) and ``exit_code`` 0, 1 or 3.
    """

    job: str
    engine: str
    out: str
    paths: tuple[str, ...]
    metadata: str | None
    metadata_after: str | None
    started_ms: int
    seconds: float
    parameters: Parameters
    counts: Mapping[str, Any]
    tables: tuple[WrittenTable, ...]
    guards: tuple[str, ...]
    verdict: str = CLEAN
    exit_code: int = 0
    found: tuple[str, ...] = ()
    unread_indexes: tuple[str, ...] = ()
    unread_files: tuple[str, ...] = ()
    unread_tables: tuple[str, ...] = ()
    logs_gone: int = 0

    def as_row(self) -> dict[str, Any]:
        """Return the outcome as it stands in ``summary.json``."""
        row = asdict(self)
        row["version"] = __version__
        return row

    def table(self, name: str) -> WrittenTable:
        """Return a table by its name."""
        return next(table for table in self.tables if table.name == name)

    def found_of(self, job: Job) -> tuple[str, ...]:
        """Return the names of the counts that are findings, without those of what could not be judged."""
        return tuple(name for name in self.found if name in job.found)


def judged(outcome: Outcome, job: Job, unknown: Sequence[str] = ()) -> Outcome:
    """Add the verdict by the job's rule to the outcome; ``found`` names the counts that decided it, and what
    else was ``unknown``."""
    found = tuple(name for name in job.found if outcome.counts.get(name))
    unexamined = (*(name for name in job.unexamined if outcome.counts.get(name)), *unknown)
    if unexamined:
        return replace(outcome, verdict=UNEXAMINED, exit_code=3, found=(*found, *unexamined))
    if found:
        return replace(outcome, verdict=FOUND, exit_code=1, found=found)
    return outcome


def write_summary(outcome: Outcome) -> str:
    """Write ``summary.json`` into the run's directory, whole or not at all; return its path.

    Raises StorageError.
    """
    path = os.path.join(outcome.out, SUMMARY_NAME)
    write_whole(path, encoded_summary(outcome).decode())
    return path


def encoded_summary(outcome: Outcome) -> bytes:
    """Return the text of ``summary.json``."""
    return (json.dumps(outcome.as_row(), indent=2) + "\n").encode()


def remote_datasets(folders: Iterable[str]) -> Iterator[Any]:
    """Give datasets of the files and folders that are URLs, one for each file system.

    DuckDB asks them for the columns and rows that a query needs; its own readers of object stores would want
    credentials of their own. Their columns are those of all files: sets may be of several versions. Raises as
    :func:`parquet_schema`.
    """
    import pyarrow.dataset as ds

    files: dict[int, tuple[Any, list[str]]] = {}
    for file in (file for folder in folders if is_url(folder) for file in parquet_files(folder)):
        filesystem, _ = opened_file(file)
        files.setdefault(id(filesystem), (filesystem, []))[1].append(file)
    for filesystem, texts in files.values():
        paths = [opened_file(text)[1] for text in texts]
        yield ds.dataset(paths, schema=_united_schema(texts), format="parquet", filesystem=filesystem)


def write_whole(path: str, text: str) -> None:
    """Write a text file beside and put it in its place. Raises StorageError.

    The file beside has a name of its own that nobody knows before, and is made again: a link that somebody
    else planted in the directory is not followed.
    """
    beside = f"{path}.{secrets.token_hex(8)}.writing"
    try:
        with open(beside, "x", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(beside)
        raise storage_error(error, path) from error


def for_people(value: Any) -> Any:
    """Return a value as people read it: a share or a ratio with four digits, all else as it is."""
    return round(value, 4) if isinstance(value, float) else value


def first_rows(outcome: Outcome, result: ResultTable, order: str, limit: int) -> list[dict[str, Any]]:
    """Return the first rows of a result in an order (SQL)."""
    import duckdb

    from bkctl.pipeline.duckdb_connection import literal_glob

    files = parquet_files(outcome.table(result.name).path)
    names = [column.name for column in result.columns]
    with duckdb.connect() as connection:
        remote = next(remote_datasets(files), None)
        if remote is None:
            found = connection.from_parquet([literal_glob(path) for path in files])
        else:
            found = connection.from_arrow(remote)
        relation = found.order(order).limit(limit)
        rows: Iterable[tuple[Any, ...]] = relation.select(*names).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]
