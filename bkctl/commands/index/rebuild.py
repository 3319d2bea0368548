"""``bkctl index rebuild``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.known_cluster import KnownClusterOptions, known_cluster
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathArgument
from bkctl.commands.frame.output import Key, Schema, write_one, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError
from bkctl.reporting import counted
from bkctl.storage_kinds import StorageKind, kind_named
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.index.rebuild.options import RebuildOptions, RebuildResult
    from bkctl.directories.placement import Placement

REBUILD_SCHEMA: Schema = (
    Key("dir", "string", "directory of the index"),
    Key("rows", "int or null", "locations in the new index; null when they were not rebuilt"),
    Key("ledgers", "int", "ledgers in the new index"),
    Key("seconds", "number", "how long it took"),
    Key("backup", "array", "of the old indexes that were kept"),
    Key("differences", "array", "of {kind, ledger, detail}: what is not as it was, or not known any more"),
)


_Locations = Annotated[bool, typer.Option("--locations", help="Rebuild only the locations of entries.")]
_Ledgers = Annotated[bool, typer.Option("--ledgers", help="Rebuild only the rows of ledgers.")]
_All = Annotated[bool, typer.Option("--all", help="Rebuild both; this is the default.")]
_Memory = Annotated[
    int,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=parse_byte_size,
        help="Limit of the memory that is used, such as 256M or 1GiB.",
    ),
]
_Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Number of processes. Default: one for each processor, if --memory allows.",
    ),
]
_DigestMode = Annotated[
    str,
    typer.Option(
        "--digest",
        metavar="auto|off",
        help="With auto, check the digests of entries; with off, only the framing.",
    ),
]
_LedgerDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--ledger-dir",
        metavar="DIR",
        help="A ledger directory. Repeat it for all of them, in the configured order.",
    ),
]
_IndexDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--index-dir",
        metavar="DIR",
        help="The index directory of a --ledger-dir, repeated in the same order.",
    ),
]
_Storage = Annotated[
    str | None,
    typer.Option(
        "--storage", metavar="db|idx", help="Kind of the new index, if nothing is left of the old one."
    ),
]
_AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Continue over damaged logs, and mark ledgers that may lack entries."),
]
_DropOld = Annotated[
    bool,
    typer.Option(
        "--drop-old",
        help="Remove the old index after success. Without --all, --locations and --ledgers, only remove the "
        "old indexes that earlier rebuilds have kept.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the noun."""
    app.command("rebuild")(rebuild_command)


