"""``bkctl gc run``: garbage in entry logs removed, and logs compacted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.known_cluster import KnownClusterOptions, TrustDumpOption
from bkctl.commands.frame.metadata_options import DumpOrClusterOptions, OldDumpOption
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, UrlOption, url_unless
from bkctl.commands.frame.output import Format, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.gc import online
from bkctl.commands.gc.offline import PathsArgument, asked_cluster, only_url, spaces_of, threshold_share
from bkctl.commands.gc.rows import RUN_SCHEMA
from bkctl.errors import NotFoundError, UsageError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.gc.run import RunOptions, Work
    from bkctl.admin.gc.run_rows import RunRow
    from bkctl.admin.ledgers.known_ledgers import Cluster
    from bkctl.directories.holders import DirectoryLock
    from bkctl.directories.index_spaces import IndexSpace


_CompactOption = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="SHARE",
        parser=threshold_share,
        help="Also compact logs with a smaller share of live bytes than this, 0 to 1. Default: no "
        "compaction.",
    ),
]
_DeleteOption = Annotated[
    bool,
    typer.Option("--delete-ledgers", help="Also delete ledgers that are not in the metadata store."),
]
_ConfirmOption = Annotated[
    bool,
    typer.Option("--confirm-deletions", help="Continue even if more than half of the ledgers look deleted."),
]
_ScratchOption = Annotated[
    str | None,
    typer.Option(
        "--scratch",
        metavar="DIR",
        help="A directory on another disk, for copies for which this disk has no room yet.",
    ),
]
_MajorOption = Annotated[
    bool,
    typer.Option(
        "--major", help="With --url: also compact logs below the bookie's majorCompactionThreshold."
    ),
]
_MinorOption = Annotated[
    bool,
    typer.Option(
        "--minor", help="With --url: also compact logs below the bookie's minorCompactionThreshold."
    ),
]


@takes(RUN_SCHEMA)
def run_command(
    context: typer.Context,
    paths: PathsArgument = None,
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

    The command works on the directories of a stopped bookie, bkctl's or Java's, with any ledger storage. A
    ledger counts as deleted if the ledger index has no row for it and nothing else shows that it exists. With
    --delete-ledgers, a ledger also counts as deleted if the metadata store does not list it and a second
    read, of this ledger alone, does not find it. SortedLedgerStorage and InterleavedLedgerStorage may keep
    the .idx file of a ledger in any index directory of the bookie. So the command must find all directories
    that the cookie names; without a cookie it is refused (exit code 4).

    If a disk has no room for the copy of a log, --scratch takes the copy first; then the log is removed, and
    the copy is moved back. After an interruption, the next run or the bookie finishes this work, and both
    need DIR for it.

    With --url, a running bookie, bkctl's or Java's, collects now; with --major or --minor it also compacts,
    by its own thresholds. 'bkctl bookie gc' does the same without a question.

    The command is refused (exit code 4) while a bookie uses the directory, and when the index may be
    incomplete: every entry that it does not know would then look deleted. Exit code 1 when a damaged log was
    put into quarantine, 3 when a step was not done.

    Examples:

      bkctl gc run /data/bookie --dry-run

      bkctl gc run /data/bookie --metadata zk://host:2181/ledgers --delete-ledgers --threshold 0.5 --yes

      bkctl gc run --url http://bookie-3:8080 --major --yes
    """
    url = url_unless(url, context, given=paths)
    if url is not None:
        only_url(context, paths, "confirm_deletions", "major", "minor", "yes", "output")
        raise typer.Exit(online.run(url, major, minor, confirm_deletions, yes=yes, output=output))
    from bkctl.admin.gc.run import RunOptions

    if major or minor:
        raise UsageError("--major and --minor need --url; with PATH use --threshold")
    known = KnownClusterOptions(ledger_metadata, trust_dump, store)
    if delete_ledgers and known.ledger_metadata and not trust_dump:
        raise UsageError("--delete-ledgers with a dump, which may be old: add --trust-dump")
    with asked_cluster(context, known) as cluster:
        if delete_ledgers and not (cluster.is_live or trust_dump):
            raise UsageError("--delete-ledgers needs --metadata, which shows what was deleted")
        code = _run(
            spaces_of(paths),
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
    logs = counted(removed, "entry log")
    text = f"remove {logs} and compact {len(steps) - removed}, {counted(freed, 'byte')} in all"
    return f"delete {counted(ledgers, 'ledger')}, {text}" if ledgers else text


def _exit_code(rows: Iterable[RunRow]) -> int:
    from bkctl.admin.gc.run_rows import LEFT, SET_ASIDE

    actions = {row.action for row in rows}
    return 3 if LEFT in actions else int(SET_ASIDE in actions)
