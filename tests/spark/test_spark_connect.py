"""Jobs through a Spark Connect server, which is a process of its own; its client, as people start it, too."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bkctl.errors import ConnectionFailedError, MissingPackageError, UsageError
from bkctl.spark.connect import connect
from bkctl.spark.java import java_home
from tests.support.java_cluster import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = Path(__file__).parents[1] / "data" / "demo"
START_S_MAX = 120

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server on two cores whose Python has ``bkctl``."""
    import pyspark

    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", SERVER]
    command += ["--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {
        **os.environ,
        "JAVA_HOME": java_home(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    try:
        _await_port(process, port, folder / "log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.1)
        else:
            return


#: ``bkctl`` with all queries in Spark, of few rows too.
QUERIES_IN_SPARK = (
    "from bkctl.spark import engine; engine.HERE_ROWS_MAX = 0; import bkctl.cli; bkctl.cli.main()"
)


def _run(job: str, out: Path, *options: str, program: tuple[str, str] = ("-m", "bkctl")) -> dict[str, Any]:
    """A job over the demo's bookie, in a process of its own: one with a session cannot have a remote one."""
    command = ["pipeline", "run", job, str(DEMO / "bookie1"), "--metadata", str(DEMO / "zk.json")]
    done = subprocess.run(
        [sys.executable, *program, *command, "--out", str(out), "-o", "json", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode in {0, 1, 3}, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.thorough("starts a server of its own and two sessions")
def test_a_job_gives_over_connect_what_it_gives_here(server: str, tmp_path: Path) -> None:
    here = _run("garbage", tmp_path / "here", "--engine", "local")
    on_server = ("--engine", "spark", "--master", server)
    _same(here, _run("garbage", tmp_path / "there", *on_server))
    in_spark = _run("garbage", tmp_path / "in-spark", *on_server, program=("-c", QUERIES_IN_SPARK))
    _same(here, in_spark)
    # Each of Spark's tasks writes a file of its own, with its number in the name.
    (summary,) = (table for table in in_spark["tables"] if table["name"] == "summary")
    assert [path.name[:11] for path in Path(summary["path"]).glob("*.parquet")] == ["part-00000-"]


def _same(here: dict[str, Any], there: dict[str, Any]) -> None:
    for key in ("verdict", "exit_code", "counts", "found"):
        assert there[key] == here[key], key
    assert there["engine"] == "spark"
    rows = {}
    for told in (here, there):
        for table in told["tables"]:
            files = sorted(Path(table["path"]).glob("*.parquet"))
            found = [str(row) for path in files for row in pq.read_table(path).to_pylist()]
            rows.setdefault(table["name"], []).append(sorted(found))
    assert len(rows) > 5
    assert any(first for first, _ in rows.values())
    for name, (first, second) in rows.items():
        assert first == second, name


def test_a_server_that_is_not_there_is_told_at_once(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    address = f"sc://127.0.0.1:{free_port()}"
    result = run_cli(
        *("pipeline", "run", "inventory", DEMO / "bookie1", "--out", tmp_path / "out"),
        *("--engine", "spark", "--master", address),
    )
    assert result.exit_code == ConnectionFailedError.exit_code
    assert f"no Spark Connect server at {address} " in result.stderr


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "host:99999", "[::1"])
def test_a_token_in_an_address_is_not_printed(host: str) -> None:
    address = f"sc://{host.format(port=free_port())}/;token=SECRET"
    with pytest.raises((ConnectionFailedError, UsageError)) as caught:
        connect(address, "test")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("address", ["sc://", "sc://:15002", "sc://host:port", "sc://host:99999"])
def test_what_is_no_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match="sc://"):
        connect(address, "tests")


def test_a_client_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_status", None)
    # A process that was not started from a file, as those of pytest-xdist, is a doctest to pyspark.
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"sc://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(MissingPackageError, match=r"bkctl\[spark-connect\]"):
            connect(address, "tests")
