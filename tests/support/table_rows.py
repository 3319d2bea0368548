"""Rows of the pipeline's tables, and what the command line's own readers say of the same files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.logs.digests import digest_book
from bkctl.commands.frame.entry_rows import EntryRows
from bkctl.pipeline.tables import log_reader
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import TABLES
from bkctl.pipeline.tables.schemas import default_columns
from bkctl.scan.columns import log_columns
from bkctl.scan.files.entrylogs import LogEntries, scan_logs
from bkctl.scan.files.paths import entry_logs
from bkctl.vfs import PosixFileSystem

Row = dict[str, Any]
ROWS = TableOptions(damage="rows")


def table_rows(
    name: str, paths: Sequence[object], options: TableOptions = ROWS, columns: Sequence[str] | None = None
) -> list[Row]:
    """All rows of a table, split by split."""
    table = TABLES[name]
    wanted = list(columns) if columns is not None else default_columns(table.schema)
    rows: list[Row] = []
    for split in table.plan([str(path) for path in paths], options):
        for batch in table.read(split, wanted, options):
            assert batch.schema.names == wanted
            rows += batch.to_pylist()
    return rows


def command_line_rows(path: Path, **digests: Any) -> list[Row]:
    """What ``entrylog scan`` writes, each log surveyed on its own as the tables do."""
    files = PosixFileSystem()
    rows: list[Row] = []
    for log in entry_logs(files, [str(path)]):
        head = {"dir": log.directory, "log_id": log.log_id}
        maker = EntryRows(head, offset_shift=4)
        for item in scan_logs(files, [log], digest_book(files, **digests)):
            if isinstance(item, LogEntries):
                rows += maker.rows(item.entries)
    return rows


@contextmanager
def small_windows(window_bytes: int = 256, resume_bytes: int = 600) -> Iterator[None]:
    """Logs of some kilobytes take as many windows as real ones, and both ways of reading them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_columns, "WINDOW_BYTES", window_bytes)
        patch.setattr(log_reader, "_RESUME_BYTES", resume_bytes)
        yield


def in_pieces(paths: Sequence[object], cuts: Sequence[int], options: TableOptions = ROWS) -> list[Row]:
    """Table ``entries`` of one log that is read in pieces with these borders."""
    table = TABLES["entries"]
    (split,) = table.plan([str(path) for path in paths], options)
    (file,) = split.files
    rows: list[Row] = []
    for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
        piece = replace(split, files=(replace(file, start=start, stop=stop),))
        for batch in table.read(piece, default_columns(table.schema), options):
            rows += batch.to_pylist()
    return rows
