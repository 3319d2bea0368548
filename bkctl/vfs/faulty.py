"""A file system that fails, waits or stops where a test wants it: the twin of a dying disk and of a crash."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bkctl.errors import StorageError, storage_error
from bkctl.reporting import counted
from bkctl.vfs.base import DiskSpace, FileStatus, ReadableFile, WritableFile, WritableFileSystem
from bkctl.vfs.memory import MemoryWritableFile
from bkctl.vfs.replacing import replace_by_rename

FileOperation = Literal[
    "open",
    "list",
    "read",
    "write",
    "sync",
    "create",
    "rename",
    "link",
    "remove",
    "sync_directory",
    "make_directories",
]
#: Operations whose effect a power cut may undo or keep: a crash before each of them is a state of its own.
PERSISTENCE_POINTS: frozenset[FileOperation] = frozenset(
    {"write", "sync", "create", "rename", "link", "remove", "sync_directory", "make_directories"}
)


@dataclass(frozen=True, slots=True)
class ReadFault:
    """Every read that touches ``[start, stop)`` of a file whose path ends in ``suffix`` fails."""

    suffix: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Calls of ``operation`` that fail, wait, or wait and fail.

    ``path`` is what the path ends in, or a predicate of it; a rename or a link is meant by either of its
    paths. Of the calls that match, ``first`` (from 1) is the first one that is hit and ``count`` how many
    are; None is all. The call waits ``latency_s`` seconds, then fails with ``error_number``; None lets it
    succeed.

    ``open`` is opening an existing file, ``list`` reading a status, a directory or the free space. A write
    that fails has written its first half. A failed sync of a memory file loses what it should have made
    durable, for later syncs too. ``replace`` is its steps, and its temporary name ends in ``.tmp``.
    """

    operation: FileOperation
    path: str | Callable[[str], bool] = ""
    first: int = 1
    count: int | None = None
    latency_s: float = 0.0
    error_number: int | None = errno.EIO

    def matches(self, operation: FileOperation, paths: Sequence[str]) -> bool:
        """Return whether a call on these paths is meant."""
        if operation != self.operation:
            return False
        if isinstance(self.path, str):
            return any(path.endswith(self.path) for path in paths)
        return any(map(self.path, paths))


class CrashPointReached(StorageError):
    """The machine has stopped; nothing after this happens."""


class FaultyFile:
    """Implements :class:`bkctl.vfs.base.ReadableFile`: ``inner`` with the faults of its file system."""

    __slots__ = ("_inner", "_system")

    def __init__(self, system: FaultyFileSystem, inner: ReadableFile) -> None:
        self._system = system
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def read_at(self, offset: int, length: int) -> bytes:
        doing = f"reading {counted(length, 'byte')} at offset {offset}"
        self._system.enter("read", self.path, doing=doing, offset=offset)
        for fault in self._system.read_faults:
            if self.path.endswith(fault.suffix) and offset < fault.stop and offset + length > fault.start:
                raise storage_error(_system_error(errno.EIO), self.path, doing, offset)
        return self._inner.read_at(offset, length)

    def close(self) -> None:
        self._inner.close()


