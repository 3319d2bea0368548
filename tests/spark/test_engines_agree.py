"""Spark gives the tables that this machine gives: on a bookie's files, on real bookies, on random tables."""

from __future__ import annotations

import random
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bkctl.pipeline.engine import Engine, Extraction
from bkctl.pipeline.job import Input, Parameters
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.results import Outcome, parquet_files
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.survey import survey
from bkctl.pipeline.tables.options import TableOptions
from bkctl.reporting import nobody
from bkctl.vfs import PosixFileSystem
from tests.support.audit_cases import random_case
from tests.support.pipeline_tables import run_over, same_results
from tests.support.random_tables import random_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bkctl.spark.engine import SparkEngine

DEMO = Path(__file__).parents[1] / "data" / "demo"
NOW_MS = 1_795_000_000_000


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[SparkEngine]:
    """All queries in Spark, of few rows too."""
    from bkctl.spark.engine import SparkEngine

    with SparkEngine(spark, str(tmp_path), here_rows_max=0) as found:
        yield found


def inputs() -> dict[str, Input]:
    """Every table that a job reads, once, but for the two readings of metadata."""
    of_jobs = [item for job in JOBS.values() for item in job.inputs if not item.published_only]
    found = {item.name: item for item in of_jobs if item.name != "bookies"}
    return {name: item for name, item in found.items() if not name.endswith("_after")}


def test_tables_are_read_alike(engine: SparkEngine, tmp_path: Path) -> None:
    surveyed = survey(PosixFileSystem(), [str(DEMO / "bookie1")])
    with LocalEngine(jobs=1) as local:
        for name, item in inputs().items():
            tables = []
            for reader in (local, engine):
                folder = tmp_path / reader.name / name
                folder.mkdir(parents=True)
                metadata = str(DEMO / "zk.json") if item.digest or item.snapshot else None
                options = TableOptions(
                    damage="rows", digest="auto" if item.digest else "off", metadata=metadata
                )
                paths = () if item.snapshot else surveyed.paths_with(item.source)
                reader.extract(Extraction(item, paths, options, str(folder)), nobody)
                tables.append([pq.read_table(path) for path in parquet_files(str(folder))])
            here, there = (pa.concat_tables(parts) for parts in tables)
            assert (name, here.schema.names, here.schema.types) == (
                name,
                there.schema.names,
                there.schema.types,
            )
            assert sorted(here.to_pylist(), key=repr) == sorted(there.to_pylist(), key=repr), name


def on_files(job: str, root: Path, metadata: Path, out: Path, engine: Engine) -> Outcome:
    request = Request(
        JOBS[job],
        (str(root),),
        str(out),
        str(metadata),
        str(metadata),
        Parameters(now_ms=NOW_MS),
    )
    return run_job(PosixFileSystem(), engine, request)


@pytest.mark.thorough("test_on_random_tables has the same job, and idx bookies are judged too")
@pytest.mark.corpora
def test_on_real_bookies(engine: SparkEngine, corpora: Callable[[str], Path], tmp_path: Path) -> None:
    job, root = "index-audit", corpora("db")
    with LocalEngine(jobs=1) as local:
        here = on_files(job, root / "crash", root / "zk-crash.json", tmp_path / "local", local)
    there = on_files(job, root / "crash", root / "zk-crash.json", tmp_path / "spark", engine)
    same_results(here, there)
    assert {(table.name, table.rows) for table in here.tables} == {
        (table.name, table.rows) for table in there.tables
    }


@pytest.mark.thorough("a random case of a job of test_on_random_tables")
@settings(max_examples=1, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 2**32))
def test_on_random_clusters(spark: SparkSession, seed: int) -> None:
    from bkctl.spark.engine import SparkEngine

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = random_case(random.Random(seed), ledgers=60)
        tables = case.write(folder / "tables")
        here = run_over(tables, "replication-audit", folder / "local", bookies_gone=case.gone)
        with SparkEngine(spark, name, here_rows_max=0) as engine:
            there = run_over(
                tables, "replication-audit", folder / "spark", bookies_gone=case.gone, engine=engine
            )
        same_results(here, there)


