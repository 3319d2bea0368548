"""``bkctl cookie create | update | delete``: cookies in directories and in the metadata store."""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.errors import CorruptionError, UsageError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bkctl.admin.cookies.changes import Action, CookieChange
    from bkctl.metadata.api import MetadataStore

CHANGE_SCHEMA: Schema = (
    Key("target", "string", "the VERSION file, or the bookie id in the metadata store"),
    Key("source", "string", "file or znode"),
    Key("action", "string", "create, update, delete; keep: it is as wanted already"),
    Key("bookie_host", "string or null", "the bookie's id in that cookie"),
    Key("backup", "string or null", "where the cookie of before is kept; null with --dry-run"),
    Key("done", "bool", "false with --dry-run"),
)

TargetsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET...",
        show_default=False,
        help="Bookie directories or VERSION files; any other word is a bookie id in the metadata store.",
    ),
]

FileOption = Annotated[
    str,
    typer.Option(
        "--file", metavar="FILE", help="File with the cookie: a VERSION file, or a file of 'cookie generate'."
    ),
]

ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Do it even while the bookie runs, or if the cookie does not fit."),
]

BackupOption = Annotated[
    str,
    typer.Option(
        "--backup-dir",
        metavar="DIR",
        help="Directory for the backup of cookies that are replaced or deleted.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the app of ``bkctl cookie``."""
    app.command("create")(create_command)
    app.command("update")(update_command)
    app.command("delete")(delete_command)


@takes(CHANGE_SCHEMA)
def create_command(
    targets: TargetsArgument,
    file: FileOption,
    *,
    cluster: ClusterOptions,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [writes] Store a cookie where there is none, in directories or the metadata store.

    The cookie is written into the directories first, one after the other, each time safely on disk; then into
    the store. The command is refused (exit code 4) if there is another cookie, if the bookie is registered,
    if a process uses the directory, and if the cookie does not fit. A cookie does not fit if it is that of
    another bookie or cluster, if it does not name the directory, or if with it an emptied or half rebuilt
    directory would look complete.

    Examples:

      bkctl cookie create bookie-3:3181 --file VERSION --metadata zk://host:2181/ledgers --yes

      bkctl cookie create /data/ledgers2 --file /data/ledgers1/current/VERSION --dry-run
    """
    _change("create", targets, file, cluster, force, dry_run, yes, output)


@takes(CHANGE_SCHEMA)
def update_command(
    targets: TargetsArgument,
    file: FileOption,
    *,
    cluster: ClusterOptions,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    backup_dir: BackupOption = ".",
    output: OutputOption = None,
) -> None:
    """[offline] [online] [writes] Replace existing cookies; a backup of the old ones is kept.

    The command is refused (exit code 4) in the same cases as 'cookie create'. If a bookie gets another
    address, it needs the new cookie in all of its directories and in the store, there under its new id. The
    cookie of the old id is deleted last.

    Examples:

      bkctl cookie update /data/journal /data/ledgers --file cookie --dry-run

      bkctl cookie update bookie-3:3181 --file cookie --metadata zk://host:2181/ledgers --yes
    """
    _change("update", targets, file, cluster, force, dry_run, yes, output, backup_dir)


@takes(CHANGE_SCHEMA)
def delete_command(
    targets: TargetsArgument,
    *,
    cluster: ClusterOptions,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    backup_dir: BackupOption = ".",
    output: OutputOption = None,
) -> None:
    """[offline] [online] [writes] Delete cookies; a backup of them is kept.

    The cookie in the metadata store is deleted first: without it the bookie refuses to start, so an
    interruption leaves a safe state. The command is refused (exit code 4) while the bookie is registered or a
    process uses the directory.

    Examples:

      bkctl cookie delete bookie-3:3181 --metadata zk://host:2181/ledgers --dry-run

      bkctl cookie delete /data/journal /data/ledgers --yes --backup-dir /root/cookies
    """
    _change("delete", targets, None, cluster, force, dry_run, yes, output, backup_dir)


def _change(
    word: str,
    targets: list[str],
    file: str | None,
    cluster: ClusterOptions,
    force: bool,
    dry_run: bool,
    yes: bool,
    output: OutputOption,
    backup_dir: str = ".",
) -> None:
    from bkctl.admin.cookies.changes import Action, plan_files
    from bkctl.admin.cookies.in_metadata import plan_stored

    filesystem, wanted = PosixFileSystem(), Action(word)
    content = None if file is None else _cookie_bytes(file)
    paths, bookies = _split(targets, has_store=cluster.is_given)
    with ExitStack() as stack:
        store = stack.enter_context(open_cluster(cluster)) if bookies else None
        changes = plan_files(filesystem, paths, wanted, content, force=force)
        if store is not None:
            changes += plan_stored(store, bookies, wanted, content, force=force)
        rows = [_row(change, None, done=not dry_run) for change in changes]
        open_changes = [change for change in changes if change.action is not Action.KEEP]
        if open_changes and not dry_run:
            stack.enter_context(_locked(open_changes, force=force))
            cookies = counted(len(open_changes), "cookie")
            what = f"{word} {cookies} ({', '.join(one.target for one in open_changes)})"
            ask(what, yes=yes)
            rows = _apply(changes, wanted, store, backup_dir)
    write_rows(rows, CHANGE_SCHEMA, output)


def _apply(
    changes: list[CookieChange], wanted: Action, store: MetadataStore | None, backup_dir: str
) -> list[dict[str, object]]:
    """Make every backup first; then change directories before the store, or after it when deleting."""
    from bkctl.admin.cookies.changes import Action, apply_to_file, back_up
    from bkctl.admin.cookies.in_metadata import apply_to_store
    from bkctl.clock import SystemClock

    backups = [back_up(change, backup_dir, SystemClock()) for change in changes]
    for change in reversed(changes) if wanted is Action.DELETE else changes:
        if change.source == "file":
            apply_to_file(PosixFileSystem(), change)
        else:
            assert store is not None, "a stored cookie was planned with its store"
            apply_to_store(store, change)
    return [_row(change, backup, done=True) for change, backup in zip(changes, backups, strict=True)]


def _locked(changes: list[CookieChange], *, force: bool) -> AbstractContextManager[object]:
    """Return the lock of the directories, and of the bookie's other ones."""
    from bkctl.admin.cookies.changes import folders_to_lock
    from bkctl.directories.holders import DirectoryLock

    folders = [] if force else folders_to_lock(PosixFileSystem(), changes)
    return DirectoryLock(*folders) if folders else nullcontext()


def _cookie_bytes(path: str) -> bytes:
    """Read the content of a file that is a cookie; no ``--force`` makes one of anything else."""
    from bkctl.admin.cookies.in_directories import require_cookie
    from bkctl.codec.cookie import decode_cookie
    from bkctl.scan.directory import read_small

    require_cookie(PosixFileSystem(), path)
    content = read_small(PosixFileSystem(), path)
    try:
        decode_cookie(content)
    except CorruptionError as error:
        raise error.located(path) from error
    return content


def _split(targets: list[str], *, has_store: bool) -> tuple[list[str], list[str]]:
    """Return which targets are paths and which are bookie ids.

    Raises UsageError for a name that could be both, where a store is named.
    """
    paths = [target for target in targets if "/" in target or os.path.lexists(target)]
    bookies = [target for target in targets if target not in paths]
    for path in paths:
        if "/" not in path and (has_store or ":" in path):
            raise UsageError(f"{path}: a path or a bookie id? For the path say ./{path}")
    return paths, bookies


def _row(change: CookieChange, backup: str | None, *, done: bool) -> dict[str, object]:
    return {
        "target": change.target,
        "source": change.source,
        "action": change.action,
        "bookie_host": change.bookie,
        "backup": backup,
        "done": done,
    }
