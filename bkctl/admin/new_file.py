"""A new file for an operator: a dump, a backup, a cookie. It replaces nothing, and is whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from bkctl.errors import RefusedError, storage_error
from bkctl.vfs import PosixFileSystem


@contextlib.contextmanager
def new_file(path: str, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Open a new file to write, which by default only its owner can read.

    With its name it is on disk when the block is left; when the block fails it is removed. Raises
    RefusedError when there is such a file, StorageError.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise RefusedError(f"{path}: is there already; choose another name") from None
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        PosixFileSystem().sync_directory(os.path.dirname(path))
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(path)
        if isinstance(error, OSError):
            raise storage_error(error, path) from error
        raise