@takes(REBUILD_SCHEMA)
def rebuild_command(
    context: typer.Context,
    path: PathArgument,
    locations: _Locations = False,
    ledgers: _Ledgers = False,
    everything: _All = False,
    memory: _Memory = "256M",  # type: ignore[assignment] # typer parses the default as well
    jobs: _Jobs = None,
    *,
    known: KnownClusterOptions,
    digest: _DigestMode = "auto",
    ledger_dir: _LedgerDirs = None,
    index_dir: _IndexDirs = None,
    storage: _Storage = None,
    accept_loss: _AcceptLoss = False,
    drop_old: _DropOld = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Rebuild the index from entry logs (and journals), verify it, swap it in.

    The new index is built next to the old one and compared row by row with the logs. Then the two are
    exchanged in one step. The old index is kept as locations.BACKUP-<time>, ledgers.BACKUP-<time> or
    idx.BACKUP-<time>. 'bkctl repair undo' restores it, also after a rebuild that failed during the exchange.
    After a kill, run the same command again: it continues. The command is refused while a bookie runs.

    Rows of ledgers that can be read are not changed. A ledger without a row gets one if it has entries in the
    logs or locations in the old index, unless --metadata proves that the ledger was deleted; a dump proves
    this if it is complete and newer than the ledger. Unknown facts about such a ledger get the safe value: it
    is fenced and in limbo. A ledger is also put into limbo if the old index or a journal names entries of it
    that are in no log. The command lists every difference from the old index. Java does not respect limbo in
    .idx files, so for these the command then needs --accept-loss.

    If the file system cannot exchange two names, the command renames twice. After a kill between the two, no
    index has its proper name until the command is run again.

    If the old locations cannot be read, the logs are complete if every log up to the last id is there, or if
    --metadata shows it; a ledger that lacks an entry is put into limbo. Without such a proof the new index is
    put in place nevertheless, and not_proved names the logs that may be missing. If the rows of ledgers were
    lost, too, the next start of bkctl's bookie puts into limbo each ledger without a row that the metadata
    place on it; Java's does not.

    Exit code 1 when something differs from the old index or is no longer known; 3 for not_proved; 4 when a
    log is damaged and --accept-loss is not given, or the metadata are of another cluster.

    Examples:

      bkctl index rebuild /data/bookie --metadata zk://host:2181/ledgers --yes

      bkctl index rebuild /data/bookie --locations --memory 1GiB --metadata zk.json --yes
    """
    _check(digest, jobs)
    from bkctl.admin.index.rebuild.bookie_facts import with_cluster
    from bkctl.directories.placement import find_placement

    placement = find_placement(
        PosixFileSystem(), path, ledger_dirs=ledger_dir or (), index_dirs=index_dir or (), kind=_kind(storage)
    )
    chosen = locations or ledgers or everything
    if drop_old and not chosen:
        _drop_old(placement, dry_run=dry_run, yes=yes)
        return
    both = everything or not chosen
    options = _options(locations or both, ledgers or both, memory, digest)
    with known_cluster(context, known) as cluster:
        options = with_cluster(PosixFileSystem(), options, cluster, [placement])
        if not dry_run:
            ask(f"rebuild the index of {', '.join(d.index_dir for d in placement.directories)}", yes=yes)
        _run(placement, options, jobs, (accept_loss, drop_old, dry_run), output)


def _kind(storage: str | None) -> StorageKind | None:
    return None if storage is None else kind_named(storage)


def _check(digest: str, jobs: int | None) -> None:
    if digest not in ("auto", "off"):
        raise UsageError(f"--digest {digest}: is neither auto nor off")
    if jobs is not None and jobs < 1:
        raise UsageError("--jobs: at least 1")


def _options(locations: bool, ledgers: bool, memory: int, digest: str) -> RebuildOptions:
    from bkctl.admin.index.rebuild.options import RebuildOptions

    return RebuildOptions(
        locations=locations, ledgers=ledgers, memory_bytes=memory, phase=_phase, digest=digest
    )


def _phase(name: str, size_bytes: int) -> Any:
    return progress(name, size_bytes)


def _run(
    placement: Placement,
    options: RebuildOptions,
    jobs: int | None,
    flags: tuple[bool, bool, bool],
    output: Any,
) -> None:
    from dataclasses import replace

    from bkctl.admin.index.rebuild.rebuild import rebuild_index

    accept_loss, drop_old, dry_run = flags
    options = replace(options, accept_loss=accept_loss, drop_old=drop_old, dry_run=dry_run)
    results = rebuild_index(placement, options, jobs)
    rows = [_row(result) for result in results]
    for result in results:
        for difference in result.differences:
            ledger = "" if difference.ledger is None else f"ledger {difference.ledger}: "
            sys.stderr.write(f"bkctl: {result.dir}: {ledger}{difference.kind}: {difference.detail}\n")
    if len(rows) == 1:
        write_one(rows[0], REBUILD_SCHEMA, output)
    else:
        write_rows(rows, REBUILD_SCHEMA, output)
    if any(result.is_unproved for result in results):
        raise typer.Exit(3)
    if any(result.is_alarming for result in results):
        raise typer.Exit(1)


def _row(result: RebuildResult) -> dict[str, Any]:
    return {
        "dir": result.dir,
        "rows": result.rows,
        "ledgers": result.ledgers,
        "seconds": result.seconds,
        "backup": list(result.backups),
        "differences": [
            {"kind": found.kind, "ledger": found.ledger, "detail": found.detail}
            for found in result.differences
        ],
    }


def _drop_old(placement: Placement, *, dry_run: bool, yes: bool) -> None:
    from bkctl.admin.index.rebuild.rebuild import drop_old_indexes, old_indexes

    paths = old_indexes(placement)
    for path in paths:
        sys.stderr.write(f"bkctl: {path}\n")
    if not paths or dry_run:
        return
    ask(f"remove {counted(len(paths), 'old index', 'old indexes')}", yes=yes)
    drop_old_indexes(placement, paths)
