"""The processes that use a bookie's directory, and the lock that keeps others out while we write there.

A running bookie shows in three ways: it holds the LOCK of the directory's databases (RocksDB), it has files
below the directory open (entry logs, journals, ``.idx`` files, which no lock protects), or it is one of our
own commands, which hold a lock on the directory itself (flock(2) on the ``current`` directory; nothing is
left on disk, and the lock ends with its process). The file DIRTY alone means nothing: after a kill it stays.

Limits: a process in another container is seen only by the LOCK of its databases, without its process id; an
other user's open files can be looked at only by root. ``DirectoryLock.unseen`` says how many processes that
were, and every refusal mentions it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from bkctl.directories.half_converted import refuse_half_converted
from bkctl.directories.ownership import give_to_owner
from bkctl.errors import NotFoundError, RefusedError, StorageError, storage_error
from bkctl.kvstore.lock_holder import (
    OpenFile,
    flock_holder,
    lock_holder,
    open_files,
    process_ids,
    process_name,
    shares_mounts,
)
from bkctl.kvstore.planted import refuse_planted_link
from bkctl.reporting import counted
from bkctl.scan.directory import COOKIE_NAME, DIRTY_NAME, REPAIRS_NAME
from bkctl.scan.directory import REBUILD_SUFFIX as WORK_SUFFIX
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.presence import is_there

DATABASES = ("locations", "ledgers", "metadata-cache")
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that uses ``path``: ``how`` is ``database lock``, ``bkctl lock`` or ``open file``.

    ``pid`` is None when the process runs in another container.
    """

    pid: int | None
    name: str
    path: str
    how: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})" if self.pid is not None else self.name


def holders(directory: str) -> list[Holder]:
    """Return every other process that holds a database of ``directory`` or has a file below it open.

    One row for each process and way, database locks first (one that this process holds itself included).
    Raises NotFoundError when there is no such directory, StorageError when the system fails.
    """
    return _holders(directory)[0]


def is_dirty(directory: str) -> bool:
    """Return whether the directory carries the mark of a bookie that runs, or ended without shutting down."""
    return os.path.exists(os.path.join(directory, DIRTY_NAME))


class DirectoryLock:
    """Holds ``directories`` for one writing command; a context manager.

    Entering raises RefusedError where an undo of a repair was cut off (unless the caller ``may_settle``
    it), or a conversion (unless it ``may_convert``), and naming the process when a bookie uses one of them
    or another bkctl command writes there, NotFoundError when there is no such directory, and StorageError
    when the system fails. A bookie that starts later is kept out only by the LOCK of databases that are
    opened for writing: :meth:`recheck` right before a step that cannot be undone. Leaving it gives what root
    has made there to the directories' owners (``directories.ownership``), and raises StorageError where that
    fails; every file and database is closed by then.
    """

    def __init__(self, *directories: str, may_settle: bool = False, may_convert: bool = False) -> None:
        self._directories = directories
        self._may_settle = may_settle
        self._may_convert = may_convert
        self._descriptors: dict[str, int] = {}
        #: Processes of other users whose open files could not be looked at.
        self.unseen = 0

    @property
    def dirty(self) -> list[str]:
        """The directories that are marked DIRTY."""
        return [directory for directory in self._directories if is_dirty(directory)]

    def __enter__(self) -> DirectoryLock:
        try:
            # In one order, so that two commands cannot hold one directory each and wait for the other's.
            for directory in sorted(self._directories, key=os.path.realpath):
                self._descriptors[directory] = _lock(directory)
                if not self._may_settle:
                    _refuse_half_undone(directory)
                if not self._may_convert:
                    refuse_half_converted(PosixFileSystem(), directory)
            self.recheck()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for directory, descriptor in self._descriptors.items():
                give_to_owner(descriptor, directory)
        except StorageError:
            if kind is None:
                raise
        finally:
            self._release()

    def recheck(self) -> None:
        """Check again that nobody else uses the directories. Raises RefusedError, StorageError."""
        for directory in self._directories:
            found, self.unseen = _holders(directory)
            # A database that this process has opened since is its own work.
            others = [holder for holder in found if holder.pid != os.getpid()]
            if others:
                raise RefusedError(_refusal(directory, others, self.unseen))

    def _release(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}


