"""``bkctl ledger recover | fence``: ledgers whose writer is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.cluster_options import (
    ClusterConfOption,
    MetadataUriOption,
    OverrideOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
    open_client,
)
from bkctl.commands.consent import DryRunOption, YesOption, ask
from bkctl.commands.ledger_listing import LedgerListing
from bkctl.commands.ledger_options import (
    BookieOption,
    CustomOption,
    LedgerArgument,
    NewerOption,
    OlderOption,
    StateName,
    ledger_filter,
    parse_ledger_id,
)
from bkctl.commands.options import (
    OutputOption,
    PasswordFileOption,
    PasswordHexOption,
    PasswordOption,
    read_password,
    schema_option,
)
from bkctl.commands.output import Key, Schema, as_row, write_one, write_rows
from bkctl.commands.progress import Advance, progress
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.admin.online.ledger_recovery import RecoveryFacts
    from bkctl.admin.online.ledgers import LedgerFilter
    from bkctl.client.sync import BookKeeperSync
    from bkctl.metadata.api import MetadataStore

_REPLICAS = "bookie, answered, lac, last_entry, fenced (null: not known), error"

RECOVER_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("dry_run", "bool", "whether nothing was done"),
    Key("previous_state", "string or null", "OPEN, IN_RECOVERY or CLOSED before"),
    Key("state", "string or null", "what is stored now"),
    Key("last_entry", "int or null", "where it is closed, or with --dry-run would be; -1 when empty"),
    Key("length", "int or null", "payload bytes of the closed ledger"),
    Key("length_exact", "bool", "false when the last entry's header could not be read: then it may be more"),
    Key("lac_found", "int or null", "last entry known to be confirmed before"),
    Key("entries_rewritten", "int", "entries behind that which were found and written again, or would be"),
    Key("adopted", "bool", "whether another client had closed it, or did so meanwhile"),
    Key("why", "string", "why it ends there"),
    Key(
        "rewrites",
        "array of objects",
        "first_entry, last_entry, bookies: what was written again, to whom; an ack quorum of them has it",
    ),
    Key("replicas", "array of objects", f"of the last ensemble: {_REPLICAS}"),
    Key("error", "string or null", "why it failed"),
)

FENCE_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED; fencing does not change it"),
    Key("covered", "bool", "whether the writer gets no ack quorum from this ensemble any more"),
    Key("guarantee", "string", "what that means"),
    Key("replicas", "array of objects", f"of the last ensemble: {_REPLICAS}"),
)


def register(app: typer.Typer) -> None:
    """Add the commands to the app of ``bkctl ledger``."""
    app.command("recover")(recover_command)
    app.command("fence")(fence_command)


def recover_command(
    ledgers: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID...]", show_default=False, parser=parse_ledger_id, help="Ids of ledgers."),
    ] = None,
    all_open: Annotated[
        bool, typer.Option("--all-open", help="All ledgers that are OPEN or IN_RECOVERY, of those below.")
    ] = False,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    bookie: BookieOption = None,
    custom: CustomOption = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", help="Ledgers recovered at once.")
    ] = 8,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    password: PasswordOption = None,
    password_file: PasswordFileOption = None,
    password_hex: PasswordHexOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(RECOVER_SCHEMA)] = False,
) -> None:
    """[online] [writes] Recover ledgers whose writer is gone, and close them where the protocol says.

    Nothing acknowledged is lost. A writer that is still alive is fenced off, so take care with --all-open: it
    asks, or needs --yes. Ledgers that are closed are left as they are: run it again after an interruption.
    --dry-run fences and writes nothing; bookies do not tell it whether they have fenced the ledger.
    The exit code is 3 when a ledger could not be recovered; it stays IN_RECOVERY, and nothing is lost. So it
    is when metadata does not decode, where nobody can say whether the ledger is open.

    Examples:

      bkctl ledger recover 42

      bkctl ledger recover 42 --dry-run -o json

      bkctl ledger recover --all-open --older-than 1h --yes
    """
    if all_open == bool(ledgers):
        raise UsageError("name ledgers, or give --all-open (with --older-than, --bookie, --custom)")
    if not all_open and (older_than, newer_than, bookie, custom) != (None, None, None, None):
        raise UsageError("--older-than, --newer-than, --bookie and --custom go with --all-open")
    if concurrency < 1:
        raise UsageError("--concurrency: at least 1")
    secret = read_password(password, password_file, password_hex)
    with open_client(conf, override, metadata_uri, tls_ca, tls_cert, tls_key) as client:
        wanted, unreadable = list(dict.fromkeys(ledgers or ())), 0
        if all_open:
            states = [StateName.OPEN, StateName.IN_RECOVERY]
            conditions = ledger_filter(states, older_than, newer_than, bookie, custom)
            wanted, unreadable = _listed(client.store, conditions)
            if not wanted:
                typer.echo("bkctl: none of these ledgers is OPEN or IN_RECOVERY", err=True)
            elif not dry_run:
                ask(f"recover {len(wanted)} ledgers, and fence off writers that are still alive", yes=yes)
        one = len(wanted) == 1 and not all_open
        _recover(client, wanted, concurrency, secret, output, dry_run=dry_run, one=one)
    if unreadable:
        typer.echo(f"bkctl: {unreadable} ledgers whose metadata does not decode were left out", err=True)
        raise typer.Exit(3)


def _recover(
    client: BookKeeperSync,
    ledgers: list[int],
    concurrency: int,
    password: bytes | None,
    output: OutputOption,
    *,
    dry_run: bool,
    one: bool,
) -> None:
    """``one``: a command about one ledger, whose error is the command's."""
    from bkctl.admin.online.ledger_recovery import recover_ledgers
    from bkctl.client.ops.recovery import RecoverySettings

    settings = RecoverySettings(dry_run=dry_run)
    with progress("recovered", len(ledgers), counts="ledgers", streams_rows=not one) as advance:
        found = client.flatten(
            recover_ledgers(client.client, ledgers, settings, at_once=concurrency, password=password)
        )
        if not one:
            _write_many(found, output, advance)
            return
        (facts,) = found
    if facts.error is not None:
        raise facts.error
    write_one(_recovery_row(facts), RECOVER_SCHEMA, output)


