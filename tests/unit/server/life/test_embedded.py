"""Bookies inside this process: start, stop, restart, and nothing left when a start fails anywhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkctl.config.loader import load
from bkctl.engine import gradual_removal
from bkctl.engine.bookie import Bookie
from bkctl.errors import RefusedError, StorageError, UsageError
from bkctl.metadata.registration import TreeRegistrationManager
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.http.admin import HttpAdmin
from bkctl.server.life import bookie_port, bookie_service, own_directories
from bkctl.server.life.embedded import EmbeddedBookie, LocalCluster
from bkctl.server.wire.bookie_server import BookieServer
from bkctl.vfs import PosixFileSystem, SyncError
from tests.demo_client import DemoClient, body_of
from tests.support.any_disk import ANY_DISK
from tests.support.ports import is_listening


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert not set(threading.enumerate()) - before


def write_and_read(port: int, ledger: int = 3) -> None:
    with DemoClient(port) as client:
        assert client.add(ledger, range(10)).done == list(range(10))
        assert client.read(ledger, range(10)).bodies[9] == body_of(ledger, 9, 1000)


def test_a_bookie_serves_and_may_be_stopped_twice_and_started_again(tmp_path: Path) -> None:
    bookie = EmbeddedBookie(tmp_path / "b")
    with pytest.raises(UsageError, match="has not started"):
        _ = bookie.port
    bookie.stop()
    report = bookie.start()
    assert (report.new, report.unclean) == (True, False)
    with pytest.raises(UsageError, match="runs already"):
        bookie.start()
    write_and_read(bookie.port)
    port = bookie.port
    bookie.stop()
    bookie.stop()
    assert not is_listening(port)
    with bookie:
        assert (bookie.port, bookie.bookie_id) == (port, f"127.0.0.1:{port}")
        assert bookie.report is not None
        assert bookie.report.new is False
        with DemoClient(port) as client:
            assert client.read(3, range(10)).bodies[4] == body_of(3, 4, 1000)


def test_either_a_directory_or_a_configuration(tmp_path: Path) -> None:
    config, _ = load(None, {}, {}, working_directory=str(tmp_path))
    with pytest.raises(UsageError):
        EmbeddedBookie()
    with pytest.raises(UsageError):
        EmbeddedBookie(tmp_path, config=config)
    with EmbeddedBookie(
        config=load(
            None,
            {"bookiePort": "0", "allowEphemeralPorts": "true", "httpServerEnabled": "false", **ANY_DISK},
            {},
            working_directory=str(tmp_path),
        )[0]
    ) as bookie:
        assert bookie.http_port is None
        write_and_read(bookie.port)


def fails(*_: object, **__: object) -> None:
    raise StorageError("as told")


async def fails_later(*_: object, **__: object) -> None:
    raise StorageError("as told")


@pytest.mark.parametrize(
    ("where", "what", "how"),
    [
        (bookie_service, "open_bookie_metadata", fails),
        (bookie_port, "bind", fails),
        (bookie_service, "decide_cookies", fails),
        (own_directories, "make_current", fails),
        (own_directories, "stamp", fails),
        (bookie_service, "_open_store", fails),
        (Bookie, "start", fails),
        (own_directories, "mark_dirty", fails),
        (BookieServer, "start", fails_later),
        (HttpAdmin, "start", fails_later),
        (TreeRegistrationManager, "register", fails),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_start_that_fails_anywhere_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, what: str, how: Callable[..., object]
) -> None:
    with EmbeddedBookie(tmp_path) as once:
        write_and_read(once.port)
        port = once.port
    uri = f"embedded://{tmp_path}/metadata.db"
    bookie = EmbeddedBookie(tmp_path, overrides={"bookiePort": str(port)})
    with monkeypatch.context() as patch:
        patch.setattr(where, what, how)
        with pytest.raises(StorageError, match="as told"):
            bookie.start()
    assert not is_listening(port)
    with open_metadata_store(uri) as metadata:
        assert metadata.registration.bookies().writable == ()
    with own_directories.DirectoryLocks([str(tmp_path / "journal"), str(tmp_path / "ledgers")]):
        pass
    with bookie, DemoClient(bookie.port) as client:
        assert client.read(3, range(10)).bodies[7] == body_of(3, 7, 1000)


def test_a_bug_while_starting_reaches_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(own_directories, "mark_dirty", bug)
    with pytest.raises(ZeroDivisionError):
        EmbeddedBookie(tmp_path).start()


def test_what_could_not_be_flushed_is_told_by_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = EmbeddedBookie(tmp_path)
    bookie.start()
    write_and_read(bookie.port)
    assert bookie.service is not None
    assert bookie.service.bookie is not None
    with monkeypatch.context() as patch:
        patch.setattr(bookie.service.bookie.checkpointer, "checkpoint", fails)
        with pytest.raises(StorageError, match="as told"):
            bookie.stop()
    bookie.stop()
    # The mark of an unclean end stays, and the journals still have the entries.
    assert (tmp_path / "ledgers/current/DIRTY").exists()
    with bookie:
        assert bookie.report is not None
        assert (bookie.report.unclean, bookie.report.recovery.entries) == (True, 10)


def test_a_bookie_that_cannot_go_on_says_so(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        bookie.service.bookie.fail(StorageError("the disk is gone"))
        with DemoClient(bookie.port) as client:
            assert {code.name for code in client.add(4, range(3)).refused.values()} == {"READ_ONLY"}
        assert str(bookie.failure) == "the disk is gone"
    assert (tmp_path / "ledgers/current/DIRTY").exists()


def test_a_cluster_of_three_with_one_metadata_store() -> None:
    with LocalCluster(bookies=3) as cluster:
        ids = sorted(bookie.bookie_id for bookie in cluster.bookies)
        assert len(set(ids)) == 3
        for bookie in cluster.bookies:
            write_and_read(bookie.port)
        with open_metadata_store(cluster.metadata_uri) as metadata:
            assert list(metadata.registration.bookies().writable) == ids
    assert not cluster.directory.exists()
    cluster.stop()


def test_a_cluster_whose_last_bookie_fails_leaves_none_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(3, tmp_path)
    (tmp_path / "bookie2" / "journal" / "current").mkdir(parents=True)
    (tmp_path / "bookie2" / "journal" / "current" / "stray").write_text("")
    with pytest.raises(RefusedError, match="not empty"):
        cluster.start()
    for bookie in cluster.bookies[:2]:
        assert not is_listening(bookie.port)
    assert tmp_path.exists()


def test_a_cluster_has_at_least_one_bookie() -> None:
    with pytest.raises(UsageError):
        LocalCluster(0)


def test_they_are_the_packages_front_door() -> None:
    import bkctl.server

    assert bkctl.server.EmbeddedBookie is EmbeddedBookie
    assert bkctl.server.LocalCluster is LocalCluster
    with pytest.raises(AttributeError, match="Nothing"):
        _ = bkctl.server.Nothing


def test_a_bookie_removes_large_files_in_steps_until_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradual_removal, "FILE_BYTES_MIN", 1)
    (tmp_path / "file").write_bytes(b"x")
    with EmbeddedBookie(tmp_path / "b") as bookie:
        assert bookie.service is not None
        bookie.service.filesystem.remove(f"{tmp_path}/file")
        assert "bookie-removal" in {thread.name for thread in threading.enumerate()}
        write_and_read(bookie.port)


def test_a_sync_that_fails_behind_a_removal_stops_the_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = PosixFileSystem.sync_directory

    def fails_there(self: PosixFileSystem, path: str) -> None:
        if path == f"{tmp_path}":
            raise SyncError(f"{path}: fsync of the directory", path=path)
        synced(self, path)

    monkeypatch.setattr(gradual_removal, "FILE_BYTES_MIN", 1)
    monkeypatch.setattr(PosixFileSystem, "sync_directory", fails_there)
    (tmp_path / "file").write_bytes(b"x")
    bookie = EmbeddedBookie(tmp_path / "b")
    bookie.start()
    assert bookie.service is not None
    assert bookie.service.bookie is not None
    bookie.service.filesystem.remove(f"{tmp_path}/file")
    until = time.monotonic() + 20
    while bookie.failure is None and time.monotonic() < until:
        time.sleep(0.01)
    assert isinstance(bookie.service.bookie.failure, SyncError)
    with contextlib.suppress(StorageError):
        bookie.stop()
