"""``bkctl gc``: what a stopped bookie's entry logs hold, what can be reclaimed, and reclaiming it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.cluster_options import ClusterConfOption, MetadataUriOption, OverrideOption, open_cluster
from bkctl.commands.consent import DryRunOption, YesOption, ask
from bkctl.commands.options import LogOption, OutputOption, PathsArgument, noun_app, schema_option
from bkctl.commands.output import Format, Key, Schema, chosen_format, write_rows
from bkctl.commands.progress import progress
from bkctl.errors import NotFoundError, UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.offline.gc.cluster import Cluster
    from bkctl.admin.offline.gc.explain import LogRow
    from bkctl.admin.offline.gc.plan import Candidates
    from bkctl.admin.offline.gc.run import RunRow, Work
    from bkctl.admin.offline.holders import DirectoryLock
    from bkctl.admin.offline.index_check.layout import IndexSpace

app = noun_app("[offline] [reads] [writes] Garbage in entry logs: explain, plan, reclaim.")

#: Ledgers of a log that a table shows.
_TOP_LEDGERS = 3

_DIR = Key("dir", "string", "ledger directory; a log id means something only with it")
_LOG = (
    Key("log_id", "int", "entry log, decimal"),
    Key("path", "string", "its file"),
    Key("bytes", "int", "size of the file"),
)

EXPLAIN_SCHEMA: Schema = (
    _DIR,
    *_LOG,
    Key("record_bytes", "int or null", "bytes of all entries in it, size words included; null when damaged"),
    Key("live_bytes", "int or null", "bytes of live ledgers' entries that the index has in this log"),
    Key("counted_bytes", "int or null", "bytes that a running bookie counts: all entries of live ledgers"),
    Key("live_ratio", "number or null", "live_bytes / record_bytes"),
    Key("ledgers", "int or null", "ledgers with entries in it, dead ones included"),
    Key("live_ledgers", "array", "of {ledger, bytes}, most bytes first"),
    Key("age_s", "int", "seconds since it was last written"),
    Key("source", "string", "walk (all entries were read), map or cache (with --quick)"),
    Key("eligible", "string", "garbage (can go as it is), minor or major (after a compaction), no"),
    Key("why", "string", "why it is eligible, or exactly why not"),
    Key("damaged", "bool", "whether it cannot be read to its end; it is set aside"),
)

CURVE_SCHEMA: Schema = (
    _DIR,
    Key("threshold", "number", "logs with a smaller share of live bytes are compacted"),
    Key("garbage_logs", "int", "logs without a live ledger"),
    Key("garbage_bytes", "int", "what removing these gives back, without any copying"),
    Key("logs", "int", "logs to be compacted"),
    Key("copied_bytes", "int", "what has to be copied for that"),
    Key("freed_bytes", "int", "what compaction gives back, copies taken off"),
    Key("reclaimed_bytes", "int", "garbage_bytes and freed_bytes"),
)

STEP_SCHEMA: Schema = (
    _DIR,
    Key("action", "string", "remove or compact"),
    *_LOG,
    Key("copied_bytes", "int", "what has to be copied"),
    Key("freed_bytes", "int", "what it gives back, the copy taken off"),
    Key("fits", "bool", "whether the disk has room for the copy"),
)

_PLAN_SCHEMA: Schema = (
    *CURVE_SCHEMA,
    *(
        key._replace(meaning=f"{key.meaning} (with --threshold)")
        for key in STEP_SCHEMA
        if key.key in ("action", "log_id", "path", "bytes", "fits")
    ),
)

RUN_SCHEMA: Schema = (
    _DIR,
    Key(
        "action",
        "string",
        "delete_ledgers, finish (a compaction that was cut off), remove, compact, left, set_aside (damaged)",
    ),
    Key("log_id", "int or null", "entry log, decimal"),
    Key("path", "string or null", "its file"),
    Key("bytes", "int", "size of the file"),
    Key("copied_bytes", "int", "what was copied"),
    Key("freed_bytes", "int", "what it gave back, the copy taken off"),
    Key("ledgers", "int", "ledgers that were deleted"),
    Key("detail", "string", "why, or why not"),
    Key("done", "bool", "whether it was done; false with --dry-run"),
)

_DumpOption = Annotated[
    str | None,
    typer.Option(
        "--ledger-metadata",
        metavar="FILE",
        help="A dump of the ledgers' metadata ('bkctl metadata dump'), to tell deleted ledgers.",
    ),
]

_QuickOption = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Believe ledgers maps and the bookie's cache instead of reading the logs; copies count as live.",
    ),
]


def _threshold(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError(f"{text!r} is not above 0 and at most 1.")
    return value


@app.callback()
def noun() -> None:
    """[offline] [reads] [writes] Garbage in entry logs: explain, plan, reclaim."""


@app.command("explain")
def explain_command(
    context: typer.Context,
    paths: PathsArgument,
    log: LogOption = None,
    minor: Annotated[
        float,
        typer.Option("--minor", metavar="SHARE", parser=_threshold, help="minorCompactionThreshold."),
    ] = 0.2,
    major: Annotated[
        float,
        typer.Option("--major", metavar="SHARE", parser=_threshold, help="majorCompactionThreshold."),
    ] = 0.8,
    quick: _QuickOption = False,
    ledger_metadata: _DumpOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(EXPLAIN_SCHEMA)] = False,
) -> None:
    """[offline] [reads] Say of each entry log what is alive in it, and why it is or is not reclaimed.

    An entry is live when its ledger is and the index has it in this very log. A bookie also counts the
    copies that replays and compactions leave behind (counted_bytes). Ledgers are live when the metadata
    store, or a dump of it, has them; with neither, when the ledger index has a row.

    Exit code 1 when a log is damaged or entries of it are missing from the index; the other logs are
    explained all the same.

    Examples:

      bkctl gc explain /data/bookie --metadata-uri zk://host:2181/ledgers

      bkctl gc explain /data/bookie/ledgers --log 1c.log -o json
    """
    from bkctl.admin.offline.gc.explain import Thresholds, explain
    from bkctl.clock import SystemClock

    if minor > major:
        raise UsageError(f"--minor {minor:g} must not be above --major {major:g}")
    filesystem, spaces = PosixFileSystem(), _spaces(paths)
    told = _Told()
    bytes_total = sum(space.bytes_total for space in spaces)
    with (
        _cluster(context, ledger_metadata, conf, override, metadata_uri) as cluster,
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
        )
        table = chosen_format(output) is Format.TABLE
        count = write_rows(
            (_explained(row, table) for row in told.watch(rows)),
            _without(EXPLAIN_SCHEMA, "path", "record_bytes", "damaged") if table else EXPLAIN_SCHEMA,
            output,
        )
    if log is not None and not count:
        raise NotFoundError(f"no entry log {log} (0x{log:x}) in {', '.join(paths)}")
    raise typer.Exit(told.exit_code)


@app.command("plan")
def plan_command(
    context: typer.Context,
    paths: PathsArgument,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold", metavar="SHARE", parser=_threshold, help="The order of work at this threshold."
        ),
    ] = None,
    quick: _QuickOption = False,
    ledger_metadata: _DumpOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(_PLAN_SCHEMA)] = False,
) -> None:
    """[offline] [reads] What could be reclaimed at thresholds 0.1 to 0.9, and what it costs to copy.

    With --threshold the steps, in their order: logs without a live ledger, the largest first, then
    compactions, the emptiest first (on a disk that is nearly full: most bytes won for each byte copied).
    Logs that 'bkctl gc explain' sets aside or holds back are in neither. Exit code 1 when one is damaged.

    Examples:

      bkctl gc plan /data/bookie --metadata-uri zk://host:2181/ledgers

      bkctl gc plan /data/bookie/ledgers --threshold 0.5
    """
    from bkctl.admin.offline.gc.plan import is_scarce, plan
    from bkctl.clock import SystemClock

    filesystem, spaces = PosixFileSystem(), _spaces(paths)
    told = _Told()
    with (
        _cluster(context, ledger_metadata, conf, override, metadata_uri) as cluster,
        progress("reading logs", sum(space.bytes_total for space in spaces), streams_rows=True) as advance,
    ):
        planned = told.planned(plan(filesystem, spaces, cluster, SystemClock(), quick=quick, advance=advance))
        if threshold is None:
            curve = (row for each in planned for row in each.curve())
            rows = ({**dataclasses.asdict(row), "reclaimed_bytes": row.reclaimed_bytes} for row in curve)
            write_rows(rows, CURVE_SCHEMA, output)
        else:
            write_rows(
                (
                    step
                    for each in planned
                    for free_bytes, scarce in [is_scarce(filesystem, each.directory)]
                    for step in each.steps(threshold, free_bytes, scarce=scarce)
                ),
                STEP_SCHEMA,
                output,
            )
    raise typer.Exit(told.exit_code)


@app.command("run")
def run_command(
    context: typer.Context,
    paths: PathsArgument,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="SHARE",
            parser=_threshold,
            help="Also compact logs with a smaller share of live bytes. Without it nothing is copied.",
        ),
    ] = None,
    delete_ledgers: Annotated[
        bool,
        typer.Option("--delete-ledgers", help="Also delete ledgers that the metadata store does not have."),
    ] = False,
    trust_dump: Annotated[
        bool,
        typer.Option("--trust-dump", help="Let a dump alone prove that a ledger was deleted."),
    ] = False,
    confirm_deletions: Annotated[
        bool,
        typer.Option("--confirm-deletions", help="Go on where more than half of the ledgers look deleted."),
    ] = False,
    ledger_metadata: _DumpOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(RUN_SCHEMA)] = False,
) -> None:
    """[offline] [writes] Remove logs without a live ledger; with --threshold compact others.

    Works on the directory of a stopped bookie, ours or Java's, of DbLedgerStorage. A ledger counts as dead
    when the ledger index has no row and nothing else speaks for it; with --delete-ledgers also when the
    metadata store does not list it and a read of its own does not find it.

    Refuses (4) while a bookie uses the directory, and where the index may be incomplete, because every
    entry that it does not know would look dead. Exit code 1 when a damaged log was set aside, 3 when
    something was left undone.

    Examples:

      bkctl gc run /data/bookie --dry-run

      bkctl gc run /data/bookie --metadata-uri zk://host:2181/ledgers --delete-ledgers --threshold 0.5 --yes
    """
    if delete_ledgers and ledger_metadata and not trust_dump:
        raise UsageError("--delete-ledgers by a dump deletes ledgers on old news: add --trust-dump")
    with _cluster(context, ledger_metadata, conf, override, metadata_uri) as cluster:
        if delete_ledgers and not (cluster.proves or trust_dump):
            raise UsageError("--delete-ledgers needs --metadata-uri, which tells what was deleted")
        code = _run(
            _spaces(paths),
            cluster,
            (threshold, delete_ledgers, confirm_deletions),
            dry_run=dry_run,
            yes=yes,
            output=output,
        )
    raise typer.Exit(code)


def _run(
    spaces: list[IndexSpace],
    cluster: Cluster,
    options: tuple[float | None, bool, bool],
    *,
    dry_run: bool,
    yes: bool,
    output: Format | None,
) -> int:
    from bkctl.admin.offline.gc.plan import COMPACT, REMOVE
    from bkctl.admin.offline.gc.run import RunOptions, prepare
    from bkctl.admin.offline.holders import DirectoryLock
    from bkctl.clock import SystemClock

    filesystem, clock, chosen = PosixFileSystem(), SystemClock(), RunOptions(*options)

    def prepared() -> list[Work]:
        with progress("reading logs", sum(space.bytes_total for space in spaces)) as advance:
            return [prepare(filesystem, space, cluster, clock, chosen, advance=advance) for space in spaces]

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
    from bkctl.admin.offline.gc.run import perform
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


def _in_words(works: Iterable[Work]) -> str:
    """What is about to happen, for the question."""
    from bkctl.admin.offline.gc.plan import REMOVE

    steps = [step for work in works for step in work.steps if step.fits]
    ledgers = sum(len(work.gone) for work in works)
    removed = sum(step.action == REMOVE for step in steps)
    freed = sum(step.freed_bytes for step in steps)
    text = f"remove {removed} entry logs and compact {len(steps) - removed}, {freed} bytes in all"
    return f"delete {ledgers} ledgers, {text}" if ledgers else text


def _exit_code(rows: Iterable[RunRow]) -> int:
    from bkctl.admin.offline.gc.run import SET_ASIDE

    return int(any(row.action == SET_ASIDE for row in rows))


# --- what the commands share ----------------------------------------------------------------------------


class _Told:
    """What is worth an exit code, told on stderr as it comes."""

    def __init__(self) -> None:
        self.exit_code = 0

    def watch(self, rows: Iterable[LogRow]) -> Iterator[LogRow]:
        for row in rows:
            if row.alarming:
                self._tell(row.path, row.why)
            yield row

    def planned(self, planned: Iterable[Candidates]) -> Iterator[Candidates]:
        for each in planned:
            for facts in each.damaged:
                self._tell(facts.log.path, facts.problem or "")
            if each.held:
                sys.stderr.write(
                    f"bkctl: {each.directory}: {len(each.held)} logs are held back; 'bkctl gc explain' says"
                    " why\n"
                )
            yield each

    def _tell(self, path: str, why: str) -> None:
        self.exit_code = 1
        sys.stderr.write(f"bkctl: {path}: {why}\n")


def _explained(row: LogRow, table: bool) -> dict[str, Any]:
    shown = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    del shown["alarming"]
    ledgers = row.live_ledgers
    if table:
        for key in ("path", "record_bytes", "damaged"):
            del shown[key]
        top = ", ".join(f"{ledger}: {size}" for ledger, size in ledgers[:_TOP_LEDGERS])
        more = len(ledgers) - _TOP_LEDGERS
        shown["live_ledgers"] = f"{top} and {more} more" if more > 0 else top
    else:
        shown["live_ledgers"] = [{"ledger": ledger, "bytes": size} for ledger, size in ledgers]
    return shown


def _without(schema: Schema, *names: str) -> Schema:
    return tuple(key for key in schema if key.key not in names)


def _spaces(paths: list[str]) -> list[IndexSpace]:
    from bkctl.admin.offline.index_check.layout import index_spaces
    from bkctl.admin.offline.targets import directories

    filesystem = PosixFileSystem()
    return index_spaces(filesystem, directories(filesystem, paths))


@contextmanager
def _cluster(
    context: typer.Context,
    dump: str | None,
    conf: str | None,
    override: list[str] | None,
    metadata_uri: str | None,
) -> Iterator[Cluster]:
    """Who is asked which ledgers exist; nobody is, when no option names a store or a dump."""
    from bkctl.admin.offline.gc.cluster import DumpedCluster, NoCluster, StoredCluster

    if dump is not None:
        from_line = context.get_parameter_source("metadata_uri")
        if conf or override or (from_line is not None and from_line.name == "COMMANDLINE"):
            raise UsageError("give a metadata store or --ledger-metadata, not both")
        from bkctl.scan.metadata_dump import load_metadata_dump

        yield DumpedCluster(load_metadata_dump(PosixFileSystem(), dump))
    elif metadata_uri or conf or override:
        with open_cluster(conf, override, metadata_uri) as store:
            yield StoredCluster(store.layout, store.ledgers)
    else:
        sys.stderr.write(
            "bkctl: no metadata store was named: every ledger that the index has counts as live\n"
        )
        yield NoCluster()
