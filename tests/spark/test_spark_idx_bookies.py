"""Bookies over ``.idx`` files in several directories: Spark judges them as this machine does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.results import Outcome
from bkctl.pipeline.tables.options import TableOptions
from bkctl.storage_kinds import IDX
from tests.support.convertible_bookie import ConvertibleBookie
from tests.support.idx_bookie import flip_header, flip_slot, gather_indexes, index_file, locations_of, logs_of
from tests.support.pipeline_tables import same_results, write_tables
from tests.support.sets import collected, ran

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Jobs over indexes, and what they count of the faults below: a log that is gone, three index files.
JOBS = {
    "index-audit": ("dangling", "missing", "mismatched", "lost_ledgers"),
    "journal-forensics": ("unindexed", "lost"),
}


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = ConvertibleBookie.make(tmp_path_factory.mktemp("idx") / "bookie", IDX, 3).root
    # Of ledgers whose index files stay whole; the first directory, which is read alone too, keeps its logs.
    named = Counter(log for ledger, _, log, _ in locations_of(root) if ledger in (1, 2))
    logs = {log: path for log, path in logs_of(root).items() if path.parts[-3] != "l0"}
    logs[max(logs, key=lambda log: named[log])].unlink()
    flip_slot(index_file(root, 4), 2, bit=3)
    flip_header(index_file(root, 6))
    index_file(root, 5).unlink()
    gather_indexes(root, "l0")
    return root


@pytest.fixture
def metadata(tmp_path: Path) -> str:
    """Tables of metadata that place the ledger without an index file on the bookie."""
    return str(write_tables(tmp_path / "zk", fragments=[{"ledger": 5, "bookie": "bookie:3181"}]))


def on_spark(
    spark: SparkSession, job: str, path: object, out: Path, files_here_max: int, metadata: str
) -> Outcome:
    from bkctl.spark.engine import SparkEngine

    with SparkEngine(spark, str(out / ".work"), here_rows_max=0, files_here_max=files_here_max) as engine:
        return ran(job, [path], out, engine=engine, metadata=metadata)


@pytest.mark.parametrize(
    ("job", "files_here_max"),
    [
        pytest.param(
            "index-audit",
            2,
            id="index-audit, tasks look",
            marks=pytest.mark.thorough("test_on_random_tables has the job, test_driver_work.py the look"),
        ),
        pytest.param("journal-forensics", 10_000, id="journal-forensics, the driver looks"),
    ],
)
def test_spark_finds_what_this_machine_finds(
    spark: SparkSession,
    bookie: Path,
    metadata: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    files_here_max: int,
) -> None:
    """Also where it is given a path that begins at the working directory: its tables have absolute ones."""
    monkeypatch.chdir(bookie.parent)
    there = on_spark(spark, job, bookie.name, tmp_path / "spark", files_here_max, metadata)
    with LocalEngine(jobs=1) as local:
        here = ran(job, [bookie], tmp_path / "here", engine=local, metadata=metadata)
    same_results(here, there)
    assert here.verdict == "found"
    assert set(here.found) == set(JOBS[job])


@pytest.mark.thorough("runs three audits; tests/unit/pipeline/test_audits_of_idx_files.py has them here")
def test_spark_judges_a_set_and_leaves_a_part_of_a_bookie_alone(
    spark: SparkSession, bookie: Path, metadata: str, tmp_path: Path
) -> None:
    collected(bookie, tmp_path / "sets", options=TableOptions(damage="rows"))
    whole = on_spark(spark, "index-audit", tmp_path / "sets", tmp_path / "spark", 10_000, metadata)
    with LocalEngine(jobs=1) as local:
        same_results(ran("index-audit", [bookie], tmp_path / "here", engine=local, metadata=metadata), whole)
    partly = on_spark(spark, "index-audit", bookie / "l0", tmp_path / "partly", 10_000, metadata)
    assert (partly.verdict, partly.found) == ("unexamined", ("dirs_without_index",))
