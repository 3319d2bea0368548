"""Sessions in which the data source works without further settings."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import bkctl
from bkctl.errors import UsageError
from bkctl.extras import need
from bkctl.spark.connect import SCHEME, connect
from bkctl.spark.failures import failures
from bkctl.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Off by default in Spark, and then a reader that can take filters fails every query.
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"

#: Settings that every session needs. On a cluster no other is set: one of the builder would win over those
#: of ``spark-submit``, of ``spark-defaults.conf`` and of the cluster's manager.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # How long Spark and a Python worker wait for each other's first words; a busy machine takes its time.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    PUSHDOWN_SETTING: "true",
}
_LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Spark starts a task for each folder of a table where there are more than 32: most of the tasks of an
    # audit over a fleet's sets. Here they would list what this process lists as well.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.catalogImplementation": "in-memory",
}
#: Process and path of each that a session of this program has.
_warehouses: list[tuple[int, str]] = []


def session(master: str = "local[*]", app_name: str = "bkctl", **conf: str) -> SparkSession:
    """Return a session with the data source ``bookkeeper`` registered; one that runs already is used.

    ``master`` is ``local[N]``, the address of a cluster, or ``sc://host:port`` for a Spark Connect server,
    whose own settings count. ``conf`` are further settings by their full names, ``**{"spark.x": "y"}``, and
    win.

    Raises MissingPackageError without Spark, NotFoundError when there is no Java for it, UsageError for a
    setting without a dot or an address that is none, ConnectionFailedError when no Connect server listens
    there.
    """
    need("the data source for Spark", "pyspark", "pyarrow")
    from pyspark.sql import SparkSession

    strange = [name for name in conf if "." not in name]
    if strange:
        raise UsageError(f"setting {strange[0]!r}: full names of Spark's settings have dots")
    if master.startswith(SCHEME):
        found = connect(master, app_name)
        for name, value in {PUSHDOWN_SETTING: "true", **conf}.items():
            found.conf.set(name, value)
        register(found)
        return found
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**session_settings(master), **conf}.items():
        builder = builder.config(name, value)
    with _environment(master, conf.get("spark.pyspark.python")):
        found = builder.getOrCreate()
    register(found)
    return found


@contextmanager
def session_for_work(
    master: str, memory_bytes: int, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Open a session that ends with the work; an earlier one stays. Raises as :func:`session` does.

    ``memory_bytes`` bounds Java's part of a session on this machine; on a cluster its own settings do.
    ``settings`` are Spark's own and win.
    """
    conf: dict[str, str] = {}
    if on_this_machine(master):
        conf["spark.driver.memory"] = f"{max(memory_bytes >> 20, 512)}m"
        # Spark's own bars, on stderr: nobody else knows how far its tasks are.
        conf["spark.ui.showConsoleProgress"] = str(sys.stderr.isatty()).lower()
    before = _active()
    with failures():
        found = session(master, **(conf | dict(settings or {})))
    try:
        yield found
    finally:
        if before is None:
            found.stop()
            _remove_warehouses()


def _active() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None  # session() says so
    return SparkSession.getActiveSession()


def register(spark: SparkSession) -> None:
    """Make ``format("bookkeeper")`` known to a session, wherever it came from."""
    from bkctl.spark.source import BookKeeperSource

    spark.dataSource.register(BookKeeperSource)


def on_this_machine(master: str) -> bool:
    """Return whether driver and executors are processes of this machine."""
    return master.startswith("local")


def session_settings(master: str) -> dict[str, str]:
    """Return the settings of a session; those of a cluster name no host, no port and no Python."""
    settings = dict(_SETTINGS)
    if on_this_machine(master):
        settings |= _LOCAL_SETTINGS
        settings["spark.pyspark.python"] = sys.executable
        # Not on a cluster: there it has to be found before Spark has brought along what a job needs.
        settings["spark.python.daemon.module"] = "bkctl.spark.worker_daemon"
        settings["spark.sql.shuffle.partitions"] = str(max(4, 2 * (os.cpu_count() or 1)))
        settings["spark.local.dir"] = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
        if not master.startswith("local-cluster"):
            # Spark makes the secret up: in a setting everybody would see it on the command line of its Java.
            settings["spark.authenticate"] = "true"
        if _active() is None:
            settings["spark.sql.warehouse.dir"] = f"file:{_new_warehouse()}"
    return settings


def _new_warehouse() -> str:
    """Make a directory for the tables of a session, this user's alone; it goes with the process."""
    path = tempfile.mkdtemp(prefix="bkctl-spark-warehouse-")
    if not _warehouses:
        atexit.register(_remove_warehouses)
    _warehouses.append((os.getpid(), path))
    return path


def _remove_warehouses() -> None:
    for owner, path in _warehouses:
        if owner == os.getpid():  # and not a fork of it
            shutil.rmtree(path, ignore_errors=True)
    _warehouses.clear()


@contextmanager
def _environment(master: str, python: str | None = None) -> Iterator[None]:
    """Set the variables that Spark's launcher and its Python workers take, while the session starts.

    ``python`` is the setting ``spark.pyspark.python``: a driver that is Python itself goes by the variable
    alone, which ``spark-submit`` makes of the setting.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(bkctl.__file__)))
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    wanted = {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "JAVA_HOME": java_home(),
    }
    if on_this_machine(master):
        wanted["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
        wanted["SPARK_LOCAL_DIRS"] = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    if python is not None:
        wanted["PYSPARK_PYTHON"] = python
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
