"""``bkctl pipeline run --engine spark`` as people type it, in the session that the tests have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from bkctl.errors import BkctlError, CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.spark.failures import as_ours
from tests.support.cluster_dumps import marked_copy
from tests.support.manifest import index_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., Any]

DEMO = Path(__file__).parents[1] / "data" / "demo"
ON_SPARK = ("--engine", "spark", "--master", "local[2]", "-o", "json")


@pytest.fixture
def shared(spark: SparkSession) -> Iterator[SparkSession]:
    """The tests' session, with its settings as they were: a command sets those of its own."""
    kept = {name: str(spark.conf.get(name)) for name in ("spark.sql.shuffle.partitions",)}
    yield spark
    for name, value in kept.items():
        spark.conf.set(name, value)


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1"))


def test_indexes_are_rebuilt_and_the_session_that_was_there_stays(
    run_cli: Run, shared: SparkSession, bookie: Path, tmp_path: Path
) -> None:
    current = bookie / "ledgers" / "current"
    before = sorted(index_rows(current))
    shutil.rmtree(current / "locations")
    dump = marked_copy(DEMO / "zk.json", tmp_path / "zk.json")
    command = ("pipeline", "run", "index-rebuild", bookie, "--metadata", dump, *ON_SPARK)
    dry = run_cli(*command, "--out", tmp_path / "dry", "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    assert not (current / "locations").exists()
    result = run_cli(*command, "--out", tmp_path / "out", "--yes")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["engine"], told["verdict"]) == ("spark", "clean")
    assert told["metadata"] == str(dump)
    assert told["counts"]["rows"] == len(before) > 0
    assert sorted(index_rows(current)) == before
    (table,) = told["tables"]
    assert (
        sum(len(pq.read_table(path)) for path in Path(table["path"]).glob("*.parquet")) == table["rows"] == 1
    )
    assert shared.sql("SELECT 1 AS one").collect()[0].one == 1


def test_a_job_says_on_spark_what_it_says_here(
    run_cli: Run, shared: SparkSession, bookie: Path, tmp_path: Path
) -> None:
    log = max((bookie / "ledgers" / "current").glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[1024 + 4 + 40] ^= 1  # in the first entry, behind its header
    log.write_bytes(bytes(data))
    told = {}
    for where in (ON_SPARK, ("--engine", "local", "--jobs", "1", "-o", "json")):
        out = tmp_path / where[1]
        result = run_cli("pipeline", "run", "verify", bookie, "--out", out, *where)
        assert result.exit_code == 3, result.stderr  # without metadata not every digest can be checked
        told[where[1]] = json.loads(result.stdout)
        assert not (out / ".work").exists()
    assert told["spark"]["counts"] == told["local"]["counts"]
    assert told["spark"]["found"] == told["local"]["found"] == ["bad_entries", "unchecked"]
    for here, there in zip(told["local"]["tables"], told["spark"]["tables"], strict=True):
        schemas = [pq.read_schema(next(Path(table["path"]).glob("*.parquet"))) for table in (here, there)]
        assert (here["name"], schemas[0].names, schemas[0].types) == (
            there["name"],
            schemas[1].names,
            schemas[1].types,
        )


def test_what_fails_in_a_task_has_the_exit_code_and_the_words_it_has_here(
    run_cli: Run, shared: SparkSession, bookie: Path, tmp_path: Path
) -> None:
    dump = tmp_path / "zk.json"
    dump.write_text("{no dump")
    command = ("pipeline", "run", "replication-audit", bookie, "--metadata", dump)
    here = run_cli(*command, "--out", tmp_path / "local", "--engine", "local", "--jobs", "1")
    there = run_cli(*command, "--out", tmp_path / "spark", *ON_SPARK)
    assert there.exit_code == here.exit_code != 0
    assert there.stderr == here.stderr
    assert str(dump) in there.stderr


@pytest.mark.parametrize(
    ("raised", "exit_code"),
    [
        (NotFoundError("/x: no such file or directory"), 6),
        (UsageError("option digest: what?"), 2),
        (StorageError("/x/0.log: Input/output error"), 7),
        (CorruptionError("entry log header", offset=7, expected="BKLO", found="0000", path="/x/0.log"), 1),
        (CorruptionError("metadata", offset=0, found="nothing"), 1),
    ],
)
def test_an_error_of_ours_comes_back_out_of_a_traceback(raised: BkctlError, exit_code: int) -> None:
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown\nTraceback (most recent call last):\n"
        f'  File "worker.py", line 3, in read\n{type(raised).__module__}.{type(raised).__name__}: {raised}\n'
    )
    found = as_ours(text)
    assert (type(found), str(found), found.exit_code) == (type(raised), str(raised), exit_code)


def test_other_errors_of_spark_are_short() -> None:
    found = as_ours("[SPARK_X] Job aborted\n\n" + "\tat org.apache.spark.Foo\n" * 90)
    assert isinstance(found, StorageError)
    assert str(found).startswith("Spark: [SPARK_X] Job aborted")
    assert len(str(found)) < 200


