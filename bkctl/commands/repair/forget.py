"""``bkctl repair forget``: the room that kept files take is given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.repairs.repair_records import DamagedRecord

#: So many kept files of a damaged record are named.
_NAMED_MAX = 40

FORGET_SCHEMA: Schema = (
    Key("number", "string", "the repair that is forgotten"),
    Key("made_by", "string", "the command that had made it; empty where the record cannot be read"),
    Key("dir", "string", "the directory that had the record"),
)


@takes(FORGET_SCHEMA)
def forget_command(
    paths: PathsArgument,
    number: Annotated[
        list[str] | None,
        typer.Option("--number", metavar="NUMBER", help="Forget only this repair; may be repeated."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Remove the records of repairs and the files kept for undoing them.

    These repairs cannot be undone afterwards. The kept files of a database take space as soon as the bookie
    has rewritten its tables. Nothing else in the directories is changed, and logs in quarantine stay. A
    repair whose undo was interrupted cannot be forgotten: run 'bkctl repair undo' first.

    A record that cannot be read, which 'bkctl repair log' calls damaged, is removed only by its --number,
    together with the files that were kept beside it. The command names these files first, so that you can
    save them.

    Examples:

      bkctl repair forget /data/bookie --dry-run

      bkctl repair forget /data/bookie --number 20261123T051500Z --yes
    """
    from bkctl.admin.repairs.repair_records import folders_of_damaged, forget, read_records, remove_repair
    from bkctl.admin.repairs.repair_undo import check_paths
    from bkctl.directories.holders import DirectoryLock
    from bkctl.errors import NotFoundError, RefusedError
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    places = [each.path for each in directories(filesystem, paths)]
    records = read_records(filesystem, places)
    if number is None and records.damaged:
        raise RefusedError(str(records.damaged[0]))
    found = [repair for repair in records.found if number is None or repair.record.number in number]
    damaged = [each for each in records.damaged if number is not None and each.number in number]
    numbers = {repair.record.number for repair in found} | {each.number for each in damaged}
    missing = sorted(set(number or ()) - numbers)
    if missing:
        raise NotFoundError(f"no repair {', '.join(missing)} in {', '.join(places)}")
    for repair in found:
        check_paths(filesystem, repair, [*paths, *places])
    folders = [folders_of_damaged(filesystem, each, records, places) for each in damaged]
    for each, homes in zip(damaged, folders, strict=True):
        _name_kept(filesystem, each, homes)
    count = len(found) + len(damaged)
    if count and not dry_run:
        every = dict.fromkeys(path for repair in found for path in repair.directories)
        every |= dict.fromkeys(path for homes in folders for path in homes)
        with DirectoryLock(*(path for path in every if filesystem.status(path) is not None)):
            ask(f"forget {count} repairs, which cannot be undone then", yes=yes)
            for repair in found:
                forget(filesystem, repair)
            for each, homes in zip(damaged, folders, strict=True):
                remove_repair(filesystem, each.home, homes, each.number)
    rows = [
        {"number": repair.record.number, "made_by": repair.record.made_by, "dir": repair.home}
        for repair in found
    ]
    rows += [{"number": each.number, "made_by": "", "dir": each.home} for each in damaged]
    write_rows(rows, FORGET_SCHEMA, output)


def _name_kept(filesystem: PosixFileSystem, damaged: DamagedRecord, homes: Sequence[str]) -> None:
    """Say which files go with a record that cannot be read."""
    from bkctl.admin.repairs.repair_records import kept_in

    kept = [path for home in homes for path in kept_in(filesystem, home, damaged.number)]
    files = counted(len(kept), "kept file goes", "kept files go")
    typer.echo(f"{damaged.folder}: the record cannot be read; {files} with it", err=True)
    for path in kept[:_NAMED_MAX]:
        typer.echo(f"  {path}", err=True)
    if len(kept) > _NAMED_MAX:
        typer.echo(f"  and {len(kept) - _NAMED_MAX} more", err=True)
