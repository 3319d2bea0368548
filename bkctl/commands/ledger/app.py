"""``bkctl ledger``: what the metadata store says of ledgers; other verbs stand in modules of their own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.ledger_options import LedgerConditions, LedgersArgument, StateOption
from bkctl.commands.frame.ledger_rows import LEDGER_KEYS, SECRET_KEY, ledger_row
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Schema, write_one, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.ledger import (
    compare,
    create,
    delete,
    doctor,
    fence,
    read,
    recover,
    repair,
    restore,
    tail,
    write,
)
from bkctl.commands.ledger.listing import LedgerListing
from bkctl.errors import NotFoundError

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore, StoredLedger

app = noun_app("Ledgers: list, show, write, read, recover, fence, delete them.")

SHOW_SCHEMA: Schema = (*LEDGER_KEYS, SECRET_KEY)

SecretsOption = Annotated[bool, typer.Option("--show-secrets", help="Also print the ledger's password.")]


@app.command("list")
@takes(LEDGER_KEYS, watch=True)
def list_command(
    state: StateOption = None,
    *,
    conditions: LedgerConditions,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] List all ledgers by id. Fails rather than print a partial list.

    The exit code is 1 when the metadata of a ledger does not decode; stderr names it.

    Examples:

      bkctl ledger list --metadata zk://localhost:2181/ledgers

      bkctl ledger list --state OPEN --older-than 1h

      bkctl ledger list --bookie bookie-3:3181 --custom application=pulsar

      bkctl ledger list --topic persistent://tenant/namespace/topic -o wide
    """
    wanted = conditions.as_filter(state)
    with (
        open_cluster(cluster) as store,
        progress("listing", counts="ledgers", streams_rows=True) as advance,
    ):
        listing = LedgerListing(store, wanted, advance)
        rows = (_row(found) for found in listing)
        if not write_rows(rows, LEDGER_KEYS, output, nothing="no such ledgers"):
            _check_bookies(store, conditions.bookie or ())
    if listing.unreadable:
        raise typer.Exit(1)


def _check_bookies(store: MetadataStore, bookies: Iterable[str]) -> None:
    """Raise NotFoundError for a bookie that the cluster does not know, whose ledgers were asked for in vain.

    A name that was typed wrongly would look like a bookie that nothing depends on.
    """
    known = {*store.registration.bookies().everyone, *store.cookies.cookie_bookies()}
    for bookie in bookies:
        if bookie not in known:
            close = difflib.get_close_matches(bookie, known, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise NotFoundError(
                f"no ledger names {bookie}, and no bookie of that id is registered or has a cookie{meant}"
            )


@app.command("show")
@takes(SHOW_SCHEMA)
def show_command(
    ledgers: LedgersArgument,
    show_secrets: SecretsOption = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Show the metadata of ledgers. Exit code 6 when there is no such ledger.

    Examples:

      bkctl ledger show 42

      bkctl ledger show 42 43 -o json
    """
    with open_cluster(cluster) as store:
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
app.command("compare")(compare.compare_command)
app.command("repair")(repair.repair_command)
app.command("fence")(fence.fence_command)
doctor.register(app)
app.command("delete")(delete.delete_command)
app.command("restore")(restore.restore_command)
