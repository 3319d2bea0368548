"""The damaged logs that a salvage can take: it ends what their rows in the index say wrongly.

A rebuild of the index does not. It is refused as long as a log is damaged, and when the loss is accepted the
records that only a salvage brings back are left out.
"""

from __future__ import annotations

from collections.abc import Collection
from posixpath import normpath

from bkctl.directories.index_spaces import index_spaces
from bkctl.errors import BkctlError
from bkctl.scan.directory import LogFile, inspect_directory
from bkctl.vfs import FileSystem


class DamagedLogs:
    """Damaged logs, by their paths; whether a salvage takes one is found out once."""

    def __init__(self, filesystem: FileSystem, paths: Collection[str]) -> None:
        self._filesystem = filesystem
        self._paths = set(paths)
        self._are_taken: dict[str, bool] = {}

    def add(self, path: str | None) -> None:
        """Take a log for damaged, too; None is none."""
        if path is not None:
            self._paths.add(path)

    def among(self, log: LogFile | None) -> str | None:
        """Return the path of a log that is damaged and that a salvage takes, None for any other."""
        if log is None or log.path not in self._paths:
            return None
        if log.path not in self._are_taken:
            self._are_taken[log.path] = self._takes(log)
        return log.path if self._are_taken[log.path] else None

    def _takes(self, log: LogFile) -> bool:
        """Return whether the directory of a log alone shows which index speaks of it."""
        try:
            spaces = index_spaces(self._filesystem, [inspect_directory(self._filesystem, log.directory)])
        except BkctlError:
            return False
        beside = normpath(log.directory)
        return any(space.index_dirs and beside in map(normpath, space.log_dirs) for space in spaces)
