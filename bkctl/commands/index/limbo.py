"""``bkctl index limbo``: the flag of ledgers of which entries may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.targets import paths_or_default, split_targets
from bkctl.commands.index.databases import DIR, index_dirs, locked, watched_dirs
from bkctl.errors import UsageError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.index.limbo import LimboRow

LIMBO_SCHEMA: Schema = (
    DIR,
    Key("ledger", "int", "ledger id"),
    Key("limbo", "bool", "whether a missing entry means that it is unknown"),
    Key("changed", "bool", "whether it was different before"),
)


@takes(LIMBO_SCHEMA)
def limbo_command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LEDGER... [PATH...]",
            show_default=False,
            help="Ids of ledgers, and paths as in other verbs.",
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Clear the flag instead of setting it.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="With --clear, instead of ids: every ledger that has the flag.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Set or clear the limbo flag of ledgers: a missing entry is unknown, not absent.

    Set the flag if entries may have been lost: a client then asks other bookies, and does not take the loss
    for the end of the ledger. Clear it when the entries are back, or when it is certain that no bookie has
    them. In .idx files, only bookies of bkctl respect the flag; Java's bookies keep it but ignore it. 'bkctl
    repair undo' restores the old flags. If a ledger has no row, nothing is changed, and the exit code is 6.

    Examples:

      bkctl index limbo 42 43 /data/bookie/ledgers --yes

      bkctl index limbo 42 /data/bookie/ledgers --clear --dry-run

      bkctl index limbo --clear --all /data/bookie/ledgers
    """
    from bkctl.admin.index.limbo import ledgers_in_limbo, plan_limbo, set_limbo_on_record
    from bkctl.admin.index.stopped_index import rocks_databases
    from bkctl.admin.repairs.repair_undo import settle_before
    from bkctl.clock import SystemClock

    paths, ledgers = split_targets(targets or [], int)
    if every and (ledgers or not clear):
        raise UsageError("--all goes with --clear, and without names of ledgers")
    if not (every or ledgers):
        raise UsageError(
            "name the ledgers: bkctl index limbo LEDGER... [PATH...] "
            "('bkctl index ledgers PATH' shows which are in limbo)"
        )
    filesystem = PosixFileSystem()
    paths = paths_or_default(paths)
    settle_before(filesystem, paths, dry_run=dry_run)
    dirs = index_dirs(paths)

    def planned() -> list[LimboRow]:
        chosen = ledgers_in_limbo(filesystem, dirs) if every else ledgers
        return plan_limbo(filesystem, dirs, chosen, limbo=not clear)

    if dry_run:
        write_rows(planned(), LIMBO_SCHEMA, output)
        return
    with locked(dirs) as lock:
        rows = planned()
        changes = sum(row.changed for row in rows)
        if changes:
            ask(f"{'clear' if clear else 'set'} the limbo flag of {counted(changes, 'ledger')}", yes=yes)
            lock.recheck()
            set_limbo_on_record(filesystem, SystemClock(), watched_dirs(dirs, paths), rows, rocks_databases())
        write_rows(rows, LIMBO_SCHEMA, output)
