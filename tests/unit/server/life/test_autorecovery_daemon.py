"""Autorecovery beside a bookie: a stop of the bookie waits for it, but not for a store that is silent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from bkctl.config.loader import load
from bkctl.errors import ConnectionFailedError
from bkctl.server.life import autorecovery
from bkctl.server.life.autorecovery import AutoRecoveryDaemon
from bkctl.server.life.autorecovery_process import serve_autorecovery


class SilentStore:
    """Answers nothing until it is closed, or for ten seconds."""

    uri = "zk://silent/ledgers"

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


def test_a_store_that_a_stop_finds_being_opened_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, begun, stopped = SilentStore(), threading.Event(), threading.Event()

    def opens(*_: object) -> SilentStore:
        begun.set()
        stopped.wait(20)
        return store

    async def check() -> None:
        monkeypatch.setattr(autorecovery, "open_bookie_metadata", opens)
        daemon = AutoRecoveryDaemon(load(None, {}, {}, working_directory=str(tmp_path))[0], "b")
        daemon.start()
        await asyncio.to_thread(begun.wait, 20)
        await daemon.stop()
        stopped.set()

    asyncio.run(check())
    assert store.closed.is_set()


def test_a_stop_does_not_wait_for_a_store_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SilentStore()

    async def check() -> float:
        running = asyncio.Event()
        monkeypatch.setattr(autorecovery, "open_bookie_metadata", lambda *_: store)
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


def test_a_process_that_connects_to_a_zookeeper_which_is_silent_ends_at_once(tmp_path: Path) -> None:
    def signal_behind_the_connect() -> None:
        with silent.accept()[0]:
            os.kill(os.getpid(), signal.SIGTERM)
            gone.wait(30)

    gone = threading.Event()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        keys = {"metadataServiceUri": f"zk://127.0.0.1:{silent.getsockname()[1]}/ledgers"}
        config = load(None, keys, {}, working_directory=str(tmp_path))[0]
        server = threading.Thread(target=signal_behind_the_connect)
        server.start()
        began_s = time.monotonic()
        try:
            assert serve_autorecovery(config, started=lambda _: None) is signal.SIGTERM
        finally:
            gone.set()
            server.join()
            for number, handler in kept.items():
                signal.signal(number, handler)
    # The limit of a connect is ten seconds.
    assert time.monotonic() - began_s < 6
