"""The journal of repairs: what was there before a repairing verb, what it changes, and what it left.

A verb that changes a stopped bookie's directories uses it like this, with all of them locked
(``directories.holders.DirectoryLock``)::

    settle_unfinished(fs, directories)  # a run that was killed is taken back first
    plan = ...  # what --dry-run shows as well
    repair = begin_repair(
        fs,
        clock,
        directories,
        "entrylog salvage",
        "log 1c",
        [
            changes_file(join(current, "lastId")),  # a file that is replaced, made or removed
            changes_database(join(current, "ledgers")),
            makes_directory(join(current, "bkctl-quarantine")),
            moves_file(log, join(current, "bkctl-quarantine", "1c.log")),
        ],
    )
    ...  # the changes themselves, in the order that is safe
    repair.finish()  # every database is closed by now

``directories`` are all directories of files (``current``) in which the verb changes something or in which a
bookie that starts would leave a trace; the record lies in the first one. Changes are declared before the
first of them is made, in their order: :func:`begin_repair` keeps the old state durably and returns only then.
A verb declares everything that it may change, and it changes nothing in the middle of which a bookie could
not start, as for any kill.

``repair undo`` (:mod:`bkctl.admin.repairs.repair_undo`) goes back as long as the directories are as
``finish`` found them. The old state lies in the folder ``bkctl-repairs`` of each directory: tables of
databases as second names, everything else as copies. ``repair forget`` removes it.

A verb that learns only on its way what it changes declares it piece by piece (:meth:`Repair.extend`), and
takes ``before`` in front of all it does (:func:`state_before`).

Changes to anything but a stopped bookie's files (metadata, entries written over the network) have no place
here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from posixpath import abspath, dirname, join, relpath

from bkctl.admin.repairs.directory_state import state_of
from bkctl.admin.repairs.kept_facts import facts_of_kept
from bkctl.admin.repairs.kept_files import (
    keep_content,
    keep_database,
    keep_file,
    keep_start,
    refuse_link,
    remove_kept,
)
from bkctl.admin.repairs.repair_records import FoundRepair, find_repairs, remove_repair, write_record
from bkctl.clock import Clock
from bkctl.codec.repair_record import (
    ChangeKind,
    RepairChange,
    RepairRecord,
    RepairState,
    State,
)
from bkctl.errors import BkctlError, RefusedError
from bkctl.scan.directory import COOKIE_NAME, REPAIRS_NAME
from bkctl.vfs.base import FileSystem, WritableFileSystem

_SAME_SECOND_MAX = 1000
_TIME_MS_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing that a verb is going to change; ``start_bytes`` is how much of a ``START`` it is.

    A path that ``is_own`` was made by the verb itself: it was not there before.
    """

    what: ChangeKind
    path: str
    to: str | None = None
    start_bytes: int = 0
    is_own: bool = False


def changes_file(path: str) -> Intent:
    """Return the intent to replace, make or remove a file; what is there is copied."""
    return Intent(ChangeKind.FILE, path)


def changes_start(path: str, start_bytes: int) -> Intent:
    """Return the intent to change the first bytes of a file that is there, in place; they are copied."""
    return Intent(ChangeKind.START, path, start_bytes=start_bytes)


def changes_database(path: str) -> Intent:
    """Return the intent to write into a database, or to make one."""
    return Intent(ChangeKind.DATABASE, path)


def has_made_folder(path: str) -> Intent:
    """Return the intent to go on with a folder of the verb's own, which an undo removes."""
    return Intent(ChangeKind.DATABASE, path, is_own=True)


def moves_file(path: str, to: str) -> Intent:
    """Return the intent to give a file another name on the same disk; it is not copied."""
    return Intent(ChangeKind.MOVED, path, to)


def makes_directory(path: str) -> Intent:
    """Return the intent to make a directory, if it is not there."""
    return Intent(ChangeKind.DIRECTORY, path)


def replaces_index_folder(path: str, kept: str) -> Intent:
    """Return the intent to replace the files of an index folder; ``kept`` is a folder with all its old files.

    Where ``kept`` is not there, the folder was not there before, and an undo removes it.
    """
    return Intent(ChangeKind.INDEX_FOLDER, path, kept)


