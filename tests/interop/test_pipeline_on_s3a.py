"""Audits on a standalone cluster of Spark's whose sets, steps and results are in an object store.

Python's tasks read the store by Arrow, Spark's own by Hadoop's ``s3a``; the server is moto's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.pipeline.locations import located
from bkctl.pipeline.spark_submit import submit_command
from bkctl.spark.java import java_home
from tests.support.maven_jars import maven_jars
from tests.support.s3_server import s3_bucket
from tests.support.sets import DEMO, ZK, collected
from tests.support.spark_cluster import REPOSITORY, SETTINGS, SparkCluster
from tests.support.spark_results import same_as_here

ROUNDS = int(os.environ.get("BKCTL_CLUSTER_ROUNDS") or 0)
pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(not ROUNDS, reason="takes minutes: make soak SOAK=cluster"),
    pytest.mark.timeout(0),
]

RUN_S_MAX = 420
FOLDER = Path(__file__).parent / "s3a"
#: All queries in Spark, of few rows too, and no file of this machine for Spark to read or to write.
ALL_IN_SPARK = """
import sys
from bkctl.spark import engine, queries
engine.HERE_ROWS_MAX = 0
plain = queries.spark_path
def shared_path(path):
    found = plain(path)
    assert found.startswith("s3a:"), found
    return found
queries.spark_path = shared_path
from bkctl.commands.frame.root import run
sys.exit(run(sys.argv[1:]))
"""
JOBS = ("replication-audit", "garbage", "index-audit", "replica-compare", "stats")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.mark.parametrize("job", JOBS)
def test_a_job_writes_the_rows_that_it_writes_here(
    job: str, cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    jars = maven_jars(FOLDER)
    with s3_bucket("audits", monkeypatch) as parameters:
        store, out = (f"s3://audits/{name}?{parameters}" for name in ("sets", "out"))
        collected(bookie, store)
        collected(bookie, tmp_path / "sets")
        words = [job, store, "--metadata", str(ZK), "--metadata-after", str(ZK), "--out", out, "-o", "json"]
        command = submit_command(
            words,
            master=cluster.master,
            deploy_mode="client",
            archive=None,
            settings={**SETTINGS, **s3a_settings(jars)},
        )
        program = tmp_path / "all_in_spark.py"
        program.write_text(ALL_IN_SPARK)
        command[command.index("pipeline") - 1] = str(program)
        same_as_here(job, submitted(command), tmp_path / "sets", tmp_path)
        assert ".work" not in located(out).names()


def s3a_settings(jars: Path) -> dict[str, str]:
    """Return the settings of a session that reads the store and of its tasks; the URL says where it is."""
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED")
    return {
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        **{f"spark.executorEnv.{key}": os.environ[key] for key in keys},
        "spark.hadoop.fs.s3a.attempts.maximum": "2",
    }


def submitted(command: list[str]) -> dict[str, Any]:
    """Run a command of ``spark-submit``; what the job says."""
    import pyspark

    done = subprocess.run(
        [f"{Path(pyspark.__file__).parent}/bin/{command[0]}", *command[1:]],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
        env={**os.environ, "JAVA_HOME": java_home()},
    )
    assert done.returncode in (0, 1, 3), done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found
