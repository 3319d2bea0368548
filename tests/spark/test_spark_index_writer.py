"""Writing and rebuilding location indexes with Spark's tasks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.client.sync import BookKeeperSync
from bkctl.errors import CorruptionError, RefusedError, StorageError, UsageError
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.server.life.embedded import LocalCluster
from tests.support.small_bookie import SMALL
from tests.support.table_rows import table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "ledger long, entry long, log_id long, offset long"
ROW = ("ledger", "entry", "log_id", "offset")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three bookies, stopped, with a few hundred entries each; copied by tests that write."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        LocalCluster(3, folder, overrides=SMALL) as running,
        BookKeeperSync(running.metadata_uri) as client,
    ):
        for _ in range(4):
            with client.create(3, 2, 2) as ledger:
                ledger.append_all(f"{ledger.ledger}-{entry}-".encode() * 30 for entry in range(150))
    return folder


@pytest.fixture
def fleet(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "fleet"))


def locations(path: Path) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in ROW) for row in table_rows("index_locations", [path])}


def sorted_rows(data: DataFrame) -> DataFrame:
    from pyspark.sql.functions import desc

    spread = data.select(*ROW).repartitionByRange(3, "ledger", "entry")
    return spread.sortWithinPartitions("ledger", "entry", desc("log_id"), desc("offset"))


def save(data: DataFrame, directory: Path, mode: str) -> None:
    data.write.format("bookkeeper").option("table", "index_locations").mode(mode).save(str(directory))


def test_an_index_written_from_the_logs_takes_the_place_of_the_old_one(
    spark: SparkSession, fleet: Path
) -> None:
    ledgers = fleet / "bookie0" / "ledgers"
    before = locations(ledgers)
    assert len(before) > 300
    entries = spark.read.format("bookkeeper").option("table", "entries").load(str(ledgers))
    # What a compaction leaves: an older record of an entry. The one in the highest place counts.
    older = entries.limit(20).selectExpr("ledger", "entry", "0L as log_id", "1028L as offset")
    shutil.rmtree(ledgers / "current" / "locations")
    open_store(str(ledgers / "current" / "locations"), LOCATIONS_PROFILE, create=True).close()
    save(sorted_rows(entries.select(*ROW).union(older)), ledgers, "overwrite")
    after = locations(ledgers)
    assert {row[:2] for row in after} == {row[:2] for row in before}
    assert len(after) == len(before)
    assert after == before
    assert len(list((ledgers / "current").glob("locations.BACKUP-*"))) == 1
    assert not list((ledgers / "current").glob("*bkctl-spark*"))


def test_rows_are_appended_to_an_index_that_is_there(spark: SparkSession, fleet: Path) -> None:
    ledgers = fleet / "bookie1" / "ledgers"
    before = locations(ledgers)
    more = spark.createDataFrame([(10_000 + n % 3, n, 77, 2000 + n) for n in range(100)], SCHEMA)
    save(sorted_rows(more), ledgers / "current", "append")
    assert locations(ledgers) == before | {(10_000 + n % 3, n, 77, 2000 + n) for n in range(100)}


def test_what_is_not_sorted_or_overlaps_is_refused_and_leaves_the_index_as_it_was(
    spark: SparkSession, fleet: Path
) -> None:
    ledgers = fleet / "bookie1" / "ledgers"
    before = locations(ledgers)
    rows = [(5, n, 1, 2000) for n in range(50)]
    reverse = spark.createDataFrame(rows[::-1], SCHEMA).coalesce(1)
    with pytest.raises(Exception, match="not sorted"):
        save(reverse, ledgers, "append")
    with open_store(str(ledgers / "current" / "locations"), LOCATIONS_PROFILE, create=False) as store:
        assert store is not None
        with pytest.raises(Exception, match="in use"):
            save(spark.createDataFrame(rows, SCHEMA).coalesce(1), ledgers, "append")
    assert locations(ledgers) == before
    assert not list((ledgers / "current").glob("*bkctl-spark*"))


def column_batch(kind: Any, *rows: tuple[Any, ...]) -> Iterator[Any]:
    import pyarrow as pa

    columns = [pa.array(values, kind) for values in zip(*rows, strict=True)]
    return iter([pa.RecordBatch.from_arrays(columns, names=list(ROW))])


def batch_of(rows: list[tuple[int, int, int, int]]) -> Iterator[Any]:
    import pyarrow as pa

    return column_batch(pa.int64(), *rows)


def test_tasks_that_overlap_and_rows_that_are_no_locations_are_refused(fleet: Path) -> None:
    from bkctl.spark.index_writer import IndexWriter

    ledgers = fleet / "bookie2" / "ledgers"
    before = locations(ledgers)
    writer = IndexWriter(str(ledgers), ROW, overwrite=False)
    tasks = [writer.write(batch_of([(5, n, 1, 2000 + n) for n in part])) for part in ([0, 9], [3, 12])]
    with pytest.raises(UsageError, match="two tasks hold ledger 5 entry 3"):
        writer.commit([*tasks, None])
    assert not (ledgers / "current" / "locations.bkctl-spark").exists()
    with pytest.raises(CorruptionError, match="log id of 31 bits"):
        writer.write(batch_of([(5, 1, 2**31, 2000)]))
    with pytest.raises(UsageError, match="missing"):
        IndexWriter(str(ledgers), ("ledger", "entry"), overwrite=False)
    with pytest.raises(UsageError, match="no such directory"):
        IndexWriter(str(ledgers / "nowhere"), ROW, overwrite=False)
    writer.abort([])
    assert not (ledgers / "current" / "locations.bkctl-spark").exists()
    assert locations(ledgers) == before


def test_columns_that_hold_no_whole_numbers_are_refused(fleet: Path) -> None:
    """What a division of Spark's makes of ids."""
    import pyarrow as pa

    from bkctl.spark.index_writer import IndexWriter

    writer = IndexWriter(str(fleet / "bookie2" / "ledgers"), ROW, overwrite=False)
    with pytest.raises(UsageError, match="column ledger: is of type double"):
        writer.write(column_batch(pa.float64(), (5.5, 1.0, 1.0, 2000.0)))
    assert writer.write(column_batch(pa.int32(), (5, 1, 1, 2000))).rows == 1
    writer.abort([])


