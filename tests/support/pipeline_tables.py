"""Tables for the pipeline's jobs written by hand, and runs over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.pipeline.engine import Engine
from bkctl.pipeline.job import Parameters
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.locations import opened_file
from bkctl.pipeline.results import Outcome, parquet_files, parquet_schema
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.survey import BOOKIES
from bkctl.pipeline.tables import schemas
from bkctl.vfs import PosixFileSystem

UNFLUSHED = pa.schema([("bookie", pa.string()), ("ledger", pa.int64()), ("entry", pa.int64())])
JOURNAL_ENTRIES = pa.schema(
    [
        ("bookie", pa.string()),
        ("journal_id", pa.int64()),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("ledger", pa.int64()),
        ("entry", pa.int64()),
        ("after_mark", pa.bool_()),
    ]
)

#: Tables of a table set and their schemas; all are written, empty ones too.
SCHEMAS: dict[str, pa.Schema] = {
    "bookies": BOOKIES,
    "runs": schemas.RUNS,
    "logs": schemas.LOGS,
    "log_ledgers": schemas.LOG_LEDGERS,
    "unflushed": UNFLUSHED,
    "journal_entries": JOURNAL_ENTRIES,
    "index_runs": schemas.INDEX_RUNS,
    "index_ledgers": schemas.INDEX_LEDGERS,
    "suspect_entries": schemas.ENTRIES,
    "suspect_locations": schemas.INDEX_LOCATIONS,
    "replicas": schemas.ENTRIES,
    "verification": schemas.VERIFICATION,
    "ledgers": schemas.LEDGERS,
    "fragments": schemas.FRAGMENTS,
}

Rows = Iterable[Mapping[str, Any]]


def write_tables(folder: Path, **tables: Rows) -> Path:
    """A directory as an earlier run leaves it; columns that a row lacks are null."""
    for name, schema in SCHEMAS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        rows = [{column: row.get(column) for column in schema.names} for row in tables.get(name, ())]
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / name / "part-00000.parquet")
    (folder / "summary.json").write_text("{}\n")
    return folder


def given(*names: str, ledger_dirs: int = 1, journal_dirs: int = 1) -> list[dict[str, Any]]:
    """Rows of ``bookies``: bookies all of whose directories were given."""
    return [
        {
            "bookie": name,
            "dir": f"/{name}/current",
            "holds_ledgers": True,
            "holds_journals": True,
            "ledger_dirs": ledger_dirs,
            "journal_dirs": journal_dirs,
        }
        for name in names
    ]


def run_over(
    tables: Path,
    job: str,
    out: Path,
    *,
    metadata: Path | None = None,
    metadata_after: Path | None = None,
    engine: Engine | None = None,
    **parameters: Any,
) -> Outcome:
    """Run a job over a table set, with the set itself as metadata unless another is named."""
    request = Request(
        JOBS[job],
        (str(tables),),
        str(out),
        str(metadata or tables),
        None if metadata_after is None else str(metadata_after),
        Parameters(**parameters),
    )
    if engine is not None:
        return run_job(PosixFileSystem(), engine, request)
    with LocalEngine(jobs=1) as local:
        return run_job(PosixFileSystem(), local, request)


def same_results(one: Outcome, other: Outcome) -> None:
    """Assert that two runs of a job came to the same, down to the types of the columns."""
    assert one.counts == other.counts
    assert (one.verdict, one.found) == (other.verdict, other.found)
    for result in JOBS[one.job].results:
        names = [column.name for column in result.columns]
        assert rows_of(one, result.name, *names) == rows_of(other, result.name, *names), result.name
        first, second = (parquet_schema([outcome.table(result.name).path]) for outcome in (one, other))
        assert (first.names, first.types) == (second.names, second.types)


def rows_of(outcome: Outcome, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """A result's rows, sorted; all columns unless some are named."""
    files = [opened_file(path) for path in parquet_files(outcome.table(name).path)]
    table = pa.concat_tables([pq.read_table(path, filesystem=where) for where, path in files])
    chosen = list(columns) or table.column_names
    return sorted(zip(*(table.column(column).to_pylist() for column in chosen), strict=True), key=repr)
