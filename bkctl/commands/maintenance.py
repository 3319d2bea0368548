"""``bkctl maintenance``: autorecovery rests while bookies are restarted, and somebody is named for it."""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.frame.maintenance_warning import maintenance_text
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one

if TYPE_CHECKING:
    from bkctl.codec.maintenance import Maintenance
    from bkctl.metadata.api import MetadataStore

app = noun_app(
    """Keep autorecovery from copying while bookies are worked on.

    The record of it is kept in the metadata store, where all commands see it; Java's tools do not.
    """
)

_RECORD: Schema = (
    Key("by", "string or null", "who began it, user@host"),
    Key("reason", "string or null", "why"),
    Key("begun_ms", "int or null", "when, ms since 1970"),
    Key("enabled_before", "bool or null", "whether autorecovery was enabled before"),
    Key("delay_before_s", "int or null", "lostBookieRecoveryDelay before; null where none was stored"),
)
_NOW: Schema = (
    Key("enabled", "bool", "whether autorecovery is enabled now"),
    Key("lost_bookie_recovery_delay_s", "int or null", "the delay now"),
    Key("down", "array", "bookies that have a cookie and are not up"),
)
STATUS_SCHEMA: Schema = (Key("on", "bool", "whether a maintenance is on"), *_RECORD, *_NOW)
CHANGE_SCHEMA: Schema = (
    *STATUS_SCHEMA,
    Key("kept", "array", "what 'end' has not set back, because somebody has changed it since"),
    Key("dry_run", "bool", "whether nothing was changed"),
)


@app.command("begin")
@takes(CHANGE_SCHEMA, one=True)
def begin_command(
    delay: Annotated[
        int,
        typer.Option(
            "--delay",
            metavar="TIME",
            parser=parse_duration_ms,
            help="How long the auditor waits for a lost bookie if autorecovery is enabled during the "
            "maintenance.",
        ),
    ] = "1h",  # type: ignore[assignment]
    reason: Annotated[
        str,
        typer.Option(
            "--reason", metavar="TEXT", help="The reason, which others see while the maintenance is on."
        ),
    ] = "",
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Who begins the maintenance. Default: user@host."),
    ] = None,
    dry_run: DryRunOption = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Switch autorecovery off for the whole cluster, and lengthen its delay.

    Begin a maintenance before you stop bookies, so that no worker copies their ledgers. Then stop and start
    one bookie at a time. Continue with the next one when 'bkctl bookies probe' shows that the bookie answers.
    'bkctl maintenance end' restores the earlier settings, which are recorded with the user and the time.

    The command is refused with exit code 4 while another maintenance is on.

    Examples:

      bkctl maintenance begin --reason "kernel update"

      bkctl maintenance begin --delay 2h --dry-run
    """
    from bkctl.clock import SystemClock
    from bkctl.replication.maintenance import begin_maintenance

    who = by or f"{getpass.getuser()}@{socket.gethostname()}"
    with open_cluster(cluster) as store:
        _refuse_second(store)
        known = store.underreplication
        now_ms = SystemClock().time_ms()
        made = begin_maintenance(known, who, reason, now_ms, delay // 1000, dry_run=dry_run)
        row = {**_row(store, None if dry_run else made), "kept": [], "dry_run": dry_run}
    write_one(row, CHANGE_SCHEMA, output)


@app.command("end")
@takes(CHANGE_SCHEMA, one=True)
def end_command(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] End the maintenance: restore what it has set, unless somebody has changed it since.

    While bookies are down, the command asks for confirmation, or needs --yes: their ledgers are copied as
    soon as the restored delay is over. Exit code 6 when no maintenance is on.

    Examples:

      bkctl maintenance end
    """
    from bkctl.replication.maintenance import bookies_down, end_maintenance

    with open_cluster(cluster) as store:
        planned = end_maintenance(store.underreplication, dry_run=True)
        down = bookies_down(store)
        if down and planned.enabled and not dry_run:
            ask(f"end the maintenance while bookies are down ({', '.join(down[:5])})", yes=yes)
        ended = end_maintenance(store.underreplication, dry_run=dry_run)
        row = _row(store, ended.maintenance)
        row |= {"on": dry_run, "kept": list(ended.kept), "dry_run": dry_run}
    write_one(row, CHANGE_SCHEMA, output)


@app.command("status")
@takes(STATUS_SCHEMA, one=True, watch=True)
def status_command(*, cluster: ClusterOptions, output: OutputOption = None) -> None:
    """[online] [reads] Say whether a maintenance is on, since when, and who began it. Exit code 1 when it is.

    Examples:

      bkctl maintenance status
    """
    with open_cluster(cluster) as store:
        found = store.underreplication.maintenance()
        row = _row(store, None if found is None else found[0])
    write_one(row, STATUS_SCHEMA, output)
    if found is not None:
        raise typer.Exit(1)


def _refuse_second(store: MetadataStore) -> None:
    from bkctl.errors import RefusedError

    found = store.underreplication.maintenance()
    if found is not None:
        raise RefusedError(maintenance_text(found[0]))


def _row(store: MetadataStore, maintenance: Maintenance | None) -> dict[str, Any]:
    from bkctl.replication.maintenance import bookies_down

    known = store.underreplication
    row: dict[str, Any] = {"on": maintenance is not None}
    row |= {key.key: None if maintenance is None else getattr(maintenance, key.key) for key in _RECORD}
    row["enabled"] = known.enabled()
    row["lost_bookie_recovery_delay_s"] = known.lost_bookie_recovery_delay_s()
    row["down"] = list(bookies_down(store))
    return row
