"""The data source against the tables that it reads, and what it leaves unread."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bkctl.codec.journal import JournalRecord, RecordKind
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import TABLES
from tests.support.log_builder import EntryLogBuilder, JournalBuilder, entry_body
from tests.support.table_rows import ROWS, Row, table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COOKIE = '5\nbookieHost: "{bookie}"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\ninstanceId: "x"\n'


def make_bookie(folder: Path, bookie: str, logs: dict[int, dict[int, int]]) -> Path:
    """A bookie's directories; ``logs`` maps log ids to numbers of entries by ledger."""
    current = folder / "ledgers" / "current"
    current.mkdir(parents=True)
    (current / "VERSION").write_text(COOKIE.format(bookie=bookie))
    for log_id, ledgers in logs.items():
        log = EntryLogBuilder()
        for ledger, count in ledgers.items():
            for entry in range(count):
                log.add(entry_body(ledger, entry, f"{ledger}:{entry}".encode()))
        (current / f"{log_id:x}.log").write_bytes(log.roll().data)
    journal = folder / "journal" / "current"
    journal.mkdir(parents=True)
    (journal / "VERSION").write_text(COOKIE.format(bookie=bookie))
    records = JournalBuilder()
    records.special(
        JournalRecord(
            RecordKind.FENCE,
            16,
            5,
            -0x2000,
            (5).to_bytes(8, "big") + (-0x2000).to_bytes(8, "big", signed=True),
        )
    )
    records.add(entry_body(5, 0))
    records.flush()
    (journal / "10.txn").write_bytes(records.build().data)
    return folder


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bookies with three logs each."""
    folder = tmp_path_factory.mktemp("fleet")
    make_bookie(folder / "one", "one:3181", {0: {1: 40, 2: 30}, 1: {3: 20}, 0x1C: {1: 5}})
    make_bookie(folder / "two", "two:3181", {0: {2: 30}, 1: {4: 10}, 2: {5: 50}})
    return folder


def frame(spark: SparkSession, table: str, path: object, **options: str) -> DataFrame:
    return spark.read.format("bookkeeper").option("table", table).options(**options).load(str(path))


def rows_of(data: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in data.collect()]


def ordered(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


@pytest.mark.parametrize(
    "table", ["entries", "runs", "checks", "logs", "log_ledgers", "journal", "damage", "verification"]
)
def test_a_table_in_spark_is_the_table(spark: SparkSession, fleet: Path, table: str) -> None:
    data = frame(spark, table, fleet, damage="rows")
    expected = table_rows(table, [fleet])
    assert (
        data.columns
        == [name for name in TABLES[table].schema.names if not name.startswith("payload_crc")][
            : len(data.columns)
        ]
    )
    assert ordered(rows_of(data)) == ordered(expected)
    if table != "damage":
        assert expected


def test_the_module_is_found_by_its_name(spark: SparkSession, fleet: Path) -> None:
    """Without a call of ours: Spark looks for modules called pyspark_*."""
    other = spark.newSession()
    assert frame(other, "logs", fleet).count() == 6


def test_workers_acknowledge_at_once(spark: SparkSession) -> None:
    """Without it each task takes 40 ms (``bkctl.spark.worker_daemon``)."""

    def who(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import daemon

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [daemon.worker.__name__]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(who, "name string").collect()
    assert row.name == "prompt_worker"


def test_sql_can_ask_it(spark: SparkSession, fleet: Path) -> None:
    spark.sql(f"create or replace temp view e using bookkeeper options (table 'entries', path '{fleet}')")
    (row,) = spark.sql("select count(*) n, sum(size) bytes from e where ledger = 2").collect()
    assert row.n == 60


def test_payload_is_read_when_it_is_asked_for_and_not_otherwise(spark: SparkSession, fleet: Path) -> None:
    assert "payload" not in frame(spark, "entries", fleet).columns
    data = frame(spark, "entries", fleet, payload="true").filter("ledger = 4")
    assert {bytes(row.payload) for row in data.collect()} == {f"4:{entry}".encode() for entry in range(10)}
    chosen = (
        spark.read.format("bookkeeper")
        .option("table", "entries")
        .schema("entry long, payload binary")
        .load(str(fleet / "one"))
    )
    assert chosen.columns == ["entry", "payload"]
    assert chosen.count() == 95


def test_only_the_columns_of_the_schema_are_read(spark: SparkSession, fleet: Path) -> None:
    data = spark.read.format("bookkeeper").option("table", "entries").schema("ledger long").load(str(fleet))
    assert {(row.ledger, row["count"]) for row in data.groupBy("ledger").count().collect()} == {
        (1, 45), (2, 60), (3, 20), (4, 10), (5, 50),
    }  # fmt: skip


def test_conditions_on_ids_prune_files_before_they_are_read(
    spark: SparkSession, fleet: Path, tmp_path: Path
) -> None:
    folder = make_bookie(tmp_path / "three", "three:3181", {0: {1: 10}, 1: {2: 10}})
    log = folder / "ledgers/current/1.log"
    data = bytearray(log.read_bytes())
    data[1024] ^= 0x7F  # reading this log ends with an error
    log.write_bytes(data)
    with pytest.raises(Exception, match=r"1\.log"):
        frame(spark, "entries", folder).filter("ledger = 1").count()

    def count(path: Path, condition: str) -> int:
        return frame(spark, "entries", path, pushdown="true").filter(condition).count()

    assert count(folder, "ledger = 1") == 10
    assert count(folder, "log_id = 0 and entry >= 4 and entry < 7") == 3
    assert count(folder, "ledger in (1, 77) and entry <= 0") == 1
    assert count(folder, "ledger = 99") == 0
    assert count(fleet, "ledger between 3 and 4") == 30
    assert count(fleet, "ledger > 4 or entry = 0") == 50 + 6
    assert frame(spark, "entries", folder, ledger="1", entry="0-3").count() == 4


def test_a_dataframe_may_be_used_again_with_other_conditions(spark: SparkSession, fleet: Path) -> None:
    """With filters pushed it would keep the first query's; that is why they are not unless asked for."""
    entries = frame(spark, "entries", fleet)
    chosen = entries.filter("ledger = 4")
    assert chosen.count() == 10
    assert entries.count() == 185
    assert chosen.union(entries).count() == 195
    joined = chosen.alias("one").join(entries.alias("other"), on="entry")
    assert joined.count() == 6 * 10 + 5  # ledger 1 has 5 entries more in another log


