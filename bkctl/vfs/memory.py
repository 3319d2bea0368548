"""A file system in memory that knows what a power cut would leave of it, for tests.

It promises as little as POSIX does: bytes are durable when their file was synced, names (made, renamed or
removed) when their directory was. Syncing a file does not make its name durable.
"""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bkctl.errors import NotFoundError, StorageError, storage_error
from bkctl.reporting import counted
from bkctl.vfs.base import DiskSpace, FileStatus
from bkctl.vfs.failures import dangling
from bkctl.vfs.replacing import replace_by_rename
from bkctl.vfs.volatile import VolatileBytes

if TYPE_CHECKING:
    import random

#: The size that :meth:`MemoryFileSystem.disk_space` reports for a disk without a bound.
_UNBOUNDED_BYTES = 1 << 40
_DEVICES = itertools.count(1)


class MemoryFile:
    """Implements :class:`bkctl.vfs.base.ReadableFile`; it goes on when the file loses its name."""

    __slots__ = ("_bytes", "_closed", "_path", "_size_bytes", "_system")

    def __init__(self, system: MemoryFileSystem, path: str, content: VolatileBytes) -> None:
        self._system = system
        self._path = path
        self._bytes = content
        self._size_bytes = len(content.current)
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_at(self, offset: int, length: int) -> bytes:
        with self._system.lock:
            self._check_open()
            return self._bytes.read(offset, length)

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise _failure(errno.EBADF, self._path)


class MemoryWritableFile(MemoryFile):
    """Implements :class:`bkctl.vfs.base.WritableFile`."""

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        with self._system.lock:
            self._check_open()
            return len(self._bytes.current)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        content = bytes(data)
        with self._system.lock:
            self._check_open()
            room = max(0, len(self._bytes.current) + self._system.free_bytes(self._path) - offset)
            # As on a real disk, what has room is written before the error comes.
            self._bytes.write(offset, content[:room])
        if len(content) > room:
            raise _failure(
                errno.ENOSPC,
                self._path,
                f"writing {counted(len(content), 'byte')} at offset {offset}",
                offset,
            )

    def write_direct(self, offset: int, pieces: Sequence[bytes]) -> None:
        self.write_at(offset, b"".join(pieces))

    def write_synced(self, offset: int, pieces: Sequence[bytes], *, direct: bool) -> float:
        self.write_at(offset, b"".join(pieces))
        self.sync_data()
        return 0.0

    def sync_data(self) -> None:
        with self._system.lock:
            self._check_open()
            self._bytes.sync()

    def sync(self) -> None:
        self.sync_data()

    def write_back(self, offset: int, length: int) -> None:
        with self._system.lock:
            # Bytes without a sync may be on the disk or not in any case.
            self._check_open()

    def forget_cached(self, offset: int, length: int) -> None:
        """Do nothing: there is no cache."""

    def lose_unsynced(self) -> None:
        """Lose unsynced bytes as :meth:`bkctl.vfs.volatile.VolatileBytes.lose_unsynced` does."""
        with self._system.lock:
            self._bytes.lose_unsynced()


class _Link(VolatileBytes):
    """A symbolic link."""

    __slots__ = ("target",)

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target


#: The changes of one create, rename, link or remove. A power cut keeps all of them or none.
_NameChange = dict[str, VolatileBytes | None]


