"""``bkctl ledger delete``: a ledger's metadata goes, with a file to bring it back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.ledger_options import LedgersArgument
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore, StoredLedger

DELETE_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED"),
    Key("length", "int", "payload bytes, 0 unless it was closed"),
    Key("deleted", "bool", "whether it is gone; false with --dry-run, or when it was changed in between"),
    Key("undo_file", "string or null", "the file that 'bkctl ledger restore' reads"),
)


@takes(DELETE_SCHEMA)
def delete_command(
    ledgers: LedgersArgument,
    undo_file: Annotated[
        str | None,
        typer.Option(
            "--undo-file",
            metavar="FILE",
            help="File for 'ledger restore'. Default: ledger-ID-TIME.undo.json in this directory.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Delete ledgers: the metadata now, the entries when bookies next collect garbage.

    Asks for confirmation, or needs --yes. The metadata are first written to an undo file, which holds the
    ledgers' passwords and only its owner can read. A ledger that another process changes in the meantime is
    not deleted (exit code 3).

    Examples:

      bkctl ledger delete 42

      bkctl ledger delete 42 43 --yes --undo-file /var/tmp/42-43.json
    """
    from bkctl.admin.ledgers.ledger_deletion import write_undo_file
    from bkctl.clock import SystemClock

    with open_cluster(cluster) as store:
        found = [store.ledgers.read_ledger(ledger) for ledger in dict.fromkeys(ledgers)]
        if dry_run:
            write_rows((_row(one, None, deleted=False) for one in found), DELETE_SCHEMA, output)
            return
        named = ", ".join(str(one.ledger) for one in found[:5]) + (", ..." if len(found) > 5 else "")
        ask(f"delete {len(found)} ledger{'s' if len(found) > 1 else ''} ({named})", yes=yes)
        time_ms = SystemClock().time_ms()
        path = os.path.abspath(undo_file or f"ledger-{found[0].ledger}-{time_ms}.undo.json")
        write_undo_file(path, store, found, time_ms)
        _delete(store, found, path, output)


def _delete(store: MetadataStore, ledgers: list[StoredLedger], path: str, output: OutputOption) -> None:
    from bkctl.metadata.api import VersionConflictError

    kept = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal kept
        for one in ledgers:
            advance(1)
            try:
                store.ledgers.delete_ledger(one.ledger, one.version)
            except VersionConflictError:
                kept += 1
                typer.echo(
                    f"bkctl: ledger {one.ledger}: somebody changed it meanwhile; not deleted", err=True
                )
                yield _row(one, path, deleted=False)
            else:
                yield _row(one, path, deleted=True)

    with progress("deleting", len(ledgers), counts="ledgers", streams_rows=True) as advance:
        write_rows(rows(), DELETE_SCHEMA, output)
    if kept:
        raise typer.Exit(3)


def _row(one: StoredLedger, path: str | None, *, deleted: bool) -> dict[str, Any]:
    return {
        "ledger": one.ledger,
        "state": one.metadata.state.value,
        "length": one.metadata.length,
        "deleted": deleted,
        "undo_file": path,
    }
