"""The chain of repairs: each began with what another one had left, and the last one is undone first.

The files that the directories held decide, and not the time: the clock may have gone back in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename, dirname

from bkctl.admin.repairs.directory_state import differences, state_of
from bkctl.admin.repairs.kept_check import not_as_kept
from bkctl.admin.repairs.repair_records import FoundRepair, find_repairs
from bkctl.admin.repairs.repair_undo import cannot_be_undone, why_not
from bkctl.codec.repair_record import RepairState
from bkctl.errors import NotFoundError, RefusedError
from bkctl.vfs.base import FileSystem


def last_repair(fs: FileSystem, directories: Sequence[str]) -> FoundRepair:
    """Return the repair that ``repair undo`` is about: the last one, or the end of the chain behind it.

    A repair whose clock had gone back stands in front of the one that it went on from. Raises RefusedError
    for a record that cannot be read, NotFoundError without any.
    """
    found = find_repairs(fs, directories)
    if not found:
        raise NotFoundError(f"no repair is on record in {', '.join(directories)}")
    if why_not(fs, found[-1]) is None:
        return found[-1]
    chain = _chain(fs, found)
    last = len(found) - 1
    while (following := chain[last].following) is not None:
        last = following
    return found[last]


def repair_of(fs: FileSystem, directories: Sequence[str], number: str) -> FoundRepair:
    """Return the repair of a number, which can be undone.

    Raises NotFoundError without it, RefusedError where it cannot be undone and where several have the number.
    """
    found = find_repairs(fs, directories)
    positions = [position for position, each in enumerate(found) if each.record.number == number]
    if not positions:
        raise NotFoundError(f"no repair {number} in {', '.join(directories)}")
    if len(positions) > 1:
        homes = ", ".join(found[position].home for position in positions)
        raise RefusedError(
            f"several directories have a repair {number}: {homes}. Name the directories of one bookie"
        )
    (position,) = positions
    reason = _chain(fs, found)[position].reason
    if reason is not None:
        raise RefusedError(cannot_be_undone(found[position], reason))
    return found[position]


def reasons_against(fs: FileSystem, repairs: Sequence[FoundRepair]) -> list[str | None]:
    """Return for each repair why it cannot be undone now, None where it can; the oldest stands first.

    Where only later repairs stand in the way, which can be undone themselves, the reason names the next one.
    Raises StorageError.
    """
    return [link.reason for link in _chain(fs, repairs)]


@dataclass(slots=True)
class _Link:
    """Why a repair cannot be undone now, and the position of the repair that is to be undone first."""

    reason: str | None
    following: int | None = None


def _chain(fs: FileSystem, repairs: Sequence[FoundRepair]) -> list[_Link]:
    """Return what stands behind each repair, by what each left and the next one began with.

    Times only say where to look first: where the clock went back, the next one stands in front.
    """
    links = [_Link(why_not(fs, found)) for found in repairs]
    waiting = list(range(len(repairs)))
    # Those that can be undone, one behind the other, the first one first.
    reached: list[int] = []
    known = -1
    while known < len(reached):
        known = len(reached)
        for position in reversed(list(waiting)):
            link, found = links[position], repairs[position]
            if link.reason is not None:
                behind = _next_of_chain(fs, found, [repairs[each] for each in reached])
                if behind is None:
                    continue
                later = repairs[reached[behind]].record
                link.following = reached[behind]
                link.reason = f"undo {later.made_by} of {later.number} first"
            reached.insert(0, position)
            waiting.remove(position)
    return links


def _next_of_chain(fs: FileSystem, found: FoundRepair, later: Sequence[FoundRepair]) -> int | None:
    """Return which of the later repairs, in their order, is the first that began with what this one had left.

    None where something else has worked in one of its directories since, or what it kept is gone.
    """
    if found.record.state is not RepairState.DONE or any(not_as_kept(fs, found)):
        return None
    behind: list[int] = []
    for name, left in (found.record.after or {}).items():
        path = found.path(name)
        began = [(position, _began_with(each, path)) for position, each in enumerate(later)]
        position, files = next((one for one in began if one[1] is not None), (None, None))
        if position is not None:
            behind.append(position)
        if files is None:
            try:
                files = state_of(fs, [path], [name])[name]
            except NotFoundError:
                return None
        if differences({name: left}, {name: files}):
            return None
    return min(behind, default=None)


def _began_with(found: FoundRepair, path: str) -> Mapping[str, str] | None:
    """Return the files of a directory in front of a repair; None where the repair was not about it."""
    for name, files in found.record.before.items():
        if found.path(name) == path:
            return files
        if found.path(name) == dirname(path):
            prefix = f"{basename(path)}/"
            return {
                each.removeprefix(prefix): facts for each, facts in files.items() if each.startswith(prefix)
            }
    return None
