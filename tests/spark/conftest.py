"""One Spark session for all tests that need one: it takes ten seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

#: What Spark's own Python code warns of: sockets that py4j leaves to the garbage collector, and the like.
SPARK_WARNINGS = (
    "ignore:unclosed <socket.socket:ResourceWarning",
    "ignore:unclosed file <_io.BufferedWriter:ResourceWarning",
    "ignore:subprocess [0-9]+ is still running:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)

#: What starting a session sets for Spark's processes, and sets back.
KEPT_VARIABLES = ("JAVA_HOME", "PYTHONPATH", "PYSPARK_PYTHON", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """None of their warnings is ours. One worker runs them all (``pytest_xdist_make_scheduler``)."""
    for item in items:
        if HERE in item.path.parents:
            for warning in SPARK_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session as operators get it, on two cores."""
    from bkctl.spark import session

    before = {name: os.environ.get(name) for name in KEPT_VARIABLES}
    found = session(
        "local[2]",
        "tests",
        **{
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.driver.memory": "1g",
            # Short queries on small data: compiling their code would take most of the time. Spark interprets
            # expressions only under test.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.testing=true",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.default.parallelism": "2",
        },
    )
    assert before == {name: os.environ.get(name) for name in KEPT_VARIABLES}
    yield found
    gateway = found.sparkContext._gateway
    found.stop()
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(30)