class Repair:
    """A repair that has begun; made by :func:`begin_repair`."""

    def __init__(self, fs: WritableFileSystem, found: FoundRepair) -> None:
        self._fs = fs
        self.found = found

    def kept(self, path: str) -> str | None:
        """Return where the old content of a path is kept, None where there was none."""
        name = relpath(path, self.found.home)
        kept = next(change for change in self.found.record.changes if change.path == name).kept
        return None if kept is None else self.found.path(kept)

    def extend(self, intents: Sequence[Intent], detail: str) -> None:
        """Keep durably what is going to be changed besides; what was declared already stays as it is.

        Raises as :func:`begin_repair`; nothing of it was changed then.
        """
        record, found = self.found.record, self.found
        known = {change.path for change in record.changes}
        fresh = [each for each in intents if relpath(abspath(each.path), found.home) not in known]
        first = len(record.changes)
        changes = _planned(self._fs, fresh, found.directories, found.home, record.number, first)
        if not changes:
            return
        for change in changes:
            if change.kept is not None and change.what is not ChangeKind.INDEX_FOLDER:
                # A file that a run that was cut off has left there is in no record.
                remove_kept(self._fs, found.path(change.kept))
        _keep(self._fs, found, changes, fresh)
        kept = {**(record.kept or {}), **_facts_of_kept(self._fs, found, changes)}
        added = replace(record, changes=(*record.changes, *changes), kept=kept, detail=detail)
        self.found = write_record(self._fs, found, added)

    def finish(self, *, away: str | None = None) -> None:
        """Note that everything is done, and what the directories hold now. Raises StorageError.

        A file of the name ``away`` that is in none of them now comes back as it was before.
        """
        record = self.found.record
        made = [
            change.path
            for change in record.changes
            if change.what is ChangeKind.DIRECTORY and change.path not in record.directories
        ]
        names = [*record.directories, *(name for name in made if self._is_there(name))]
        after = state_of(self._fs, [self.found.path(name) for name in names], names)
        if away is not None:
            known = {name: files[away] for name, files in record.before.items() if away in files}
            after = {
                name: {away: known[name], **files} if name in known else files
                for name, files in after.items()
            }
        kept = _facts_of_kept(self._fs, self.found, record.changes) if record.kept is None else record.kept
        done = replace(record, state=RepairState.DONE, after=after, kept=kept)
        self.found = write_record(self._fs, self.found, done)

    def _is_there(self, name: str) -> bool:
        status = self._fs.status(self.found.path(name))
        return status is not None and status.is_dir


def begin_repair(
    fs: WritableFileSystem,
    clock: Clock,
    directories: Sequence[str],
    made_by: str,
    detail: str,
    intents: Sequence[Intent],
    before: State | None = None,
) -> Repair:
    """Keep what is going to be changed, durably, and note that the repair has begun.

    ``before`` is what :func:`state_before` returned, where the verb has made anything since. Raises
    RefusedError where a link stands in the way, StorageError; nothing was changed then.
    """
    places = tuple(dict.fromkeys(abspath(path) for path in directories))
    home = places[0]
    names = tuple(relpath(path, home) for path in places)
    time_ms = _new_time_ms(fs, clock, places)
    number = _new_number(fs, time_ms, places)
    changes = _planned(fs, intents, places, home, number)
    before = state_of(fs, places, names) if before is None else before
    record = RepairRecord(number, made_by, RepairState.KEEPING, time_ms, detail, names, changes, before)
    found = FoundRepair(home, record)
    with _nothing_left(fs, found):
        fs.make_directories(found.folder)
        # From here on what is kept is known to be of no use, should it never be said to be whole.
        found = write_record(fs, found, record)
        _keep(fs, found, changes, intents)
        noted = replace(record, state=RepairState.BEGUN, kept=_facts_of_kept(fs, found, changes))
        found = write_record(fs, found, noted)
    return Repair(fs, found)


@contextmanager
def _nothing_left(fs: WritableFileSystem, found: FoundRepair) -> Iterator[None]:
    """Remove what was kept, as far as that goes, where a repair cannot begin; its own error is raised."""
    try:
        yield
    except BkctlError:
        with suppress(BkctlError):
            remove_repair(fs, found.home, found.directories, found.record.number)
        raise


def _keep(
    fs: WritableFileSystem, found: FoundRepair, changes: Sequence[RepairChange], intents: Sequence[Intent]
) -> None:
    """Copy what changes are about to where they say; all is durable then."""
    starts = {abspath(intent.path): intent.start_bytes for intent in intents}
    folders: set[str] = set()
    for change in changes:
        if change.kept is None or change.what is ChangeKind.INDEX_FOLDER:
            continue
        path, kept = found.path(change.path), found.path(change.kept)
        if dirname(kept) not in folders:
            fs.make_directories(dirname(kept))
            folders.add(dirname(kept))
        if change.what is ChangeKind.DATABASE:
            keep_database(fs, path, kept)
        elif change.what is ChangeKind.START:
            keep_start(fs, path, kept, starts[path])
        else:
            keep_file(fs, path, kept)
    for folder in sorted(folders):
        fs.sync_directory(folder)


def _facts_of_kept(fs: FileSystem, found: FoundRepair, changes: Sequence[RepairChange]) -> dict[str, str]:
    """Return what is to be noted of the kept files, whose names below a path are what a record calls them."""
    names = [change.kept for change in changes if change.kept is not None]
    return {
        kept + name: facts for kept in names for name, facts in facts_of_kept(fs, found.path(kept)).items()
    }


