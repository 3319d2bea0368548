"""``bkctl entrylog quarantine``: a log out of every bookie's sight, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.entrylog.log_target import log_target
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Format, Key, Schema, write_rows
from bkctl.errors import UsageError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.entrylogs.quarantine import Move

QUARANTINE_SCHEMA: Schema = (
    Key("action", "string", "quarantined, released, or in_quarantine (what --list shows)"),
    Key("dir", "string", "directory of the log"),
    Key("log_id", "int", "id, decimal"),
    Key("path", "string", "where the log is then"),
    Key("bytes", "int", "its length"),
    Key("reason", "string or null", "why it is there; null where there is no manifest"),
    Key("salvaged_to", "int or null", "the log to which 'entrylog salvage' has copied its records"),
)


@takes(QUARANTINE_SCHEMA)
def quarantine_command(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="[ID] [PATH...]", help="A log id (28, 0x1c, 1c.log) and where it is."),
    ],
    *,
    release: Annotated[bool, typer.Option("--release", help="Bring a log back out of quarantine.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Only list the logs in quarantine.")] = False,
    reason: Annotated[
        str,
        typer.Option(
            "--reason", metavar="TEXT", help="The reason, which is written to a file next to the log."
        ),
    ] = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Move an entry log out of the bookie's reach, so that it is neither read nor
    collected.

    The log is moved to the folder bkctl-quarantine of its directory. The index is not changed, so a read of
    an entry in that log fails, on bkctl's bookies and on Java's, and clients ask other replicas. The answer
    is never "no such entry". All other entries are served. Until the log is released or salvaged, 'bkctl
    index rebuild' is refused; do not rebuild the index with Java's shell either.

    --release brings the log back, even if a bookie has run in between. Only ledgers that were deleted in the
    meantime stay deleted. The release is refused (4) when another log has the same name.

    Examples:

      bkctl entrylog quarantine 1c.log /data/bookie/ledgers --reason "bad sectors" --dry-run

      bkctl entrylog quarantine 1c.log /data/bookie/ledgers --yes

      bkctl entrylog quarantine 1c.log /data/bookie/ledgers --release --yes
    """
    from bkctl.admin.entrylogs.log_place import find_log
    from bkctl.admin.entrylogs.quarantine import plan_quarantine, plan_release, quarantine_log, release_log
    from bkctl.admin.repairs.repair_undo import settle_before
    from bkctl.clock import SystemClock
    from bkctl.directories.holders import DirectoryLock

    filesystem = PosixFileSystem()
    paths, log_id = log_target(targets)
    if listed:
        _write_list(filesystem, paths, log_id, output)
        return
    if not reason.isprintable():
        raise UsageError("--reason: a text without control characters")
    plan = plan_release if release else plan_quarantine
    place = find_log(filesystem, paths, log_id, in_quarantine=release)
    settle_before(filesystem, place.every_dir, dry_run=dry_run)
    move = plan(filesystem, find_log(filesystem, paths, log_id, in_quarantine=release))
    if not dry_run:
        with DirectoryLock(*place.every_dir) as lock:
            move = plan(filesystem, find_log(filesystem, paths, log_id, in_quarantine=release))
            ask(f"move {move.source} to {move.target}", yes=yes)
            lock.recheck()
            if release:
                release_log(filesystem, SystemClock(), move)
            else:
                quarantine_log(filesystem, SystemClock(), move, reason)
    write_rows([_row(move, "released" if release else "quarantined", reason)], QUARANTINE_SCHEMA, output)


def _row(move: Move, action: str, reason: str) -> dict[str, Any]:
    return {
        "action": action,
        "dir": move.place.current_dir,
        "log_id": move.log_id,
        "path": move.target,
        "bytes": move.place.log.size_bytes,
        "reason": reason or None,
        "salvaged_to": None,
    }


def _write_list(
    filesystem: PosixFileSystem, paths: list[str], log_id: int | None, output: Format | None
) -> None:
    from bkctl.scan.files.paths import directories
    from bkctl.scan.quarantined_logs import quarantined_logs

    places = [directory.path for directory in directories(filesystem, paths)]
    looked_in = counted(len(places), "directory", "directories")
    wanted = "logs" if log_id is None else f"log {log_id:x}.log"
    rows = [
        {
            "action": "in_quarantine",
            "dir": place,
            "log_id": each.log.log_id,
            "path": each.log.path,
            "bytes": each.log.size_bytes,
            "reason": None if each.manifest is None else each.manifest.reason,
            "salvaged_to": None if each.manifest is None else each.manifest.salvaged_to,
        }
        for place in places
        for each in quarantined_logs(filesystem, place)
        if log_id in (None, each.log.log_id)
    ]
    write_rows(
        rows, QUARANTINE_SCHEMA, output, clean=lambda: f"{wanted} in quarantine in {looked_in}, nothing found"
    )
