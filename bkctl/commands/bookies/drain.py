"""``bkctl bookies drain``: a bookie is taken out of service, its cookie last."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.bookies.removal_options import (
    RemovalOptions,
    ledger_row,
    removal,
)
from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.frame.maintenance_warning import known_maintenance
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_one
from bkctl.commands.frame.quiet import is_quiet
from bkctl.commands.frame.terminal_text import escaped, unescaped
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.admin.bookie_removal import BookieRemoval
    from bkctl.metadata.api import MetadataStore
    from bkctl.replication.bookie_drain import DrainProgress, DrainResult
    from bkctl.replication.drain_plan import DrainPlan

DRAIN_SCHEMA: Schema = (
    Key("bookie", "string", "the bookie"),
    Key("outcome", "string", "done, done_with_losses, partly or blocked; with --dry-run, what it would be"),
    Key("reason", "string or null", "why it is not done"),
    Key("mode", "string or null", "rw, ro, or null when it is down, before anything was changed"),
    Key("ledgers", "int", "ledgers that named it"),
    Key("open_ledgers", "int", "those of them that were not closed, whose size is not known"),
    Key("entries", "int", "entries to be copied"),
    Key("bytes", "int", "bytes of them, about"),
    Key("targets", "array of objects", "bookies that may take them: bookie, free_bytes (null: unknown)"),
    Key("obstacles", "array", "what the plan found in the way"),
    Key("moved", "int", "ledgers that were moved; with --dry-run, would be"),
    Key("entries_written", "int", "entries that were copied"),
    Key("bytes_written", "int", "bytes of them"),
    Key("left", "int", "ledgers that still name it; with --dry-run, would"),
    Key("not_moved", "array of objects", "the first 1000 of them, as the rows of 'bookies recover'"),
    Key("losses", "array of objects", "ledgers whose loss was accepted, as these rows"),
    Key("off_policy", "int", "segments that do not keep to the placement policy with their new bookies"),
    Key("cookie_deleted", "bool", "whether its cookie was deleted"),
    Key("took_s", "number", "how long it took"),
    Key("dry_run", "bool", "whether nothing was changed"),
)

_UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="URL of the bookie's HTTP admin. Default: the one that it registered."
    ),
]
_WaitOption = Annotated[
    int,
    typer.Option(
        "--wait",
        metavar="TIME",
        parser=parse_duration_ms,
        help="How long to wait for writers and replication workers when nothing else is left to do.",
    ),
]
_PartlyOption = Annotated[
    bool,
    typer.Option("--partly", help="Begin even if the plan shows that some ledgers cannot be moved."),
]

#: How often a line of progress is written where stderr is no terminal.
_LINE_EVERY_S = 30.0

#: Ledgers that are named on stderr.
_NAMED_MAX = 10

_OUTCOMES = {0: "done", 1: "done_with_losses", 3: "partly", 4: "blocked"}


def register(app: typer.Typer) -> None:
    """Add the command to its noun."""
    app.command("drain")(drain_command)


@takes(DRAIN_SCHEMA)
def drain_command(
    bookie: Annotated[str, typer.Argument(metavar="ID", show_default=False, help="Id of the bookie.")],
    removing: RemovalOptions,
    url: _UrlOption = None,
    wait: _WaitOption = "1m",  # type: ignore[assignment]
    partly: _PartlyOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Take a bookie out of service: plan, make it read-only, move its ledgers, verify.

    The command copies the replicas itself, whether or not replication workers run. When no ledger names the
    bookie any more, it deletes the bookie's cookie; then stop the bookie. No writer fails: an active writer
    moves to another bookie when this one refuses its next entry. A ledger that an idle writer keeps open is
    not moved, unless --recover-open is given. After an interruption, run the command again: it continues.

    Exit code 0 when all is done; 1 when it is done with accepted losses; 3 when only a part is done; 4 when
    ledgers are blocked and none was moved; 6 for an unknown bookie. BKCTL_HTTP_TOKEN is sent to --url, and to
    the hosts in BKCTL_HTTP_TOKEN_HOSTS.

    Examples:

      bkctl bookies drain bookie-3:3181 --dry-run

      bkctl bookies drain bookie-3:3181 --yes -X replicationRateByBytes=50000000
    """
    removing.check(dry_run=dry_run)
    began_s = time.monotonic()
    with (
        open_cluster(cluster) as store,
        removal(store, [bookie], cluster, tls, removing) as work,
    ):
        known_maintenance(store)
        work.refuse_unknown()
        plan = work.plan()
        _tell_plan(plan)
        is_refused = bool(plan.obstacles) and not partly
        if dry_run:
            row, code = _rehearsed(work, plan)
        elif is_refused:
            row = _refused(plan)
        else:
            ask(f"move {counted(plan.ledgers, 'ledger')} off bookie {bookie} and delete its cookie", yes=yes)
            row, code = _drained(store, work, plan, url, wait, frozenset(removing.accept_losses or ()))
    if is_refused:
        code = 4
        row["reason"] = "; ".join([*plan.obstacles, "--partly moves what can be moved"])
    row |= {"bookie": bookie, "outcome": _OUTCOMES[code], "dry_run": dry_run}
    row["took_s"] = round(time.monotonic() - began_s, 3)
    _tell_not_moved(row)
    if chosen_format(output, one=True) is Format.TABLE:
        row = {key: value for key, value in row.items() if key not in ("not_moved", "losses")}
    write_one(row, DRAIN_SCHEMA, output)
    if code:
        raise typer.Exit(code)


