"""``bkctl ledger``: what the metadata store says of ledgers; other verbs stand in modules of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import (
    ClusterConfOption,
    MetadataUriOption,
    OverrideOption,
    open_cluster,
)
from bkctl.commands.frame.ledger_options import (
    BookieOption,
    CustomOption,
    LedgersArgument,
    NewerOption,
    OlderOption,
    StateOption,
    ledger_filter,
)
from bkctl.commands.frame.ledger_rows import LEDGER_KEYS, SECRET_KEY, ledger_row
from bkctl.commands.frame.options import OutputOption, noun_app, schema_option
from bkctl.commands.frame.output import Schema, write_one, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.ledger import create, delete, doctor, fence, read, recover, restore, tail, write
from bkctl.commands.ledger.listing import LedgerListing

if TYPE_CHECKING:
    from bkctl.metadata.api import StoredLedger

_SUMMARY = "[online] [reads] [writes] Ledgers: list, show, write, read, recover, fence, delete them."

app = noun_app(_SUMMARY)

SHOW_SCHEMA: Schema = (*LEDGER_KEYS, SECRET_KEY)

SecretsOption = Annotated[bool, typer.Option("--show-secrets", help="Print the ledger's password as well.")]


@app.callback()
def noun() -> None:
    """[online] [reads] [writes] Ledgers: list, show, write, read, recover, fence, delete them."""


@app.command("list")
def list_command(
    state: StateOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    bookie: BookieOption = None,
    custom: CustomOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(LEDGER_KEYS)] = False,
) -> None:
    """[online] [reads] List the cluster's ledgers, ascending; complete, or it fails.

    The exit code is 1 when the metadata of a ledger does not decode; stderr names it.

    Examples:

      bkctl ledger list --metadata-uri zk://localhost:2181/ledgers

      bkctl ledger list --state OPEN --older-than 1h

      bkctl ledger list --bookie bookie-3:3181 --custom application=pulsar
    """
    wanted = ledger_filter(state, older_than, newer_than, bookie, custom)
    with (
        open_cluster(conf, override, metadata_uri) as store,
        progress("listing", counts="ledgers", streams_rows=True) as advance,
    ):
        listing = LedgerListing(store, wanted, advance)
        rows = (_row(found) for found in listing)
        write_rows(rows, LEDGER_KEYS, output)
    if listing.unreadable:
        raise typer.Exit(1)


@app.command("show")
def show_command(
    ledgers: LedgersArgument,
    show_secrets: SecretsOption = False,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(SHOW_SCHEMA)] = False,
) -> None:
    """[online] [reads] Show the metadata of ledgers. Exit code 6 when there is no such ledger.

    Examples:

      bkctl ledger show 42

      bkctl ledger show 42 43 -o json
    """
    with open_cluster(conf, override, metadata_uri) as store:
        rows = (_row(found, secrets=show_secrets) for found in map(store.ledgers.read_ledger, ledgers))
        if len(ledgers) == 1:
            write_one(next(rows), SHOW_SCHEMA, output)
        else:
            write_rows(rows, SHOW_SCHEMA, output)


def _row(found: StoredLedger, *, secrets: bool = False) -> dict[str, Any]:
    from bkctl.metadata.ledger_filter import creation_ms

    return ledger_row(
        found.ledger, found.metadata, found.version, created_ms=creation_ms(found), secrets=secrets
    )


app.command("create")(create.create_command)
app.command("write")(write.write_command)
app.command("read")(read.read_command)
app.command("tail")(tail.tail_command)
app.command("recover")(recover.recover_command)
app.command("fence")(fence.fence_command)
doctor.register(app)
app.command("delete")(delete.delete_command)
app.command("restore")(restore.restore_command)
