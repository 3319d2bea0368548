"""A bookie as a process's work: how it ends by itself, and what a second signal does."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bkctl.config.bookie import BookieConfig
from bkctl.config.loader import load
from bkctl.errors import ConnectionFailedError, StorageError
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.embedded.tree import SqliteTree
from bkctl.metadata.tree import Node
from bkctl.metadata.uri import open_metadata_store, parse_metadata_uri
from bkctl.server.life import foreground
from bkctl.server.life.bookie_service import BookieService, StartReport
from bkctl.server.life.event_loop import new_event_loop
from bkctl.server.life.service_manager import ServiceManager
from tests.support.any_disk import ANY_DISK


@pytest.fixture(autouse=True)
def signal_handlers_stay() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def config(tmp_path: Path) -> BookieConfig:
    keys = {"bookiePort": "0", "allowEphemeralPorts": "true", "httpServerPort": "0", **ANY_DISK}
    return load(None, keys, {}, working_directory=str(tmp_path))[0]


def test_a_bookie_that_cannot_go_on_is_stopped_and_its_reason_raised(
    config: BookieConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    services: list[BookieService] = []

    class Seen(BookieService):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[arg-type]
            services.append(self)

    def started(report: StartReport) -> None:
        assert services[0].bookie is not None
        services[0].bookie.fail(StorageError("the disk is gone"))

    monkeypatch.setattr(foreground, "BookieService", Seen)
    before = set(threading.enumerate())
    with pytest.raises(StorageError, match="the disk is gone"):
        foreground.serve(config, accept_loss=False, started=started)
    assert set(threading.enumerate()) <= before
    # It was stopped, but not cleanly: the next start says so.
    assert (Path(config.directories.ledgers[0]) / "current/DIRTY").exists()


def test_a_row_that_nobody_takes_stops_the_bookie(config: BookieConfig) -> None:
    def reader_gone(_: StartReport) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        foreground.serve(config, accept_loss=False, started=reader_gone)
    assert not (Path(config.directories.ledgers[0]) / "current/DIRTY").exists()


def test_a_signal_ends_it_and_says_which(config: BookieConfig) -> None:
    def started(_: StartReport) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    assert foreground.serve(config, accept_loss=False, started=started) is signal.SIGTERM


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_during_a_start_ends_in_the_line_that_it_stopped(
    config: BookieConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    """As in front of a registration of an old session: the start ends with an error, or as a whole."""

    class Waiting(BookieService):
        async def start(self) -> StartReport:
            report = await super().start()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
            if fails:
                await self.stop()
                raise StorageError("registered by another session")
            return report

    def started(_: StartReport) -> None:
        raise AssertionError("it was to end")

    monkeypatch.setattr(foreground, "BookieService", Waiting)
    with caplog.at_level(logging.INFO):
        assert foreground.serve(config, accept_loss=False, started=started) is signal.SIGTERM
    assert ("the start ended: registered" in caplog.text) is fails
    assert caplog.messages[-1] == "stopped"


def test_a_start_that_waits_for_an_old_registration_ends_at_once(
    config: BookieConfig, caplog: pytest.LogCaptureFixture
) -> None:
    class Waits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "still registered" in record.getMessage():
                os.kill(os.getpid(), signal.SIGTERM)

    def started(_: StartReport) -> None:
        raise AssertionError("it was to end")

    config = replace(config, identity=replace(config.identity, bookie_id="b"))
    Path(parse_metadata_uri(config.metadata.uri).location).parent.mkdir()
    with open_metadata_store(config.metadata.uri) as other:
        other.layout.initialise_cluster()
        other.registration.register("b", RegistrationMode.WRITABLE, b"theirs")
        logger, handler = logging.getLogger("bkctl.metadata.registration"), Waits()
        logger.addHandler(handler)
        try:
            with caplog.at_level(logging.INFO):
                assert foreground.serve(config, accept_loss=False, started=started) is signal.SIGTERM
        finally:
            logger.removeHandler(handler)
        found = other.registration.registration("b")
    assert found is not None
    assert found.service_info == b"theirs"
    assert caplog.messages[-1] == "stopped"
    assert "another session" not in caplog.text
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)
    # Well below the session's time and a half, which is fifteen seconds.
    assert caplog.records[-1].__dict__["seconds"] < 8
    assert not (Path(config.directories.ledgers[0]) / "current/DIRTY").exists()


@pytest.mark.parametrize("asked", ["/cookies/", "/available/"], ids=["cookies", "registration"])
def test_a_start_that_waits_for_a_store_which_is_silent_ends_soon(
    config: BookieConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A question waits up to thirty seconds for its answer, or until the store is closed."""
    get = SqliteTree.get

    def silent(tree: SqliteTree, path: str) -> Node | None:
        if asked in path:
            os.kill(os.getpid(), signal.SIGTERM)
            tree._closing.wait(15)
            raise ConnectionFailedError("no answer")
        return get(tree, path)

    def started(_: StartReport) -> None:
        raise AssertionError("it was to end")

    monkeypatch.setattr(SqliteTree, "get", silent)
    with caplog.at_level(logging.INFO):
        assert foreground.serve(config, accept_loss=False, started=started) is signal.SIGTERM
    assert caplog.messages[-1] == "stopped"
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)
    assert caplog.records[-1].__dict__["seconds"] < 10


