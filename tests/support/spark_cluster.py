"""A standalone cluster of Spark's on this machine: a master and workers, as processes of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

from bkctl.spark.java import java_home
from tests.support.java_cluster import free_port
from tests.support.logged_process import LoggedProcess

REPOSITORY = Path(__file__).resolve().parents[2]
START_S_MAX = 120
_STOP_SECONDS = 30
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

#: Settings of a session on it whose executors are small and start soon.
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.pyspark.python": sys.executable,
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


class SparkCluster:
    """A master and two workers of one core each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        import pyspark

        self._folder = folder
        self._program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self._workers = workers
        self._processes: dict[str, LoggedProcess] = {}
        self.master = ""

    def __enter__(self) -> SparkCluster:
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        try:
            self._start("master", "Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
            for number in range(self._workers):
                # Each on a host of its own: a second attempt never goes to the host of the first.
                host, work = f"127.0.0.{number + 1}", str(self._folder / f"work-{number}")
                words = ("--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", "-d", work)
                self._start(f"worker-{number}", "Worker", *words, self.master)
            for number in range(self._workers):
                self._processes[f"worker-{number}"].await_log(_is_registered, START_S_MAX)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self, name: str, kind: str, *words: str) -> None:
        environment = {
            **os.environ,
            "JAVA_HOME": java_home(),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder),
        }
        command = [self._program, f"org.apache.spark.deploy.{kind.lower()}.{kind}", *words]
        log = self._folder / f"{name}.log"
        self._processes[name] = LoggedProcess(command, log, cwd=self._folder, env=environment)

    def _end(self) -> None:
        """End each with its executors, which are in its session."""
        for process in reversed(self._processes.values()):
            process.ask_to_end()
        for process in self._processes.values():
            process.await_end(_STOP_SECONDS)


def _is_registered(log: str) -> bool:
    return "Successfully registered with master" in log


def executor_of(pid: int) -> int:
    """Return the executor in which a Python worker is at work: of its forebears the one that is Java's."""
    while pid > 1:
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise AssertionError("no executor")
