"""``bkctl autorecovery list``: the marked ledgers, what is known of each, and the marks that say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.autorecovery.idle import warn_if_idle
from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, client_settings, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.maintenance_warning import known_maintenance
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.admin.marked_ledgers import MarkedLedger

LIST_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("age_s", "int or null", "how long it is marked; null where the time was not stored"),
    Key("missing_on", "array", "bookies that the mark names"),
    Key("back", "array", "those of them that are up again"),
    Key("worker", "string or null", "host whose worker has the lock"),
    Key("locked_s", "int or null", "for how long"),
    Key(
        "verdict",
        "string or null",
        "with --explain: whole, repairable, waiting_for_writer, blocked_no_target, blocked_recovery, "
        "blocked_metadata, lost_no_source, lost_write_quorum_of_one or ledger_gone",
    ),
    Key("reason", "string or null", "the verdict in a sentence, or why there is none"),
    Key("waits_for", "array or null", "bookies whose return would change the verdict"),
    Key("entry", "int or null", "first entry that the verdict is about"),
    Key("cleared", "bool", "with --clear-whole: whether the mark was removed, with --dry-run would be"),
)


def register(app: typer.Typer) -> None:
    """Add the command to its noun."""
    app.command("list")(list_command)


_Missing = Annotated[
    str | None,
    typer.Option("--missing", metavar="BOOKIE", help="Show only ledgers whose mark names this bookie."),
]
_Explain = Annotated[
    bool,
    typer.Option("--explain", help="Ask the bookies of each ledger what they hold, and give a verdict."),
]
_ClearWhole = Annotated[
    bool,
    typer.Option(
        "--clear-whole",
        help="Read every entry, and remove the marks of ledgers that are whole or deleted.",
    ),
]


@takes(LIST_SCHEMA, watch=True)
def list_command(
    missing: _Missing = None,
    explain: _Explain = False,
    clear_whole: _ClearWhole = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] [writes] List under-replicated ledgers: those that are marked as missing replicas.

    An empty list only means something if an auditor looks for ledgers that lack replicas; without an auditor
    a message says so. This command copies nothing; 'bkctl autorecovery start' and 'bkctl bookies recover'
    copy replicas. --explain shows for each ledger whether its replicas can be copied. --clear-whole removes a
    mark only while the command holds the lock of the mark. So the mark of a ledger that a worker is copying
    stays.

    Exit code 0 when no ledger is marked, or when all marks were removed; 1 when some ledgers are marked; 3
    when the bookies of some ledgers could not be asked.

    Examples:

      bkctl autorecovery list

      bkctl autorecovery list --explain --missing bookie-3:3181

      bkctl autorecovery list --clear-whole --dry-run
    """
    from bkctl.admin.marked_ledgers import explain_marked_ledgers, list_marked_ledgers

    if dry_run and not clear_whole:
        raise UsageError("--dry-run goes with --clear-whole")
    settings = client_settings(cluster, tls)
    if clear_whole and not dry_run:
        ask("remove the marks of ledgers that lack nothing", yes=yes)
    left = failed = marked = 0
    found: Iterator[MarkedLedger]

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal left, failed, marked
        for one in found:
            marked += 1
            left += not one.cleared
            failed += one.error is not None
            yield _row(one)

    with open_cluster(cluster) as store:
        maintenance = known_maintenance(store)
        found = (one for one in list_marked_ledgers(store) if missing is None or missing in one.missing_on)
        if explain or clear_whole:
            found = explain_marked_ledgers(store, found, settings, clear_whole=clear_whole, dry_run=dry_run)
        marks = "marks of under-replicated ledgers" if missing is None else f"marks that name {missing}"
        write_rows(rows(), LIST_SCHEMA, output, clean=lambda: f"{marks} in {store.uri}, nothing found")
        if not marked and maintenance is None:
            warn_if_idle(store.underreplication)
    if left:
        raise typer.Exit(3 if failed else 1)


def _row(one: MarkedLedger) -> dict[str, Any]:
    from bkctl.clock import SystemClock

    now_ms = SystemClock().time_ms()
    verdict = one.verdict
    return {
        "ledger": one.ledger,
        "age_s": None if one.marked_ms is None else max(0, now_ms - one.marked_ms) // 1000,
        "missing_on": list(one.missing_on),
        "back": list(one.back),
        "worker": None if one.lock is None else one.lock.host,
        "locked_s": None if one.lock is None else max(0, now_ms - one.lock.since_ms) // 1000,
        "verdict": None if verdict is None else verdict.kind.value,
        "reason": one.error if verdict is None else verdict.reason,
        "waits_for": None if verdict is None else list(verdict.bookies),
        "entry": None if verdict is None or verdict.entry < 0 else verdict.entry,
        "cleared": one.cleared,
    }
