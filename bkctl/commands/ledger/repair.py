"""``bkctl ledger repair``: replicas of ledgers made whole on the bookies that the metadata name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.ledger_options import parse_ledger_id
from bkctl.commands.frame.losses_file import write_losses
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions, file_content
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.ledger.listing import LedgerListing
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import CorruptionError, RefusedError, UsageError, WrongFileError
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.client.sync import BookKeeperSync
    from bkctl.replication.in_place_repair import InPlaceSettings
    from bkctl.replication.repair_outcome import BookieOutcome, LedgerOutcome

_RANGES = "array of [first, last]"

REPAIR_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key(
        "bookie", "string or null", "a bookie that the metadata name; null where the ledger failed as a whole"
    ),
    Key("entries", "int", "entries that it should have"),
    Key("present", "int", "of these, those that were there with a digest that checks"),
    Key("never_written", "int", "those of which it said that it has none"),
    Key("unknown", "int", "those that it answered with an error, or could not decide because of limbo"),
    Key("corrupt", "int", "those whose digest did not check"),
    Key("different", "int", "those that are proved and have another payload than elsewhere"),
    Key("no_answer", "int", "those that nothing was heard of"),
    Key("copied", "int", "what was copied there and read back; with --dry-run, would be"),
    Key("rewritten", "int", "what was there and was copied as well, because a corrupt one stood behind it"),
    Key("left", _RANGES, "entries that are not there now"),
    Key("reason", "string", "why the first of them is not"),
    Key("limbo", "string", "no, left (it is out of limbo now), would_leave, stays, or not_known"),
    Key("limbo_reason", "string", "why it stays"),
    Key(
        "lost", _RANGES, "entries of the ledger that no replica proves, though each of their bookies answered"
    ),
    Key("not_known", _RANGES, "entries that only a bookie may have that does not answer"),
    Key("conflicts", _RANGES, "entries with replicas that prove themselves and differ; they are left alone"),
    Key("recovered", "bool", "whether the ledger was closed first"),
    Key("dry_run", "bool", "whether nothing was done"),
    Key("error", "string or null", "why the ledger was left alone"),
)

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="LOSSES",
        help="Repair the ledgers of a list of losses, which --losses of another repair has written.",
    ),
]
LostOption = Annotated[
    str | None,
    typer.Option(
        "--losses", metavar="FILE", help="At the end, write the lost entries into a new file, as JSON."
    ),
]


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """How a repair goes about it."""

    bookie: Annotated[
        list[str] | None,
        typer.Option(
            "--bookie",
            metavar="ID",
            help="Check and repair only this bookie; without ids, all ledgers that name it. May be repeated.",
        ),
    ] = None
    recover: Annotated[
        bool, typer.Option("--recover", help="Close a ledger that is open first, which stops its writer.")
    ] = False
    rate: Annotated[
        int | None,
        typer.Option(
            "--rate",
            metavar="SIZE",
            parser=parse_byte_size,
            help="Limit of the bytes that are copied in a second, such as 10M.",
        ),
    ] = None
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", metavar="N", min=1, help="Number of ledgers that are repaired at the same time."
        ),
    ] = 4
    http: Annotated[
        list[str] | None,
        typer.Option(
            "--http",
            metavar="ID=URL",
            help="HTTP admin of a bookie, if it is not the registered one. May be repeated.",
        ),
    ] = None
    dry_run: DryRunOption = False
    yes: YesOption = False

    def urls(self) -> dict[str, str]:
        """Return the HTTP admins that were named. Raises UsageError."""
        found = {}
        for text in self.http or ():
            bookie, equals, url = text.partition("=")
            if not bookie or not equals:
                raise UsageError(f"--http {text}: expected ID=http://host:port")
            found[bookie] = url
        return found


@takes(REPAIR_SCHEMA)
def repair_command(
    ledgers: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID...]", show_default=False, parser=parse_ledger_id, help="Ids of ledgers."),
    ] = None,
    source: FromOption = None,
    losses: LostOption = None,
    *,
    how: RepairOptions,
    password: PasswordOptions,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Copy missing and corrupt entries to the bookies that should have them; clear limbo.

    Every entry is read from each of its bookies. A missing, unknown or corrupt replica is written again,
    copied from a replica whose digest matches, and read back. The command does not change metadata or good
    replicas, so it can be run again after an interruption. A ledger that is not closed is refused; with
    --recover, it is closed first. Entries without any good replica are listed as lost, and --losses writes
    them to a file. The command does not replace lost entries by invented ones, and the ledger keeps its
    length.

    A ledger is in limbo on a bookie that may have lost entries of it: the bookie answers "unknown" for a
    missing one. When a bkctl bookie has every entry again, the limbo is cleared. A Java bookie keeps the flag
    until it is stopped ('bkctl index limbo --clear'), and loses no entry by this. A Java bookie may also
    serve a corrupt entry from its read cache until it is restarted; readers detect this by the digest.

    Exit code 0 when every replica is good, 3 when some replica is not, 6 for an unknown bookie, and 1 with
    --dry-run when there are replicas to repair.

    Examples:

      bkctl ledger repair 42 --dry-run

      bkctl ledger repair --from losses.json --yes

      bkctl ledger repair --bookie bookie-3:3181 --rate 50M --yes
    """
    from bkctl.admin.ledgers.limbo_over_http import LimboOverHttp
    from bkctl.admin.ledgers.replica_repair import lost_for_good, refuse_unknown_bookies, repair_ledgers
    from bkctl.replication.in_place_repair import InPlaceSettings

    settings = InPlaceSettings(
        bookies=None if how.bookie is None else frozenset(how.bookie),
        dry_run=how.dry_run,
        recovers=how.recover,
        password=password.read(),
    )
    urls, named = how.urls(), _named(ledgers, source)
    if named is None and how.bookie is None:
        raise UsageError("name ledgers, or give --from LOSSES, or --bookie ID for all ledgers of a bookie")
    if losses is not None and os.path.lexists(losses):
        raise RefusedError(f"{losses}: there is such a file already (--losses)")
    run = _Run(settings)
    with open_client(cluster, tls) as client:
        wanted = named if named is not None else _of_bookies(client, how.bookie or [])
        refuse_unknown_bookies(client.store, how.bookie or (), wanted)
        if not how.dry_run:
            ask(f"copy what replicas of {counted(len(wanted), 'ledger')} lack", yes=how.yes)
        leave = LimboOverHttp(client.store, urls).leave
        batches = repair_ledgers(
            client.client, wanted, settings, leave, at_once=how.concurrency, bytes_per_s=how.rate
        )
        with progress("repaired", len(wanted), counts="ledgers", streams_rows=True) as advance:
            write_rows(run.rows(client.flatten(batches), advance), REPAIR_SCHEMA, output)
    write_losses(losses, lost_for_good(run.lossy))
    run.say()
    if run.code:
        raise typer.Exit(run.code)


