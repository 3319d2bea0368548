"""A local session is nobody else's: its parts authenticate each other, its tables have their own place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bkctl.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]

#: Prints what it found while the session ran; a table is in the warehouse.
PROGRAM = """
import json, os, stat
from bkctl.spark.local_session import session_for_work
with session_for_work("local[1]", 512 << 20) as spark:
    place = spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
    spark.range(3).write.saveAsTable("three")
    found = {
        "place": place,
        "mode": stat.S_IMODE(os.stat(place).st_mode),
        "rows": spark.table("three").count(),
        "authenticate": spark.sparkContext.getConf().get("spark.authenticate"),
        "command": open(f"/proc/{spark.sparkContext._gateway.proc.pid}/cmdline").read(),
    }
found["left"] = os.path.exists(place)
print(json.dumps(found))
"""


@pytest.mark.thorough("starts a session of its own; the next ones look at the one of all tests")
def test_a_session_for_work_is_authenticated_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["authenticate"] == "true"
    assert "authenticate.secret" not in found["command"]
    assert found["mode"] == 0o700
    assert found["place"].startswith(f"{tmp_path}/bkctl-spark-warehouse-")
    assert found["rows"] == 3
    assert not found["left"]


def test_the_tests_session_is_authenticated(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"
    assert spark.range(10).repartition(2).count() == 10


def test_a_warehouse_is_made_anew_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_session.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(local_session, "_warehouses", [])
    planted = tmp_path / f"bkctl-spark-warehouse-{os.getuid()}"
    planted.symlink_to(tmp_path / "elsewhere")
    paths = {Path(local_session._new_warehouse()) for _ in range(2)}
    assert len(paths) == 2
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o700}
    local_session._warehouses.append((1, str(tmp_path)))  # of the process that this one was forked from
    local_session._remove_warehouses()
    assert list(tmp_path.iterdir()) == [planted]


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "yarn", "k8s://https://10.0.0.1:6443"])
def test_a_cluster_is_given_no_host_no_port_and_no_python(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of a builder win over the cluster's own: executors would call their driver on themselves."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    before = os.environ.get("SPARK_LOCAL_IP")
    settings = local_session.session_settings(master)
    assert not [name for name in settings if "host" in name or "Address" in name or "port" in name]
    assert "spark.pyspark.python" not in settings
    with local_session._environment(master):
        assert "PYSPARK_PYTHON" not in os.environ
        assert os.environ.get("SPARK_LOCAL_IP") == before
    assert local_session.session_settings("local[2]")["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize(("master", "listed_by_tasks"), [("yarn", True), ("local[2]", False)])
def test_folders_are_listed_by_tasks_on_a_cluster_alone(master: str, listed_by_tasks: bool) -> None:
    settings = local_session.session_settings(master)
    threshold = int(settings.get("spark.sql.sources.parallelPartitionDiscovery.threshold", 32))
    assert (threshold < 500) == listed_by_tasks


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "local[2]"])
def test_the_python_of_a_setting_is_that_of_the_workers(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is Python goes by the variable alone: with the setting alone workers were ``python3``."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/another/python")
    with local_session._environment(master, "/opt/bkctl/bin/python"):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/bkctl/bin/python"
    assert os.environ["PYSPARK_PYTHON"] == "/another/python"
