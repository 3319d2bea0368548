"""``bkctl autorecovery``: status, switches, auditor; its other verbs are in the modules beside this one."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.autorecovery import listing, start
from bkctl.commands.autorecovery.idle import warn_if_idle
from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.frame.maintenance_warning import known_maintenance
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore

app = noun_app(
    """Under-replicated ledgers: which they are, why, and who copies them; switch that on and off.

    An auditor marks ledgers that lack replicas, and workers copy these. The marks, locks and switches are
    those of Java's autorecovery; a change counts for all of the cluster.
    """
)

STATUS_SCHEMA: Schema = (
    Key("enabled", "bool", "whether marked ledgers are replicated, by any worker of the cluster"),
    Key("auditor", "string or null", "bookie or host that is elected auditor"),
    Key("lost_bookie_recovery_delay_s", "int or null", "how long a lost bookie is waited for"),
    Key("marked", "int", "ledgers that are marked as missing replicas"),
    Key("ledgers_checked_ms", "int or null", "when all ledgers were last checked, ms since 1970"),
    Key("placement_checked_ms", "int or null", "when placement was last checked"),
    Key("replicas_checked_ms", "int or null", "when replicas were last counted"),
    Key("maintenance", "object or null", "by, reason, begun_ms and what was set before; see 'maintenance'"),
)

SWITCH_SCHEMA: Schema = (Key("enabled", "bool", "whether marked ledgers are replicated now"),)

DELAY_SCHEMA: Schema = (
    Key("lost_bookie_recovery_delay_s", "int", "how long an auditor waits for a lost bookie"),
    Key("changed", "bool", "whether this command has changed it"),
)

AUDITOR_SCHEMA: Schema = (Key("auditor", "string", "bookie or host that is elected auditor"),)

TRIGGER_SCHEMA: Schema = (
    Key("auditor", "string", "who was asked to look"),
    Key("checks", "array", "what it is to check: bookies, ledgers, placement, replicas"),
)


class CheckName(StrEnum):
    """Values of ``--check``."""

    LEDGERS = "ledgers"
    PLACEMENT = "placement"
    REPLICAS = "replicas"


@app.command("status")
@takes(STATUS_SCHEMA, one=True, watch=True)
def status_command(*, cluster: ClusterOptions, output: OutputOption = None) -> None:
    """[online] [reads] Show whether lost replicas are restored, by whom, and how many ledgers wait.

    Examples:

      bkctl autorecovery status --metadata zk://localhost:2181/ledgers
    """
    with open_cluster(cluster) as store:
        row = _status(store)
        write_one(row, STATUS_SCHEMA, output)
        if row["maintenance"] is None:
            warn_if_idle(store.underreplication)


def _status(store: MetadataStore) -> dict[str, Any]:
    from bkctl.codec.underreplication import CheckKind

    known = store.underreplication
    maintenance = known_maintenance(store)
    return {
        "enabled": known.enabled(),
        "auditor": known.auditor(),
        "lost_bookie_recovery_delay_s": known.lost_bookie_recovery_delay_s(),
        "marked": sum(1 for _ in known.marked_ledgers()),
        "ledgers_checked_ms": known.checked_at(CheckKind.ALL_LEDGERS),
        "placement_checked_ms": known.checked_at(CheckKind.PLACEMENT),
        "replicas_checked_ms": known.checked_at(CheckKind.REPLICAS),
        "maintenance": None if maintenance is None else dataclasses.asdict(maintenance),
    }


@app.command("enable")
@takes(SWITCH_SCHEMA, one=True)
def enable_command(*, cluster: ClusterOptions, output: OutputOption = None) -> None:
    """[online] [writes] Let all workers of the cluster restore lost replicas.

    Examples:

      bkctl autorecovery enable
    """
    _switch(cluster, output, enabled=True)


@app.command("disable")
@takes(SWITCH_SCHEMA, one=True)
def disable_command(*, cluster: ClusterOptions, output: OutputOption = None) -> None:
    """[online] [writes] Let no worker of the cluster begin with another ledger.

    To disable autorecovery for a limited time, prefer 'bkctl maintenance begin': it also records who did it
    and what was set before.

    Examples:

      bkctl autorecovery disable
    """
    _switch(cluster, output, enabled=False)


def _switch(cluster: ClusterOptions, output: OutputOption, *, enabled: bool) -> None:
    with open_cluster(cluster) as store:
        store.underreplication.set_enabled(enabled)
        row = {"enabled": store.underreplication.enabled()}
        known_maintenance(store)
    write_one(row, SWITCH_SCHEMA, output)


@app.command("delay")
@takes(DELAY_SCHEMA, one=True)
def delay_command(
    time: Annotated[
        int | None,
        typer.Argument(
            metavar="[TIME]",
            show_default=False,
            parser=parse_duration_ms,
            help="The new delay, such as 90s or 30m, in whole seconds. Without it, the delay is shown.",
        ),
    ] = None,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] [writes] Show or set how long the auditor waits for a lost bookie to come back.

    When the delay is set, even to the same value, the auditor checks all bookies at once.

    Examples:

      bkctl autorecovery delay

      bkctl autorecovery delay 30m
    """
    from bkctl.replication.switches import lost_bookie_recovery_delay_s

    with open_cluster(cluster) as store:
        if time is not None:
            store.underreplication.set_lost_bookie_recovery_delay(time // 1000)
        seconds = lost_bookie_recovery_delay_s(store.underreplication)
    write_one({"lost_bookie_recovery_delay_s": seconds, "changed": time is not None}, DELAY_SCHEMA, output)


@app.command("auditor")
@takes(AUDITOR_SCHEMA, one=True)
def auditor_command(*, cluster: ClusterOptions, output: OutputOption = None) -> None:
    """[online] [reads] Name the elected auditor. Exit code 6 without one: no autorecovery runs.

    Examples:

      bkctl autorecovery auditor
    """
    from bkctl.replication.switches import require_auditor

    with open_cluster(cluster) as store:
        auditor = require_auditor(store.underreplication)
    write_one({"auditor": auditor}, AUDITOR_SCHEMA, output)


@app.command("trigger")
@takes(TRIGGER_SCHEMA, one=True)
def trigger_command(
    checks: Annotated[
        list[CheckName] | None,
        typer.Option(
            "--check",
            metavar="CHECK",
            help="Make this check of all ledgers: ledgers, placement or replicas; may be repeated.",
        ),
    ] = None,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Have the auditor check all bookies now. Exit code 6 without an auditor.

    With --check, the auditor checks all ledgers instead. An auditor of bkctl begins within a minute; a Java
    auditor begins after its next election. A check that the auditor's configuration switches off is not made.

    Examples:

      bkctl autorecovery trigger

      bkctl autorecovery trigger --check ledgers
    """
    from bkctl.codec.underreplication import CheckKind
    from bkctl.replication.switches import trigger_audit, trigger_check

    kinds = {
        CheckName.LEDGERS: CheckKind.ALL_LEDGERS,
        CheckName.PLACEMENT: CheckKind.PLACEMENT,
        CheckName.REPLICAS: CheckKind.REPLICAS,
    }
    with open_cluster(cluster) as store:
        auditor = ""
        for name in checks or ():
            auditor = trigger_check(store.underreplication, kinds[name])
        if not checks:
            auditor = trigger_audit(store.underreplication)
    named = [name.value for name in checks] if checks else ["bookies"]
    write_one({"auditor": auditor, "checks": named}, TRIGGER_SCHEMA, output)


listing.register(app)
start.register(app)
