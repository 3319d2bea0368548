"""Find where one entry log of a stopped bookie is, and which index speaks of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import basename, dirname, join, normpath

from bkctl.admin.next_step import index_rebuild_line
from bkctl.codec.entrylog import log_name
from bkctl.directories.index_spaces import IndexSpace, index_spaces
from bkctl.errors import NotFoundError, RefusedError, UsageError
from bkctl.scan.directory import QUARANTINE_NAME, LogFile, inspect_directory
from bkctl.scan.files.paths import directories
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A log, the ledger directory whose it is, and the space whose index speaks of it.

    ``in_quarantine`` says that the file is not where the index says.
    """

    log: LogFile
    current_dir: str
    space: IndexSpace

    @property
    def bookie(self) -> str | None:
        """The id of the bookie."""
        return self.space.bookie

    @property
    def in_quarantine(self) -> bool:
        """Whether the log lies in quarantine."""
        return basename(dirname(self.log.path)) == QUARANTINE_NAME

    @property
    def quarantine_dir(self) -> str:
        """The folder of logs in quarantine."""
        return join(self.current_dir, QUARANTINE_NAME)

    @property
    def path_in_use(self) -> str:
        """The path of the log when it is not in quarantine."""
        return join(self.current_dir, log_name(self.log.log_id))

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The directories whose logs have ids in common with this one, its own first."""
        others = self.space.log_dirs if self.space.kind.shares_log_ids else ()
        return tuple(dict.fromkeys(map(normpath, (self.current_dir, *others))))

    @property
    def every_dir(self) -> tuple[str, ...]:
        """Every directory of the place, that of the log first.

        A bookie that runs over an index without a database leaves a trace in its journals alone.
        """
        journals = () if self.space.kind.has_databases else (one.path for one in self.space.journal_dirs)
        return tuple(dict.fromkeys(map(normpath, (*self.log_dirs, *self.space.index_dirs, *journals))))


def find_log(
    fs: FileSystem, paths: Sequence[str], log_id: int | None, *, in_quarantine: bool | None = None
) -> LogPlace:
    """Return the log that paths, and perhaps an id, stand for.

    With ``in_quarantine`` it has to be there, or not to be there. Raises NotFoundError, UsageError when
    several fit, RefusedError for a directory without index, StorageError.
    """
    found: dict[str, LogFile] = {}
    for path in paths:
        status = fs.status(path)
        if status is None:
            raise NotFoundError(f"{path}: no such file or directory")
        folders = [path] if status.is_dir else [_ledger_directory(path)]
        for directory in directories(fs, folders):
            for log in logs_with_quarantine(fs, directory.path):
                is_there = basename(dirname(log.path)) == QUARANTINE_NAME
                is_named = status.is_dir or normpath(log.path) == normpath(path)
                if is_named and log_id in (None, log.log_id) and in_quarantine in (None, is_there):
                    found[normpath(log.path)] = log
    if not found:
        what = "no entry log" if log_id is None else f"no entry log {log_id} (0x{log_id:x})"
        where = "in quarantine in" if in_quarantine else "in"
        raise NotFoundError(f"{what} {where} {', '.join(paths)}")
    if len(found) > 1:
        listed = ", ".join([log.path for log in found.values()][:5]) + (", ..." if len(found) > 5 else "")
        raise UsageError(f"{len(found)} logs fit, name one by its id or its path: {listed}")
    (log,) = found.values()
    current_dir = _ledger_directory(log.path)
    return _placed(fs, log, current_dir)


def logs_with_quarantine(fs: FileSystem, current_dir: str) -> list[LogFile]:
    """Return the logs of a ledger directory, and those that lie in quarantine there. Raises StorageError."""
    logs = [log for log in inspect_directory(fs, current_dir).logs if not log.compaction]
    return logs + [each.log for each in quarantined_logs(fs, current_dir)]


def _ledger_directory(path: str) -> str:
    folder = dirname(path) or "."
    return (dirname(folder) or ".") if basename(folder) == QUARANTINE_NAME else folder


def _placed(fs: FileSystem, log: LogFile, current_dir: str) -> LogPlace:
    space = _space_of(fs, current_dir)
    if not space.index_dirs:
        raise RefusedError(
            f"{current_dir}: has no index; rebuild it first: {index_rebuild_line(current_dir)}"
        )
    return LogPlace(log, current_dir, space)


def _space_of(fs: FileSystem, current_dir: str) -> IndexSpace:
    for space in index_spaces(fs, [inspect_directory(fs, current_dir)]):
        if normpath(current_dir) in map(normpath, space.log_dirs):
            return space
    raise RefusedError(f"{current_dir}: it is not clear which index its logs belong to")
