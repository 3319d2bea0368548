"""``bkctl repair undo``: the directories as they were before the last repair."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.vfs import PosixFileSystem

UNDO_SCHEMA: Schema = (
    Key("number", "string", "the repair that is undone"),
    Key("made_by", "string", "the command that had made it"),
    Key("action", "string", "restored, moved_back, removed; unchanged where the repair had changed nothing"),
    Key("path", "string", "the file, the database or the directory"),
    Key("detail", "string", "where it was, or on what condition"),
)


@takes(UNDO_SCHEMA)
def undo_command(
    paths: PathsArgument,
    number: Annotated[
        str | None,
        typer.Option("--number", metavar="NUMBER", help="Undo this repair, if none has to be undone first."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Undo the last repair: restore the directories byte for byte.

    Name the directories that the repair changed, or the folder that holds them. The undo is refused (4) when
    a bookie uses one of them, and when a bookie or another command has changed anything there since the
    repair. It notices changes by the names and lengths of files and by the content of small files. It is also
    refused when a kept file has changed. 'bkctl repair log' shows whether a repair can be undone.

    The last repair is the one whose result no other repair has changed, even if the clock was set back
    between two repairs. --number is for directories of several bookies, or for repairs that are independent
    of each other.

    The command also undoes a repair that was killed half-way. While it works, the cookies (VERSION) are moved
    away, so that no bookie starts. If the undo itself is killed, run it again.

    Examples:

      bkctl repair undo /data/bookie --dry-run

      bkctl repair undo /data/bookie --yes

      bkctl repair undo /data/bookie --number 20261123T051500Z --yes
    """
    from bkctl.admin.repairs.repair_chain import last_repair, repair_of
    from bkctl.admin.repairs.repair_undo import check_paths, plan_undo, shown, undo
    from bkctl.directories.holders import DirectoryLock
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    places = [each.path for each in directories(filesystem, paths)]
    find = last_repair if number is None else partial(repair_of, number=number)
    found = find(filesystem, places)
    check_paths(filesystem, found, [*paths, *places])
    steps = plan_undo(filesystem, found)
    if not dry_run:
        with DirectoryLock(*found.directories, may_settle=True) as lock:
            found = find(filesystem, places)
            steps = plan_undo(filesystem, found)
            ask(f"undo {shown(found)}", yes=yes)
            lock.recheck()
            undo(filesystem, found)
    record = found.record
    rows = (
        {
            "number": record.number,
            "made_by": record.made_by,
            "action": step.action,
            "path": step.path,
            "detail": step.detail,
        }
        for step in steps
    )
    write_rows(rows, UNDO_SCHEMA, output)
