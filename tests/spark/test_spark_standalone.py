"""Jobs on a standalone cluster of two workers, of whose executors one is killed in the middle of a task while
another task stands still until a second attempt overtakes it.

A round takes half a minute and more: ``make soak SOAK=cluster`` runs as many as ``BKCTL_CLUSTER_ROUNDS``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.log_builder import EntryLogBuilder, entry_body
from tests.support.sets import ZK
from tests.support.spark_cluster import REPOSITORY, SETTINGS, SparkCluster, executor_of

ROUNDS = int(os.environ.get("BKCTL_CLUSTER_ROUNDS") or 0)
SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 1)
pytestmark = [
    pytest.mark.skipif(not ROUNDS, reason="takes minutes: make soak SOAK=cluster"),
    pytest.mark.timeout(0),
]

LOGS = 6
ENTRIES = 200
RUN_S_MAX = 300
#: Each reads every log by a task of its own.
JOBS = ("verify", "inventory", "replication-audit")

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "500ms",
}

#: ``bkctl`` that makes a task of each small log; with ``HERE_ROWS_MAX=0`` all queries are Spark's.
IN_SMALL_TASKS = """
import os
from bkctl.spark import engine
plain = engine.option_texts
engine.option_texts = lambda options: {**plain(options), "splitBytes": "1000"}
engine.HERE_ROWS_MAX = int(os.environ.get("HERE_ROWS_MAX", engine.HERE_ROWS_MAX))
from bkctl.cli import main
main()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of one ledger each; in one of them a byte is not what it was."""
    folder = tmp_path_factory.mktemp("bookie")
    current = folder / "current"
    current.mkdir(parents=True)
    (current / "lastMark").write_bytes(bytes(16))
    for log_id in range(LOGS):
        log = EntryLogBuilder()
        for entry in range(ENTRIES):
            log.add(entry_body(log_id, entry, bytes(50)))
        data = bytearray(log.roll().data)
        if log_id == 1:
            data[5000] ^= 1
        (current / f"{log_id:x}.log").write_bytes(bytes(data))
    return folder


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_killed_executor_and_a_second_attempt_change_no_row(
    cluster: SparkCluster, bookie: Path, tmp_path: Path, number: int
) -> None:
    chance = random.Random(SEED * 1000 + number)
    killed, slow = (f"{log_id:x}.log" for log_id in chance.sample(range(LOGS), 2))
    job, in_spark = JOBS[number % len(JOBS)], chance.random() < 0.5
    print(f"round {number}: {job}, killed at {killed}, slow at {slow}, queries in Spark: {in_spark}")
    gate = tmp_path / "gate"
    gate.mkdir()
    for name in (killed, slow):
        (gate / f"{name}.stall").touch()
    environment = {**os.environ, **({"HERE_ROWS_MAX": "0"} if in_spark else {})}
    here = subprocess.Popen(
        [*command(job, bookie, tmp_path / "here"), "--engine", "local", "--jobs", "1"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    there = subprocess.Popen(
        [*command(job, bookie, tmp_path / "there"), "--master", cluster.master, *conf(gate, tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "stderr").open("wb"),
        text=True,
        env=environment,
    )
    try:
        table, worker = stalled(gate, killed, there, tmp_path)
        os.kill(executor_of(worker), signal.SIGKILL)
        slow_table, _ = stalled(gate, slow, there, tmp_path)
        told = [json.loads(process.communicate(timeout=RUN_S_MAX)[0]) for process in (here, there)]
    finally:
        for process in (here, there):
            process.kill()
            process.wait(30)
    assert [one["engine"] for one in told] == ["local", "spark"]
    for key in ("verdict", "counts", "found", "exit_code"):
        assert told[1][key] == told[0][key], key
    assert rows(told[1]) == rows(told[0])
    for attempts in (f"{killed}.attempt-{table}-*", f"{slow}.attempt-{slow_table}-*"):
        assert len(list(gate.glob(attempts))) >= 2, attempts


def command(job: str, place: Path, out: Path) -> list[str]:
    words = ["pipeline", "run", job, str(place), "--bookie", "b1:3181", "--out", str(out), "-o", "json"]
    if job == "replication-audit":
        words += ["--metadata", str(ZK)]
    return [sys.executable, "-c", IN_SMALL_TASKS, *words]


def conf(gate: Path, folder: Path) -> list[str]:
    """Return the settings of a run, as options."""
    settings = {
        **SETTINGS,
        **SPECULATION,
        "spark.python.daemon.module": "tests.support.gated_worker_daemon",
        "spark.executorEnv.BKCTL_GATE": str(gate),
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def stalled(gate: Path, name: str, process: subprocess.Popen[str], folder: Path) -> tuple[str, int]:
    """Wait until a task stands still; the table that it reads, and its process."""
    until = time.monotonic() + RUN_S_MAX
    while not (found := list(gate.glob(f"{name}.stalled-*"))):
        assert process.poll() is None, (folder / "stderr").read_text()[-4000:]
        assert time.monotonic() < until, (folder / "stderr").read_text()[-4000:]
        time.sleep(0.05)
    _, table, process_id = found[0].name.split("-")
    return table, int(process_id)


def rows(told: dict[str, Any]) -> dict[str, list[str]]:
    """Return the rows of every table that was read or written."""
    return {
        table["name"]: sorted(
            str(row)
            for path in Path(table["path"]).glob("*.parquet")
            for row in pq.read_table(path).to_pylist()
        )
        for table in told["tables"]
    }
