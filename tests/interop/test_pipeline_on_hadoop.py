"""The pipeline on a released Hadoop: sets, results and reports in HDFS, and a job on YARN.

One HDFS and one YARN of this machine serve the whole module.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyarrow.dataset import dataset

from bkctl.clock import SystemClock
from bkctl.errors import ConnectionFailedError, NotFoundError, RefusedError, StorageError, UsageError
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.locations import Location, located
from bkctl.pipeline.report import write_report
from bkctl.pipeline.results import first_rows
from bkctl.pipeline.sets.export_turn import TURN_FOLDER, ExportTurn
from bkctl.pipeline.sets.partitions import PartitionedTables, day_of
from bkctl.pipeline.spark_submit import UNPACKED, submit_command
from bkctl.pipeline.tables.options import TableOptions
from bkctl.spark.java import java_home
from tests.support.hadoop_cluster import HadoopCluster, need_hdfs_client
from tests.support.pipeline_tables import same_results
from tests.support.sets import DEMO, ZK, collected, ran
from tests.support.spark_cluster import QUICK_JAVA
from tests.support.spark_results import same_as_here

pytestmark = [
    pytest.mark.thorough("starts Hadoop, which takes a minute"),
    pytest.mark.interop,
    pytest.mark.slow,
]

REPOSITORY = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("BKCTL_CLUSTER_ROUNDS") or 0)
RUN_S_MAX = 420

#: What ``spark-submit`` runs in a driver: all queries in Spark, of few rows too, and no file of this machine
#: for Spark to read or to write.
ALL_IN_SPARK = """
import sys
from bkctl.spark import engine, queries
engine.HERE_ROWS_MAX = 0
plain = queries.spark_path
def shared_path(path):
    found = plain(path)
    assert found.startswith("hdfs:"), found
    return found
queries.spark_path = shared_path
from bkctl.commands.frame.root import run
sys.exit(run(sys.argv[1:]))
"""
#: The same for a fleet whose files the driver does not look at; it fails where no task has planned.
PLANNED_BY_TASKS = """
import sys
from bkctl.spark import engine
engine.FILES_HERE_MAX = engine.SparkEngine.__init__.__kwdefaults__["files_here_max"] = 0
plain, found = engine.SparkEngine._plans, []
def plans(self, work, options):
    found.extend(plain(self, work, options))
    assert options.metadata is None and options.stored_digests.startswith("hdfs:"), options
    return found
engine.SparkEngine._plans = plans
from bkctl.commands.frame.root import run
code = run(sys.argv[1:])
assert found and all(plan.startswith("hdfs:") for plan in found), found
sys.exit(code)
"""
#: Of a small application that starts soon.
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.yarn.am.memory": "256m",
    "spark.yarn.am.extraJavaOptions": QUICK_JAVA,
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.yarn.report.interval": "200ms",
    "spark.yarn.scheduler.heartbeat.interval-ms": "500",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "1",
    "spark.executor.cores": "2",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.speculation": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopCluster]:
    need_hdfs_client()
    with HadoopCluster(tmp_path_factory.mktemp("hadoop")) as cluster:
        yield cluster


@pytest.fixture
def root(hadoop: HadoopCluster, tmp_path: Path) -> Iterator[Location]:
    """A directory of this test's own."""
    place = located(f"{hadoop.url}/{tmp_path.name}")
    yield place
    place.remove()


def test_files_are_written_read_listed_and_removed(root: Location) -> None:
    assert (root.names(), root.sizes(), root.is_directory()) == ([], {}, False)
    large = os.urandom(5 << 20)
    root.write("a b/large", large)
    root.write("a b/c/x", b"12345")
    root.write("a b/c/x", b"123456")
    assert (root.names(), root.sizes()) == (["a b"], {"a b/large": len(large), "a b/c/x": 6})
    assert root.read("a b/large", len(large)) == large
    with root.filesystem.open_input_file(f"{root.path}/a b/large") as file:
        assert file.size() == len(large)
        assert file.read_at(300, len(large) - 100) == large[-100:]
    assert (root.holds("a b/c/x"), root.holds("a b/c"), root.is_directory()) == (True, False, True)
    there = pickle.loads(pickle.dumps(root))
    assert there.read("a b/c/x", 6) == b"123456"
    with pytest.raises(StorageError, match="larger than 5 bytes"):
        root.read("a b/c/x", 5)
    for name in ("nothing", "a b"):
        with pytest.raises(NotFoundError):
            root.read(name, 5)
    with pytest.raises(NotFoundError):
        root.remove_file("nothing")
    root.remove_file("a b/c/x")
    root.child("a b").remove()
    assert (root.names(), root.is_directory()) == ([], True)
    root.child("a b").remove()


