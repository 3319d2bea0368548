"""Directories of tables that earlier runs wrote, and the gaps that those runs had.

A set is read instead of the bookies' files, so its gaps are those of every run that reads it: an index that
could not be opened, logs that went away during its run, and everything that was written after it.
``summary.json`` lists them. Two sets of one bookie are of two times and never united.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError, UsageError, storage_error
from bkctl.pipeline.job import Input
from bkctl.pipeline.out_directory import SUMMARY_NAME
from bkctl.pipeline.results import parquet_files, parquet_schema
from bkctl.pipeline.tables.ledger_source import is_uri
from bkctl.pipeline.tables.registry import table_named

#: A summary is some kilobytes; guards of a fleet may make it longer.
_SUMMARY_BYTES_MAX = 64 << 20
#: The end marker of a dump is the last of its keys.
_END_BYTES_MAX = 4096
_END_TIME = re.compile(rb'"end"\s*:\s*\{[^{}]*"time_ms"\s*:\s*([0-9]{1,18})[^{}]*\}\s*\}\s*$')
_END = re.compile(rb'"end"\s*:\s*\{[^{}]*\}\s*\}\s*$')
_END_OF_UNDO = re.compile(rb'"end"\s*:\s*\{[^{}]*"kind"\s*:\s*"undo"[^{}]*\}\s*\}\s*$')


@dataclass(frozen=True, slots=True)
class TableSet:
    """One set. ``started_ms`` and ``ended_ms`` say when its run read; None if the summary has no such time.

    ``unread_indexes`` are directories whose index it left out, ``unread_files`` entry logs and journals that
    it could not open, or not read whole, ``unread_tables`` those of its tables that may lack rows for it,
    None where the summary does not say which. ``logs_gone`` counts entry logs that went away while it read.
    ``bookies`` are the rows of its table ``bookies``, none when it wrote no such table.
    ``tables`` are those that its run wrote, None where the summary does not say: what else is in the
    directory is of an earlier run. ``files`` are those of each table, for a set of a store; ``not_read`` says
    of a table why a part of it is lacking.
    """

    path: str
    job: str | None
    started_ms: int | None
    ended_ms: int | None
    guards: tuple[str, ...]
    unread_indexes: tuple[str, ...]
    logs_gone: int
    bookies: tuple[Mapping[str, Any], ...]
    tables: frozenset[str] | None = None
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    not_read: Mapping[str, str] = field(default_factory=dict)
    unread_files: tuple[str, ...] = ()
    unread_tables: frozenset[str] | None = None

    @property
    def is_published(self) -> bool:
        """Whether it is a set of a store, of which the manifest names the tables' files."""
        return bool(self.files)

    def folder_of(self, table: str) -> str | None:
        """Return the folder of a table that the run wrote, None where it wrote no such table."""
        return _folder_of(self.path, table, self.tables)


def read_table_set(path: str) -> TableSet:
    """Read a set's ``summary.json`` and its table ``bookies``. Raises CorruptionError, StorageError."""
    summary_path = os.path.join(path, SUMMARY_NAME)
    summary = _summary(summary_path)
    started, seconds = summary.get("started_ms"), summary.get("seconds")
    tables = _tables(summary, summary_path)
    return TableSet(
        path=path,
        job=_value(summary, "job", str, None, summary_path),
        started_ms=started if isinstance(started, int) else None,
        ended_ms=_ended_ms(started, seconds),
        guards=_texts(summary, "guards", summary_path),
        unread_indexes=_texts(summary, "unread_indexes", summary_path),
        logs_gone=_value(summary, "logs_gone", int, 0, summary_path),
        bookies=tuple(_bookies(_folder_of(path, "bookies", tables))),
        tables=tables,
        unread_files=_texts(summary, "unread_files", summary_path),
        unread_tables=(
            None
            if summary.get("unread_tables") is None
            else frozenset(_texts(summary, "unread_tables", summary_path))
        ),
    )


