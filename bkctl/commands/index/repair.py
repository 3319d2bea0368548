"""``bkctl index repair``: wide keys of rows become 8-byte ones, damaged master keys the metadata's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.known_cluster import KnownClusterOptions, known_cluster
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.index.databases import DIR, index_dirs, locked, watched_dirs
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.index.repair import RepairPlan

REPAIR_SCHEMA: Schema = (
    DIR,
    Key(
        "kind",
        "string",
        "collapsed (two rows into one), converted, deleted, rekeyed, or damaged (left as it is)",
    ),
    Key("ledger", "int or null", "ledger id"),
    Key("detail", "string", "what the row is now, or what is wrong with it"),
)


@takes(REPAIR_SCHEMA)
def repair_command(
    context: typer.Context,
    paths: PathsArgument,
    *,
    known: KnownClusterOptions,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Repair ledger rows: 16-byte rows of Java's index rebuild, damaged master keys.

    At each start of a Java bookie, a 16-byte row takes precedence over the 8-byte row of the same ledger. The
    ledger is then fenced again and has no master key, or it appears again although it was deleted. The
    command turns each 16-byte row into an 8-byte row. If a ledger has both rows, the 8-byte row stays, and it
    is fenced if one of the two was. If a ledger is proved to be deleted, its 16-byte row is deleted together
    with its locations. The proof is the metadata store, or a dump of it (--metadata) that is complete and
    newer than the ledger.

    With --metadata, a master key with changed bytes is replaced by the key that belongs to the ledger's
    password in the metadata; this also works in .idx files. Until then no client can add to the ledger on
    this bookie, copy it to the bookie, or fence it there.

    'bkctl repair undo' restores the old rows and locations.

    The command is refused (exit code 4) while a bookie uses the directory, and with the metadata of another
    cluster. Exit code 1 when there are rows that cannot be decoded; they are not changed, and 'bkctl index
    rebuild --ledgers' rebuilds them.

    Examples:

      bkctl index repair /data/bookie/ledgers --dry-run

      bkctl index repair /data/bookie/ledgers --metadata zk.json --yes
    """
    from bkctl.admin.index.repair import plan_repair, repair_on_record
    from bkctl.admin.index.stopped_index import rocks_databases
    from bkctl.admin.ledgers.known_ledgers import known_in
    from bkctl.admin.repairs.repair_undo import settle_before
    from bkctl.clock import SystemClock

    filesystem = PosixFileSystem()
    settle_before(filesystem, paths, dry_run=dry_run)
    dirs = index_dirs(paths)
    with known_cluster(context, known) as cluster:
        ledgers = {directory: known_in(filesystem, cluster, [directory]) for directory in dirs}
        if dry_run:
            plans = [plan_repair(filesystem, directory, ledgers[directory]) for directory in dirs]
            _write_repairs(plans, dirs, output)
        else:
            with locked(dirs) as lock:
                plans = [plan_repair(filesystem, directory, ledgers[directory]) for directory in dirs]
                changes = sum(plan.changes for plan in plans)
                if changes:
                    ask(f"change {counted(changes, 'ledger row')} in {_counted(dirs)}", yes=yes)
                    lock.recheck()
                    watched = watched_dirs(dirs, paths)
                    plans = repair_on_record(
                        filesystem, SystemClock(), watched, plans, ledgers, rocks_databases()
                    )
                _write_repairs(plans, dirs, output)
    raise typer.Exit(int(any(row.kind == "damaged" for plan in plans for row in plan.rows)))


def _write_repairs(plans: Iterable[RepairPlan], dirs: list[str], output: OutputOption) -> None:
    rows = (row for plan in plans for row in plan.rows)
    write_rows(
        rows, REPAIR_SCHEMA, output, clean=lambda: f"rows of ledgers in {_counted(dirs)}, nothing to repair"
    )


def _counted(dirs: list[str]) -> str:
    return dirs[0] if len(dirs) == 1 else f"{len(dirs)} directories"
