"""``bkctl bookies recover``: the replicas of some bookies are copied to others, ledger by ledger."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.bookies.removal_options import (
    LEDGER_SCHEMA,
    RemovalOptions,
    ledger_row,
    removal,
)
from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.ledger_options import parse_ledger_id
from bkctl.commands.frame.maintenance_warning import known_maintenance
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import write_rows
from bkctl.commands.frame.progress import progress
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.replication.moved_ledger import MovedLedger


def register(app: typer.Typer) -> None:
    """Add the command to its noun."""
    app.command("recover")(recover_command)


@takes(LEDGER_SCHEMA)
def recover_command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC", show_default=False, help="Ids of the bookies whose replicas are copied."
        ),
    ],
    removing: RemovalOptions,
    ledgers: Annotated[
        list[int] | None,
        typer.Option(
            "--ledger", metavar="ID", parser=parse_ledger_id, help="Only this ledger; may be repeated."
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Copy all replicas that bookies should hold to other bookies, which take their places.

    The bookies may be up or down; the command changes neither the bookies nor their cookies. It needs no
    replication worker, and skips ledgers that a worker is copying. --dry-run asks the bookies for entries and
    chooses targets in the same way, and ends with the same exit code.

    Exit code 0 when no ledger names the bookies any more; 1 when this took accepted losses; 3 when some
    ledgers still name them; 4 when ledgers are blocked and none was moved; 6 for an unknown bookie.

    Examples:

      bkctl bookies recover bookie-3:3181 --dry-run

      bkctl bookies recover bookie-3:3181 --to bookie-7:3181 -X replicationRateByBytes=50000000
    """
    removing.check(dry_run=dry_run)
    counts = _Counts()
    with (
        open_cluster(cluster) as store,
        removal(store, sources, cluster, tls, removing) as work,
        progress("recovering", counts="ledgers", streams_rows=True) as advance,
    ):
        known_maintenance(store)
        work.refuse_unknown()
        if not dry_run:
            ask(f"copy the replicas of {', '.join(sources)} to other bookies", yes=yes)

        def rows() -> Iterator[dict[str, Any]]:
            for one in work.moved(ledgers, rehearse=dry_run):
                counts.add(one)
                advance(1)
                yield ledger_row(one)

        write_rows(rows(), LEDGER_SCHEMA, output)
    sys.stderr.write(f"bkctl: {counts.sentence(dry_run=dry_run)}\n")
    if counts.exit_code:
        raise typer.Exit(counts.exit_code)


class _Counts:
    """The counts that the rows add up to."""

    def __init__(self) -> None:
        self.moved = self.left = self.blocked = self.accepted = self.entries = self.bytes = 0

    def add(self, one: MovedLedger) -> None:
        """Count a row."""
        from bkctl.replication.moved_ledger import MoveOutcome

        if one.outcome in (MoveOutcome.NOT_NAMED, MoveOutcome.LEDGER_GONE):
            return
        self.entries += one.entries
        self.bytes += one.bytes
        self.accepted += one.accepted
        if one.outcome in (MoveOutcome.MOVED, MoveOutcome.MOVABLE):
            self.moved += 1
        else:
            self.left += 1
            self.blocked += not one.outcome.may_pass

    @property
    def exit_code(self) -> int:
        """As the help says."""
        if self.left:
            return 4 if self.blocked and not self.moved else 3
        return 1 if self.accepted else 0

    def sentence(self, *, dry_run: bool) -> str:
        """Return the sum, for people."""
        did = "would move" if dry_run else "moved"
        entries, size = counted(self.entries, "entry", "entries"), counted(self.bytes, "byte")
        text = f"{did} {counted(self.moved, 'ledger')}, {entries} of {size}"
        if self.left:
            text += f"; {counted(self.left, 'ledger stays', 'ledgers stay')}, {self.blocked} of them blocked"
        return text