def test_a_writer_that_is_refused_leaves_the_files_of_the_one_at_work_alone(fleet: Path) -> None:
    from bkctl.directories.holders import DirectoryLock
    from bkctl.spark.index_writer import IndexWriter

    ledgers = fleet / "bookie2" / "ledgers"
    before = locations(ledgers)
    first, second = (IndexWriter(str(ledgers), ROW, overwrite=False) for _ in range(2))
    row = (5, 1, 1, 2000)
    task, other = first.write(batch_of([row])), second.write(batch_of([row]))
    with DirectoryLock(str(ledgers / "current")), pytest.raises(RefusedError):
        second.commit([other])
    assert Path(task.path).exists()
    assert not Path(other.path).exists()
    first.commit([task])
    assert locations(ledgers) == before | {row}
    assert not (ledgers / "current" / "locations.bkctl-spark").exists()


@pytest.mark.parametrize("fallback", [False, True], ids=["exchange", "two renames"])
def test_a_driver_killed_while_it_swaps_leaves_the_old_index_as_a_backup(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, fallback: bool
) -> None:
    from bkctl.admin.index.rebuild import swap
    from bkctl.spark.index_writer import IndexWriter

    ledgers = fleet / "bookie2" / "ledgers"
    current = ledgers / "current"
    before = locations(ledgers)
    old = (current / "locations" / "IDENTITY").read_text()
    killed = IndexWriter(str(ledgers), ROW, overwrite=True)
    task = killed.write(batch_of([(5, 1, 1, 2000)]))

    def kill_behind_the_first_step(path: str) -> None:
        identity = current / "locations" / "IDENTITY"
        if not identity.exists() or identity.read_text() != old:
            raise _Killed

    with monkeypatch.context() as patched:
        if fallback:
            patched.setattr(swap, "_exchange_names", lambda *_: False)
        patched.setattr(swap, "sync_directory", kill_behind_the_first_step)
        patched.setattr(killed, "_clean", lambda: None)
        with pytest.raises(_Killed):
            killed.commit([task])
    assert (current / "locations").exists() != fallback
    following = IndexWriter(str(ledgers), ROW, overwrite=False)
    following.commit([following.write(batch_of([(6, 1, 1, 2000)]))])
    assert locations(ledgers) == {(5, 1, 1, 2000), (6, 1, 1, 2000)}
    assert not (current / "locations.bkctl-spark").exists()
    (backup,) = current.glob("locations.BACKUP-*")
    shutil.rmtree(current / "locations")
    backup.rename(current / "locations")
    assert locations(ledgers) == before


