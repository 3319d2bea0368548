"""The command that runs a job by ``spark-submit``, with the archive that brings ``bkctl`` along."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence

import bkctl

#: The directory beside a task into which Spark unpacks the archive.
UNPACKED = "bkctl-env"
_PYTHON = f"./{UNPACKED}/bin/python3"


def submit_command(
    words: Sequence[str],
    *,
    master: str,
    deploy_mode: str,
    archive: str | None,
    settings: Mapping[str, str],
    properties_file: str | None = None,
) -> list[str]:
    """Return ``spark-submit`` with its options and the words of ``bkctl pipeline run``.

    ``archive`` is one of ``make spark-archive``, as a path or a URL that the cluster reads; without one, the
    executors have ``bkctl`` installed. The values in ``settings`` win.
    """
    conf = {"spark.sql.python.filterPushdown.enabled": "true", "spark.speculation": "true"}
    if archive is not None:
        conf["spark.pyspark.python"] = _PYTHON
        conf["spark.executorEnv.PYTHONPATH"] = ""
        if master.startswith("yarn") and deploy_mode == "cluster":
            conf["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] = _PYTHON
        elif deploy_mode == "cluster":
            conf["spark.pyspark.driver.python"] = _PYTHON
    if deploy_mode == "client":
        conf["spark.pyspark.driver.python"] = sys.executable
    conf.update(settings)
    command = ["spark-submit", "--master", master, "--deploy-mode", deploy_mode]
    command += ["--name", f"bkctl {words[0]}" if words else "bkctl"]
    if properties_file is not None:
        command += ["--properties-file", properties_file]
    if archive is not None:
        command += ["--archives", f"{archive}#{UNPACKED}"]
    for name, value in sorted(conf.items()):
        command += ["--conf", f"{name}={value}"]
    package = os.path.dirname(os.path.abspath(bkctl.__file__))
    command.append(os.path.join(package, "commands", "pipeline", "submitted.py"))
    return [*command, "pipeline", "run", *words, "--engine", "spark", "--master", master]


def shell_text(command: Sequence[str]) -> str:
    """Return a command as people type it."""
    return " ".join(map(shlex.quote, command))