def _named(ledgers: list[int] | None, source: str | None) -> list[int] | None:
    """Return the ledgers that are named, None where none is."""
    if ledgers and source is not None:
        raise UsageError("name ledgers, or give --from, not both")
    if source is None:
        return list(dict.fromkeys(ledgers)) if ledgers else None
    from bkctl.codec.losses import DOCUMENT, decode_losses

    content = file_content(source, "--from")
    if not DOCUMENT.is_one(content):
        raise WrongFileError(source, f"a {DOCUMENT.title}", "JSON that an option --losses writes")
    try:
        return [loss.ledger for loss in decode_losses(content).losses]
    except CorruptionError as error:
        raise error.located(source) from None


def _of_bookies(client: BookKeeperSync, bookies: list[str]) -> list[int]:
    from bkctl.metadata.ledger_filter import LedgerFilter

    with progress("listing", counts="ledgers") as advance:
        listing = LedgerListing(client.store, LedgerFilter(bookies=frozenset(bookies)), advance)
        found = [stored.ledger for stored in listing]
    if listing.unreadable:
        raise UsageError(
            f"the metadata of {counted(listing.unreadable, 'ledger')} does not decode, so that nobody knows "
            "whether these bookies have entries of such ledgers: name the ledgers to repair"
        )
    return found


class _Run:
    """Counts what became of the ledgers, and keeps those that lost something."""

    def __init__(self, settings: InPlaceSettings) -> None:
        self._dry_run = settings.dry_run
        self.lossy: list[LedgerOutcome] = []
        self._ledgers = self._copied = self._not_whole = self._to_do = self._in_limbo = 0

    def rows(self, found: Iterator[LedgerOutcome], advance: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows of ledgers as they end."""
        for outcome in found:
            self._note(outcome)
            advance(1)
            for one in outcome.bookies.values():
                yield _row(outcome, one, dry_run=self._dry_run)
            if not outcome.bookies or outcome.error is not None:
                yield _row(outcome, None, dry_run=self._dry_run)

    def _note(self, outcome: LedgerOutcome) -> None:
        self._ledgers += 1
        self._copied += sum(one.copied for one in outcome.bookies.values())
        self._not_whole += not outcome.is_whole
        self._to_do += not outcome.was_whole or outcome.has_limbo
        self._in_limbo += outcome.stays_in_limbo
        if outcome.lost:
            self.lossy.append(outcome)

    @property
    def code(self) -> int:
        """The exit code."""
        if self._dry_run:
            return 1 if self._to_do else 0
        return 3 if self._not_whole else 0

    def say(self) -> None:
        """Say on stderr what it comes to."""
        done = "would be copied" if self._dry_run else "copied and read back"
        parts = [counted(self._ledgers, "ledger"), f"{counted(self._copied, 'replica')} {done}"]
        if self._not_whole:
            parts.append(f"not whole: {self._not_whole}")
        if self._in_limbo:
            parts.append(f"in limbo on a bookie still: {self._in_limbo}")
        if self.lossy:
            parts.append(f"with entries that no replica proves: {len(self.lossy)}")
        typer.echo(f"bkctl: {', '.join(parts)}", err=True)


def _row(outcome: LedgerOutcome, one: BookieOutcome | None, *, dry_run: bool) -> dict[str, Any]:
    states = {} if one is None else {state.value: count for state, count in one.states.items()}
    return {
        "ledger": outcome.ledger,
        "bookie": None if one is None else one.bookie,
        "entries": 0 if one is None else one.entries,
        **{key: states.get(key, 0) for key in _STATES},
        "copied": 0 if one is None else one.copied,
        "rewritten": 0 if one is None else one.rewritten,
        "left": [] if one is None else _ranges(one.left.ranges),
        "reason": "" if one is None else one.reason,
        "limbo": "not_known" if one is None else one.limbo.value,
        "limbo_reason": "" if one is None else one.limbo_reason,
        "lost": _ranges(outcome.lost.ranges),
        "not_known": _ranges(outcome.not_known.ranges),
        "conflicts": _ranges(outcome.conflicts.ranges),
        "recovered": outcome.recovered,
        "dry_run": dry_run,
        "error": None if outcome.error is None else str(outcome.error),
    }


_STATES = ("present", "never_written", "unknown", "corrupt", "different", "no_answer")


def _ranges(ranges: tuple[tuple[int, int], ...]) -> list[list[int]]:
    return [list(each) for each in ranges]