class _Killed(BaseException):
    pass


@pytest.mark.thorough("the next one rebuilds several, of which one is damaged")
def test_the_indexes_of_several_bookies_are_rebuilt_at_once(spark: SparkSession, fleet: Path) -> None:
    from bkctl.spark.index_rebuild import rebuild_indexes

    before = {number: locations(fleet / f"bookie{number}") for number in range(3)}
    for number in range(3):
        shutil.rmtree(fleet / f"bookie{number}" / "ledgers" / "current" / "locations")
    results = rebuild_indexes(spark, [str(fleet)], cores=2)
    assert sorted(result.dir for result in results) == [
        str(fleet / f"bookie{number}" / "ledgers" / "current") for number in range(3)
    ]
    assert {number: locations(fleet / f"bookie{number}") for number in range(3)} == before
    assert [result.rows for result in results] == [len(before[number]) for number in range(3)]


def test_damage_stops_the_rebuild_of_its_bookie_only(spark: SparkSession, fleet: Path) -> None:
    from bkctl.spark.index_rebuild import rebuild_indexes

    current = fleet / "bookie0" / "ledgers" / "current"
    log = min(current.glob("*.log"), key=lambda path: int(path.stem, 16))
    data = bytearray(log.read_bytes())
    data[1024 + 60] ^= 0xFF
    log.write_bytes(data)
    before = locations(current)
    with pytest.raises(RefusedError, match="digest"):
        rebuild_indexes(spark, [str(fleet)], RebuildOptions(), cores=2)
    assert locations(current) == before
    for number in (1, 2):
        assert list((fleet / f"bookie{number}/ledgers/current").glob("locations.BACKUP-*"))
    results = rebuild_indexes(spark, [str(current.parent.parent)], RebuildOptions(accept_loss=True), cores=2)
    assert results[0].lossy
    assert len(locations(current)) == len(before) - 1


def test_errors_of_tasks_come_to_the_driver_as_they_are() -> None:
    import pickle

    import pyarrow as pa

    from bkctl.spark.answers import decode_answer
    from bkctl.spark.index_rebuild import _run_tasks

    batch = pa.RecordBatch.from_pydict({"task": [pickle.dumps((_failing, error)) for error in ERRORS]})
    found = [decode_answer(answer["answer"][0].as_py()) for answer in _run_tasks(iter([batch]))]
    assert [(type(outcome), str(outcome), done) for outcome, done in found] == [
        (type(error), str(error), 3) for error in ERRORS
    ]


ERRORS = [
    UsageError("wrong"),
    StorageError("disk", path="/x", offset=4),
    CorruptionError("bytes", offset=7, expected="a", found="b", path="/y"),
]


def _failing(task: Exception, advance: Any) -> None:
    advance(3)
    raise task
