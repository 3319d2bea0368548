"""Reading tables into Parquet: processes, empty tables, failures half-way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bkctl.errors import CorruptionError, StorageError
from bkctl.pipeline import extraction
from bkctl.pipeline.engine import Extraction
from bkctl.pipeline.extraction import extract
from bkctl.pipeline.job import Input
from bkctl.pipeline.jobs.journal_forensics import JOURNAL_FORENSICS
from bkctl.pipeline.results import parquet_files
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import TABLES
from bkctl.pipeline.tables.split import Split
from bkctl.reporting import nobody

DEMO = Path(__file__).parents[2] / "data" / "demo" / "bookie1"
RUNS = Input("runs", "runs")
(REDUCED,) = (item for item in JOURNAL_FORENSICS.inputs if item.reduce and item.source == "journal")
MEMORY_BYTES = 256 << 20


def work(item: Input, folder: Path, *paths: Path, **options: Any) -> Extraction:
    folder.mkdir(exist_ok=True)
    return Extraction(
        item, tuple(str(path) for path in paths), TableOptions(damage="rows", **options), str(folder)
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    tables = [pq.read_table(path) for path in parquet_files(str(folder))]
    return sorted(pa.concat_tables(tables).to_pylist(), key=repr)


def test_several_processes_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = sorted(DEMO.glob("ledgers/current/*.log"))
    told: list[int] = []
    extract(work(RUNS, tmp_path / "one", *logs, split_bytes=1), 1, MEMORY_BYTES, told.append)
    monkeypatch.setattr(extraction, "PROCESSES_FROM_BYTES", 0)
    extract(work(RUNS, tmp_path / "two", *logs, split_bytes=1), 2, MEMORY_BYTES, nobody)
    assert rows(tmp_path / "one") == rows(tmp_path / "two") != []
    assert sum(told) == sum(log.stat().st_size for log in logs)
    assert len(parquet_files(str(tmp_path / "two"))) > 1


@pytest.mark.parametrize("item", [RUNS, REDUCED], ids=lambda item: item.name)
def test_a_table_without_rows_has_its_columns(tmp_path: Path, item: Input) -> None:
    extract(work(item, tmp_path / "none"), 1, MEMORY_BYTES, nobody)
    extract(work(item, tmp_path / "some", DEMO), 1, MEMORY_BYTES, nobody)
    (empty,) = parquet_files(str(tmp_path / "none"))
    full = parquet_files(str(tmp_path / "some"))[0]
    assert pq.read_metadata(empty).num_rows == 0
    assert pq.read_schema(empty).equals(pq.read_schema(full))


def test_reducing_counts_every_entry_once(tmp_path: Path) -> None:
    counted = replace(
        REDUCED,
        reduce="""SELECT j.ledger AS ledger, count(*) AS records
                  FROM journal j WHERE j.kind = 'entry' GROUP BY 1""",
    )
    extract(work(counted, tmp_path / "counted", DEMO), 1, MEMORY_BYTES, nobody)
    extract(work(REDUCED, tmp_path / "records", DEMO), 1, MEMORY_BYTES, nobody)
    assert sum(row["records"] for row in rows(tmp_path / "counted")) == len(rows(tmp_path / "records")) > 0


class _Failing:
    """A table whose second batch cannot be read."""

    name = "journal"
    schema = TABLES["journal"].schema

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return [Split()]

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        yield pa.RecordBatch.from_pylist([dict.fromkeys(columns)], schema)
        raise CorruptionError("entry log record", path="/x/0.log", offset=77)


@pytest.mark.parametrize("item", [Input("journal", "journal"), REDUCED], ids=lambda item: item.name)
def test_a_failure_half_way_is_the_readers_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: Input
) -> None:
    monkeypatch.setitem(TABLES, "journal", _Failing())
    with pytest.raises(CorruptionError, match=r"/x/0\.log.*offset 77"):
        extract(work(item, tmp_path / "o", DEMO), 1, MEMORY_BYTES, nobody)
    assert parquet_files(str(tmp_path / "o")) == []
    assert not list((tmp_path / "o").glob("*.writing"))


def test_a_full_disk_is_named_with_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    extraction_of_runs = work(RUNS, tmp_path / "o", DEMO)
    (tmp_path / "o" / "part-00000.parquet.writing").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"part-00000\.parquet: .*No space left"):
        extract(extraction_of_runs, 1, MEMORY_BYTES, nobody)
    assert list((tmp_path / "o").iterdir()) == []


def test_a_query_over_a_part_that_needs_more_memory_says_which_option_gives_it(tmp_path: Path) -> None:
    greedy = replace(
        REDUCED, reduce="SELECT list(r) AS ledger FROM range(20000000) t(r), (FROM journal LIMIT 1)"
    )
    with pytest.raises(StorageError, match="--memory"):
        extract(work(greedy, tmp_path / "o", DEMO), 1, 0, nobody)
    assert parquet_files(str(tmp_path / "o")) == []