def metadata_folder(path: str, table: str) -> str | None:
    """Return the folder of a table in a directory of metadata, None where there is none, or it is of an
    earlier run than the directory's summary. Raises CorruptionError, StorageError."""
    summary = os.path.join(path, SUMMARY_NAME)
    return _folder_of(path, table, _tables(_summary(summary), summary) if os.path.exists(summary) else None)


def _folder_of(path: str, table: str, tables: frozenset[str] | None) -> str | None:
    folder = os.path.join(path, table)
    return folder if (tables is None or table in tables) and os.path.isdir(folder) else None


def _tables(summary: dict[str, Any], path: str) -> frozenset[str] | None:
    """Return the names of the tables that a run wrote, None where its summary has no list of them."""
    found = _value(summary, "tables", list, None, path)
    if found is None:
        return None
    names = [row["name"] for row in found if isinstance(row, dict) and isinstance(row.get("name"), str)]
    if len(names) < len(found):
        raise CorruptionError("summary of a run, tables", expected="a list of tables with names", path=path)
    return frozenset(names)


def _summary(path: str) -> dict[str, Any]:
    try:
        if os.path.getsize(path) > _SUMMARY_BYTES_MAX:
            raise CorruptionError(
                "summary of a run", expected=f"at most {_SUMMARY_BYTES_MAX} bytes", path=path
            )
        with open(path, "rb") as stream:
            found = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise CorruptionError("summary of a run", expected="JSON", found=str(error), path=path) from None
    except OSError as error:
        raise storage_error(error, path) from error
    if not isinstance(found, dict):
        raise CorruptionError("summary of a run", expected="an object", found="another value", path=path)
    return found


def _ended_ms(started_ms: object, seconds: object) -> int | None:
    if not isinstance(started_ms, int) or not isinstance(seconds, int | float):
        return None
    try:
        return started_ms + int(1000 * seconds)
    except (OverflowError, ValueError):  # "Infinity" and "NaN" are numbers to Python's JSON
        return None


def _value(summary: dict[str, Any], name: str, kind: type, default: Any, path: str) -> Any:
    """Return a value of the summary, ``default`` where there is none. Raises CorruptionError."""
    found = summary.get(name)
    if found is None:
        return default
    if not isinstance(found, kind) or isinstance(found, bool):
        raise CorruptionError(
            f"summary of a run, {name}", expected=f"a value of type {kind.__name__}", path=path
        )
    return found


def _texts(summary: dict[str, Any], name: str, path: str) -> tuple[str, ...]:
    """Return a list of texts of the summary, empty where there is none. Raises CorruptionError."""
    found = _value(summary, name, list, [], path)
    if not all(isinstance(each, str) for each in found):
        raise CorruptionError(f"summary of a run, {name}", expected="a list of texts", path=path)
    return tuple(found)


def _bookies(folder: str | None) -> Iterable[Mapping[str, Any]]:
    if folder is None:
        return
    for path in parquet_files(folder):
        try:
            yield from pq.read_table(path).to_pylist()
        except pa.ArrowException as error:
            raise StorageError(f"{path}: {error}", path=path) from None


def twin_directories(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the bookies of which more directories are among the rows than their cookies name, and how
    many."""
    found: dict[str, str] = {}
    for bookie, kind, there, named in _given_and_named(rows):
        if there > named:
            found.setdefault(bookie, f"{there} {kind} directories were given, its cookie names {named}")
    return found


def lacking_directories(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Give a sentence for each bookie of which fewer directories of a kind are among the rows than its cookie
    names, if there are any: a disk may not be mounted, or not have been named."""
    for bookie, kind, there, named in _given_and_named(rows):
        if there < named:
            yield (
                f"bookie {bookie}: of the {named} {kind} directories that its cookie names {there} "
                f"{'was' if there == 1 else 'were'} given; what is in the others is in no table"
            )


def _given_and_named(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, int, int]]:
    """Give by bookie and kind how many directories were given, and how many its cookie names, if it does."""
    given = [row for row in rows if row["bookie"]]
    for bookie in sorted({row["bookie"] for row in given}):
        of_bookie = [row for row in given if row["bookie"] == bookie]
        for kind in ("ledger", "journal"):
            there = [row for row in of_bookie if row[f"holds_{kind}s"]]
            named = max((row[f"{kind}_dirs"] or 0 for row in there), default=0)
            if named:
                yield bookie, kind, len(there), named


