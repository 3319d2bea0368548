"""``bkctl gc``: what a bookie's entry logs hold, what can be reclaimed, and reclaiming it.

Of directories, or with ``--url`` of a running bookie (``gc_online``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.known_cluster import KnownClusterOptions
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import LogOption, OutputOption, UrlOption, noun_app, url_unless
from bkctl.commands.frame.output import Format, chosen_format, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.gc import online, run
from bkctl.commands.gc.offline import PathsArgument, asked_cluster, only_url, spaces_of, threshold_share
from bkctl.commands.gc.rows import (
    EXPLAIN_SCHEMA,
    PLAN_SCHEMA,
    damaged_line,
    explain_keys,
    explained,
    held_line,
    write_plan,
)
from bkctl.errors import NotFoundError, UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.gc.explain import LogRow
    from bkctl.admin.gc.plan import Candidates
    from bkctl.admin.gc.survey import Survey

app = noun_app("Garbage in entry logs: explain, plan, reclaim.")

_QuickOption = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Do not read the logs, but trust their ledgers maps and the bookie's cache; duplicate copies "
        "then count as live.",
    ),
]


_MinorThresholdOption = Annotated[
    float,
    typer.Option(
        "--minor",
        metavar="SHARE",
        parser=threshold_share,
        help="Share of live bytes below which a minor compaction takes a log.",
    ),
]
_MajorThresholdOption = Annotated[
    float,
    typer.Option(
        "--major",
        metavar="SHARE",
        parser=threshold_share,
        help="Share of live bytes below which a major compaction takes a log.",
    ),
]


@app.command("explain")
@takes(EXPLAIN_SCHEMA)
def explain_command(
    context: typer.Context,
    paths: PathsArgument = None,
    url: UrlOption = None,
    log: LogOption = None,
    minor: _MinorThresholdOption = 0.2,
    major: _MajorThresholdOption = 0.8,
    quick: _QuickOption = False,
    *,
    known: KnownClusterOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Show how much of each entry log is alive, and why the log stays or goes.

    An entry is live if its ledger still exists and the index points to the copy in this log. A bookie also
    counts the copies that replays and compactions leave behind (counted_bytes). Ledgers are live if the
    metadata store, or a dump of it, has them; without either, if the ledger index has a row.

    With --url the command asks a running bookie. A bookie of bkctl reports what its last collection found,
    and what it will do with its own thresholds. A Java bookie only reports the state of its compactions
    (gc_details), with one row for each ledger directory.

    Exit code 1 when a log is damaged, or when the index lacks entries of a log; all other logs are still
    explained.

    Examples:

      bkctl gc explain /data/bookie --metadata zk://host:2181/ledgers

      bkctl gc explain /data/bookie/ledgers --log 1c.log -o json

      bkctl gc explain --url http://bookie-3:8080
    """
    url = url_unless(url, context, given=paths)
    if url is not None:
        only_url(context, paths, "log", "output")
        raise typer.Exit(online.explain(url, log, output))
    from bkctl.admin.gc.explain import Thresholds, explain
    from bkctl.clock import SystemClock

    if minor > major:
        raise UsageError(f"--minor {minor:g} must not be above --major {major:g}")
    filesystem, spaces = PosixFileSystem(), spaces_of(paths)
    told = _Told()
    bytes_total = sum(space.bytes_total for space in spaces)
    with (
        asked_cluster(context, known) as cluster,
        progress("reading logs", bytes_total, streams_rows=True) as advance,
    ):
        rows = explain(
            filesystem,
            spaces,
            cluster,
            SystemClock(),
            thresholds=Thresholds(minor, major),
            quick=quick,
            log_id=log,
            advance=advance,
            reserve=told.reserve,
        )
        table = chosen_format(output) is Format.TABLE
        count = write_rows((explained(row, table) for row in told.watch(rows)), explain_keys(table), output)
    if log is not None and not count:
        raise NotFoundError(f"no entry log {log} (0x{log:x}) in {', '.join(paths or ())}")
    raise typer.Exit(told.exit_code)


@app.command("plan")
@takes(PLAN_SCHEMA)
def plan_command(
    context: typer.Context,
    paths: PathsArgument = None,
    url: UrlOption = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="SHARE",
            parser=threshold_share,
            help="Show the steps at this threshold, a share of live bytes from 0 to 1, in their order.",
        ),
    ] = None,
    quick: _QuickOption = False,
    *,
    known: KnownClusterOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Show what could be reclaimed at thresholds 0.1 to 0.9, and at what cost.

    The column 'garbage' shows the bytes of logs without a live ledger ('garbage_logs'): these can be removed
    without a copy. 'logs' counts the logs with a smaller share of live bytes than the threshold. Compacting
    them copies 'copied' bytes and frees 'freed' bytes; the copies are already subtracted. 'reclaimed' is the
    sum of garbage and freed.

    With --threshold the command shows the steps in their order: first the logs without a live ledger, the
    largest first; then the compactions, the emptiest log first (on a disk that is nearly full: the log with
    the most freed bytes for each copied byte first). Logs that 'bkctl gc explain' shows as set_aside or held
    are not included. Exit code 1 when a log is damaged; 4 with the --url of a Java bookie, which does not
    report what its logs hold.

    Examples:

      bkctl gc plan /data/bookie --metadata zk://host:2181/ledgers

      bkctl gc plan /data/bookie/ledgers --threshold 0.5

      bkctl gc plan --url http://bookie-3:8080
    """
    url = url_unless(url, context, given=paths)
    if url is not None:
        only_url(context, paths, "threshold", "output")
        raise typer.Exit(online.plan(url, threshold, output))
    from bkctl.admin.gc.plan import is_scarce, plan
    from bkctl.clock import SystemClock

    filesystem, spaces = PosixFileSystem(), spaces_of(paths)
    told = _Told()
    with (
        asked_cluster(context, known) as cluster,
        progress("reading logs", sum(space.bytes_total for space in spaces), streams_rows=True) as advance,
    ):
        every = plan(
            filesystem, spaces, cluster, SystemClock(), quick=quick, advance=advance, reserve=told.reserve
        )
        planned = told.planned(every)
        rooms = ((each, *is_scarce(filesystem, each.directory)) for each in planned)
        write_plan(rooms, threshold, output)
    raise typer.Exit(told.exit_code)


class _Told:
    """The findings that are worth an exit code, reported on stderr as they come."""

    def __init__(self) -> None:
        self.exit_code = 0

    def watch(self, rows: Iterable[LogRow]) -> Iterator[LogRow]:
        for row in rows:
            if row.alarming:
                self._tell(row.path, row.why)
            yield row

    def planned(self, planned: Iterable[Candidates]) -> Iterator[Candidates]:
        for each in planned:
            for log, why in each.damaged:
                self._tell(log.path, why)
            if each.held:
                sys.stderr.write(held_line(each))
            yield each

    def reserve(self, found: Survey) -> None:
        """Report why the metadata do not prove that ledgers are gone.

        It is a finding when the store went back.
        """
        reservation = found.known.reservation
        if reservation is not None:
            sys.stderr.write(f"bkctl: {found.space.dir}: {reservation}\n")
            self.exit_code |= int(found.known.rolled_back is not None)

    def _tell(self, path: str, why: str) -> None:
        self.exit_code = 1
        sys.stderr.write(damaged_line(path, why))


app.command("run")(run.run_command)
