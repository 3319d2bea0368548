"""Options of the commands that take bookies out, and their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import TlsOptions, client_settings, cluster_values
from bkctl.commands.frame.ledger_options import parse_ledger_id
from bkctl.commands.frame.output import Key, Schema
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.admin.bookie_removal import BookieRemoval
    from bkctl.commands.frame.bookie_options import ConfigurationOptions
    from bkctl.metadata.api import MetadataStore
    from bkctl.replication.moved_ledger import MovedLedger


@dataclass(frozen=True, slots=True)
class RemovalOptions:
    """Options that say where the entries of a bookie go, and what may be done to its ledgers."""

    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="BOOKIE",
            help="Copy only to these bookies; may be repeated. Default: the bookies that the placement "
            "policy chooses.",
        ),
    ] = None
    recover_open: Annotated[
        bool,
        typer.Option(
            "--recover-open",
            help="Close ledgers that are still being written there. Before that, their writers have the time "
            "openLedgerRereplicationGracePeriod to change to other bookies. Closing stops these writers.",
        ),
    ] = False
    accept_losses: Annotated[
        list[int] | None,
        typer.Option(
            "--accept-losses",
            metavar="LEDGER",
            parser=parse_ledger_id,
            help="Move this ledger without those entries that no bookie has any more; may be repeated.",
        ),
    ] = None
    every_entry: Annotated[
        bool,
        typer.Option(
            "--every-entry",
            help="With --dry-run: read every entry, not only the first and last of each fragment.",
        ),
    ] = False

    def check(self, *, dry_run: bool) -> None:
        """Refuse options that go with ``--dry-run`` alone. Raises UsageError."""
        if self.every_entry and not dry_run:
            raise UsageError("--every-entry goes with --dry-run: a real run reads every entry")


LEDGER_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key(
        "outcome",
        "string",
        "moved, movable (with --dry-run), not_named, ledger_gone, waiting_for_writer, busy (a replication "
        "worker has it), failed (try again), blocked_no_target, blocked_recovery, blocked_metadata or "
        "lost_no_source",
    ),
    Key("reason", "string or null", "why it is not moved"),
    Key("left", "array", "bookies that left it, with --dry-run would"),
    Key("targets", "array", "bookies that came in their places, with --dry-run could; the choice may differ"),
    Key("entries", "int", "entries that were written; with --dry-run, would be"),
    Key("bytes", "int", "bytes of them; with --dry-run, about"),
    Key("lost", "array", "entries that no bookie has, the first 20"),
    Key("lost_count", "int", "how many of these were found"),
    Key("accepted", "bool", "whether it was moved without them; with --dry-run, would be"),
    Key("off_policy", "int", "segments that do not keep to the placement policy with the targets"),
)


def ledger_row(one: MovedLedger) -> dict[str, Any]:
    """Return a ledger as JSON shows it."""
    return {
        "ledger": one.ledger,
        "outcome": one.outcome.value,
        "reason": one.reason or None,
        "left": list(one.bookies),
        "targets": list(one.targets),
        "entries": one.entries,
        "bytes": one.bytes,
        "lost": list(one.lost),
        "lost_count": one.lost_count,
        "accepted": one.accepted,
        "off_policy": one.off_policy,
    }


def removal(
    store: MetadataStore,
    leaving: list[str],
    cluster: ConfigurationOptions,
    tls: TlsOptions,
    options: RemovalOptions,
) -> BookieRemoval:
    """Return what takes the bookies out, by the options, then ``-X``, then the file."""
    from bkctl.admin.bookie_removal import BookieRemoval, RemovalSettings
    from bkctl.client.placement_configuration import policy_choice
    from bkctl.replication.configuration import worker_settings
    from bkctl.replication.ledger_move import MoveSettings

    values = cluster_values(cluster)
    client = client_settings(cluster, tls)
    worker = worker_settings(values)
    check = replace(worker.repair.check, percentage=100 if options.every_entry else 0)
    repair = replace(worker.repair, check=check)
    settings = RemovalSettings(
        client,
        MoveSettings(repair, options.recover_open, frozenset(options.accept_losses or ())),
        worker.rate_bytes_per_s,
        worker.ledgers_max,
        options.to or None,
    )
    return BookieRemoval(store, leaving, settings, policy_choice(values, store, client.net))
