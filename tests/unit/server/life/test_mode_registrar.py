"""The registered mode follows the bookie's, also when the metadata store was away at the change."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.metadata.api import MetadataStore, RegistrationMode
from bkctl.metadata.registration import TreeRegistrationManager
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life import mode_registrar
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.life.mode_registrar import ModeRegistrar
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import DiskSpace
from tests.support.waiting import until

QUICK = {"diskCheckInterval": "20", "httpServerEnabled": "false"}


class World:
    """A disk that can be full, and a metadata store that can be away or take its time to register."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.away = False
        self.hangs = False
        self.hanging = threading.Event()
        self.go_on = threading.Event()
        register = TreeRegistrationManager.register

        def registering(*arguments: Any) -> None:
            if self.hangs:
                self.hanging.set()
                self.go_on.wait(90)
            if self.away:
                raise ConnectionFailedError("the metadata store is away")
            register(*arguments)

        def disk_space(*_: object) -> DiskSpace:
            return DiskSpace(1, 100 << 30, 1 << 20 if self.full else 90 << 30)

        monkeypatch.setattr(TreeRegistrationManager, "register", registering)
        monkeypatch.setattr(PosixFileSystem, "disk_space", disk_space)
        monkeypatch.setattr(mode_registrar, "RETRY_S", 0.02)


def is_read_only(bookie: EmbeddedBookie) -> bool:
    assert bookie.service is not None
    assert bookie.service.bookie is not None
    return bookie.service.bookie.read_only


def is_registered(metadata: MetadataStore, mode: RegistrationMode) -> bool:
    bookies = metadata.registration.bookies()
    ones = (len(bookies.writable), len(bookies.read_only))
    return ones == ((1, 0) if mode is RegistrationMode.WRITABLE else (0, 1))


def test_a_mode_that_could_not_be_registered_is_when_the_store_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch)
    with (
        EmbeddedBookie(tmp_path, overrides=QUICK) as bookie,
        open_metadata_store(bookie.config.metadata.uri) as metadata,
    ):
        for full, mode in ((True, RegistrationMode.READ_ONLY), (False, RegistrationMode.WRITABLE)):
            world.away = True
            world.full = full
            until(lambda full=full: is_read_only(bookie) is full, "the engine does not see its disk")  # type: ignore[misc]
            assert not is_registered(metadata, mode)
            world.away = False
            until(lambda mode=mode: is_registered(metadata, mode), f"never registered as {mode}")  # type: ignore[misc]


def test_a_store_that_does_not_answer_keeps_nobody_from_looking_at_the_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch)
    with (
        EmbeddedBookie(tmp_path, overrides=QUICK) as bookie,
        open_metadata_store(bookie.config.metadata.uri) as metadata,
    ):
        world.hangs = world.full = True
        assert world.hanging.wait(20)
        assert is_read_only(bookie)
        world.full = False
        until(lambda: not is_read_only(bookie), "the thread that watches the disks waits for the store")
        world.hangs = False
        world.go_on.set()
        until(lambda: is_registered(metadata, RegistrationMode.WRITABLE), "the last mode does not count")


class Registered:
    """What a registrar registers, of a bookie whose mode is ``mode``."""

    def __init__(self) -> None:
        self.mode = RegistrationMode.WRITABLE
        self.modes: list[RegistrationMode] = []
        self.failure: BkctlError | None = None
        self.attempts = 0
        self.ended: list[BkctlError] = []

    def register(self, mode: RegistrationMode) -> None:
        self.attempts += 1
        if self.failure is not None:
            raise self.failure
        self.modes.append(mode)

    def registrar(self) -> ModeRegistrar:
        return ModeRegistrar(lambda: self.mode, self.register, self.ended.append)


def test_a_store_that_is_back_is_asked_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mode_registrar, "RETRY_S", 3600)
    registered = Registered()
    registrar = registered.registrar()
    registrar.start()
    registered.failure = ConnectionFailedError("away")
    registered.mode = RegistrationMode.READ_ONLY
    with caplog.at_level(logging.WARNING):
        for attempts in (2, 3):
            registrar.changed()
            until(lambda attempts=attempts: registered.attempts == attempts, "it does not try")  # type: ignore[misc]
        registered.failure = None
        registrar.changed()
        until(lambda: len(registered.modes) == 2, "it does not try again")
        registrar.stop()
    assert registered.modes == [RegistrationMode.WRITABLE, RegistrationMode.READ_ONLY]
    assert not registered.ended
    # Two failures of one kind are one line.
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_nothing_is_registered_behind_the_stop() -> None:
    registered = Registered()
    registrar = registered.registrar()
    registrar.start()
    registrar.stop()
    registered.mode = RegistrationMode.READ_ONLY
    registrar.changed()
    assert registrar.register_now()
    assert registered.modes == [RegistrationMode.WRITABLE]


def test_the_first_registration_fails_the_start() -> None:
    registered = Registered()
    registered.failure = ConnectionFailedError("away")
    with pytest.raises(ConnectionFailedError):
        registered.registrar().start()
