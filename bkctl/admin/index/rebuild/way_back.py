"""The record of a rebuild, by which ``repair undo`` goes back.

It is there before the first old database, or the first old ``.idx`` file, leaves its place, so that a rebuild
that failed behind that can be undone as well. A rerun goes on with it, unless something else has worked in
the directories since, or the first run had dropped the old index already: then what that run had changed, or
kept, is no longer what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import abspath, dirname, relpath

from bkctl.admin.index.rebuild.options import IndexFolder
from bkctl.admin.index.rebuild.state import DROPPING
from bkctl.admin.repairs.repair_journal import (
    Intent,
    Repair,
    begin_repair,
    changes_database,
    changes_file,
    has_made_folder,
    replaces_index_folder,
    state_before,
)
from bkctl.admin.repairs.repair_records import FoundRepair, find_repairs, forget
from bkctl.admin.repairs.repair_undo import why_not
from bkctl.clock import Clock
from bkctl.codec.repair_record import RepairState, State
from bkctl.scan.directory import REBUILD_SUFFIX
from bkctl.vfs.base import FileSystem, WritableFileSystem

MADE_BY = "index rebuild"


class WayBack:
    """The record of one rebuild, in directories that are locked; ``indexes`` are all that it may rebuild.

    Of ``.idx`` files it is the path ``idx`` in each index directory, to which their work directories belong.
    Made in front of all that the rebuild does. Methods raise RefusedError, StorageError.
    """

    def __init__(
        self, fs: WritableFileSystem, clock: Clock, directories: Sequence[str], indexes: Sequence[str]
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._places = tuple(dict.fromkeys(map(abspath, directories)))
        self._indexes = indexes
        found = find_repairs(fs, self._places)
        # Begun by runs that were cut off; nothing can undo them any more.
        self._lapsed = [
            each
            for each in found
            if self._is_own(each) and each.record.state is RepairState.BEGUN and why_not(fs, each) is not None
        ]
        self._repair = self._begun(found)
        self._before = _before(fs, self._places)

    def _begun(self, found: Sequence[FoundRepair]) -> Repair | None:
        """Return what a run that was cut off has begun; one that had only kept something is forgotten."""
        if not found or not self._is_own(found[-1]):
            return None
        if found[-1].record.state is RepairState.KEEPING:
            forget(self._fs, found[-1])
        elif found[-1].record.state is RepairState.BEGUN and found[-1] not in self._lapsed:
            return Repair(self._fs, found[-1])
        return None

    def _is_own(self, found: FoundRepair) -> bool:
        return found.record.made_by == MADE_BY and found.directories == self._places

    @property
    def works(self) -> list[str]:
        """The work folders of all that may be rebuilt."""
        return [f"{path}{REBUILD_SUFFIX}" for path in self._indexes]

    @property
    def goes_on(self) -> bool:
        """Whether the record of a run that was cut off still holds."""
        return self._repair is not None

    def announce(self, live: str, backup: str) -> None:
        """Keep a database, durably, that is going to get the name ``backup``."""
        intents = [changes_database(path) for path in (backup + DROPPING, backup, live)]
        self._note(intents, relpath(abspath(live), self._places[0]))

    def announce_folders(self, folders: Sequence[IndexFolder]) -> None:
        """Note durably where the old files of index folders are, which are going to be replaced."""
        backups = sorted({dirname(folder.kept) for folder in folders})
        intents = [has_made_folder(f"{backup}{end}") for backup in backups for end in ("", DROPPING)]
        intents += [replaces_index_folder(*folder) for folder in folders]
        self._note(intents, "idx")

    def announce_file(self, path: str) -> None:
        """Keep a small file, durably, that is going to be replaced, made or removed."""
        self._note([changes_file(path)], relpath(abspath(path), self._places[0]))

    def _note(self, intents: Sequence[Intent], name: str) -> None:
        if self._repair is not None:
            names = self._repair.found.record.detail.split(", ")
            self._repair.extend(intents, ", ".join(dict.fromkeys([*names, name])))
            return
        own = [has_made_folder(f"{work}{end}") for work in self.works for end in ("", DROPPING)]
        self._repair = begin_repair(
            self._fs, self._clock, self._places, MADE_BY, name, [*own, *intents], self._before
        )

    def finish(self, *, dropped: bool) -> None:
        """Note that everything is done; with ``dropped`` nobody wants the old databases back."""
        if dropped:
            for found in self._lapsed:
                forget(self._fs, found)
        if self._repair is None:
            return
        if dropped:
            forget(self._fs, self._repair.found)
        else:
            self._repair.finish()


def _before(fs: FileSystem, places: Sequence[str]) -> State:
    """Return the files of directories, but of rebuilds that were cut off: none of those comes back."""
    return {
        directory: {name: facts for name, facts in files.items() if not _is_work(name)}
        for directory, files in state_before(fs, places).items()
    }


def _is_work(name: str) -> bool:
    return name.split("/")[0].endswith((REBUILD_SUFFIX, DROPPING))
