"""The real file system, by ``pread`` and ``pwrite`` on descriptors.

Files are not mapped into memory: a bad sector or a file cut short under a mapping kills the process with
SIGBUS, while ``pread`` returns an error that a scanner can name and step over.

A call that a signal interrupts is repeated by Python itself, ``fsync`` included.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache

from bkctl import _kernels
from bkctl.errors import NotFoundError, StorageError, storage_error
from bkctl.reporting import counted
from bkctl.vfs.base import DiskSpace, FileStatus
from bkctl.vfs.direct_writes import DirectWrites
from bkctl.vfs.failures import dangling
from bkctl.vfs.replacing import replace_by_rename

# Without O_NONBLOCK opening a FIFO waits for its other end, before it can be refused.
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
# Less the umask. Entries and master keys are for the bookie's user and group, and nobody else.
_NEW_FILE_MODE = 0o640
_NEW_DIRECTORY_MODE = 0o750

#: Linux's SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE and SYNC_FILE_RANGE_WAIT_AFTER.
_WRITE_AND_WAIT = 7
#: A system without such a call, or that forbids it. Any other number may be an error of the disk.
_NO_WRITE_BACK = (errno.ENOSYS, errno.EPERM)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@cache
def _sync_file_range() -> Callable[[int, int, int], int] | None:
    """Return a call that gives the number of its error, or 0, and None where the C library has no such call.

    It does not hold the interpreter's lock.
    """
    # Only a bookie that writes entry logs needs it.
    import ctypes

    native = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if native is None:
        return None
    native.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

    def call(descriptor: int, offset: int, length: int) -> int:
        return ctypes.get_errno() if native(descriptor, offset, length, _WRITE_AND_WAIT) else 0

    return call


class PosixFile:
    """A descriptor opened for reading, and its path."""

    __slots__ = ("_descriptor", "_path", "_size_bytes")

    def __init__(self, path: str, flags: int = os.O_RDONLY) -> None:
        self._path = path
        self._descriptor = -1
        try:
            self._descriptor = os.open(path, flags | _FLAGS, _NEW_FILE_MODE)
            facts = os.fstat(self._descriptor)
        except FileNotFoundError as error:
            if flags & os.O_CREAT:
                raise storage_error(error, path) from error
            target = _link_target(path)
            if target is not None:
                # The name is there, so nobody may take the file for one that was never there, or was removed.
                raise dangling(path, target) from None
            raise NotFoundError(f"{path}: no such file") from None
        except ValueError:  # a NUL, or what is no Unicode: no file has such a name
            if flags & os.O_CREAT:
                raise StorageError(f"{path!r}: no file can have this name", path=path) from None
            raise NotFoundError(f"{path!r}: no such file") from None
        except OSError as error:
            self.close()
            raise storage_error(error, path) from error
        if not stat.S_ISREG(facts.st_mode):
            self.close()
            raise StorageError(f"{path}: not a regular file", path=path)
        self._size_bytes = facts.st_size

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def descriptor(self) -> int:
        """The descriptor, for reads by others until the file is closed."""
        return self._descriptor

    def read_at(self, offset: int, length: int) -> bytes:
        try:
            block = os.pread(self._descriptor, length, offset)
            if len(block) == length or not block:
                return block
            parts = [block]
            got = len(block)
            while got < length:
                block = os.pread(self._descriptor, length - got, offset + got)
                if not block:
                    break
                parts.append(block)
                got += len(block)
            return b"".join(parts)
        except OSError as error:
            raise storage_error(
                error, self._path, f"reading {counted(length, 'byte')} at offset {offset}", offset
            ) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                # The descriptor is gone all the same; closing it again could close someone else's.
                raise storage_error(error, self._path, "closing") from error

    def __del__(self) -> None:
        self.close()


class PosixWritableFile(PosixFile):
    """Implements :class:`bkctl.vfs.base.WritableFile`."""

    __slots__ = ("_direct",)

    def __init__(self, path: str, flags: int) -> None:
        self._direct: DirectWrites | None = None
        super().__init__(path, flags)

    @property
    def size_bytes(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_error(error, self._path) from error

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        try:
            written = os.pwrite(self._descriptor, data, offset)
        except OSError as error:
            raise self._write_error(error, offset, memoryview(data).nbytes) from error
        if written != len(data):
            self._write_rest(offset, memoryview(data).cast("B"), written)

    def write_direct(self, offset: int, pieces: Sequence[bytes]) -> None:
        size_bytes = sum(map(len, pieces))
        try:
            if self._direct is None:
                self._direct = DirectWrites(self._path, self._opened())
            written = self._direct.write(offset, pieces, size_bytes)
        except OSError as error:
            raise self._write_error(error, offset, size_bytes) from error
        if written < size_bytes:
            self.write_at(offset + written, memoryview(b"".join(pieces))[written:])

    def write_synced(self, offset: int, pieces: Sequence[bytes], *, direct: bool) -> float:
        size_bytes = sum(map(len, pieces))
        done = None
        try:
            descriptor = self._opened()
            if direct:
                self._direct = self._direct or DirectWrites(self._path, descriptor)
                done = self._direct.write_synced(offset, pieces, size_bytes)
        except OSError as error:
            raise self._write_error(error, offset, size_bytes) from error
        if done is None:
            done = _kernels.write_and_sync(descriptor, b"".join(pieces), offset)
        wrote, write_error, sync_error, sync_ns = done
        if write_error:
            raise self._write_error(_os_error(write_error), offset + wrote, size_bytes - wrote)
        if sync_error:
            raise storage_error(_os_error(sync_error), self._path, "fdatasync", syncing=True)
        if sync_ns >= 0:
            return sync_ns / 1e9
        # A file system that takes no direct writes, or a write that ended early.
        self.write_at(offset + wrote, memoryview(b"".join(pieces))[wrote:])
        started_s = time.monotonic()
        self.sync_data()
        return time.monotonic() - started_s

    def close(self) -> None:
        direct, self._direct = self._direct, None
        try:
            if direct is not None:
                direct.close()
        except OSError as error:
            raise storage_error(error, self._path, "closing") from error
        finally:
            super().close()

    def _write_rest(self, offset: int, view: memoryview, written: int) -> None:
        """Write again where a write ended early: at a full disk, a file size limit, or 2 GiB."""
        while written < len(view):
            try:
                step = os.pwrite(self._descriptor, view[written:], offset + written)
            except OSError as error:
                raise self._write_error(error, offset + written, len(view) - written) from error
            if step == 0:
                raise StorageError(
                    f"{self._path}: writing {counted(len(view) - written, 'byte')} at offset "
                    f"{offset + written}: the system takes none",
                    path=self._path,
                    offset=offset + written,
                )
            written += step

    def _write_error(self, error: OSError, offset: int, length: int) -> StorageError:
        return storage_error(
            error, self._path, f"writing {counted(length, 'byte')} at offset {offset}", offset
        )

    def sync_data(self) -> None:
        try:
            os.fdatasync(self._opened())
        except OSError as error:
            raise storage_error(error, self._path, "fdatasync", syncing=True) from error

    def sync(self) -> None:
        try:
            os.fsync(self._opened())
        except OSError as error:
            raise storage_error(error, self._path, "fsync", syncing=True) from error

    def write_back(self, offset: int, length: int) -> None:
        sync_file_range = _sync_file_range()
        number = 0 if sync_file_range is None else sync_file_range(self._opened(), offset, length)
        if number and number not in _NO_WRITE_BACK:
            raise storage_error(_os_error(number), self._path, "sync_file_range", offset, syncing=True)

    def forget_cached(self, offset: int, length: int) -> None:
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_DONTNEED)

    def _opened(self) -> int:
        """Return the descriptor; Python's sync calls answer -1 with a ValueError."""
        if self._descriptor < 0:
            raise StorageError(f"{self._path}: closed", path=self._path)
        return self._descriptor


