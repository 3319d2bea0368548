"""The changes of a conversion, in the words of the journal of repairs, by which ``repair undo`` goes back.

The plan of a directory is a list of renames. Of the old index and of logs each is one; the new index and the
copies of entries, which came from the work directory, were not there before.

The state of the directories before the conversion is kept beside the plans, for a conversion that is killed
and goes on later. As long as the cookie of the first directory is away no bookie starts, so that it still
holds then.

The record is durable before the first cookie comes back: a conversion that is complete can be undone, at
whatever step it was killed. Until all cookies are back it may have to be noted again, and to be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import abspath, join

from bkctl.admin.conversion.new_index import work_in
from bkctl.admin.conversion.switch import DirectoryPlan
from bkctl.admin.index.rebuild.state import read_json, write_json
from bkctl.admin.repairs.repair_journal import (
    Intent,
    changes_database,
    changes_file,
    makes_directory,
    moves_file,
    note_moves,
)
from bkctl.admin.repairs.repair_records import find_repairs, forget
from bkctl.clock import Clock
from bkctl.codec.last_id import LAST_ID_NAME
from bkctl.codec.repair_record import State, state_in
from bkctl.directories.half_converted import is_half_converted
from bkctl.errors import CorruptionError
from bkctl.scan.directory import CONVERSION_NAME
from bkctl.vfs.base import FileSystem, WritableFileSystem

MADE_BY = "bookie convert"
_BEFORE = "before.json"


def keep_before(directories: Sequence[str], before: State) -> None:
    """Keep what directories hold, durably, beside the first one's plan. Raises StorageError."""
    write_json(work_in(directories[0]).at(_BEFORE), before)


def kept_before(fs: FileSystem, directories: Sequence[str]) -> State | None:
    """Return what the directories held in front of a conversion that was cut off.

    None where it is not known: a bookie may have run since, or it was not kept. Raises StorageError.
    """
    if not is_half_converted(fs, directories[0]):
        return None
    try:
        return state_in(read_json(work_in(directories[0]).at(_BEFORE)))
    except CorruptionError:
        return None


def note_way_back(
    fs: WritableFileSystem,
    clock: Clock,
    before: State,
    directories: Sequence[str],
    plans: Mapping[str, DirectoryPlan],
) -> None:
    """Note a conversion whose names are all changed, durably, so that it can be undone.

    The record of a run that was killed is replaced. Raises RefusedError for a record that cannot be
    read, StorageError.
    """
    forget_way_back(fs, directories, plans)
    intents, contents = way_back(plans)
    note_moves(fs, clock, before, directories, MADE_BY, intents, contents)


def forget_way_back(
    fs: WritableFileSystem, directories: Sequence[str], plans: Mapping[str, DirectoryPlan]
) -> None:
    """Remove what was noted of a conversion that was cut off, and that is noted again or taken back.

    Raises RefusedError for a record that cannot be read, StorageError.
    """
    kept = {abspath(join(directory, plan.kept)) for directory, plan in plans.items()}
    for found in find_repairs(fs, directories):
        if found.record.made_by == MADE_BY and kept & {
            found.path(each.path) for each in found.record.changes
        }:
            forget(fs, found)


def way_back(plans: Mapping[str, DirectoryPlan]) -> tuple[list[Intent], dict[str, bytes]]:
    """Return the changes in their order, and what stood in the files that were changed."""
    intents: list[Intent] = []
    contents: dict[str, bytes] = {}
    for directory, plan in plans.items():
        if plan.last_id is not None:
            path = join(directory, LAST_ID_NAME)
            intents.append(changes_file(path))
            if plan.last_id[0] is not None:
                contents[path] = plan.last_id[0].encode("latin-1")
        intents.append(makes_directory(join(directory, plan.kept)))
        for old, new in plan.moves:
            path = join(directory, new)
            if not old.startswith(f"{CONVERSION_NAME}/"):
                intents.append(moves_file(join(directory, old), path))
            elif new.endswith(".log"):
                intents.append(changes_file(path))
            else:
                intents.append(changes_database(path))
    return intents, contents
