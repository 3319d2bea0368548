"""Tables of sets laid out by bookie and day: each row is there once, and rows cut short are not counted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from bkctl.errors import CorruptionError, RefusedError, StorageError
from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.partitions import PartitionedTables, day_of
from bkctl.pipeline.sets.set_tables import TABLES
from bkctl.pipeline.sets.store import CompleteSet
from bkctl.pipeline.tables.options import TableOptions
from bkctl.reporting import nobody
from tests.support.s3_server import s3_bucket
from tests.support.sets import DEMO, ZK, collected

ALL = list(TABLES)
DAY_MS = 86_400_000


def folder_of(path: Path) -> PartitionedTables:
    folder = PartitionedTables(located(str(path)))
    folder.claim()
    return folder


def days_later(one: CompleteSet, days: int) -> CompleteSet:
    """The same files as a set of a later day."""
    manifest = replace(
        one.manifest,
        set_id=f"{one.manifest.set_id}-{days}",
        started_ms=one.manifest.started_ms + days * DAY_MS,
    )
    return CompleteSet(one.location, manifest)


def asked(folder: Path, table: str, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
    files = folder / table / "*" / "*" / "*.parquet"
    with duckdb.connect() as connection:
        query = f"SELECT {columns} FROM read_parquet('{files}', hive_partitioning = true) WHERE {where}"
        return connection.execute(query).fetchall()


def rows_of_set(one: CompleteSet, table: str) -> list[dict[str, Any]]:
    return sorted((row for file in one.files(table) for row in pq.read_table(file).to_pylist()), key=repr)


def rows_exported(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table as Arrow reads them, in the columns of the sets."""
    if not (folder / table).exists():
        return []
    data = ds.dataset(folder / table, partitioning="hive")
    rows = data.to_table(columns=TABLES[table].names).to_pylist()
    return sorted(rows, key=repr)


def test_every_row_of_a_set_is_in_the_partition_of_its_bookie_and_day(tmp_path: Path) -> None:
    one = collected(DEMO, tmp_path / "sets").complete
    exported = folder_of(tmp_path / "tables").export_set(one, ALL)
    assert (exported.state, exported.tables) == ("exported", tuple(ALL))
    for table in ALL:
        assert rows_exported(tmp_path / "tables", table) == rows_of_set(one, table), table
    day = date.fromisoformat(day_of(one))
    found = asked(tmp_path / "tables", "sets", "bookie, day, set_id, verdict, rows, log_bytes")
    rows = sum(part.rows for parts in one.manifest.tables.values() for part in parts)
    log_bytes = sum(path.stat().st_size for path in DEMO.glob("ledgers/current/*.log"))
    assert found == [(one.manifest.bookie, day, one.manifest.set_id, "clean", rows, log_bytes)]
    assert exported.rows == rows


def test_days_and_bookies_stand_side_by_side(tmp_path: Path) -> None:
    """The name of one has what a path does not bear: engines give it back."""
    odd = "rack 7/bookie_2=%41:3181"
    named = TableOptions(damage="rows", metadata=str(ZK), bookie=odd)
    sets = [
        collected(DEMO, tmp_path / "sets").complete,
        collected(DEMO, tmp_path / "sets", options=named).complete,
    ]
    folder = folder_of(tmp_path / "tables")
    for days in (0, 1):
        exported = folder.export([days_later(one, days) for one in sets], ["logs"], False, 2, nobody)
        assert [one.state for one in exported] == ["exported", "exported"]
    counts = asked(tmp_path / "tables", "logs", "bookie, day, count(*)", "true GROUP BY ALL")
    logs = len(list(DEMO.glob("ledgers/current/*.log")))
    assert sorted(counts) == sorted(
        (one.manifest.bookie, date.fromisoformat(day_of(days_later(one, days))), logs)
        for one in sets
        for days in (0, 1)
    )
    assert {bookie for bookie, _, _ in counts} == {"127.0.0.1:4100", odd}
    assert len(rows_exported(tmp_path / "tables", "logs")) == 4 * logs


def test_a_set_that_is_there_is_not_written_again_but_for_tables_that_it_lacks(tmp_path: Path) -> None:
    one = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    assert folder.export_set(one, ["logs"]).tables == ("logs",)
    assert folder.export_set(one, ["logs"]).state == "unchanged"
    more = folder.export_set(one, ["runs", "logs"])
    assert (more.state, more.tables) == ("exported", ("runs",))
    assert asked(tmp_path / "tables", "sets", "tables") == [(["runs", "logs"],)]
    assert rows_exported(tmp_path / "tables", "logs") == rows_of_set(one, "logs")


