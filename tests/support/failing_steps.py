"""A file system and stores of which the n-th call of any kind fails, once or from then on."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

from bkctl.errors import StorageError
from bkctl.vfs import WritableFileSystem
from bkctl.vfs.faulty import FaultyFileSystem, FileOperation


class Steps:
    """Counts calls; the one with the number ``fails_at`` fails, with ``for_good`` all later ones too."""

    def __init__(self, fails_at: int | None = None, *, for_good: bool = False) -> None:
        self.taken = 0
        self.failed = False
        self._fails_at = fails_at
        self._for_good = for_good
        self._lock = threading.Lock()

    def step(self, what: str) -> None:
        """Take one. Raises StorageError."""
        with self._lock:
            self.taken += 1
            since = -1 if self._fails_at is None else self.taken - self._fails_at
            fails = since == 0 or (self._for_good and since > 0)
            self.failed |= fails
        if fails:
            raise StorageError(f"{what}: {os.strerror(errno.EIO)} (step {self.taken})", path=what)

    def heal(self) -> None:
        """Let nothing fail any more."""
        with self._lock:
            self._fails_at = None


class SteppedFileSystem(FaultyFileSystem):
    """A file system whose operations are steps."""

    def __init__(self, inner: WritableFileSystem, steps: Steps) -> None:
        super().__init__(inner)
        self._steps = steps

    def enter(
        self, operation: FileOperation, *paths: str, doing: str = "", offset: int | None = None
    ) -> None:
        super().enter(operation, *paths, doing=doing, offset=offset)
        self._steps.step(f"{operation} {paths[0]}")


class SteppedStore:
    """A key-value store whose calls are steps; a close that fails has closed it, as RocksDB's has."""

    def __init__(self, inner: Any, steps: Steps) -> None:
        self._inner = inner
        self._steps = steps

    def close(self) -> None:
        self._inner.close()
        self._steps.step(f"close {self._inner.path}")

    def __getattr__(self, name: str) -> Any:
        if name != "path":
            self._steps.step(f"{name} {self._inner.path}")
        return getattr(self._inner, name)