def test_spark_keeps_pushed_conditions_with_the_dataframe(spark: SparkSession, fleet: Path) -> None:
    """What docs/adr/0010 rests on. When it fails, a release has mended it: pushdown can be on by itself."""
    entries = frame(spark, "entries", fleet, pushdown="true")
    assert entries.filter("ledger = 4").count() == 10
    assert entries.count() == 10, "of 185"


def test_a_reader_for_sessions_without_pushdown_takes_no_filters(fleet: Path) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    from bkctl.spark.source import BookKeeperSource

    schema = StructType([StructField("ledger", LongType())])
    given = {"table": "entries", "path": str(fleet)}
    plain = BookKeeperSource({**given, "pushdown": "false"}).reader(schema)
    assert "pushFilters" not in type(plain).__dict__
    pushing = BookKeeperSource({**given, "pushdown": "true"}).reader(schema)
    assert "pushFilters" in type(pushing).__dict__


def test_filters_are_taken_exactly_or_left_to_spark(fleet: Path) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan, Not, StringContains

    from bkctl.spark.pushdown import push

    taken = [
        EqualTo(("ledger",), 2),
        IsNotNull(("ledger",)),
        In(("log_id",), (0, 1, None)),
        GreaterThan(("entry",), 4),
        LessThan(("entry",), 9),
    ]
    left = [StringContains(("dir",), "x"), Not(EqualTo(("ledger",), 3)), EqualTo(("size",), 9)]
    options, rest = push("entries", [*taken, *left], ROWS)
    assert rest == left
    assert options is not None
    assert (options.ledgers, options.entries, options.log_ids) == (((2, 2),), ((5, 8),), {0, 1})
    nothing, _ = push("entries", [EqualTo(("ledger",), 2), EqualTo(("ledger",), 3)], TableOptions())
    assert nothing is None
    assert push("journal", [taken[0]], ROWS) == (ROWS, [taken[0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "nothing"}, "no table"),
        ({"table": "entries", "damage": "shrug"}, "damage"),
        ({"table": "entries", "colour": "red"}, "colour"),
        ({"table": "logs", "payload": "true"}, "payload"),
        ({}, "table"),
    ],
)
def test_wrong_options_say_what_is_known(
    spark: SparkSession, fleet: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        spark.read.format("bookkeeper").options(**options).load(str(fleet)).count()


def test_a_column_of_another_type_is_refused(spark: SparkSession, fleet: Path) -> None:
    reader: Any = spark.read.format("bookkeeper").option("table", "entries").schema("ledger string")
    with pytest.raises(Exception, match="ledger is bigint"):
        reader.load(str(fleet)).count()


def test_several_paths_are_read_together(spark: SparkSession, fleet: Path) -> None:
    data = (
        spark.read.format("bookkeeper").option("table", "logs").load([str(fleet / "one"), str(fleet / "two")])
    )
    assert {row.bookie for row in data.collect()} == {"one:3181", "two:3181"}


def test_a_worker_takes_what_it_imported_from_the_garbage_collector_once(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bkctl.spark import reader

    done: list[str] = []

    class Collector:
        collect = staticmethod(lambda: done.append("collect"))
        freeze = staticmethod(lambda: done.append("freeze"))

    monkeypatch.setattr(reader, "gc", Collector)
    reader._freeze_modules.cache_clear()
    try:
        found = reader.TableReader("logs", [str(fleet)], ["log_id"], TableOptions(log_ids=frozenset({0})))
        for partition in (*found.partitions(), *found.partitions()):
            assert sum(batch.num_rows for batch in found.read(partition)) == 2
        assert done == ["collect", "freeze"]
    finally:
        reader._freeze_modules.cache_clear()
