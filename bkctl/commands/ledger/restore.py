"""``bkctl ledger restore``: the metadata of deleted ledgers, from such a file."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.ledger_options import parse_ledger_id
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.errors import RefusedError

RESTORE_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED"),
    Key("version", "int or null", "version of the new metadata; null with --dry-run"),
)


@takes(RESTORE_SCHEMA)
def restore_command(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", show_default=False, help="An undo file, or a metadata dump."),
    ],
    ledger: Annotated[
        list[int] | None,
        typer.Option(
            "--ledger",
            metavar="ID",
            parser=parse_ledger_id,
            help="Restore only this ledger; may be repeated.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Restore the metadata of deleted ledgers, byte for byte, from an undo file.

    The entries of these ledgers still exist only if no bookie has collected garbage since the deletion.
    Refuses when one of the ledgers exists (exit code 4). Restoring a whole dump asks for confirmation, or
    needs --yes, unless --ledger limits it.

    Examples:

      bkctl ledger restore ledger-42-1700000000000.undo.json --dry-run

      bkctl ledger restore cluster.json --ledger 42
    """
    from bkctl.admin.ledgers.ledger_deletion import restore_ledgers
    from bkctl.scan.metadata_dump import load_metadata_dump
    from bkctl.vfs import PosixFileSystem

    dump = load_metadata_dump(PosixFileSystem(), file)
    if not dump.ledgers:
        raise RefusedError(f"{file}: no ledger in it")
    if not dry_run and ledger is None and len(dump.znodes) > len(dump.ledgers):
        ask(f"restore every ledger ({len(dump.ledgers)}) of a dump of a whole cluster", yes=yes)
    with open_cluster(cluster) as store:
        done = restore_ledgers(store, dump, ledger, dry_run=dry_run)
    rows = ({"ledger": one.ledger, "state": one.metadata.state.value, "version": one.version} for one in done)
    write_rows(rows, RESTORE_SCHEMA, output)
