"""``bkctl ledger doctor``: why a ledger does not open, and what to do."""

from __future__ import annotations

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.ledger_options import LedgerArgument, LookOption
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import Key, Schema, write_one

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
    """[online] [reads] Say why a ledger does not open, and what to run next. Changes and fences nothing.

    A ledger that is not closed is looked at twice: if something moved in between, a writer is at work, the
    verdict is open and there is nothing to run. A writer that writes less often is seen with a longer
    --look. The exit code is 0 for the verdicts healthy and open, else 1.

    Examples:

      bkctl ledger doctor 42

      bkctl ledger doctor 42 -o json
    """
    from bkctl.admin.ledgers.ledger_doctor import examine_ledger

    secret = password.read()
    with open_client(cluster, tls) as client:
        found = client.call(examine_ledger(client.client, ledger, password=secret, watch_s=watch / 1000))
    write_one(found, DOCTOR_SCHEMA, output)
    if not found.verdict.is_well:
        raise typer.Exit(1)