@pytest.mark.parametrize("job", JOBS)
def test_on_random_tables(engine: SparkEngine, tmp_path: Path, job: str) -> None:
    seed = zlib.crc32(job.encode())
    tables = random_tables(random.Random(seed), tmp_path / "tables")
    parameters = {"now_ms": NOW_MS, "budget_bytes": 10**13, "top": 5, "threshold": 0.5}
    here = run_over(tables, job, tmp_path / "local", **parameters)
    there = run_over(tables, job, tmp_path / "spark", engine=engine, **parameters)
    same_results(here, there)


@pytest.mark.thorough("runs a job three times; the next one goes to Spark within one")
def test_going_to_spark_in_the_middle_of_a_job_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    from bkctl.spark.engine import SparkEngine

    job = "replication-audit"
    tables = random_tables(random.Random(7), tmp_path / "tables")
    # One reading of metadata serves as the one before and the one after.
    folders = {tables / (item.source if item.snapshot else item.name) for item in JOBS[job].inputs}
    rows = sum(pq.read_metadata(path).num_rows for folder in folders for path in folder.glob("*.parquet"))
    here = run_over(tables, job, tmp_path / "local")
    # All inputs fit, so that it is a result, behind several steps, that does not.
    for bound, stays in ((rows, False), (rows + sum(table.rows for table in here.tables), True)):
        with SparkEngine(spark, str(tmp_path), here_rows_max=bound) as engine:
            there = run_over(tables, job, tmp_path / f"spark-{bound}", engine=engine)
            assert engine.queries_here is stays
        same_results(here, there)


def test_names_and_steps_are_there_after_going_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    from bkctl.spark.engine import SparkEngine

    folder = tmp_path / "numbers"
    folder.mkdir()
    pq.write_table(pa.table({"number": list(range(10))}), folder / "part-0.parquet")
    with SparkEngine(spark, str(tmp_path / "work"), here_rows_max=15) as engine:
        engine.load("few", [str(folder)])
        engine.view("even", "SELECT number FROM few WHERE number % 2 = 0")
        engine.step("total", "SELECT sum(number) AS total FROM even")
        assert engine.rows("SELECT CAST(total AS BIGINT) AS total FROM total") == [{"total": 20}]
        assert engine.queries_here
        assert not spark.catalog.tableExists("few")
        engine.load("many", [str(folder)])
        assert not engine.queries_here
        assert [spark.catalog.tableExists(name) for name in ("few", "even", "total", "many")] == [True] * 4
        assert engine.rows("SELECT CAST(total AS BIGINT) AS total FROM total") == [{"total": 20}]


def test_a_closed_engine_leaves_no_names_in_the_session(engine: SparkEngine, spark: SparkSession) -> None:
    engine.view("mine", "SELECT 1 AS one")
    engine.step("kept", "SELECT one + 1 AS two FROM mine")
    assert engine.rows("SELECT two FROM kept") == [{"two": 2}]
    engine.close()
    assert not [table.name for table in spark.catalog.listTables() if table.name in ("mine", "kept")]


def test_a_closed_engine_leaves_no_files(spark: SparkSession, tmp_path: Path) -> None:
    from bkctl.spark.engine import SparkEngine

    for bound in (0, 1):
        with SparkEngine(spark, str(tmp_path), here_rows_max=bound) as engine:
            engine.step("kept", "SELECT 2 AS two")
            assert engine.rows("SELECT two FROM kept") == [{"two": 2}]
        assert list(tmp_path.iterdir()) == []


def test_the_command_runs_a_job_in_a_session_of_its_own_master(tmp_path: Path) -> None:
    from bkctl.commands.pipeline.options import Chosen, EngineName

    chosen = Chosen((), "o", None, None, EngineName.AUTO, "sc://host:1", "auto", None, None, None, 1 << 30)
    assert chosen.on_spark(0)
    assert chosen.spark_master == "sc://host:1"
