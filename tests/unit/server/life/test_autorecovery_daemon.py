"""Autorecovery beside a bookie: a stop of the bookie waits for it, but not for a store that is silent."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from bkctl.config.loader import load
from bkctl.errors import ConnectionFailedError
from bkctl.server.life import autorecovery
from bkctl.server.life.autorecovery import AutoRecoveryDaemon


class SilentStore:
    """Answers nothing until it is closed, or for ten seconds."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.close = self.closed.set

    def give_back(self) -> None:
        self.closed.wait(10)
        raise ConnectionFailedError("no answer")


class Recovery:
    """Gives its vote back when it is cancelled."""

    def __init__(self, store: SilentStore, running: asyncio.Event) -> None:
        self._store = store
        self._running = running

    async def run(self) -> None:
        self._running.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(self._store.give_back)


def test_a_stop_does_not_wait_for_a_store_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SilentStore()

    async def check() -> float:
        running = asyncio.Event()
        monkeypatch.setattr(autorecovery, "open_bookie_metadata", lambda _: store)
        monkeypatch.setattr(autorecovery, "autorecovery_of", lambda *_: Recovery(store, running))
        daemon = AutoRecoveryDaemon(load(None, {}, {}, working_directory=str(tmp_path))[0], "b")
        daemon.start()
        await running.wait()
        began_s = time.monotonic()
        await daemon.stop()
        return time.monotonic() - began_s

    monkeypatch.setattr(autorecovery, "STOP_TIMEOUT_S", 0.1, raising=False)
    assert asyncio.run(check()) < 5
    assert store.closed.is_set()
