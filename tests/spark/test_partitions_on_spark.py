"""Tables of sets laid out by bookie and day, as Spark finds them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.partitions import PartitionedTables, day_of
from bkctl.pipeline.sets.set_tables import TABLES
from bkctl.pipeline.tables.options import TableOptions
from tests.support.sets import DEMO, ZK, collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = "rack 7/bookie_2=%41:3181"


def plan_of(frame: DataFrame) -> str:
    return str(frame._sc._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple"))


def test_spark_makes_columns_of_the_partitions_and_reads_only_those_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    named = TableOptions(damage="rows", metadata=str(ZK), bookie=ODD)
    sets = [
        collected(DEMO, tmp_path / "sets").complete,
        collected(DEMO, tmp_path / "sets", options=named).complete,
    ]
    folder = PartitionedTables(located(str(tmp_path / "tables")))
    folder.claim()
    for one in sets:
        folder.export_set(one, list(TABLES))
    for table in ("runs", "log_ledgers", "journal_entries", "bookies"):
        frame = spark.read.parquet(f"file:{tmp_path}/tables/{table}")
        assert set(frame.columns) == {*TABLES[table].names, "day"}
        for one in sets:
            asked = frame.where((frame.bookie == one.manifest.bookie) & (frame.day == day_of(one)))
            found = sorted((row.asDict() for row in asked.select(TABLES[table].names).collect()), key=repr)
            expected = [row for file in one.files(table) for row in pq.read_table(file).to_pylist()]
            assert found == sorted(expected, key=repr), (table, one.manifest.bookie)
    frame = spark.read.parquet(f"file:{tmp_path}/tables/runs")
    pruned = frame.where(frame.bookie == ODD)
    assert "PartitionFilters: [isnotnull(bookie" in plan_of(pruned)
    whole = spark.read.parquet(f"file:{tmp_path}/tables/sets").select("bookie", "set_id").collect()
    assert sorted(map(tuple, whole)) == sorted((one.manifest.bookie, one.manifest.set_id) for one in sets)
