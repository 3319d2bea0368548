"""The lock of a plan: two runs of it at once would write over each other's lines in its log."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bkctl.errors import RefusedError, as_storage_errors
from bkctl.kvstore.lock_holder import flock_holder


@contextmanager
def held_plan(path: str) -> Iterator[None]:
    """Hold the file of a plan. Raises RefusedError naming the process that runs it, StorageError."""
    with as_storage_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: str) -> None:
    with as_storage_errors(path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = flock_holder(path)
            raise RefusedError(f"{path}: is being run by {holder}; wait for its end, or stop it") from None
