"""``bkctl gc``: what a bookie's entry logs hold, what can be reclaimed, and reclaiming it.

Of directories, or with ``--url`` of a running bookie (``gc_online``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.known_cluster import KnownClusterOptions, TrustDumpOption, known_cluster
from bkctl.commands.frame.metadata_options import DumpOrClusterOptions, OldDumpOption
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import LogOption, OutputOption, UrlOption, noun_app, url_unless
from bkctl.commands.frame.output import Format, chosen_format, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.frame.targets import default_paths
from bkctl.commands.gc import online
from bkctl.commands.gc.rows import (
    EXPLAIN_SCHEMA,
    PLAN_SCHEMA,
    RUN_SCHEMA,
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
    from bkctl.admin.gc.run import RunOptions, RunRow, Work
    from bkctl.admin.gc.survey import Survey
    from bkctl.admin.ledgers.known_ledgers import Cluster
    from bkctl.directories.holders import DirectoryLock
    from bkctl.directories.index_spaces import IndexSpace

app = noun_app("[offline] [online] [reads] [writes] Garbage in entry logs: explain, plan, reclaim.")

_PathsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH...]",
        show_default=False,
        help="A ledger directory, its 'current', or a folder that holds several. Default: ./bkctl-data. Not "
        "with --url.",
    ),
]

_QuickOption = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Trust ledgers maps and the bookie's cache instead of reading the logs; duplicate "
        "copies count as live.",
    ),
]


def _threshold(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError(f"{text!r} is not above 0 and at most 1.")
    return value


_MinorThresholdOption = Annotated[
    float, typer.Option("--minor", metavar="SHARE", parser=_threshold, help="minorCompactionThreshold.")
]
_MajorThresholdOption = Annotated[
    float, typer.Option("--major", metavar="SHARE", parser=_threshold, help="majorCompactionThreshold.")
]
_CompactOption = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="SHARE",
        parser=_threshold,
        help="Also compact logs with a smaller share of live bytes. Without it nothing is copied.",
    ),
]
_DeleteOption = Annotated[
    bool,
    typer.Option("--delete-ledgers", help="Also delete ledgers that the metadata store does not have."),
]
_ConfirmOption = Annotated[
    bool,
    typer.Option("--confirm-deletions", help="Go on where more than half of the ledgers look deleted."),
]
_ScratchOption = Annotated[
    str | None,
    typer.Option(
        "--scratch",
        metavar="DIR",
        help="A directory on another disk, for copies that this one has no room for until a log is gone.",
    ),
]
_MajorOption = Annotated[
    bool, typer.Option("--major", help="With --url: compact below majorCompactionThreshold.")
]
_MinorOption = Annotated[
    bool, typer.Option("--minor", help="With --url: compact below minorCompactionThreshold.")
]


@app.callback()
def noun() -> None:
    """[offline] [online] [reads] [writes] Garbage in entry logs: explain, plan, reclaim."""


@app.command("explain")
@takes(EXPLAIN_SCHEMA)
def explain_command(
    context: typer.Context,
    paths: _PathsArgument = None,
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

    An entry is live if its ledger still exists and the index points at the copy in this log. A bookie also
    counts the copies that replays and compactions leave behind (counted_bytes). Ledgers are live when the
    metadata store, or a dump of it, has them; with neither, when the ledger index has a row.

    With --url a running bookie is asked: one of bkctl's reports what its last collection found and what it
    will do with its own thresholds; a Java bookie reports only how its compactions stand (gc_details), a
    row for each of its ledger directories.

    Exit code 1 when a log is damaged or entries of it are missing from the index; the other logs are
    explained all the same.

    Examples:

      bkctl gc explain /data/bookie --metadata zk://host:2181/ledgers

      bkctl gc explain /data/bookie/ledgers --log 1c.log -o json

      bkctl gc explain --url http://bookie-3:8080
    """
    url = url_unless(url, context, given=paths)
    if url is not None:
        _only_url(context, paths, "log", "output")
        raise typer.Exit(online.explain(url, log, output))
    from bkctl.admin.gc.explain import Thresholds, explain
    from bkctl.clock import SystemClock

    if minor > major:
        raise UsageError(f"--minor {minor:g} must not be above --major {major:g}")
    filesystem, spaces = PosixFileSystem(), _spaces(paths)
    told = _Told()
    bytes_total = sum(space.bytes_total for space in spaces)
    with (
        _cluster(context, known) as cluster,
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
    paths: _PathsArgument = None,
    url: UrlOption = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold", metavar="SHARE", parser=_threshold, help="The order of work at this threshold."
        ),
    ] = None,
    quick: _QuickOption = False,
    *,
    known: KnownClusterOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Show what could be reclaimed at thresholds 0.1 to 0.9, and at what cost.

    With --threshold the steps, in their order: logs without a live ledger, the largest first, then
    compactions, the emptiest first (on a disk that is nearly full: most bytes won for each byte copied).
    Logs that 'bkctl gc explain' shows as set_aside or held are in neither. Exit code 1 when one is damaged, 4
    with --url of a Java bookie, which does not say.

    Examples:

      bkctl gc plan /data/bookie --metadata zk://host:2181/ledgers

      bkctl gc plan /data/bookie/ledgers --threshold 0.5

      bkctl gc plan --url http://bookie-3:8080
    """
    url = url_unless(url, context, given=paths)
    if url is not None:
        _only_url(context, paths, "threshold", "output")
        raise typer.Exit(online.plan(url, threshold, output))
    from bkctl.admin.gc.plan import is_scarce, plan
    from bkctl.clock import SystemClock

    filesystem, spaces = PosixFileSystem(), _spaces(paths)
    told = _Told()
    with (
        _cluster(context, known) as cluster,
        progress("reading logs", sum(space.bytes_total for space in spaces), streams_rows=True) as advance,
    ):
        every = plan(
            filesystem, spaces, cluster, SystemClock(), quick=quick, advance=advance, reserve=told.reserve
        )
        planned = told.planned(every)
        rooms = ((each, *is_scarce(filesystem, each.directory)) for each in planned)
        write_plan(rooms, threshold, output)
    raise typer.Exit(told.exit_code)


@app.command("run")
@takes(RUN_SCHEMA)
def run_command(
    context: typer.Context,
    paths: _PathsArgument = None,
    url: UrlOption = None,
    threshold: _CompactOption = None,
    delete_ledgers: _DeleteOption = False,
    trust_dump: TrustDumpOption = False,
    confirm_deletions: _ConfirmOption = False,
    scratch: _ScratchOption = None,
    major: _MajorOption = False,
    minor: _MinorOption = False,
    ledger_metadata: OldDumpOption = None,
    *,
    store: DumpOrClusterOptions,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [writes] Remove logs without a live ledger; with --threshold compact others.

    Works on the directories of a stopped bookie, ours or Java's, of any ledger storage. A ledger counts as
    dead when the ledger index has no row and nothing else speaks for it; with --delete-ledgers also when the
    metadata store does not list it and a read of its own does not find it. Sorted- and
    InterleavedLedgerStorage have an .idx file in any of a bookie's index directories: all directories that
    the cookie names must be found, and without a cookie nothing is done (4).

    On a disk that is too full for the copy of a log, --scratch takes it first, the log goes, and the copy
    comes back; cut off in between, it is finished by the next run or by the bookie, which both need DIR.

    With --url a running bookie, ours or Java's, collects now, and compacts with --major or --minor by its
    own thresholds; 'bkctl bookie gc' does the same without a question.

    Refuses (4) while a bookie uses the directory, and where the index may be incomplete, because every
    entry that it does not know would look dead. Exit code 1 when a damaged log was quarantined, 3 when
    something was left undone.

    Examples:

      bkctl gc run /data/bookie --dry-run

      bkctl gc run /data/bookie --metadata zk://host:2181/ledgers --delete-ledgers --threshold 0.5 --yes

      bkctl gc run --url http://bookie-3:8080 --major --yes
    """
    url = url_unless(url, context, given=paths)
    if url is not None:
        _only_url(context, paths, "confirm_deletions", "major", "minor", "yes", "output")
        raise typer.Exit(online.run(url, major, minor, confirm_deletions, yes=yes, output=output))
    from bkctl.admin.gc.run import RunOptions

    if major or minor:
        raise UsageError("--major and --minor go with --url; with PATH it is --threshold")
    known = KnownClusterOptions(ledger_metadata, trust_dump, store)
    if delete_ledgers and known.ledger_metadata and not trust_dump:
        raise UsageError("--delete-ledgers by a dump deletes ledgers on old news: add --trust-dump")
    with _cluster(context, known) as cluster:
        if delete_ledgers and not (cluster.is_live or trust_dump):
            raise UsageError("--delete-ledgers needs --metadata, which tells what was deleted")
        code = _run(
            _spaces(paths),
            cluster,
            RunOptions(threshold, delete_ledgers, confirm_deletions, _scratch_directory(scratch)),
            dry_run=dry_run,
            yes=yes,
            output=output,
        )
    raise typer.Exit(code)


