"""Opening a store for a task of an event loop that may be cancelled while it waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from bkctl.errors import ConnectionFailedError
from bkctl.metadata.api import MetadataStore

#: Opens a store; the event, which another thread sets, ends its first connect.
StoreOpener = Callable[[threading.Event], MetadataStore]


async def open_on_thread(open_store: StoreOpener) -> MetadataStore:
    """Return the store that ``open_store`` opens, on a thread of the event loop.

    A task that is cancelled does not wait for the thread: a store that is opened all the same is closed.
    """
    opening = _Opening(open_store)
    try:
        return await asyncio.to_thread(opening.run)
    except asyncio.CancelledError:
        unused = opening.give_up()
        if unused is not None:
            # A thread of the loop, as its end waits for these.
            asyncio.get_running_loop().run_in_executor(None, unused.close)
        raise


class _Opening:
    """A store that is being opened: either the task has it, or it is closed."""

    def __init__(self, open_store: StoreOpener) -> None:
        self._open = open_store
        self._given_up = threading.Event()
        self._lock = threading.Lock()
        self._store: MetadataStore | None = None

    def run(self) -> MetadataStore:
        store = self._open(self._given_up)
        with self._lock:
            self._store = store
            if not self._given_up.is_set():
                return store
        store.close()
        raise ConnectionFailedError(f"{store.uri}: given up")

    def give_up(self) -> MetadataStore | None:
        """End the opening; return the store of one that had ended, which is the caller's to close."""
        with self._lock:
            self._given_up.set()
            return self._store
