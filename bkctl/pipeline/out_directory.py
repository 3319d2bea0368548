"""The directory that a run writes: whose it is, and what in it is finished.

::

    .bkctl-pipeline      it was made by a run, which may write over its tables; a run holds a lock on it
    .work/               what is not finished yet; taken away before a run and after it
    <table>/*.parquet    a table; it appears as a whole
    summary.json         the last run, once it is finished
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bkctl.errors import RefusedError, StorageError, UsageError, storage_error
from bkctl.kvstore.lock_holder import flock_holder

SUMMARY_NAME = "summary.json"
MARK_NAME = ".bkctl-pipeline"
_WORK_NAME = ".work"
#: A file system without flock(2) says one of these: there a run is not protected against another one.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})


def work_directory(path: str) -> str:
    """Return the directory of a run's unfinished files; it is there while the output directory is claimed."""
    return os.path.join(path, _WORK_NAME)


@contextmanager
def claimed(path: str) -> Iterator[str]:
    """Make the directory, or take that of an earlier run; gives the path of its ``.work``.

    The summary of the earlier run goes at once, since its tables are about to be replaced. Raises
    RefusedError when the directory holds something that no run wrote, or another run writes there now,
    StorageError.
    """
    work_dir = work_directory(path)
    with _locked(path):
        _clear(path, work_dir)
        try:
            yield work_dir
        finally:
            shutil.rmtree(work_dir, ignore_errors=True)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the mark of the directory, which is made if need be."""
    mark = os.path.join(path, MARK_NAME)
    if os.path.exists(path) and not os.path.isdir(path):
        raise UsageError(f"--out {path}: is a file; name a directory, which is made where there is none")
    try:
        os.makedirs(path, exist_ok=True)
        names = os.listdir(path)
        if names and not {MARK_NAME, SUMMARY_NAME} & set(names):
            raise RefusedError(f"--out {path}: holds files that no run wrote; choose another directory")
        descriptor = _opened_mark(mark)
    except OSError as error:
        raise StorageError(f"--out {path}: {error.strerror}", path=path) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                f"--out {path}: {flock_holder(mark)} writes to it; wait for its end, or choose "
                "another directory"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise StorageError(f"--out {path}: locking: {error.strerror}", path=path) from error
        yield
    finally:
        os.close(descriptor)


def _clear(path: str, work_dir: str) -> None:
    """Take away the earlier run's summary, and what a run that was killed left."""
    try:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(path, SUMMARY_NAME))
        shutil.rmtree(work_dir, ignore_errors=True)
        os.makedirs(work_dir)
    except OSError as error:
        raise StorageError(f"--out {path}: {error.strerror}", path=path) from error


def _opened_mark(path: str) -> int:
    """Open the mark, which is made where there is none; through a link it would be made elsewhere.

    It is opened to write, without which NFS gives no lock. Raises OSError.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise RefusedError(f"{path}: not a regular file; choose another directory") from None
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


def put(making: str, folder: str) -> None:
    """Put a finished table in its place. Raises StorageError."""
    try:
        if os.path.lexists(folder):
            shutil.rmtree(folder)
        os.rename(making, folder)
    except OSError as error:
        raise storage_error(error, folder) from error