def refuse_twins(sets: Sequence[TableSet], rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse sets that share a bookie with each other, or with the directories of ``rows``.

    Sets of the several directories of one bookie are fine. Raises RefusedError.
    """
    sources = [(one.path, one.bookies) for one in sets] + ([("the directories", rows)] if rows else [])
    for number, (path, mine) in enumerate(sources[: len(sets)]):
        for other, theirs in sources[number + 1 :]:
            shared = sorted(
                {row["bookie"] for row in mine if row["bookie"]} & {row["bookie"] for row in theirs}
            )
            for bookie in shared:
                both = [row for row in (*mine, *theirs) if row["bookie"] == bookie]
                if _is_once(both):
                    continue
                raise RefusedError(
                    f"{path} and {other} both hold bookie {bookie}: they are of two times and are never "
                    "united, because what is missing in the newer one would be taken from the older; name "
                    "one of them"
                )


def _is_once(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether rows of one bookie are of different directories, and no more than its cookie names."""
    dirs = [row["dir"] for row in rows]
    names_its_dirs = all(row["ledger_dirs"] for row in rows)
    return len(set(dirs)) == len(dirs) and names_its_dirs and not twin_directories(rows)


def check_columns(folder: str, item: Input, sets: Sequence[TableSet] = ()) -> None:
    """Refuse a table of an earlier run that lacks columns which an input needs.

    A job keeps only the columns that it reads itself. Raises UsageError, StorageError for a file that is no
    Parquet file.
    """
    if item.reduce is not None:
        return
    needed = item.columns or table_named(item.source).schema.names
    try:
        there = set(parquet_schema([folder]).names)
    except CorruptionError as error:
        raise StorageError(str(error), path=error.path) from None
    lacking = [name for name in needed if name not in there]
    if not lacking:
        return
    path = os.path.dirname(folder)
    job = next((one.job for one in sets if one.path == path and one.job), None)
    if job is None and os.path.exists(os.path.join(path, SUMMARY_NAME)):
        job = _summary(os.path.join(path, SUMMARY_NAME)).get("job")
    raise UsageError(
        f"{path}: table {item.source} has no column {', '.join(lacking)}"
        + (f": a run of {job} wrote it, and keeps what it reads itself" if job else "")
        + "; name a dump, a URI, or a run that has all columns"
    )


def metadata_time_ms(metadata: str, started_ms: int) -> int | None:
    """Return when metadata was read: a store now, a dump or tables when they say; None when they do not.

    Raises NotFoundError, StorageError, CorruptionError.
    """
    if is_uri(metadata):
        return started_ms
    if os.path.isdir(metadata):
        summary = os.path.join(metadata, SUMMARY_NAME)
        found = _summary(summary).get("started_ms") if os.path.exists(summary) else None
        return found if isinstance(found, int) else None
    end = _END_TIME.search(_end_of(metadata))
    return None if end is None else int(end[1])


def refuse_undo_file(metadata: str) -> None:
    """Raise RefusedError for the undo file of a deletion, which is silent about every other ledger.

    Raises NotFoundError, StorageError.
    """
    if not is_uri(metadata) and not os.path.isdir(metadata) and _END_OF_UNDO.search(_end_of(metadata)):
        raise RefusedError(
            f"{metadata}: is an undo file of 'bkctl ledger delete', no metadata of a cluster; give a dump"
            " ('bkctl metadata dump') or a metadata URI"
        )


def may_lack_ledgers(metadata: str) -> bool:
    """Return whether metadata are a dump without an end marker, which may be a part of a cluster.

    Raises NotFoundError, StorageError.
    """
    return not is_uri(metadata) and not os.path.isdir(metadata) and not _END.search(_end_of(metadata))


def _end_of(path: str) -> bytes:
    """Return the last bytes of a file, where a dump has its end marker."""
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _END_BYTES_MAX))
            return stream.read(_END_BYTES_MAX)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise storage_error(error, path) from error