def state_before(fs: FileSystem, directories: Sequence[str]) -> State:
    """Return the files of some directories, in front of what a verb does. Raises StorageError."""
    places = tuple(dict.fromkeys(abspath(path) for path in directories))
    return state_of(fs, places, [relpath(path, places[0]) for path in places])


def note_moves(
    fs: WritableFileSystem,
    clock: Clock,
    before: State,
    directories: Sequence[str],
    made_by: str,
    intents: Sequence[Intent],
    contents: Mapping[str, bytes],
) -> Repair:
    """Note a repair whose names are changed already, while the cookies may still be away.

    ``intents`` are its changes in their order; a file or database among them was not there before, but for a
    file of which ``contents`` has what stood in it. ``before`` is what :func:`state_before` returned; a
    cookie that it has, and that is away, is going to come back. The directories are locked. Raises
    RefusedError for a record that cannot be read, StorageError.
    """
    places = tuple(dict.fromkeys(abspath(path) for path in directories))
    home, names = places[0], tuple(before)
    time_ms = _new_time_ms(fs, clock, places)
    number = _new_number(fs, time_ms, places)
    changes = []
    for position, intent in enumerate(intents):
        path, kept = abspath(intent.path), None
        if intent.path in contents:
            kept = relpath(join(dirname(path), REPAIRS_NAME, number, str(position)), home)
        to = None if intent.to is None else relpath(abspath(intent.to), home)
        changes.append(RepairChange(intent.what, relpath(path, home), kept, to))
    record = RepairRecord(number, made_by, RepairState.KEEPING, time_ms, "", names, tuple(changes), before)
    found = FoundRepair(home, record)
    with _nothing_left(fs, found):
        fs.make_directories(found.folder)
        found = write_record(fs, found, record)
        for intent, change in zip(intents, changes, strict=True):
            if change.kept is not None:
                fs.make_directories(dirname(found.path(change.kept)))
                keep_content(fs, contents[intent.path], intent.path, found.path(change.kept))
    repair = Repair(fs, found)
    repair.finish(away=COOKIE_NAME)
    return repair


def _planned(
    fs: FileSystem,
    intents: Sequence[Intent],
    places: Sequence[str],
    home: str,
    number: str,
    first: int = 0,
) -> tuple[RepairChange, ...]:
    return tuple(
        _change(fs, intent, places, home, f"{number}/{position}")
        for position, intent in enumerate(intents, first)
        if intent.what is not ChangeKind.DIRECTORY or fs.status(intent.path) is None
    )


def _change(fs: FileSystem, intent: Intent, places: Sequence[str], home: str, kept_name: str) -> RepairChange:
    path = abspath(intent.path)
    name = relpath(path, home)
    if intent.what is ChangeKind.MOVED:
        assert intent.to is not None, "a move goes somewhere"
        return RepairChange(intent.what, name, to=relpath(abspath(intent.to), home))
    if intent.what is ChangeKind.INDEX_FOLDER:
        assert intent.to is not None, "the old files are somewhere"
        is_kept = fs.status(intent.to) is not None
        return RepairChange(intent.what, name, kept=relpath(abspath(intent.to), home) if is_kept else None)
    is_there = fs.status(path) is not None or fs.link_target(path) is not None
    if not is_there or intent.is_own:
        return RepairChange(intent.what, name)
    around = [place for place in places if path.startswith(f"{place}/")]
    if not around:
        raise RefusedError(f"{path}: exists already, and is in no directory of the bookie")
    folder = join(max(around, key=len), REPAIRS_NAME)
    refuse_link(fs, folder)
    return RepairChange(intent.what, name, kept=relpath(join(folder, kept_name), home))


def _new_time_ms(fs: WritableFileSystem, clock: Clock, places: Sequence[str]) -> int:
    """Return the time of a new record: behind those of all others, also where the clock went back.

    The others are durable then. One that a kill at its end has left is seen as done, and a power cut behind
    the new repair would make it one that was cut off: taking it back would take the new one.
    """
    others = find_repairs(fs, places)
    for found in others:
        fs.sync_directory(found.folder)
    newest = max((found.record.time_ms for found in others), default=-1)
    return min(max(clock.time_ms(), newest + 1), _TIME_MS_MAX)


def _new_number(fs: FileSystem, time_ms: int, places: Sequence[str]) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time_ms / 1000))
    for position in range(1, _SAME_SECOND_MAX):
        number = stamp if position == 1 else f"{stamp}{position}"
        if all(fs.status(join(place, REPAIRS_NAME, number)) is None for place in places):
            for place in places:
                refuse_link(fs, join(place, REPAIRS_NAME))
            return number
    raise RefusedError(f"{join(places[0], REPAIRS_NAME)}: too many repairs of one second")
