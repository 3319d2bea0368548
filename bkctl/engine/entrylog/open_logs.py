"""The entry logs that are open: a bounded number of them, shared by all readers.

A file is lent (:meth:`OpenLogs.borrow`, :meth:`OpenLogs.give_back`) and closed when the last borrower has
returned it and it is no longer wanted, so that a log may be pushed out or deleted under a reader.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress

from bkctl.codec.entrylog import log_name
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.vfs.base import FileSystem, ReadableFile


class OpenLog:
    """A file and how many use it. ``file`` is for borrowers; the rest belongs to :class:`OpenLogs`."""

    __slots__ = ("file", "log_id", "users", "wanted")

    def __init__(self, log_id: int, file: ReadableFile) -> None:
        self.log_id = log_id
        self.file = file
        self.users = 0
        self.wanted = True


class OpenLogs:
    """Opens logs of ``directory`` for readers; thread-safe.

    At most ``files_max`` stay open, the least recently used one goes first. Files in use when they are pushed
    out, at most one per reader, and held ones (:meth:`hold`) come on top.
    """

    def __init__(self, directory: str, filesystem: FileSystem, files_max: int) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._files_max = files_max
        self._lock = threading.Lock()
        self._held: dict[int, OpenLog] = {}
        self._cached: OrderedDict[int, OpenLog] = OrderedDict()
        self._closed = False
        self._drops = 0

    def borrow(self, log_id: int) -> OpenLog:
        """Lend the open log, which is to be given back.

        Raises CorruptionError when there is no such file, StorageError.
        """
        with self._lock:
            log = self._lent(log_id)
            drops = self._drops
        if log is not None:
            return log
        fresh = self._open(log_id)
        try:
            with self._lock:
                log = self._lent(log_id)
                if log is None:
                    log = fresh
                    log.users = 1
                    # A log that was dropped while it was opened here may be removed already: no second drop
                    # would ever close it, so it is not cached.
                    log.wanted = drops == self._drops
                    if log.wanted:
                        self._cached[log_id] = log
                pushed_out = self._surplus()
        except StorageError:
            fresh.file.close()
            raise
        if log is not fresh:  # another reader was faster
            pushed_out.append(fresh)
        _close_all(pushed_out)
        return log

    def give_back(self, log: OpenLog) -> None:
        """Take back a log that its borrower is done with."""
        with self._lock:
            log.users -= 1
            unused = log.users == 0 and not log.wanted
        if unused:
            _close_all([log])

    def hold(self, log_id: int, file: ReadableFile) -> None:
        """Have readers use this file, which stays open until :meth:`drop`: the log is being written."""
        with self._lock:
            self._held[log_id] = OpenLog(log_id, file)

    def drop(self, log_id: int) -> None:
        """Close the log once no borrower uses it; a later borrower opens it again."""
        with self._lock:
            self._drops += 1
            dropped = [log for logs in (self._held, self._cached) if (log := logs.pop(log_id, None))]
            unused = _no_longer_wanted(dropped)
        _close_all(unused)

    def close(self) -> None:
        """Drop all logs and lend none any more."""
        with self._lock:
            self._closed = True
            unused = _no_longer_wanted([*self._held.values(), *self._cached.values()])
            self._held.clear()
            self._cached.clear()
        _close_all(unused)

    @property
    def count(self) -> int:
        """The number of logs that are open and wanted."""
        return len(self._held) + len(self._cached)

    def path(self, log_id: int) -> str:
        """Return the path of the log."""
        return f"{self._directory}/{log_name(log_id)}"

    def _lent(self, log_id: int) -> OpenLog | None:
        """Return the log with one more user if it is open."""
        if self._closed:
            raise StorageError(f"{self._directory}: the entry logs are closed", path=self._directory)
        log = self._held.get(log_id)
        if log is None:
            log = self._cached.get(log_id)
            if log is None:
                return None
            self._cached.move_to_end(log_id)
        log.users += 1
        return log

    def _open(self, log_id: int) -> OpenLog:
        path = self.path(log_id)
        try:
            return OpenLog(log_id, self._filesystem.open(path))
        except NotFoundError:
            # An index row names it, so what it held is lost; that is not "no such entry".
            raise CorruptionError("entry log", expected="a file", found="none", path=path) from None

    def _surplus(self) -> list[OpenLog]:
        surplus = []
        while len(self._cached) > self._files_max:
            surplus.append(self._cached.popitem(last=False)[1])
        return _no_longer_wanted(surplus)


def _no_longer_wanted(logs: list[OpenLog]) -> list[OpenLog]:
    """Mark logs as no longer wanted; return those without a user, to be closed outside the lock."""
    for log in logs:
        log.wanted = False
    return [log for log in logs if log.users == 0]


def _close_all(logs: list[OpenLog]) -> None:
    for log in logs:
        # Nothing is lost with a descriptor whose bytes were synced or given up before.
        with suppress(StorageError):
            log.file.close()