class FaultyWritableFile(FaultyFile):
    """Implements :class:`bkctl.vfs.base.WritableFile` in the same way."""

    __slots__ = ("_writable",)

    def __init__(self, system: FaultyFileSystem, inner: WritableFile) -> None:
        super().__init__(system, inner)
        self._writable = inner

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._enter_write(offset, view)
        self._writable.write_at(offset, view)

    def write_direct(self, offset: int, pieces: Sequence[bytes]) -> None:
        self._enter_write(offset, memoryview(b"".join(pieces)))
        self._writable.write_direct(offset, pieces)

    def write_synced(self, offset: int, pieces: Sequence[bytes], *, direct: bool) -> float:
        if direct:
            self.write_direct(offset, pieces)
        else:
            self.write_at(offset, b"".join(pieces))
        started_s = time.monotonic()
        self.sync_data()
        return time.monotonic() - started_s

    def _enter_write(self, offset: int, view: memoryview) -> None:
        """Count a write; half of the bytes are written of one that is to fail."""
        doing = f"writing {counted(len(view), 'byte')} at offset {offset}"
        try:
            self._system.enter("write", self.path, doing=doing, offset=offset)
        except CrashPointReached:
            raise
        except StorageError:
            self._writable.write_at(offset, view[: len(view) // 2])
            raise

    def sync_data(self) -> None:
        self._enter_sync("fdatasync")
        self._writable.sync_data()

    def sync(self) -> None:
        self._enter_sync("fsync")
        self._writable.sync()

    def write_back(self, offset: int, length: int) -> None:
        self._enter_sync("sync_file_range")
        self._writable.write_back(offset, length)

    def forget_cached(self, offset: int, length: int) -> None:
        self._writable.forget_cached(offset, length)

    def _enter_sync(self, doing: str) -> None:
        try:
            self._system.enter("sync", self.path, doing=doing)
        except CrashPointReached:
            raise
        except StorageError:
            if isinstance(self._writable, MemoryWritableFile):
                self._writable.lose_unsynced()
            raise


class FaultyFileSystem:
    """Implements :class:`bkctl.vfs.base.WritableFileSystem`: ``inner`` with faults.

    ``points`` counts the persistence points passed so far. With ``crash_after`` that many of them happen; the
    next one, and every operation of any kind after it, does not and raises CrashPointReached (``crashed`` is
    True then, and the event ``stopped`` set). ``inner`` has the content of the disk, once all threads that
    use this file system have ended: a call that began before the crash may still be doing its work.
    ``sleep`` waits for a latency. Safe for threads as far as ``inner`` is.
    """

    def __init__(
        self,
        inner: WritableFileSystem,
        faults: Sequence[ReadFault | FaultRule] = (),
        *,
        crash_after: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inner = inner
        self._sleep = sleep
        self._lock = threading.Lock()
        self.crash_after = crash_after
        self.points = 0
        self.stopped = threading.Event()
        self.read_faults: tuple[ReadFault, ...] = ()
        self._rules: list[FaultRule] = []
        self._seen: list[int] = []
        self.inject(*faults)

    @property
    def crashed(self) -> bool:
        """Whether the crash point was reached."""
        return self.stopped.is_set()

    def crash_now(self) -> None:
        """Stop here, as at a crash point."""
        with self._lock:
            self.stopped.set()

    def inject(self, *faults: ReadFault | FaultRule) -> None:
        """Add more faults; each counts from here."""
        with self._lock:
            self.read_faults += tuple(fault for fault in faults if isinstance(fault, ReadFault))
            rules = [fault for fault in faults if isinstance(fault, FaultRule)]
            self._rules += rules
            self._seen += [0] * len(rules)

    def heal(self) -> None:
        """Remove all faults; a crash stays a crash."""
        with self._lock:
            self.read_faults = ()
            self._rules = []
            self._seen = []

    def enter(
        self, operation: FileOperation, *paths: str, doing: str = "", offset: int | None = None
    ) -> None:
        """Wait or raise, as the test asked for, before an operation."""
        with self._lock:
            if not self.crashed and operation in PERSISTENCE_POINTS:
                if self.points == self.crash_after:
                    self.stopped.set()
                else:
                    self.points += 1
            if self.crashed:
                raise _stopped(paths)
            hit = [rule for at, rule in enumerate(self._rules) if self._is_hit(at, rule, operation, paths)]
        for rule in hit:
            if rule.latency_s > 0:
                self._sleep(rule.latency_s)
        if hit and self.crashed:  # while this call waited
            raise _stopped(paths)
        for rule in hit:
            if rule.error_number is not None:
                raise storage_error(
                    _system_error(rule.error_number),
                    paths[0],
                    doing or operation,
                    offset,
                    syncing=operation in ("sync", "sync_directory"),
                )

    def _is_hit(self, at: int, rule: FaultRule, operation: FileOperation, paths: Sequence[str]) -> bool:
        if not rule.matches(operation, paths):
            return False
        self._seen[at] += 1
        since = self._seen[at] - rule.first
        return since >= 0 and (rule.count is None or since < rule.count)

    def open(self, path: str) -> FaultyFile:
        self.enter("open", path)
        return FaultyFile(self, self._inner.open(path))

    def status(self, path: str) -> FileStatus | None:
        self.enter("list", path)
        return self._inner.status(path)

    def names(self, path: str) -> list[str]:
        self.enter("list", path)
        return self._inner.names(path)

    def create(self, path: str, *, mode_of: str | None = None) -> FaultyWritableFile:
        self.enter("create", path)
        return FaultyWritableFile(self, self._inner.create(path, mode_of=mode_of))

    def open_to_write(self, path: str) -> FaultyWritableFile:
        self.enter("open", path)
        return FaultyWritableFile(self, self._inner.open_to_write(path))

    def replace(self, path: str, content: bytes) -> None:
        replace_by_rename(self, path, content)

    def rename(self, old: str, new: str) -> None:
        self.enter("rename", old, new, doing=f"renaming to {new}")
        self._inner.rename(old, new)

    def link(self, old: str, new: str) -> None:
        self.enter("link", old, new, doing=f"linking to {new}")
        self._inner.link(old, new)

    def link_to(self, target: str, path: str) -> None:
        self.enter("link", path, target, doing=f"linking to {target}")
        self._inner.link_to(target, path)

    def link_target(self, path: str) -> str | None:
        self.enter("list", path)
        return self._inner.link_target(path)

    def remove(self, path: str) -> None:
        self.enter("remove", path, doing="removing")
        self._inner.remove(path)

    def remove_directory(self, path: str) -> None:
        self.enter("remove", path, doing="removing the directory")
        self._inner.remove_directory(path)

    def make_directories(self, path: str) -> None:
        self.enter("make_directories", path, doing="making the directory")
        self._inner.make_directories(path)

    def copy_directory_mode(self, path: str, mode_of: str) -> None:
        self.enter("open", path)
        self._inner.copy_directory_mode(path, mode_of)

    def sync_directory(self, path: str) -> None:
        self.enter("sync_directory", path, doing="fsync of the directory")
        self._inner.sync_directory(path)

    def disk_space(self, path: str) -> DiskSpace:
        self.enter("list", path)
        return self._inner.disk_space(path)


def _stopped(paths: Sequence[str]) -> CrashPointReached:
    return CrashPointReached(f"{paths[0]}: the machine has stopped", path=paths[0])


def _system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