class PosixFileSystem:
    """Implements :class:`bkctl.vfs.base.WritableFileSystem` on the operating system."""

    def open(self, path: str) -> PosixFile:
        return PosixFile(path)

    def status(self, path: str) -> FileStatus | None:
        try:
            facts = os.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            raise storage_error(error, path) from error
        return FileStatus(stat.S_ISDIR(facts.st_mode), facts.st_size, facts.st_mtime)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no such directory") from None
        except ValueError:
            raise NotFoundError(f"{path!r}: no such directory") from None
        except OSError as error:
            raise storage_error(error, path) from error

    def create(self, path: str, *, mode_of: str | None = None) -> PosixWritableFile:
        mode = None if mode_of is None else _mode_of(mode_of)
        file = PosixWritableFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if mode is not None:
            _set_mode(file.descriptor, mode)
        return file

    def open_to_write(self, path: str) -> PosixWritableFile:
        return PosixWritableFile(path, os.O_RDWR)

    def replace(self, path: str, content: bytes) -> None:
        replace_by_rename(self, path, content)

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not os.path.lexists(old):
                raise NotFoundError(f"{old}: no such file") from None
            raise storage_error(error, old, f"renaming to {new}") from error

    def link(self, old: str, new: str) -> None:
        try:
            os.link(old, new)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not os.path.lexists(old):
                raise NotFoundError(f"{old}: no such file") from None
            raise storage_error(error, old, f"linking to {new}") from error

    def link_to(self, target: str, path: str) -> None:
        try:
            os.symlink(target, path)
        except OSError as error:
            raise storage_error(error, path, f"linking to {target}") from error

    def link_target(self, path: str) -> str | None:
        return _link_target(path)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no such file") from None
        except OSError as error:
            raise storage_error(error, path, "removing") from error

    def remove_directory(self, path: str) -> None:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no such directory") from None
        except OSError as error:
            raise storage_error(error, path, "removing the directory") from error

    def make_directories(self, path: str) -> None:
        missing = []
        here = path.rstrip("/") or ("/" if path else ".")
        while not os.path.isdir(here):
            missing.append(here)
            here = os.path.dirname(here) or "."
        # A process killed between the two steps below leaves one directory without a durable name: the
        # deepest one there is. Its parent may be closed to us when it is not of our making.
        self._sync_directory(os.path.join(here, ".."), closed_is_fine=True)
        for directory in reversed(missing):
            try:
                os.mkdir(directory, _NEW_DIRECTORY_MODE)
            except OSError as error:
                # Another process may have made the directory in the meantime.
                if not (isinstance(error, FileExistsError) and os.path.isdir(directory)):
                    raise storage_error(error, directory, "making the directory") from error
            # The directory's name is durable before anything in it counts.
            self._sync_directory(os.path.join(directory, ".."))

    def copy_directory_mode(self, path: str, mode_of: str) -> None:
        mode = _mode_of(mode_of)
        if mode is None:
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _set_mode(descriptor, mode | stat.S_IRWXU)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(error, path, "opening the directory to set its permissions") from error

    def sync_directory(self, path: str) -> None:
        self._sync_directory(path)

    def _sync_directory(self, path: str, *, closed_is_fine: bool = False) -> None:
        try:
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if closed_is_fine and isinstance(error, PermissionError):
                return
            # Nothing was tried yet, so this is no failed sync.
            raise storage_error(error, path, "opening the directory to fsync it") from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise storage_error(error, path, "fsync of the directory", syncing=True) from error
        finally:
            os.close(descriptor)

    def disk_space(self, path: str) -> DiskSpace:
        try:
            space = os.statvfs(path)
            device = os.stat(path).st_dev
        except OSError as error:
            raise storage_error(error, path, "asking for the disk's free space") from error
        # f_bavail, not f_bfree: what is kept back for root is not ours.
        return DiskSpace(device, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)


def _set_mode(descriptor: int, mode: int) -> None:
    """Set permissions where that is allowed: no content is given up for them."""
    with contextlib.suppress(OSError):
        old = stat.S_IMODE(os.fstat(descriptor).st_mode)
        new = old & ~0o777 | mode
        if new != old:
            os.fchmod(descriptor, new)


def _mode_of(path: str) -> int | None:
    """Return the permissions of a file or directory, None where there is none; a link has none."""
    try:
        facts = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise storage_error(error, path) from error
    return None if stat.S_ISLNK(facts.st_mode) else facts.st_mode & 0o777


def _link_target(path: str) -> str | None:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:  # no link
            return None
        raise storage_error(error, path, "reading the link") from error