def _run(
    spaces: list[IndexSpace],
    cluster: Cluster,
    options: RunOptions,
    *,
    dry_run: bool,
    yes: bool,
    output: Format | None,
) -> int:
    from bkctl.admin.gc.plan import COMPACT, REMOVE
    from bkctl.admin.gc.run import prepare
    from bkctl.clock import SystemClock
    from bkctl.directories.holders import DirectoryLock

    filesystem, clock = PosixFileSystem(), SystemClock()

    def prepared() -> list[Work]:
        with progress("reading logs", sum(space.bytes_total for space in spaces)) as advance:
            return [prepare(filesystem, space, cluster, clock, options, advance=advance) for space in spaces]

    if dry_run:
        return _write_works(prepared(), output)
    directories = sorted({path for space in spaces for path in (*space.log_dirs, *space.index_dirs)})
    with DirectoryLock(*directories) as lock:
        works = prepared()
        if all(work.is_empty for work in works):
            return _write_works(works, output)
        ask(_in_words(works), yes=yes)
        rows = _perform(works, lock, output)
    left = sum(step.fits for work in works for step in work.steps) - sum(
        row.done for row in rows if row.action in (REMOVE, COMPACT)
    )
    return 3 if left else _exit_code(rows)


def _write_works(works: Sequence[Work], output: Format | None) -> int:
    rows = [row for work in works for row in work.rows()]
    write_rows(rows, RUN_SCHEMA, output)
    return _exit_code(rows)