def _drained(
    store: MetadataStore,
    work: BookieRemoval,
    plan: DrainPlan,
    url: str | None,
    wait_ms: int,
    accepted: frozenset[int],
) -> tuple[dict[str, Any], int]:
    """Drain a bookie; return the row and the exit code."""
    from bkctl.admin.bookie_removal import make_read_only
    from bkctl.replication.bookie_drain import DrainSettings

    if make_read_only(store, work.leaving[0], url):
        sys.stderr.write(f"bkctl: bookie {work.leaving[0]} is read-only now\n")
    with _Progress(plan) as shown:
        result = work.drain(DrainSettings(wait_ms=wait_ms, accepted=accepted), plan.bytes, shown.tell)
    return _row(plan, result), result.exit_code


def _rehearsed(work: BookieRemoval, plan: DrainPlan) -> tuple[dict[str, Any], int]:
    """Look at every ledger and write nothing; return the row and the exit code."""
    from bkctl.replication.bookie_drain import DrainTally

    tally = DrainTally(work.accepted)
    for one in work.moved(rehearse=True):
        tally.add(one)
    result = tally.result()
    return _row(plan, result), result.exit_code


def _refused(plan: DrainPlan) -> dict[str, Any]:
    from bkctl.replication.bookie_drain import DrainTally

    row = _row(plan, DrainTally().result())
    row["left"] = plan.ledgers
    row["not_moved"] = [ledger_row(one) for one in plan.rows]
    return row


def _row(plan: DrainPlan, result: DrainResult) -> dict[str, Any]:
    first = f"ledger {result.rows[0].ledger}: {result.rows[0].reason}" if result.rows else None
    return {
        "reason": result.reason or first,
        "mode": None if plan.mode is None else plan.mode.value,
        "ledgers": plan.ledgers,
        "open_ledgers": plan.open_ledgers,
        "entries": plan.entries,
        "bytes": plan.bytes,
        "targets": [{"bookie": one.bookie, "free_bytes": one.free_bytes} for one in plan.targets],
        "obstacles": list(plan.obstacles),
        "moved": result.moved,
        "entries_written": result.entries,
        "bytes_written": result.bytes,
        "left": result.left,
        "not_moved": [ledger_row(one) for one in result.rows],
        "losses": [ledger_row(one) for one in result.accepted],
        "off_policy": result.off_policy,
        "cookie_deleted": result.cookie_deleted,
    }


def _tell_plan(plan: DrainPlan) -> None:
    free = "unknown room" if plan.free_bytes is None else f"{_size(plan.free_bytes)} of room"
    sys.stderr.write(
        f"bkctl: plan: {counted(plan.ledgers, 'ledger')} ({plan.open_ledgers} open), "
        f"{counted(plan.entries, 'entry', 'entries')} of about {_size(plan.bytes)}, to "
        f"{counted(len(plan.targets), 'bookie')} with {free}\n"
    )
    for obstacle in plan.obstacles:
        sys.stderr.write(f"bkctl: plan: {obstacle}\n")


def _tell_not_moved(row: dict[str, Any]) -> None:
    for what in ("not_moved", "losses"):
        for one in row[what][:_NAMED_MAX]:
            entries = counted(one["lost_count"], "entry", "entries")
            lost = f" ({entries} lost, from {one['lost'][0]} on)" if one["lost"] else ""
            why = f": {one['reason']}" if one["reason"] else ""
            sys.stderr.write(f"bkctl: ledger {one['ledger']}: {one['outcome']}{lost}{why}\n")
    if len(row["not_moved"]) > _NAMED_MAX:
        sys.stderr.write(
            f"bkctl: {counted(row['left'], 'ledger stays', 'ledgers stay')} in all; -o json names them\n"
        )


class _Progress:
    """The rate of a drain and the time that is left.

    A terminal shows one line that changes; elsewhere a new line is written now and then.
    """

    def __init__(self, plan: DrainPlan) -> None:
        self._plan = plan
        self._line_s = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            _redraw("")

    def tell(self, at: DrainProgress) -> None:
        """Show the progress, if its time has come."""
        pause_s = 0.2 if self._is_terminal else _LINE_EVERY_S
        if time.monotonic() - self._line_s < pause_s:
            return
        self._line_s = time.monotonic()
        rate = "" if at.rate_bytes_per_s is None else f", {_size(int(at.rate_bytes_per_s))}/s"
        left = "" if at.left_s is None else f", {int(at.left_s)} s left"
        text = (
            f"{at.phase.value}: {at.moved} of {counted(self._plan.ledgers, 'ledger')}, {_size(at.bytes)} of "
            f"about {_size(self._plan.bytes)}{rate}{left}"
        )
        if self._is_terminal:
            _redraw(text)
        else:
            sys.stderr.write(f"bkctl: {text}\n")
            sys.stderr.flush()


def _redraw(text: str) -> None:
    """Write a line of the program's own over the last one; nothing with --quiet."""
    if not is_quiet():
        stream = unescaped(sys.stderr)
        stream.write(f"\r\x1b[K{escaped(text)}")
        stream.flush()


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
