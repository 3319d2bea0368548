"""How the reading of tables is cut into tasks, and what a process loads that does nothing but that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import TABLES
from tests.support.log_builder import simple_log

DEMO = Path(__file__).parents[3] / "data" / "demo" / "bookie1"


def test_ledgers_maps_are_read_in_one_task_and_logs_that_are_written_in_others(tmp_path: Path) -> None:
    for directory in ("one", "two"):
        current = tmp_path / directory / "current"
        current.mkdir(parents=True)
        for log_id in range(5):
            (current / f"{log_id:x}.log").write_bytes(simple_log(rolled=log_id < 4).data)
    options = TableOptions(digest="off", split_bytes=1)
    splits = TABLES["log_ledgers"].plan([str(tmp_path)], options)
    files = [[(Path(file.dir).parent.name, file.id) for file in split.files] for split in splits]
    assert files == [
        [("one", 4)],
        [("two", 4)],
        [(directory, log_id) for directory in ("one", "two") for log_id in range(4)],
    ]
    assert len(TABLES["runs"].plan([str(tmp_path)], options)) == 10
    assert len(TABLES["logs"].plan([str(tmp_path)], options)) == 1


def test_each_path_is_read_for_what_it_holds() -> None:
    """A ledger and a journal directory beside each other: both used to be left out, and all was "clean"."""
    paths = [str(DEMO / "ledgers"), str(DEMO / "journal")]
    for table in ("verification", "damage"):
        splits = TABLES[table].plan(paths, TableOptions(digest="off"))
        held = {(split.kind, Path(file.path).suffix) for split in splits for file in split.files}
        assert held == {("entry_log", ".log"), ("journal", ".txn"), ("index", "")}


def test_planning_does_not_load_pandas() -> None:
    """Spark plans each reading of a table in a fresh process; pandas takes half a second of it."""
    statement = "import sys, bkctl.pipeline.tables.registry; print('pandas' in sys.modules)"
    command = [sys.executable, "-c", statement]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
