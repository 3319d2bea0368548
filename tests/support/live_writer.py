"""A writer that goes on appending to one ledger, in a thread, until it is stopped or fenced off.

::

    with live_writer(metadata_uri) as writer:
        ...  # writer.ledger grows
    assert writer.error is None
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from bkctl.client.sync import BookKeeperSync, LedgerWriter
from bkctl.errors import BkctlError

#: Between two appends.
_PACE_S = 0.01


class LiveWriter:
    """What the thread did so far."""

    def __init__(self, handle: LedgerWriter) -> None:
        self.handle = handle
        self.ledger = handle.ledger
        self.appended = 0
        self.error: BkctlError | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-writer")
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(_PACE_S):
            try:
                self.handle.append(b"entry")
            except BkctlError as error:
                self.error = error
                return
            self.appended += 1

    def stop(self) -> None:
        """End the thread; the ledger stays open."""
        self._ends.set()
        self._thread.join()


@contextlib.contextmanager
def live_writer(metadata_uri: str, *quorums: int, **how: Any) -> Iterator[LiveWriter]:
    """A writer at work on a new ledger; ``quorums`` and ``how`` are those of ``BookKeeperSync.create``."""
    with BookKeeperSync(metadata_uri) as client:
        writer = LiveWriter(client.create(*(quorums or (3, 2, 2)), **how))
        try:
            yield writer
        finally:
            writer.stop()
            writer.handle.handle.abandon()
