"""``bkctl repair forget``: the room that kept files take is given back."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.vfs import PosixFileSystem

FORGET_SCHEMA: Schema = (
    Key("number", "string", "the repair that is forgotten"),
    Key("made_by", "string", "the command that had made it"),
    Key("dir", "string", "the directory that had the record"),
)


@takes(FORGET_SCHEMA)
def forget_command(
    paths: PathsArgument,
    number: Annotated[
        list[str] | None,
        typer.Option("--number", metavar="NUMBER", help="Only this repair; may be repeated."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Remove the records of repairs and the files kept for undoing them.

    These repairs cannot be undone afterwards. The files kept of a database take room as soon as the bookie
    has rewritten its tables. Nothing else in the directories changes, and logs in quarantine stay. A repair
    whose undo was cut off is not forgotten: run 'bkctl repair undo' first.

    Examples:

      bkctl repair forget /data/bookie --dry-run

      bkctl repair forget /data/bookie --number 20261123T051500Z --yes
    """
    from bkctl.admin.repairs.repair_journal import find_repairs
    from bkctl.admin.repairs.repair_undo import check_paths, forget
    from bkctl.directories.holders import DirectoryLock
    from bkctl.errors import NotFoundError
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    places = [each.path for each in directories(filesystem, paths)]
    found = [
        repair
        for repair in find_repairs(filesystem, places)
        if number is None or repair.record.number in number
    ]
    missing = sorted(set(number or ()) - {repair.record.number for repair in found})
    if missing:
        raise NotFoundError(f"no repair {', '.join(missing)} in {', '.join(places)}")
    for repair in found:
        check_paths(filesystem, repair, [*paths, *places])
    if found and not dry_run:
        every = dict.fromkeys(path for repair in found for path in repair.directories)
        with DirectoryLock(*(path for path in every if filesystem.status(path) is not None)):
            ask(f"forget {len(found)} repairs, which cannot be undone then", yes=yes)
            for repair in found:
                forget(filesystem, repair)
    rows = (
        {"number": repair.record.number, "made_by": repair.record.made_by, "dir": repair.home}
        for repair in found
    )
    write_rows(rows, FORGET_SCHEMA, output)
