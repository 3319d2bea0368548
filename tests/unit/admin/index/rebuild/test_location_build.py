"""Writing the tables of a location index, task by task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bkctl.admin.index.rebuild.location_build import TableTask, write_table
from bkctl.admin.index.rows.location_runs import Rows, RunSlice, partitions, write_run
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store

ROWS = 70_000


class Ended(Exception):
    """What a task that lost against another attempt is ended by."""


def task_over(folder: Path) -> TableTask:
    rows = Rows(np.full(ROWS, 7, np.int64), np.arange(ROWS), np.arange(ROWS) + (1 << 32))
    run = write_run(str(folder / "0.run"), rows)
    np.array([7], np.int64).tofile(folder / "ledgers")
    (folder / "tables").mkdir()
    (partition,) = partitions([run], 1 << 30)
    assert all(isinstance(part, RunSlice) for part in partition)
    return TableTask(3, partition, str(folder / "ledgers"), str(folder / "tables"))


def test_an_attempt_that_is_ended_leaves_the_table_of_another_alone(tmp_path: Path) -> None:
    """Spark's speculation runs a task twice, and ends the attempt that is slower."""
    task = task_over(tmp_path)
    winner = write_table(task, lambda _: None)

    def ended(rows: int) -> None:
        raise Ended

    with pytest.raises(Ended):
        write_table(task, ended)
    assert [path.name for path in (tmp_path / "tables").iterdir()] == [Path(winner.path).name]
    store = open_store(str(tmp_path / "database"), LOCATIONS_PROFILE, create=True)
    try:
        store.ingest([winner.path])
        assert sum(1 for _ in store.iterate()) == winner.rows == ROWS
    finally:
        store.close()


def test_two_attempts_that_both_finish_have_a_table_each(tmp_path: Path) -> None:
    task = task_over(tmp_path)
    one, other = (write_table(task, lambda _: None) for _ in range(2))
    assert one.path != other.path
    assert (one.number, one.rows, one.first_key) == (other.number, other.rows, other.first_key)