def test_another_set_of_the_day_stays_until_it_is_to_be_replaced_by_a_newer_one(tmp_path: Path) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    first = collected(bookie, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    folder.export_set(first, ["logs", "runs"])
    min(bookie.glob("ledgers/current/*.log")).unlink()
    second = collected(bookie, tmp_path / "sets").complete
    kept = folder.export_set(second, ["logs"])
    assert (kept.state, first.manifest.set_id in str(kept.why)) == ("kept", True)
    assert rows_exported(tmp_path / "tables", "logs") == rows_of_set(first, "logs")
    replaced = folder.export_set(second, ["logs"], replace=True)
    assert (replaced.state, replaced.tables) == ("replaced", ("runs", "logs"))
    for table in ("logs", "runs"):
        assert rows_exported(tmp_path / "tables", table) == rows_of_set(second, table)
    assert rows_of_set(first, "logs") != rows_of_set(second, "logs")
    assert folder.export_set(first, ["logs"], replace=True).state == "kept"
    assert asked(tmp_path / "tables", "sets", "set_id") == [(second.manifest.set_id,)]


def test_a_set_that_cannot_be_read_takes_nothing_away(tmp_path: Path) -> None:
    first = collected(DEMO, tmp_path / "sets").complete
    second = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    folder.export_set(first, ALL)
    part = Path(second.files("logs")[0])
    part.write_bytes(b"\0" * part.stat().st_size)
    with pytest.raises(CorruptionError, match=r"logs/part-"):
        folder.export_set(second, ALL, replace=True)
    assert asked(tmp_path / "tables", "sets", "set_id") == [(first.manifest.set_id,)]
    assert rows_exported(tmp_path / "tables", "logs") == rows_of_set(first, "logs")
    (failed,) = folder.export([second], ALL, True, 1, nobody)
    assert (failed.state, "logs/part-" in str(failed.why)) == ("failed", True)


def test_rows_that_are_not_those_of_the_manifest_are_refused(tmp_path: Path) -> None:
    one = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    more = tuple(replace(part, rows=part.rows + 1) for part in one.manifest.tables["logs"])
    with_more = replace(one.manifest, tables={**one.manifest.tables, "logs": more})
    of_another = replace(one.manifest, bookie="another:3181")
    for manifest, why in ((with_more, "rows, found"), (of_another, "rows of bookie another:3181")):
        with pytest.raises(CorruptionError, match=why):
            folder.export_set(CompleteSet(one.location, manifest), ["logs"])
    assert not (tmp_path / "tables" / "sets").exists()


def test_an_export_that_was_cut_short_is_begun_anew(tmp_path: Path) -> None:
    """Left behind by it: tables without a row in ``sets``, or with one that is not whole."""
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    first = collected(bookie, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    folder.export_set(first, ALL)
    (row,) = (tmp_path / "tables").glob("sets/*/*/*.parquet")
    row.write_bytes(row.read_bytes()[:-7])
    min(bookie.glob("ledgers/current/*.log")).unlink()
    second = collected(bookie, tmp_path / "sets").complete
    assert folder.export_set(second, ALL).state == "exported"
    for table in ALL:
        assert rows_exported(tmp_path / "tables", table) == rows_of_set(second, table), table
    assert asked(tmp_path / "tables", "sets", "set_id") == [(second.manifest.set_id,)]


def test_a_row_that_cannot_be_read_is_named_and_nothing_is_removed(tmp_path: Path) -> None:
    """Its footer is damaged, which Arrow reports as it does a disk that fails."""
    one = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    folder.export_set(one, ["logs"])
    (row,) = (tmp_path / "tables").glob("sets/*/*/*.parquet")
    content = bytearray(row.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    content[-8 - length : -8] = b"\xff" * length
    row.write_bytes(bytes(content))
    (failed,) = folder.export([one], ["logs"], True, 1, nobody)
    assert (failed.state, str(row) in str(failed.why)) == ("failed", True)
    assert row.read_bytes() == content


def test_tables_whose_row_is_torn_are_written_again_beside_those_asked_for(tmp_path: Path) -> None:
    """A disk was full while the row was written again for one table more."""
    one = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    folder.export_set(one, ["runs", "blocks"])
    (row,) = (tmp_path / "tables").glob("sets/*/*/*.parquet")
    row.write_bytes(row.read_bytes()[:100])
    assert folder.export_set(one, ["logs"]).tables == ("runs", "blocks", "logs")
    for table in ("runs", "blocks", "logs"):
        assert rows_exported(tmp_path / "tables", table) == rows_of_set(one, table), table


def test_the_row_of_a_set_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bkctl.pipeline.sets import partitions

    one = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    written: list[str] = []

    class Writer(partitions.PartWriter):
        def close(self) -> Any:
            if written[2:]:
                raise StorageError("the disk is full")
            written.append(self.name)
            return super().close()

    monkeypatch.setattr(partitions, "PartWriter", Writer)
    with pytest.raises(StorageError, match="full"):
        folder.export_set(one, ALL)
    assert [name.split("/")[0] for name in written] == ALL[:3]
    assert not (tmp_path / "tables" / "sets").exists()
    monkeypatch.undo()
    assert folder.export_set(one, ALL).state == "exported"
    assert rows_exported(tmp_path / "tables", "runs") == rows_of_set(one, "runs")


def test_an_older_set_stays_as_it_was_where_the_newer_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bkctl.pipeline.sets import partitions

    first = collected(DEMO, tmp_path / "sets").complete
    second = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    folder.export_set(first, ALL)
    before = {path: path.read_bytes() for path in (tmp_path / "tables").rglob("*") if path.is_file()}

    class Writer(partitions.PartWriter):
        def close(self) -> Any:
            if "logs" in self.name:
                raise StorageError("the disk is full")
            return super().close()

    monkeypatch.setattr(partitions, "PartWriter", Writer)
    (failed,) = folder.export([second], ALL, True, 1, nobody)
    assert (failed.state, failed.why) == ("failed", "the disk is full")
    after = {path: path.read_bytes() for path in (tmp_path / "tables").rglob("*") if path.is_file()}
    assert after == before
    monkeypatch.undo()
    assert folder.export_set(second, ALL, replace=True).state == "replaced"
    for table in ALL:
        assert rows_exported(tmp_path / "tables", table) == rows_of_set(second, table), table
    assert asked(tmp_path / "tables", "sets", "set_id") == [(second.manifest.set_id,)]
    assert not (tmp_path / "tables" / "_replacing" / second.manifest.set_id).exists()


def test_a_table_that_was_removed_is_written_again(tmp_path: Path) -> None:
    one = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    folder.export_set(one, ["logs", "runs"])
    shutil.rmtree(tmp_path / "tables" / "runs")
    again = folder.export_set(one, ["logs"])
    assert (again.state, again.tables) == ("exported", ("runs",))
    assert rows_exported(tmp_path / "tables", "runs") == rows_of_set(one, "runs")
    assert folder.export_set(one, ["logs", "runs"]).state == "unchanged"


def test_a_set_that_stays_names_the_tables_that_it_lacks(tmp_path: Path) -> None:
    first = collected(DEMO, tmp_path / "sets").complete
    second = collected(DEMO, tmp_path / "sets").complete
    folder = folder_of(tmp_path / "tables")
    folder.export_set(first, ["logs"])
    kept = folder.export_set(second, ["logs", "runs"])
    assert (kept.state, kept.lacks, str(kept.why).endswith("is there, without runs")) == (
        "kept",
        ("runs",),
        True,
    )
    assert folder.export_set(second, ["logs"]).lacks == ()


def test_nothing_is_written_once_another_export_may_have_begun(tmp_path: Path) -> None:
    def check_turn() -> None:
        raise StorageError("another export may have begun")

    one = collected(DEMO, tmp_path / "sets").complete
    folder_of(tmp_path / "tables")
    folder = PartitionedTables(located(str(tmp_path / "tables")), check_turn)
    (failed,) = folder.export([one], ALL, False, 1, nobody)
    assert (failed.state, failed.why) == ("failed", "another export may have begun")
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["_bkctl-tables.json"]


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RefusedError, match=r"holds notes\.txt"):
        folder_of(tmp_path)


def test_tables_are_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_bucket("audits", monkeypatch) as parameters:
        one = collected(DEMO, f"s3://audits/sets?{parameters}").complete
        place = located(f"s3://audits/tables?{parameters}")
        folder = PartitionedTables(place)
        folder.claim()
        assert folder.export_set(one, ALL).state == "exported"
        later = days_later(one, 0)
        assert folder.export_set(later, ["logs"], replace=True).state == "replaced"
        data = ds.dataset(f"{place.path}/logs", filesystem=place.filesystem, partitioning="hive")
        found = data.to_table(columns=["bookie", "day", "log_id"]).to_pylist()
        logs = {int(path.stem, 16) for path in DEMO.glob("ledgers/current/*.log")}
        assert {(row["bookie"], row["day"], row["log_id"]) for row in found} == {
            (one.manifest.bookie, day_of(one), log) for log in logs
        }
        assert len(found) == len(logs)