def _perform(works: Sequence[Work], lock: DirectoryLock, output: Format | None) -> list[RunRow]:
    from bkctl.admin.gc.run import perform
    from bkctl.clock import SystemClock

    rows: list[RunRow] = []

    def done() -> Iterator[RunRow]:
        for work in works:
            for row in perform(PosixFileSystem(), work, SystemClock(), lock, advance=advance):
                rows.append(row)
                yield row

    copied = sum(step.copied_bytes for work in works for step in work.steps)
    with progress("compacting", copied, streams_rows=True) as advance:
        write_rows(done(), RUN_SCHEMA, output)
    return rows


def _scratch_directory(path: str | None) -> str | None:
    """Return the path of the scratch directory as it is kept in links: from the root on."""
    if path is None:
        return None
    if not os.path.isdir(path):
        raise NotFoundError(f"--scratch {path}: no such directory")
    return os.path.abspath(path)


def _in_words(works: Iterable[Work]) -> str:
    """Describe what is about to happen, for the question."""
    from bkctl.admin.gc.plan import REMOVE

    steps = [step for work in works for step in work.steps if step.fits]
    ledgers = sum(len(work.gone) for work in works)
    removed = sum(step.action == REMOVE for step in steps)
    freed = sum(step.freed_bytes for step in steps)
    text = f"remove {removed} entry logs and compact {len(steps) - removed}, {freed} bytes in all"
    return f"delete {ledgers} ledgers, {text}" if ledgers else text


def _exit_code(rows: Iterable[RunRow]) -> int:
    from bkctl.admin.gc.run import LEFT, SET_ASIDE

    actions = {row.action for row in rows}
    return 3 if LEFT in actions else int(SET_ASIDE in actions)


# --- what the commands share ----------------------------------------------------------------------------


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


def _only_url(context: typer.Context, paths: list[str] | None, *allowed: str) -> None:
    """Raise UsageError when options of the offline form, or paths, stand beside --url."""
    from_line = [
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    ]
    wrong = [name for name in from_line if name not in (*allowed, "url", "schema", "paths")]
    if paths:
        raise UsageError("give PATH or --url, not both")
    if wrong:
        instead = "; 'bkctl gc plan --url' says what would be done" if wrong[0] == "dry_run" else ""
        raise UsageError(f"--{wrong[0].replace('_', '-')} does not go with --url{instead}")


def _spaces(paths: list[str] | None) -> list[IndexSpace]:
    from bkctl.directories.index_spaces import index_spaces
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    return index_spaces(filesystem, directories(filesystem, paths or default_paths(", or --url")))


@contextmanager
def _cluster(context: typer.Context, options: KnownClusterOptions) -> Iterator[Cluster]:
    """Open the cluster that is asked which ledgers exist; it is said when nobody is asked."""
    from bkctl.admin.ledgers.known_ledgers import NoCluster

    with known_cluster(context, options) as cluster:
        if isinstance(cluster, NoCluster):
            sys.stderr.write(
                "bkctl: no metadata store was named: every ledger that the index has counts as live\n"
            )
        yield cluster
