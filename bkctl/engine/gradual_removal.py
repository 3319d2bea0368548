"""Removal of large files that gives their room back to the disk in steps.

Removing a journal of 2 GiB keeps the file system busy for a second (ext4 on a disk that discards freed
blocks). During that second each sync of the bookie's journal waits, and so does each add. Here the name is
removed at once, as always. Nobody can open the file any more; it is then cut shorter step by step, with
pauses for the syncs of others (ADR 0034). Before the first step the directory is synced: after a power cut
the name comes back with the whole file, or not at all.

A file is cut only if nobody else can read it: it has no other name and no other descriptor, which a write
lease shows (``F_SETLEASE``, see ``fcntl(2)``). A file that is still being read stays whole, and the system
gives its room back when it is closed. The lease is kept, and asked for before each step: a process that opens
the file all the same, by ``/proc/PID/fd``, gets the rest of it and does not wait.

Where the disk has less room left than the file takes, all of it comes back at once, because the caller next
checks whether there is enough room.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable

from bkctl.clock import Clock
from bkctl.engine.engine_thread import EngineThread
from bkctl.errors import BkctlError, StorageError
from bkctl.vfs import PosixFileSystem, SyncError

_log = logging.getLogger(__name__)

#: How much room comes back at a time.
STEP_BYTES = 1 << 20
#: Smaller files are no trouble.
FILE_BYTES_MIN = 16 << 20
#: Files that wait. The room of more comes back at once: a disk that fills up needs it.
FILES_MAX = 8
#: Rest after each step; after one that takes longer, as long as it took.
REST_MIN_MS = 2


class GradualRemoval(PosixFileSystem):
    """A :class:`PosixFileSystem` for one bookie, which is to be closed with it.

    One thread, which starts with the first large file. An error of it is logged and costs nothing: the file
    has no name any more, and its room comes back when it is closed. Only a directory that cannot be synced
    is more: the system reports that once, and what others wrote there may be lost, so ``on_sync_error`` is
    called.
    """

    def __init__(self, clock: Clock, on_sync_error: Callable[[BkctlError], None]) -> None:
        self._clock = clock
        self._on_sync_error = on_sync_error
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[int, str]] = deque()
        self._ended = False
        self._thread: EngineThread | None = None

    def remove(self, path: str) -> None:
        descriptor = _open_large(path)
        taken = False
        try:
            super().remove(path)
            taken = (
                descriptor is not None
                and _can_wait(descriptor)
                and _is_unseen(descriptor)
                and self._take(descriptor, path)
            )
        finally:
            if not taken:
                _close(descriptor, path)

    def close(self) -> None:
        """End the thread; what waits comes back at once. Files that are removed later, too; idempotent."""
        self._end()
        if self._thread is not None:
            self._thread.join()

    def _take(self, descriptor: int, path: str) -> bool:
        """Have the thread cut a file; False when it takes no more."""
        with self._changed:
            if self._ended or len(self._waiting) >= FILES_MAX:
                return False
            if self._thread is None:
                thread = EngineThread("bookie-removal", self._run, self._give_up)
                try:
                    thread.start()
                except StorageError as error:
                    _log.warning("the room of removed files comes back at once: %s", error)
                    self._ended = True
                    return False
                self._thread = thread
            self._waiting.append((descriptor, path))
            self._changed.notify_all()
            return True

    def _run(self) -> None:
        while (removed := self._next()) is not None:
            descriptor, path = removed
            try:
                self.sync_directory(os.path.dirname(path))
                self._cut(descriptor)
            except SyncError as error:
                self._on_sync_error(error)
            except (OSError, StorageError) as error:
                _log.warning("%s: the room of the removed file comes back at once: %s", path, error)
            finally:
                _close(descriptor, path)

    def _next(self) -> tuple[int, str] | None:
        with self._changed:
            while not self._waiting and not self._ended:
                self._changed.wait()
            return None if self._ended else self._waiting.popleft()

    def _cut(self, descriptor: int) -> None:
        """Cut a file to nothing, unless the end comes first, or somebody opens it. Raises OSError."""
        size_bytes = os.fstat(descriptor).st_size
        while size_bytes > 0 and fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
            started_s = self._clock.monotonic()
            size_bytes = max(size_bytes - STEP_BYTES, 0)
            os.ftruncate(descriptor, size_bytes)
            rest_s = max(self._clock.monotonic() - started_s, REST_MIN_MS / 1000)
            with self._changed:
                if self._changed.wait_for(lambda: self._ended, rest_s):
                    return

    def _give_up(self, error: BkctlError) -> None:
        """Take no more files after an unforeseen error, which was logged."""
        self._end()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for descriptor, path in waiting:
            _close(descriptor, path)


def _open_large(path: str) -> int | None:
    """Return a descriptor of a large regular file; None for any other, or where it cannot be opened."""
    if sys.platform != "linux":
        return None
    try:
        facts = os.lstat(path)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size < FILE_BYTES_MIN:
            return None
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        # If the path is wrong, its removal says so.
        return None


def _can_wait(descriptor: int) -> bool:
    """Return whether its disk has as much room as the file that is removed will give back."""
    try:
        space = os.fstatvfs(descriptor)
        return space.f_bavail * space.f_frsize >= os.fstat(descriptor).st_size
    except OSError:
        return False


def _is_unseen(descriptor: int) -> bool:
    """Return whether a file has no name and no other descriptor; its lease is held then."""
    try:
        if os.fstat(descriptor).st_nlink:
            return False
        # The signal of a lease that somebody breaks: SIGIO would end the process, SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        # Somebody has it open, or the file system has no leases.
        return False
    return True


def _close(descriptor: int | None, path: str) -> None:
    if descriptor is None:
        return
    try:
        os.close(descriptor)
    except OSError as error:
        # The descriptor is gone all the same.
        _log.warning("%s: closing: %s", path, error)