def test_executors_without_our_package_are_told_as_such() -> None:
    found = as_ours("[PYTHON_EXCEPTION] x\nModuleNotFoundError: No module named 'bkctl.spark'\n")
    assert isinstance(found, NotFoundError)
    assert "docs/spark.md" in str(found)


@pytest.mark.thorough("tests/spark/test_spark_paths.py has the schemes without a session")
def test_paths_of_this_machine_are_its_own_whatever_the_default_file_system(
    shared: SparkSession, bookie: Path, tmp_path: Path
) -> None:
    """A path without a scheme would be looked for on the cluster's default file system."""
    from bkctl.pipeline.jobs.catalogue import JOBS
    from bkctl.pipeline.run import run_job
    from bkctl.pipeline.run_request import Request
    from bkctl.spark.engine import SparkEngine
    from bkctl.vfs import PosixFileSystem

    shared.conf.set("fs.defaultFS", "hdfs://127.0.0.1:9")
    try:
        with SparkEngine(shared, str(tmp_path / "o"), here_rows_max=0) as engine:
            request = Request(JOBS["orphans"], (str(bookie),), str(tmp_path / "o"), str(DEMO / "zk.json"))
            outcome = run_job(PosixFileSystem(), engine, request)
    finally:
        shared.conf.unset("fs.defaultFS")
    assert outcome.counts["ledgers"] > 0


def test_settings_of_spark_are_taken_from_a_file_and_from_the_command_line(
    run_cli: Run, shared: SparkSession, bookie: Path, tmp_path: Path
) -> None:
    from bkctl.commands.pipeline.options import spark_settings

    file = tmp_path / "spark.conf"
    file.write_text("# ours\nspark.sql.shuffle.partitions  3\nspark.x.y=z w\n\n")
    assert spark_settings(["spark.x.y=1=2"], str(file)) == {
        "spark.sql.shuffle.partitions": "3",
        "spark.x.y": "1=2",
    }
    command = ("pipeline", "run", "orphans", bookie, "--metadata", DEMO / "zk.json", "--out", tmp_path / "o")
    result = run_cli(*command, "--properties-file", file, "--master", "local[2]", "-o", "json")
    assert result.exit_code in (0, 1), result.stderr
    assert json.loads(result.stdout)["engine"] == "spark"
    assert shared.conf.get("spark.sql.shuffle.partitions") == "3"
    refused = run_cli(*command, "--conf", "partitions=3")
    assert (refused.exit_code, "--conf" in refused.stderr) == (2, True)
    refused = run_cli(*command, "--conf", "spark.x=3", "--engine", "local")
    assert (refused.exit_code, "--engine local" in refused.stderr) == (2, True)


@pytest.mark.thorough("the jobs are in test_on_random_tables, sets in tests/unit/pipeline/sets")
@pytest.mark.parametrize("job", ["replication-audit", "replica-compare"])
def test_a_job_over_sets_says_in_spark_what_it_says_here(
    job: str, shared: SparkSession, bookie: Path, tmp_path: Path
) -> None:
    """All queries in Spark, stripes that are taken apart included."""
    from bkctl.spark.engine import SparkEngine
    from tests.support.pipeline_tables import same_results
    from tests.support.sets import collected, ran

    max(bookie.glob("ledgers/current/*.log"), key=lambda path: path.stat().st_size).unlink()
    collected(bookie, tmp_path / "sets")
    here = ran(job, [tmp_path / "sets"], tmp_path / "here")
    with SparkEngine(shared, str(tmp_path / "there"), here_rows_max=0) as engine:
        there = ran(job, [tmp_path / "sets"], tmp_path / "there", engine=engine)
    same_results(here, there)


def test_with_an_exchange_spark_reads_and_writes_no_table_elsewhere(
    shared: SparkSession, bookie: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What executors on other machines could not see: tables of the run and steps; a dump is read here."""
    from bkctl.pipeline.locations import located
    from bkctl.spark import queries
    from bkctl.spark.engine import SparkEngine
    from bkctl.spark.exchange import Exchange
    from tests.support.pipeline_tables import same_results
    from tests.support.sets import ran

    seen = []
    plain = queries.spark_path
    monkeypatch.setattr(queries, "spark_path", lambda path: seen.append(plain(path)) or seen[-1])
    here = ran("orphans", [bookie], tmp_path / "here")
    place = located(str(tmp_path / "exchange"))
    with SparkEngine(shared, str(tmp_path / "w"), here_rows_max=0, exchange=Exchange(place)) as engine:
        there = ran("orphans", [bookie], tmp_path / "there", engine=engine)
    same_results(here, there)
    assert len(seen) > 5
    assert {path for path in seen if not path.startswith(f"file:{place.path}/")} == set()
    assert not (tmp_path / "exchange").exists()
    assert not (tmp_path / "w").exists()
