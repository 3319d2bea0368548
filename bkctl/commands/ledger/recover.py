"""``bkctl ledger recover``: ledgers whose writer is gone are closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.ledger_options import LedgerConditions, LookOption, StateName, parse_ledger_id
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import Key, Schema, as_row, write_one, write_rows
from bkctl.commands.frame.progress import Advance, progress
from bkctl.commands.ledger.listing import LedgerListing
from bkctl.errors import UsageError
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.admin.ledgers.ledger_recovery import RecoveryFacts
    from bkctl.client.sync import BookKeeperSync
    from bkctl.metadata.ledger_filter import LedgerFilter

REPLICAS = "bookie, answered, lac, last_entry, fenced (null: not known), error"

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
    Key("adopted", "bool", "whether another client had closed it, or did so during the recovery"),
    Key("why", "string", "why it ends there"),
    Key(
        "rewrites",
        "array of objects",
        "first_entry, last_entry, bookies: what was written again, to whom; an ack quorum of them has it",
    ),
    Key("replicas", "array of objects", f"of the last ensemble: {REPLICAS}"),
    Key("error", "string or null", "why it failed"),
)


@takes(RECOVER_SCHEMA)
def recover_command(
    ledgers: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID...]", show_default=False, parser=parse_ledger_id, help="Ids of ledgers."),
    ] = None,
    all_open: Annotated[
        bool,
        typer.Option(
            "--all-open", help="Recover all OPEN and IN_RECOVERY ledgers that the next options select."
        ),
    ] = False,
    *,
    conditions: LedgerConditions,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", metavar="N", help="Number of ledgers that are recovered at the same time."
        ),
    ] = 8,
    watch: LookOption = "2s",  # type: ignore[assignment]
    stop_writers: Annotated[
        bool,
        typer.Option(
            "--stop-writers", help="With --all-open: also ledgers with an active writer, which is stopped."
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    password: PasswordOptions,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Recover ledgers whose writer is gone, and close them at their last entry.

    No acknowledged entry is lost, but a writer that is still alive is stopped. So the command first watches
    an open ledger. If a writer is active, it asks, or needs --yes (exit code 4 without). An idle writer looks
    like a writer that is gone. --all-open always asks, or needs --yes; it skips ledgers that are being
    written, unless --stop-writers is given.

    Closed ledgers are not changed, so the command can be run again after an interruption. --dry-run only
    watches and reads: it fences and writes nothing. It cannot show whether bookies have fenced the ledger,
    because bookies do not report this. With -o json, one id gives one object; several ids, or --all-open,
    give an array.

    Exit code 3 when a ledger could not be recovered (it stays IN_RECOVERY and loses no entry), when a ledger
    was skipped because of its writer, and when the metadata of a ledger cannot be decoded, so that its state
    is not known.

    Examples:

      bkctl ledger recover 42

      bkctl ledger recover 42 --dry-run -o json

      bkctl ledger recover --all-open --older-than 1h --yes
    """
    _check(ledgers, conditions, concurrency, all_open=all_open, stop_writers=stop_writers)
    secret = password.read()
    with open_client(cluster, tls) as client:
        run = _Run(client, concurrency, secret, watch / 1000, dry_run)
        if all_open:
            wanted = conditions.as_filter([StateName.OPEN, StateName.IN_RECOVERY])
            _recover_all_open(run, wanted, output, yes=yes, stop_writers=stop_writers)
        else:
            _recover_named(run, ledgers or [], output, yes=yes)


def _check(
    ledgers: list[int] | None,
    conditions: LedgerConditions,
    concurrency: int,
    *,
    all_open: bool,
    stop_writers: bool,
) -> None:
    if all_open == bool(ledgers):
        raise UsageError("name ledgers, or give --all-open (with --older-than, --bookie, --custom)")
    if not all_open and conditions.is_given:
        raise UsageError("--older-than, --newer-than, --bookie and --custom go with --all-open")
    if stop_writers and not all_open:
        raise UsageError("--stop-writers goes with --all-open; for ledgers that are named --yes says it")
    if concurrency < 1:
        raise UsageError("--concurrency: at least 1")


