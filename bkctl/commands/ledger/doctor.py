"""``bkctl ledger doctor``: why a ledger does not open, and what to do."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import typer

from bkctl.codec.pulsar_names import NOBODY, LedgerOwner, ledger_owner
from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.ledger_options import LedgerArgument, LookOption
from bkctl.commands.frame.ledger_rows import OWNER_KEYS
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import Key, Schema, as_row, write_one
from bkctl.errors import CorruptionError, NotFoundError

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore

DOCTOR_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED"),
    Key(
        "verdict",
        "string",
        "healthy, open, under_replicated, unreadable, recoverable, needs_bookies or damaged_metadata",
    ),
    Key("findings", "array of strings", "what was found, in sentences"),
    Key("next_command", "string or null", "what to run next; null when there is nothing to do"),
    Key("absent", "array of strings", "bookies of its ensembles that are not registered"),
    Key(
        "would_close_at",
        "int or null",
        "last entry after a recovery; null when that is not known, or while it is being written",
    ),
    Key(
        "replicas",
        "array of objects",
        "of the last ensemble, unless it is closed: bookie, answered, lac, last_entry, fenced, error",
    ),
    *OWNER_KEYS,
)


def register(app: typer.Typer) -> None:
    """Add the command to the app of ``bkctl ledger``."""
    app.command("doctor")(doctor_command)


@takes(DOCTOR_SCHEMA, one=True)
def doctor_command(
    ledger: LedgerArgument,
    watch: LookOption = "2s",  # type: ignore[assignment]
    *,
    password: PasswordOptions,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Say why a ledger does not open, and what to run next. Changes nothing.

    A ledger that is not closed is examined twice: if it grew in between, a writer is active, the verdict
    is 'open' and there is nothing to run. To notice a writer that writes rarely, give a longer --look. The
    exit code is 0 for the verdicts healthy and open, else 1.

    Examples:

      bkctl ledger doctor 42

      bkctl ledger doctor 42 -o json
    """
    from bkctl.admin.ledgers.ledger_doctor import examine_ledger

    secret = password.read()
    with open_client(cluster, tls) as client:
        found = client.call(examine_ledger(client.client, ledger, password=secret, watch_s=watch / 1000))
        owner = _owner(client.store, ledger)
    write_one({**as_row(found), **dataclasses.asdict(owner)}, DOCTOR_SCHEMA, output)
    if not found.verdict.is_well:
        raise typer.Exit(1)


def _owner(store: MetadataStore, ledger: int) -> LedgerOwner:
    """Return whose the ledger is; nobody's where its metadata do not decode, or are gone by now."""
    try:
        return ledger_owner(store.ledgers.read_ledger(ledger).metadata.custom_metadata)
    except (CorruptionError, NotFoundError):
        return NOBODY
