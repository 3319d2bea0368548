"""``bkctl ledger delete | restore``: a ledger's metadata goes, with a file to bring it back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import (
    ClusterConfOption,
    MetadataUriOption,
    OverrideOption,
    open_cluster,
)
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.ledger_options import LedgersArgument, parse_ledger_id
from bkctl.commands.frame.options import OutputOption, schema_option
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.errors import RefusedError

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore, StoredLedger

DELETE_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED"),
    Key("length", "int", "payload bytes, 0 unless it was closed"),
    Key("deleted", "bool", "whether it is gone; false with --dry-run, or when it was changed meanwhile"),
    Key("undo_file", "string or null", "the file that 'bkctl ledger restore' reads"),
)

RESTORE_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED"),
    Key("version", "int", "version of the new metadata"),
)


def register(app: typer.Typer) -> None:
    """Add the commands to the app of ``bkctl ledger``."""
    app.command("delete")(delete_command)
    app.command("restore")(restore_command)


def delete_command(
    ledgers: LedgersArgument,
    undo_file: Annotated[
        str | None,
        typer.Option("--undo-file", metavar="FILE", help="Default: ledger-ID-TIME.undo.json, here."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(DELETE_SCHEMA)] = False,
) -> None:
    """[online] [writes] Delete ledgers: their metadata now, their entries when bookies next collect garbage.

    Asks, or needs --yes. Before that the metadata goes to an undo file that only its owner can read, with the
    ledgers' passwords. A ledger that somebody changes meanwhile is not deleted (exit code 3).

    Examples:

      bkctl ledger delete 42

      bkctl ledger delete 42 43 --yes --undo-file /var/tmp/42-43.json
    """
    from bkctl.admin.ledgers.ledger_deletion import write_undo_file
    from bkctl.clock import SystemClock

    with open_cluster(conf, override, metadata_uri) as store:
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


def restore_command(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", show_default=False, help="An undo file, or a metadata dump."),
    ],
    ledger: Annotated[
        list[int] | None,
        typer.Option("--ledger", metavar="ID", parser=parse_ledger_id, help="Only this one; repeatable."),
    ] = None,
    yes: YesOption = False,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(RESTORE_SCHEMA)] = False,
) -> None:
    """[online] [writes] Give deleted ledgers their metadata back, byte for byte, from an undo file.

    Their entries are there only as long as no bookie has collected garbage since. Refuses when one of them
    exists (exit code 4). Of a whole dump it asks, or needs --yes, unless --ledger says which.

    Examples:

      bkctl ledger restore ledger-42-1700000000000.undo.json

      bkctl ledger restore cluster.json --ledger 42
    """
    from bkctl.admin.ledgers.ledger_deletion import restore_ledgers
    from bkctl.scan.metadata_dump import load_metadata_dump
    from bkctl.vfs import PosixFileSystem

    dump = load_metadata_dump(PosixFileSystem(), file)
    if not dump.ledgers:
        raise RefusedError(f"{file}: no ledger in it")
    if ledger is None and len(dump.znodes) > len(dump.ledgers):
        ask(
            f"restore all {len(dump.ledgers)} ledgers of a dump of a whole cluster",
            yes=yes,
            has_dry_run=False,
        )
    with open_cluster(conf, override, metadata_uri) as store:
        done = restore_ledgers(store, dump, ledger)
    rows = ({"ledger": one.ledger, "state": one.metadata.state.value, "version": one.version} for one in done)
    write_rows(rows, RESTORE_SCHEMA, output)