def test_tables_are_laid_out_by_bookie_and_day(root: Location) -> None:
    """Signs that a path does not bear are escaped in names of directories, and readers give them back."""
    odd = "rack 7/bookie_2=%41:3181"
    store = f"{root.text}/sets"
    one = collected(DEMO, store).complete
    other = collected(DEMO, store, options=TableOptions(metadata=str(ZK), bookie=odd)).complete
    folder = PartitionedTables(root.child("tables"))
    folder.claim()
    newer = collected(DEMO, store).complete
    states = [folder.export_set(each, ["logs"]).state for each in (one, other, other, newer)]
    assert states == ["exported", "exported", "unchanged", "kept"]
    assert folder.export_set(newer, ["logs"], replace=True).state == "replaced"
    rows = {}
    for table, column in (("logs", "log_id"), ("sets", "set_id")):
        data = dataset(f"{root.path}/tables/{table}", filesystem=root.filesystem, partitioning="hive")
        found = data.to_table(columns=["bookie", "day", column]).to_pylist()
        rows[table] = sorted((row["bookie"], row["day"], row[column]) for row in found)
    logs = [int(path.stem, 16) for path in DEMO.glob("ledgers/current/*.log")]
    sets = sorted((each.manifest.bookie, day_of(each), each.manifest.set_id) for each in (newer, other))
    assert rows["sets"] == sets
    assert rows["logs"] == sorted((bookie, day, log) for bookie, day, _ in sets for log in logs)


def test_one_export_at_a_time_writes_to_a_folder(root: Location) -> None:
    with ExportTurn(root, SystemClock()):
        with pytest.raises(RefusedError, match="of process"), ExportTurn(root, SystemClock()):
            pass
        assert len(root.child(TURN_FOLDER).written_at()) == 1
    with ExportTurn(root, SystemClock()):
        pass


def test_a_file_that_is_being_written_is_not_there_as_a_whole(root: Location) -> None:
    with root.opened("x") as stream:
        stream.write(b"1" * 1000)
        assert root.sizes() == {"x": 0}
    assert root.sizes() == {"x": 1000}


def test_what_hadoop_refuses_is_one_line(root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    from bkctl.pipeline import hdfs, locations

    root.write("x", b"1")
    with pytest.raises(StorageError) as below_a_file:
        root.child("x").write("y", b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "mallory")
    locations._filesystem.cache_clear()
    hdfs._connected.cache_clear()
    with pytest.raises(StorageError) as refused:
        located(root.text).write("y", b"1")
    locations._filesystem.cache_clear()
    hdfs._connected.cache_clear()
    assert "Permission denied: user=mallory" in str(refused.value)
    for error in (below_a_file, refused):
        assert "\n" not in str(error.value)
        assert "org.apache" not in str(error.value)
    assert root.names() == ["x"]


def test_an_address_without_a_host_is_hadoops_own(
    hadoop: HadoopCluster, root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bkctl.pipeline import hdfs

    root.write("x", b"1")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.conf))
    hdfs._connected.cache_clear()
    assert located(f"hdfs://{root.path}").read("x", 1) == b"1"
    hdfs._connected.cache_clear()


def test_addresses_where_nothing_is() -> None:
    need_hdfs_client()
    with pytest.raises(ConnectionFailedError, match=r"hdfs://127.0.0.1:9: no answer of a name node"):
        located("hdfs://127.0.0.1:9/x")
    with pytest.raises(UsageError, match="is HADOOP_CONF_DIR set"):
        located("hdfs://no-such-service/x")