@dataclass(frozen=True, slots=True)
class _Run:
    """The settings of one run, as the options say them."""

    client: BookKeeperSync
    concurrency: int
    password: bytes | None
    watch_s: float
    dry_run: bool

    def recovered(self, ledgers: list[int]) -> Iterator[RecoveryFacts]:
        """Recover ledgers, and give the facts of each as it ends."""
        from bkctl.admin.ledgers.ledger_recovery import recover_ledgers
        from bkctl.client.ops.recovery import RecoverySettings

        client, settings = self.client, RecoverySettings(dry_run=self.dry_run)
        return client.flatten(
            recover_ledgers(
                client.client, ledgers, settings, at_once=self.concurrency, password=self.password
            )
        )

    def written(self, ledgers: list[int]) -> dict[int, str]:
        """Return those that a writer is at work on, and what it did while they were watched."""
        from bkctl.admin.ledgers.writer_watch import written_ledgers

        client = self.client
        return client.call(written_ledgers(client.client, ledgers, self.watch_s, password=self.password))


def _recover_named(run: _Run, ids: list[int], output: OutputOption, *, yes: bool) -> None:
    """Recover ledgers that are named; the error of a single one is the command's."""
    ledgers = list(dict.fromkeys(ids))
    if not run.dry_run and not yes:
        written = run.written(ledgers)
        if written:
            told = "; ".join(f"ledger {ledger}: {moved}" for ledger, moved in written.items())
            ask(f"stop a writer that is at work ({told})", yes=False)
    one = len(ids) == 1
    with progress("recovered", len(ledgers), counts="ledgers", streams_rows=not one) as advance:
        found = run.recovered(ledgers)
        if not one:
            failed = _write_many(found, output, advance)
            if failed:
                raise typer.Exit(3)
            return
        (facts,) = found
    if facts.error is not None:
        raise facts.error
    write_one(_recovery_row(facts), RECOVER_SCHEMA, output)


def _recover_all_open(
    run: _Run, conditions: LedgerFilter, output: OutputOption, *, yes: bool, stop_writers: bool
) -> None:
    """Recover all ledgers that are not closed; one that was deleted since the listing is no failure."""
    from bkctl.admin.ledgers.ledger_recovery import left_to_its_writer
    from bkctl.client.errors import NoSuchLedgerError

    with progress("listing", counts="ledgers") as advance:
        listing = LedgerListing(run.client.store, conditions, advance)
        wanted = [found.ledger for found in listing]
    written: dict[int, str] = {}
    if not wanted:
        typer.echo("bkctl: none of these ledgers is OPEN or IN_RECOVERY", err=True)
    elif not run.dry_run:
        others = "fence off writers that are still alive" if stop_writers else "leave those that are written"
        ask(f"recover {counted(len(wanted), 'ledger')}, and {others}", yes=yes)
        written = {} if stop_writers else run.written(wanted)
    rest = [ledger for ledger in wanted if ledger not in written]

    def found() -> Iterator[RecoveryFacts]:
        for ledger, moved in written.items():
            yield left_to_its_writer(ledger, moved)
        for facts in run.recovered(rest):
            if isinstance(facts.error, NoSuchLedgerError):
                typer.echo(f"bkctl: ledger {facts.ledger} was deleted meanwhile", err=True)
            else:
                yield facts

    with progress("recovered", len(wanted), counts="ledgers", streams_rows=True) as advance:
        failed = _write_many(found(), output, advance)
    if written:
        were = counted(len(written), "ledger is being written and was", "ledgers are being written and were")
        typer.echo(
            f"bkctl: {were} left alone; --stop-writers recovers such ledgers, too",
            err=True,
        )
    if listing.unreadable:
        typer.echo(
            f"bkctl: {counted(listing.unreadable, 'ledger is', 'ledgers are')} left out, as the metadata "
            "does not decode",
            err=True,
        )
    if failed or written or listing.unreadable:
        raise typer.Exit(3)


def _write_many(found: Iterable[RecoveryFacts], output: OutputOption, advance: Advance) -> int:
    """Write the rows of many ledgers, and return how many could not be recovered."""
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
        typer.echo(f"bkctl: {failed} of {counted(failed + done, 'ledger')} could not be recovered", err=True)
    return failed


def _recovery_row(facts: RecoveryFacts) -> dict[str, Any]:
    return {**as_row(facts), "error": None if facts.error is None else str(facts.error)}