def test_a_start_that_connects_to_a_zookeeper_which_is_silent_ends_at_once(
    config: BookieConfig, caplog: pytest.LogCaptureFixture
) -> None:
    def started(_: StartReport) -> None:
        raise AssertionError("it was to end")

    def signal_behind_the_connect(silent: socket.socket) -> None:
        with silent.accept()[0]:
            os.kill(os.getpid(), signal.SIGTERM)
            gone.wait(30)

    gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"zk://127.0.0.1:{silent.getsockname()[1]}/ledgers"
        config = replace(config, metadata=replace(config.metadata, uri=uri))
        server = threading.Thread(target=signal_behind_the_connect, args=(silent,))
        server.start()
        try:
            with caplog.at_level(logging.INFO):
                assert foreground.serve(config, accept_loss=False, started=started) is signal.SIGTERM
        finally:
            gone.set()
            server.join()
    assert caplog.messages[-1] == "stopped"
    # The limit of a connect is ten seconds.
    assert caplog.records[-1].__dict__["seconds"] < 5


def test_a_long_stop_asks_for_time_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Manager(ServiceManager):
        def __init__(self) -> None:
            super().__init__({"NOTIFY_SOCKET": "@nobody"})
            self.said = 0
            self.enough = asyncio.Event()

        def stopping(self, status: str) -> None:
            assert status == "flushing"
            self.said += 1
            if self.said == 3:
                self.enough.set()

    async def check() -> None:
        manager = Manager()
        service = SimpleNamespace(stop=manager.enough.wait)
        async with asyncio.timeout(20):
            await foreground._stop(cast("BookieService", service), manager)
        assert manager.said >= 3

    monkeypatch.setattr(foreground, "EXTENSION_S", 0.02)
    asyncio.run(check())


def test_one_more_signal_leaves_at_once_but_not_when_it_is_the_same_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []
    now = [100.0]
    loop = new_event_loop()
    try:
        monkeypatch.setattr(foreground.os, "_exit", left.append)
        signals = foreground._Signals(loop)
        monkeypatch.setattr(signals, "_loop", _Clock(now))
        signals._signalled(signal.SIGINT)
        now[0] += 0.5
        signals._signalled(signal.SIGINT)
        assert left == []
        now[0] += 0.6
        signals._signalled(signal.SIGTERM)
        assert left == [128 + signal.SIGTERM]
        assert signals.first.result() is signal.SIGINT
    finally:
        loop.close()
        asyncio.set_event_loop(None)


class _Clock:
    def __init__(self, now: list[float]) -> None:
        self._now = now

    def time(self) -> float:
        return self._now[0]


def test_a_limited_address_space_is_told(caplog: pytest.LogCaptureFixture) -> None:
    foreground._warn_of_address_space(resource.RLIM_INFINITY)
    assert not caplog.records
    foreground._warn_of_address_space(800 << 20)
    assert "limited to 800 MiB" in caplog.text