class MemoryFileSystem:
    """Implements :class:`bkctl.vfs.base.WritableFileSystem`.

    ``files`` maps a path to its bytes; they and the directories they lie in are durable. ``capacity_bytes``
    bounds the bytes of all named files; it may be changed at any time, None is no bound. ``disks`` maps
    directories to capacities of their own: each is another disk, and no file moves from one to another.
    One lock (``lock``) makes it safe for threads.
    """

    def __init__(self, files: dict[str, bytes] | None = None, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.disks: dict[str, int] = {}
        self.lock = threading.RLock()
        self._device = next(_DEVICES)
        self._names = {_plain(path): VolatileBytes(content) for path, content in (files or {}).items()}
        self._durable_names = dict(self._names)
        self._changes: list[_NameChange] = []
        self._directories = {"/", "."}
        for path in self._names:
            self._add_directories(posixpath.dirname(path))

    @property
    def files(self) -> dict[str, bytes]:
        """A copy of what is visible now, by path."""
        with self.lock:
            return {path: bytes(content.current) for path, content in self._names.items()}

    def crash(self, chance: random.Random | None = None) -> MemoryFileSystem:
        """Return what a power cut at this moment leaves, as a file system of its own; this one goes on.

        Without ``chance`` everything that is not durable is gone. With it each change of names survives or
        not, and of unsynced bytes any part (:mod:`bkctl.vfs.volatile`). Equal histories and equal
        ``chance`` give equal remains.
        """
        with self.lock:
            names = dict(self._durable_names)
            if chance is not None:
                keep = chance.choice((0.0, 0.5, 1.0, chance.random()))
                for change in self._changes:
                    if chance.random() < keep:
                        _apply(change, names)
            # A file may have two names: linked, or only one half of a rename was synced.
            remains = {
                id(content): content if isinstance(content, _Link) else content.after_power_cut(chance)
                for content in names.values()
            }
            left = MemoryFileSystem(capacity_bytes=self.capacity_bytes)
            left.disks = dict(self.disks)
            left._device = self._device
            left._directories = set(self._directories)
            left._names = {path: remains[id(content)] for path, content in names.items()}
            left._durable_names = dict(left._names)
            for path in names:
                # Files that come back are in a directory that was removed, but not durably.
                left._add_directories(posixpath.dirname(path))
            return left

    def free_bytes(self, path: str = "/") -> int:
        """Return the bytes that may still be written on the disk that holds ``path``."""
        with self.lock:
            disk = self._disk_of(path)
            capacity_bytes = self._capacity_of(disk)
            if capacity_bytes is None:
                return _UNBOUNDED_BYTES
            contents = {
                id(content): len(content.current)
                for name, content in self._names.items()
                if self._disk_of(name) == disk
            }
            return max(0, capacity_bytes - sum(contents.values()))

    def _disk_of(self, path: str) -> str | None:
        name = _plain(path)
        return next((disk for disk in self.disks if name == disk or name.startswith(f"{disk}/")), None)

    def _capacity_of(self, disk: str | None) -> int | None:
        return self.capacity_bytes if disk is None else self.disks[disk]

    def open(self, path: str) -> MemoryFile:
        with self.lock:
            return MemoryFile(self, path, self._content(path))

    def status(self, path: str) -> FileStatus | None:
        with self.lock:
            content = self._names.get(_plain(path))
            if isinstance(content, _Link):
                return self.status(content.target)
            if content is not None:
                return FileStatus(False, len(content.current), 0.0)
            return FileStatus(True, 0, 0.0) if _plain(path) in self._directories else None

    def names(self, path: str) -> list[str]:
        directory = _plain(path)
        with self.lock:
            if directory not in self._directories:
                if directory in self._names:
                    raise _failure(errno.ENOTDIR, path)
                raise NotFoundError(f"{path}: no such directory")
            below = itertools.chain(self._names, self._directories - {"/", "."})
            return sorted(posixpath.basename(name) for name in below if _parent(name) == directory)

    def create(self, path: str, *, mode_of: str | None = None) -> MemoryWritableFile:
        name = _plain(path)
        with self.lock:
            self._check_parent(path)
            if name in self._names or name in self._directories:
                raise _failure(errno.EEXIST, path)
            if self.free_bytes(path) == 0:
                raise _failure(errno.ENOSPC, path)
            content = VolatileBytes()
            self._change({name: content})
            return MemoryWritableFile(self, path, content)

    def open_to_write(self, path: str) -> MemoryWritableFile:
        with self.lock:
            return MemoryWritableFile(self, path, self._content(path))

    def replace(self, path: str, content: bytes) -> None:
        replace_by_rename(self, path, content)

    def rename(self, old: str, new: str) -> None:
        with self.lock:
            content = self._content(old, follow=False)
            self._check_parent(new)
            if _plain(new) in self._directories:
                raise _failure(errno.EISDIR, old, f"renaming to {new}")
            if self._disk_of(old) != self._disk_of(new):
                raise _failure(errno.EXDEV, old, f"renaming to {new}")
            if _plain(new) != _plain(old):
                self._change({_plain(old): None, _plain(new): content})

    def link(self, old: str, new: str) -> None:
        with self.lock:
            content = self._content(old, follow=False)
            self._check_parent(new)
            if self._disk_of(old) != self._disk_of(new):
                raise _failure(errno.EXDEV, old, f"linking to {new}")
            if _plain(new) in self._names or _plain(new) in self._directories:
                raise _failure(errno.EEXIST, old, f"linking to {new}")
            self._change({_plain(new): content})

    def link_to(self, target: str, path: str) -> None:
        with self.lock:
            self._check_parent(path)
            if _plain(path) in self._names or _plain(path) in self._directories:
                raise _failure(errno.EEXIST, path, f"linking to {target}")
            self._change({_plain(path): _Link(target)})

    def link_target(self, path: str) -> str | None:
        with self.lock:
            content = self._names.get(_plain(path))
            return content.target if isinstance(content, _Link) else None

    def remove(self, path: str) -> None:
        with self.lock:
            self._content(path, follow=False)
            self._change({_plain(path): None})

    def remove_directory(self, path: str) -> None:
        directory = _plain(path)
        with self.lock:
            if directory not in self._directories:
                if directory in self._names:
                    raise _failure(errno.ENOTDIR, path)
                raise NotFoundError(f"{path}: no such directory")
            if self.names(path):
                raise _failure(errno.ENOTEMPTY, path, "removing the directory")
            self._directories.discard(directory)

    def make_directories(self, path: str) -> None:
        with self.lock:
            here = _plain(path)
            while here not in self._directories:
                if here in self._names:
                    raise _failure(errno.EEXIST, here)
                here = _parent(here)
            self._add_directories(_plain(path))

    def copy_directory_mode(self, path: str, mode_of: str) -> None:
        """Do nothing: there are no permissions."""

    def sync_directory(self, path: str) -> None:
        directory = _plain(path)
        with self.lock:
            if directory not in self._directories:
                raise _failure(errno.ENOTDIR if directory in self._names else errno.ENOENT, path)
            for change in self._changes:
                synced = {name: to for name, to in change.items() if _parent(name) == directory}
                _apply(synced, self._durable_names)
                # A rename between directories keeps its other half for that one's sync.
                for name in synced:
                    del change[name]
            self._changes = [change for change in self._changes if change]

    def disk_space(self, path: str) -> DiskSpace:
        with self.lock:
            if self.status(path) is None:
                raise _failure(errno.ENOENT, path)
            disk = self._disk_of(path)
            capacity_bytes = self._capacity_of(disk)
            total = _UNBOUNDED_BYTES if capacity_bytes is None else capacity_bytes
            device = (self._device << 8) + list(self.disks).index(disk) if disk else self._device
            return DiskSpace(device, total, self.free_bytes(path))

    def _content(self, path: str, *, follow: bool = True) -> VolatileBytes:
        name = _plain(path)
        if name in self._directories:
            raise StorageError(f"{path}: not a regular file", path=path)
        content = self._names.get(name)
        if isinstance(content, _Link) and follow:
            try:
                return self._content(content.target)
            except NotFoundError:
                raise dangling(path, content.target) from None
        if content is None:
            raise NotFoundError(f"{path}: no such file")
        return content

    def _check_parent(self, path: str) -> None:
        parent = _parent(_plain(path))
        if parent not in self._directories:
            raise _failure(errno.ENOTDIR if parent in self._names else errno.ENOENT, path)

    def _change(self, change: _NameChange) -> None:
        _apply(change, self._names)
        self._changes.append(change)

    def _add_directories(self, name: str) -> None:
        while name and name not in self._directories:
            self._directories.add(name)
            name = posixpath.dirname(name)


def _apply(change: _NameChange, names: dict[str, VolatileBytes]) -> None:
    for name, content in change.items():
        if content is None:
            names.pop(name, None)
        else:
            names[name] = content


def _plain(path: str) -> str:
    """Return one spelling for each path; "." is the current directory."""
    return posixpath.normpath(path)


def _parent(name: str) -> str:
    return posixpath.dirname(name) or "."


def _failure(number: int, path: str, doing: str = "", offset: int | None = None) -> StorageError:
    return storage_error(OSError(number, os.strerror(number)), path, doing, offset)
