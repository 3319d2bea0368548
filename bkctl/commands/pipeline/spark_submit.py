"""``bkctl pipeline spark-submit``: the command that runs a job on a cluster."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_one
from bkctl.commands.pipeline.options import SparkOptions

SUBMIT_SCHEMA: Schema = (
    Key("command", "string", "the command, as a shell takes it"),
    Key("words", "array of strings", "its words"),
)


class DeployMode(enum.StrEnum):
    """Values of ``--deploy-mode``."""

    CLIENT = "client"
    CLUSTER = "cluster"


_Words = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME PATH...",
        show_default=False,
        help="Name of a job, its paths, and after '--' other options of 'pipeline run'.",
    ),
]
_Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="Spark's master: spark://host:7077, yarn, k8s://https://host:port."
    ),
]
_Archive = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="FILE|URL",
        help="The archive that 'make spark-archive' makes. Without it, bkctl must be installed on the "
        "workers.",
    ),
]
_DeployMode = Annotated[
    DeployMode,
    typer.Option(
        "--deploy-mode",
        metavar="client|cluster",
        help="Where the driver runs: client means here, cluster means in the cluster.",
    ),
]


@takes(SUBMIT_SCHEMA)
def spark_submit_command(
    words: _Words,
    master: _Master,
    archive: _Archive = None,
    deploy_mode: _DeployMode = DeployMode.CLIENT,
    *,
    spark: SparkOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Print the spark-submit command of a job, with the archive to ship.

    The command itself runs nothing. In 'cluster' mode, --out and the paths must be URLs, or directories that
    all machines share.

    Examples:

      bkctl pipeline spark-submit --master yarn --archive env.tar.gz -- verify /nfs/bookie* --out /nfs/verify

      bkctl pipeline spark-submit --master yarn -o json -- stats /nfs/sets --out o | jq -r .command
    """
    from bkctl.commands.pipeline.options import spark_settings
    from bkctl.pipeline.spark_submit import shell_text, submit_command

    command = submit_command(
        words,
        master=master,
        deploy_mode=deploy_mode.value,
        archive=archive,
        settings=spark_settings(spark.conf, None),
        properties_file=spark.properties_file,
    )
    write_one({"command": shell_text(command), "words": command}, SUBMIT_SCHEMA, output)
