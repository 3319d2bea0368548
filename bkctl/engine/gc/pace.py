"""The waits of a collector's thread, and the request to end it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bkctl.errors import BkctlError


class StoppedError(BkctlError):
    """The collector is being stopped."""


class Pace:
    """A stop that every wait notices. :meth:`stop` comes from any thread, the rest from the collector's."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        # Set while the thread waits for the cluster; behind the wait the thread checks `_stopping` first.
        self._asking = threading.Event()

    def stop(self) -> None:
        """End the thread at its next check."""
        self._stopping.set()

    def is_stopped(self) -> bool:
        """Return whether the thread is to end."""
        return self._stopping.is_set()

    @property
    def asking(self) -> bool:
        """Whether the thread waits for the cluster."""
        return self._asking.is_set()

    def check(self) -> None:
        """Raise StoppedError when the thread is to end."""
        if self._stopping.is_set():
            raise StoppedError("garbage collection is being stopped")

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds, unless they are 0 or less. Raises StoppedError."""
        if seconds > 0:
            self._stopping.wait(seconds)
        self.check()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Surround calls to the cluster, which may take long. Raises StoppedError.

        A stop does not wait for these calls, so that the cluster may be closed under one: its error is no
        failure then.
        """
        self._asking.set()
        try:
            self.check()
            try:
                yield
            except Exception:
                # Clients of a store that is being closed raise any error.
                self.check()
                raise
            self.check()
        finally:
            self._asking.clear()