@pytest.fixture(scope="module")
def sets(hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Sets of a bookie in HDFS, and of the same bookie here; a log went away before the second ones."""
    folder = tmp_path_factory.mktemp("bookie")
    bookie = Path(shutil.copytree(DEMO, folder / "bookie"))
    store = f"{hadoop.url}/sets"
    first = collected(bookie, store)
    max(bookie.glob("ledgers/current/*.log"), key=lambda path: path.stat().st_size).unlink()
    second = collected(bookie, store)
    assert (second.logs_read, second.logs_carried > 0) == (0, True), first
    collected(bookie, folder / "sets")
    return store, folder / "sets"


@pytest.mark.parametrize("job", ["replication-audit", "replica-compare", "index-audit"])
def test_audits_of_sets_in_hdfs_say_what_they_say_of_sets_here(
    job: str, sets: tuple[str, Path], root: Location, tmp_path: Path
) -> None:
    """Twice into the same directory, whose first results are replaced."""
    store, here = sets
    local = ran(job, [here], tmp_path / "o")
    there = ran(job, [store], Path("unused"), out_url=root.text_of("out"))
    same_results(local, there)
    again = ran(job, [store], Path("unused"), out_url=root.text_of("out"))
    assert again.counts == there.counts
    result = JOBS[job].result("summary")
    assert first_rows(there, result, result.order, 1)
    write_report(there, JOBS[job], root.text_of("report.html"))
    assert root.read("report.html", 1 << 22).startswith(b"<!DOCTYPE html>")
    assert not [name for name in root.sizes() if ".work" in name or "writing" in name]


@pytest.mark.skipif(not ROUNDS, reason="takes two minutes beside the next one: make soak SOAK=cluster")
@pytest.mark.timeout(2 * RUN_S_MAX)
def test_a_job_on_yarn_writes_the_rows_that_it_writes_here(
    hadoop: HadoopCluster, sets: tuple[str, Path], root: Location, tmp_path: Path
) -> None:
    """The command of ``pipeline spark-submit``, with bkctl installed on the workers."""
    program = tmp_path / "all_in_spark.py"
    program.write_text(ALL_IN_SPARK)
    installed = {"spark.pyspark.python": sys.executable, "spark.executorEnv.PYTHONPATH": str(REPOSITORY)}
    command = on_yarn("garbage", sets[0], root, None, installed)
    command[command.index("pipeline") - 1] = str(program)
    same_as_here("garbage", submitted(command, hadoop), sets[1], tmp_path)
    assert ".work" not in root.child("out").names()


@pytest.mark.timeout(2 * RUN_S_MAX)
def test_tasks_on_yarn_list_and_plan_what_the_driver_does_not_look_at(
    hadoop: HadoopCluster, root: Location, tmp_path: Path
) -> None:
    """Plans, digests and notes of logs go through HDFS, as executors have no directory of the driver's."""
    program = tmp_path / "planned_by_tasks.py"
    program.write_text(PLANNED_BY_TASKS)
    installed = {"spark.pyspark.python": sys.executable, "spark.executorEnv.PYTHONPATH": str(REPOSITORY)}
    command = on_yarn("verify", str(DEMO), root, None, installed)
    command[command.index("pipeline") - 1] = str(program)
    same_as_here("verify", submitted(command, hadoop), DEMO, tmp_path)
    assert ".work" not in root.child("out").names()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "bkctl-spark.tar.gz"
    subprocess.run([sys.executable, ".ci/spark_archive.py", str(path)], cwd=REPOSITORY, check=True)
    unpacked = path.with_name(UNPACKED)
    unpacked.mkdir()
    subprocess.run(["tar", "-xzf", str(path), "-C", str(unpacked)], check=True)
    return path


@pytest.mark.skipif(not ROUNDS, reason="takes minutes: make soak SOAK=cluster")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("what", ["sets", "files"])
def test_jobs_on_yarn_with_the_archive(
    what: str,
    job: str,
    hadoop: HadoopCluster,
    sets: tuple[str, Path],
    archive: Path,
    root: Location,
    tmp_path: Path,
) -> None:
    """The command as it is printed: containers have no Python but that of ``make spark-archive``, and the
    driver plans in the one that is unpacked where it runs."""
    store, here = (sets[0], sets[1]) if what == "sets" else (str(DEMO), DEMO)
    command = on_yarn(job, store, root, str(archive), {"spark.speculation": "true"})
    same_as_here(job, submitted(command, hadoop, archive.parent), here, tmp_path)


def on_yarn(job: str, path: str, root: Location, archive: str | None, more: Mapping[str, str]) -> list[str]:
    """Return the command of a job whose results go to a directory in HDFS."""
    words = [job, path, "--metadata", str(ZK), "--metadata-after", str(ZK)]
    return submit_command(
        [*words, "--out", root.text_of("out"), "-o", "json"],
        master="yarn",
        deploy_mode="client",
        archive=archive,
        settings={**SETTINGS, "spark.yarn.jars": f"local:{spark_home()}/jars/*", **more},
    )


def spark_home() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent)


def submitted(command: list[str], hadoop: HadoopCluster, folder: Path | None = None) -> dict[str, Any]:
    """Run a command of ``spark-submit`` in a folder; what the job says."""
    done = subprocess.run(
        [f"{spark_home()}/bin/{command[0]}", *command[1:]],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
        cwd=folder,
        env={**os.environ, "JAVA_HOME": java_home(), "HADOOP_CONF_DIR": str(hadoop.conf)},
    )
    assert done.returncode in (0, 1, 3), done.stderr[-4000:] + hadoop.words_of_containers()
    found: dict[str, Any] = json.loads(done.stdout)
    return found