def _listed(store: MetadataStore, wanted: LedgerFilter) -> tuple[list[int], int]:
    """The ids of the wanted ledgers, and how many could not be looked at."""
    with progress("listing", counts="ledgers") as advance:
        listing = LedgerListing(store, wanted, advance)
        return [found.ledger for found in listing], listing.unreadable


def _write_many(found: Iterable[RecoveryFacts], output: OutputOption, advance: Advance) -> None:
    failed = done = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal failed, done
        for facts in found:
            failed += facts.error is not None
            done += facts.error is None
            advance(1)
            yield _recovery_row(facts)

    write_rows(rows(), RECOVER_SCHEMA, output)
    if failed:
        typer.echo(f"bkctl: {failed} of {failed + done} ledgers could not be recovered", err=True)
        raise typer.Exit(3)


def _recovery_row(facts: RecoveryFacts) -> dict[str, Any]:
    return {**as_row(facts), "error": None if facts.error is None else str(facts.error)}


def fence_command(
    ledger: LedgerArgument,
    password: PasswordOption = None,
    password_file: PasswordFileOption = None,
    password_hex: PasswordHexOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(FENCE_SCHEMA)] = False,
) -> None:
    """[online] [writes] Fence a ledger on every bookie of its last ensemble that answers, without closing it.

    Says what that guarantees. The exit code is 3 when too few bookies answered for the writer to be stopped.

    Examples:

      bkctl ledger fence 42
    """
    from bkctl.admin.online.ledger_recovery import fence_ledger

    secret = read_password(password, password_file, password_hex)
    with open_client(conf, override, metadata_uri, tls_ca, tls_cert, tls_key) as client:
        facts = client.call(fence_ledger(client.client, ledger, password=secret))
    write_one(facts, FENCE_SCHEMA, output)
    if not facts.covered:
        raise typer.Exit(3)
