"""The command for ``spark-submit``: what it ships, what it sets, and what settings of one's own win over."""

from __future__ import annotations

import shlex
from pathlib import Path

from bkctl.pipeline.spark_submit import shell_text, submit_command


def test_the_command_ships_the_archive_and_runs_the_job_in_its_interpreter() -> None:
    words = ["orphans", "s3://a/my sets", "--out", "/nfs/o"]
    command = submit_command(
        words,
        master="yarn",
        deploy_mode="cluster",
        archive="hdfs:///apps/bkctl.tar.gz",
        settings={"spark.speculation": "false", "spark.x.y": "a b"},
    )
    assert command == shlex.split(shell_text(command))
    assert command[command.index("--archives") + 1] == "hdfs:///apps/bkctl.tar.gz#bkctl-env"
    conf = [command[at + 1] for at, word in enumerate(command) if word == "--conf"]
    assert "spark.pyspark.python=./bkctl-env/bin/python3" in conf
    assert "spark.yarn.appMasterEnv.PYSPARK_PYTHON=./bkctl-env/bin/python3" in conf
    assert "spark.speculation=false" in conf
    assert "spark.x.y=a b" in conf
    at = command.index("pipeline")
    assert Path(command[at - 1]).is_file()
    assert command[at:] == ["pipeline", "run", *words, "--engine", "spark", "--master", "yarn"]


def test_a_driver_here_is_this_interpreter_and_nothing_is_shipped_that_was_not_named() -> None:
    command = submit_command(
        ["stats"], master="spark://h:7077", deploy_mode="client", archive=None, settings={}
    )
    assert "--archives" not in command
    assert [word for word in command if word.startswith("spark.pyspark.driver.python=/")]
    assert not [word for word in command if word.startswith("spark.pyspark.python=")]
