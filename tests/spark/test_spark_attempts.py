"""A task that Spark runs a second time, after a death in its middle or beside a slow first attempt, gives the
same rows: nothing of an attempt is kept. The cluster itself: ``test_spark_standalone``."""

from __future__ import annotations

import pickle
from itertools import islice
from pathlib import Path

import pytest

from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import TABLES
from bkctl.spark.reader import SplitPartition, TableReader

DEMO = Path(__file__).parents[1] / "data" / "demo"
#: From a store or a dump, and not from the bookie's files.
OF_METADATA = {"ledgers", "fragments"}


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_second_attempt_gives_what_the_first_one_would_have(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bkctl.spark.reader._freeze_modules", lambda: None)  # that is for a worker's process
    options = TableOptions(
        damage="rows", split_bytes=20_000, batch_rows=16, cores=4, metadata=str(DEMO / "zk.json")
    )
    paths = [] if table in OF_METADATA else [str(DEMO / "bookie1")]
    reader = TableReader(table, paths, TABLES[table].schema.names, options)
    partitions = reader.partitions()
    assert partitions
    rows = 0
    for partition in partitions:
        assert isinstance(partition, SplitPartition)
        # Every attempt is a copy of what the driver sent, in a process of its own.
        attempts = [pickle.loads(pickle.dumps((reader, partition))) for _ in range(4)]
        killed = attempts[0][0].read(attempts[0][1])
        list(islice(killed, 1))
        slow = attempts[1][0].read(attempts[1][1])
        found = list(islice(slow, 1))
        overtaking = list(attempts[2][0].read(attempts[2][1]))
        found += list(slow)
        killed.close()
        again = list(attempts[3][0].read(attempts[3][1]))
        assert overtaking == found == again
        rows += sum(map(len, again))
    assert rows or table == "damage"
