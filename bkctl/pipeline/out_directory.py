"""The directory that a run writes: whose it is, and what in it is finished.

::

    .bkctl-pipeline      it was made by a run, which may write over its tables
    .work/               what is not finished yet; taken away before a run and after it
    <table>/*.parquet    a table; it appears as a whole
    summary.json         the last run, once it is finished
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bkctl.errors import RefusedError, StorageError, storage_error

SUMMARY_NAME = "summary.json"
MARK_NAME = ".bkctl-pipeline"
_WORK_NAME = ".work"


def work_directory(path: str) -> str:
    """Return the directory of a run's unfinished files; it is there while the output directory is claimed."""
    return os.path.join(path, _WORK_NAME)


@contextmanager
def claimed(path: str) -> Iterator[str]:
    """Make the directory, or take that of an earlier run; gives the path of its ``.work``.

    The summary of the earlier run goes at once, since its tables are about to be replaced. Raises
    RefusedError when the directory holds something that no run wrote, StorageError.
    """
    work_dir = work_directory(path)
    try:
        os.makedirs(path, exist_ok=True)
        names = os.listdir(path)
        if names and not {MARK_NAME, SUMMARY_NAME} & set(names):
            raise RefusedError(f"--out {path}: holds files that no run wrote; choose another directory")
        _leave_mark(os.path.join(path, MARK_NAME))
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(path, SUMMARY_NAME))
        shutil.rmtree(work_dir, ignore_errors=True)
        os.makedirs(work_dir)
    except OSError as error:
        raise StorageError(f"--out {path}: {error.strerror}", path=path) from error
    try:
        yield work_dir
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)


def _leave_mark(path: str) -> None:
    """Make the mark, or find it there; through a link it would be made elsewhere. Raises OSError."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise RefusedError(f"{path}: not a regular file; choose another directory") from None


def put(making: str, folder: str) -> None:
    """Put a finished table in its place. Raises StorageError."""
    try:
        if os.path.lexists(folder):
            shutil.rmtree(folder)
        os.rename(making, folder)
    except OSError as error:
        raise storage_error(error, folder) from error