def _refusal(directory: str, found: Sequence[Holder], unseen: int) -> str:
    first = found[0]
    text = f"{directory}: in use by {first} ({first.how} {first.path}); stop it first"
    more = {holder.pid for holder in found} - {first.pid}
    if more:
        text += f"; and by {len(more)} more"
    if is_dirty(directory):
        text += "; the directory is marked DIRTY"
    if unseen:
        others = counted(unseen, "process", "processes")
        text += f"; open files of {others} of other users could not be looked at"
    return text


def _lock(directory: str) -> int:
    """Return a descriptor that holds our lock on the directory."""
    try:
        refuse_planted_link(directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(f"{directory}: no such directory") from None
    except OSError as error:
        raise StorageError(f"{directory}: {error.strerror}", path=directory) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        holder = flock_holder(directory)
        raise RefusedError(
            f"{directory}: in use by {holder} (bkctl lock); stop it, or wait for it to end"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise StorageError(f"{directory}: locking: {error.strerror}", path=directory) from error
    return descriptor


def _refuse_half_undone(directory: str) -> None:
    """Refuse a directory whose cookie an undo keeps beside its record until everything is back."""
    folder = os.path.join(directory, REPAIRS_NAME)
    try:
        numbers = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise storage_error(error, folder) from error
    if any(is_there(os.path.join(folder, number, COOKIE_NAME)) for number in numbers):
        raise RefusedError(f"{directory}: an undo of a repair was cut off; run it again: bkctl repair undo")


def _holders(directory: str) -> tuple[list[Holder], int]:
    """Return the holders, and the number of processes that could not be looked at."""
    try:
        names = set(os.listdir(directory))
        found = list(_database_holders(directory, names))
    except FileNotFoundError:
        raise NotFoundError(f"{directory}: no such directory") from None
    except OSError as error:
        raise StorageError(f"{error.filename or directory}: {error.strerror}", path=directory) from error
    unseen = 0
    for pid in process_ids():
        if pid == os.getpid():
            continue
        try:
            path = _open_below(directory, pid)
        except PermissionError:
            unseen += 1
            continue
        except OSError:
            continue  # it has ended since
        if path is not None:
            found.append(Holder(pid, process_name(pid), path, "open file"))
    return found, unseen


def _database_holders(directory: str, names: Iterable[str]) -> Iterator[Holder]:
    for name in DATABASES:
        path = os.path.join(directory, name, "LOCK")
        holder = lock_holder(path) if name in names else None
        if holder is not None:
            yield Holder(holder.pid, holder.name, path, "database lock")


def _open_below(directory: str, pid: int) -> str | None:
    """Return a file below the directory that the process has open, None without one. Raises OSError.

    Files are compared by device and inode. The paths that the system reports are those of the process's own
    mounts: two containers may use different directories under one path, or one directory under two.
    """
    real = os.path.realpath(directory)
    device = os.stat(real).st_dev
    for opened in open_files(pid):
        if opened.identity[0] != device:
            continue
        if f"{WORK_SUFFIX}/" in opened.path:
            continue  # a rebuild's own files, which its workers map; our lock keeps two rebuilds apart
        if opened.path.endswith(_DELETED):
            # No path leads to a removed file any more; its old one counts where paths mean the same.
            path = opened.path.removesuffix(_DELETED)
            if path.startswith(real.rstrip("/") + "/") and shares_mounts(pid):
                return path
            continue
        found = _path_below(real, opened)
        if found is not None:
            return found
    return None


def _path_below(directory: str, opened: OpenFile) -> str | None:
    """Return the path below ``directory`` of an open file, None when it lies elsewhere."""
    parts = opened.path.strip("/").split("/")
    for start in range(len(parts) - 1, -1, -1):
        path = os.path.join(directory, *parts[start:])
        try:
            facts = os.stat(path)
        except OSError:
            continue  # there is no such file here
        if (facts.st_dev, facts.st_ino) == opened.identity:
            return path
    return None
