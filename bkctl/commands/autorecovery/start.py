"""``bkctl autorecovery start``: a candidate for auditor and a replication worker, in the foreground."""

from __future__ import annotations

import dataclasses
import signal
import sys
from typing import TYPE_CHECKING

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions, bookie_config, log_notice
from bkctl.commands.frame.log_output import LogFormatOption, logging_to_stderr
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_one

if TYPE_CHECKING:
    from bkctl.server.life.autorecovery_process import AutoRecoveryStart

START_SCHEMA: Schema = (
    Key("name", "string", "name on its vote in the election of the auditor"),
    Key("uri", "string", "metadata URI"),
    Key("http_port", "int or null", "port of the HTTP admin, null without one"),
)


def register(app: typer.Typer) -> None:
    """Add the command to its noun."""
    app.command("start")(start_command)


@takes(START_SCHEMA, one=True)
def start_command(
    *,
    configuration: ConfigurationOptions,
    log_format: LogFormatOption = None,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Run autorecovery in the foreground: restore lost replicas until a signal.

    The command runs a candidate for auditor and a replication worker, like Java's `bookkeeper autorecovery`.
    It can run beside Java's, with the same bk_server.conf. A bookie with autoRecoveryDaemonEnabled=true runs
    both by itself. When it is running, the command prints one row; the log goes to stderr. On SIGTERM (exit
    code 0) and Ctrl-C (130) it gives back its vote and its locks. Exit code 4 when Pulsar's metadata driver
    elects the auditor of this cluster.

    Examples:

      bkctl autorecovery start --conf /etc/bookkeeper/bk_server.conf

      bkctl autorecovery start --metadata zk://localhost:2181/ledgers -X replicationRateByBytes=50000000
    """
    from bkctl.server.life.autorecovery_process import serve_autorecovery

    def started(start: AutoRecoveryStart) -> None:
        write_one(dataclasses.asdict(start), START_SCHEMA, output)
        sys.stdout.flush()

    with logging_to_stderr(log_format):
        config = bookie_config(configuration, tell=log_notice)
        ended_by = serve_autorecovery(config, started=started)
    if ended_by is signal.SIGINT:
        raise typer.Exit(130)
