"""In which order a bookie comes and goes, what it registers, and what it remembers."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bkctl.codec.bookie_service_info import Endpoint, decode_bookie_service_info
from bkctl.codec.bookie_status import BookieMode, BookieStatus, encode_bookie_status
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.engine.bookie import Bookie
from bkctl.errors import ConnectionFailedError, RefusedError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.registration import TreeRegistrationManager
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life import bookie_service, own_directories
from bkctl.server.life.embedded import EmbeddedBookie
from tests.demo_client import DemoClient
from tests.support.admin_requests import ask, ask_json
from tests.support.ports import is_listening

READ_ONLY = "/api/v1/bookie/state/readonly"


class Witness:
    """Looks at the bookie from outside each time one of the steps begins."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.port = 0
        self.bookie: EmbeddedBookie | None = None
        self.seen: list[tuple[str, dict[str, bool]]] = []
        for where, what in (
            (own_directories, "stamp"),
            (Bookie, "start"),
            (own_directories, "mark_dirty"),
            (TreeRegistrationManager, "register"),
            (TreeRegistrationManager, "unregister"),
            (Bookie, "stop"),
            (own_directories, "clear_dirty"),
        ):
            patch.setattr(where, what, self._noting(what, getattr(where, what)))

    def _noting(self, what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            self.seen.append((what, self.facts()))
            return original(*arguments, **options)

        return noted

    def facts(self) -> dict[str, bool]:
        try:
            with own_directories.DirectoryLocks(
                [str(self.directory / "journal"), str(self.directory / "ledgers")]
            ):
                locked = False
        except RefusedError:
            locked = True
        assert self.bookie is not None
        service = self.bookie.service
        return {
            "locked": locked,
            "dirty": (self.directory / "ledgers/current/DIRTY").exists(),
            "serving": is_listening(self.port),
            "ready": service is not None and service.ready,
        }


def facts(*names: str) -> dict[str, bool]:
    return {name: name in names for name in ("locked", "dirty", "serving", "ready")}


def test_the_order_of_start_and_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBookie(tmp_path) as once:
        port = once.port
    with monkeypatch.context() as patch:
        witness = Witness(tmp_path, patch)
        witness.port = port
        witness.bookie = EmbeddedBookie(tmp_path)
        with witness.bookie, DemoClient(port) as client:
            client.add(1, range(3))
    assert witness.seen == [
        ("stamp", facts("locked")),
        ("start", facts("locked")),
        ("mark_dirty", facts("locked")),
        # Only who serves already is told to clients.
        ("register", facts("locked", "dirty", "serving")),
        # And who leaves is not told to them any more.
        ("unregister", facts("locked", "dirty", "serving")),
        ("stop", facts("locked", "dirty")),
        ("clear_dirty", facts("locked", "dirty")),
    ]


def test_who_is_deregistered_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients and an auditor hear that a bookie leaves before a single one of their connections breaks."""
    unregister = TreeRegistrationManager.unregister
    told: list[tuple[bool, list[int], list[int]]] = []
    bookie = EmbeddedBookie(tmp_path)
    with bookie:
        port, name, uri = bookie.port, bookie.bookie_id, bookie.config.metadata.uri
        with DemoClient(port) as client, open_metadata_store(uri) as metadata:
            assert client.add(1, [0]).done == [0]

            def unregistering(manager: TreeRegistrationManager) -> None:
                unregister(manager)
                if not told:
                    with DemoClient(port) as newcomer:
                        known = metadata.registration.registration(name) is not None
                        told.append((known, client.add(1, [1]).done, list(newcomer.read(1, [0, 1]).bodies)))

            monkeypatch.setattr(TreeRegistrationManager, "unregister", unregistering)
            bookie.stop()
            assert told == [(False, [1], [0, 1])]
            assert client.add(1, [2]).broken
    with EmbeddedBookie(tmp_path) as again, DemoClient(again.port) as client:
        assert list(client.read(1, [0, 1]).bodies) == [0, 1]


def endpoints(metadata: MetadataStore, bookie: str) -> dict[str, Endpoint]:
    registration = metadata.registration.registration(bookie)
    assert registration is not None
    found = decode_bookie_service_info(registration.service_info).endpoints
    return {endpoint.protocol: endpoint for endpoint in found}


def test_the_registration_names_both_endpoints(tmp_path: Path) -> None:
    with (
        EmbeddedBookie(tmp_path, overrides={"bookieId": "some.name"}) as bookie,
        open_metadata_store(bookie.config.metadata.uri) as metadata,
    ):
        assert bookie.bookie_id == "some.name"
        found = endpoints(metadata, "some.name")
        assert (found["bookie-rpc"].host, found["bookie-rpc"].port) == ("127.0.0.1", bookie.port)
        assert (found["http"].host, found["http"].port) == ("127.0.0.1", bookie.http_port)


def test_without_http_there_is_one_endpoint(tmp_path: Path) -> None:
    with (
        EmbeddedBookie(tmp_path, overrides={"httpServerEnabled": "false"}) as bookie,
        open_metadata_store(bookie.config.metadata.uri) as metadata,
    ):
        assert list(endpoints(metadata, bookie.bookie_id)) == ["bookie-rpc"]


def test_the_advertised_address_is_what_clients_are_told(tmp_path: Path) -> None:
    options = {"advertisedAddress": "bookie.example", "bookieId": "b"}
    with (
        EmbeddedBookie(tmp_path, overrides=options) as bookie,
        open_metadata_store(bookie.config.metadata.uri) as metadata,
    ):
        assert endpoints(metadata, "b")["bookie-rpc"].host == "bookie.example"


def status_file(directory: Path) -> Path:
    return directory / "ledgers/current/BOOKIE_STATUS"


REMEMBER = {"persistBookieStatusEnabled": "true"}


def test_read_only_by_hand_is_remembered(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path, overrides=REMEMBER) as bookie:
        assert not status_file(tmp_path).exists()
        ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": true}')
        name = bookie.bookie_id
    with (
        EmbeddedBookie(tmp_path, overrides=REMEMBER) as again,
        open_metadata_store(again.config.metadata.uri) as metadata,
    ):
        assert metadata.registration.bookies().read_only == (name,)
        assert metadata.registration.bookies().writable == ()
        ask_json(again, "PUT", READ_ONLY, b'{"readOnly": false}')
        assert "READ_WRITE" in status_file(tmp_path).read_text()
    with EmbeddedBookie(tmp_path, overrides=REMEMBER) as third:
        assert third.service is not None
        assert third.service.bookie is not None
        assert not third.service.bookie.read_only


def fill_disks(bookie: EmbeddedBookie) -> None:
    assert bookie.service is not None
    assert bookie.service.bookie is not None
    disks = bookie.service.bookie.disks
    disks._settings = DiskSettings(usage_max=0.0001, usage_low=0.0001, usage_warn=0.0001)
    assert disks.check().read_only


@pytest.mark.parametrize("wanted", [True, False])
def test_what_an_operator_says_is_remembered_on_full_disks_too(tmp_path: Path, wanted: bool) -> None:
    """The bookie is read-only before the request and behind it, so that its mode does not change."""
    with EmbeddedBookie(tmp_path, overrides=REMEMBER) as bookie:
        if not wanted:
            ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": true}')
        fill_disks(bookie)
        ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": %s}' % str(wanted).lower().encode())
        assert ask_json(bookie, "GET", READ_ONLY) == {"readOnly": True}
    with EmbeddedBookie(tmp_path, overrides=REMEMBER) as again:
        assert ask_json(again, "GET", READ_ONLY) == {"readOnly": wanted}


def test_it_is_forgotten_when_it_is_not_to_be_remembered(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": true}')
    assert not status_file(tmp_path).exists()
    with EmbeddedBookie(tmp_path, overrides=REMEMBER) as again:
        assert ask_json(again, "GET", READ_ONLY) == {"readOnly": False}


def test_read_only_by_the_configuration_ends_with_the_configuration(tmp_path: Path) -> None:
    forced = REMEMBER | {"forceReadOnlyBookie": "true"}
    with EmbeddedBookie(tmp_path, overrides=forced) as bookie:
        assert ask_json(bookie, "GET", READ_ONLY) == {"readOnly": True}
    with EmbeddedBookie(tmp_path, overrides=REMEMBER) as again:
        assert ask_json(again, "GET", READ_ONLY) == {"readOnly": False}
        ask_json(again, "PUT", READ_ONLY, b'{"readOnly": true}')
    with EmbeddedBookie(tmp_path, overrides=forced):
        pass
    # What an operator said before is still remembered.
    with EmbeddedBookie(tmp_path, overrides=REMEMBER) as last:
        assert ask_json(last, "GET", READ_ONLY) == {"readOnly": True}


@pytest.mark.parametrize(("manual", "read_only"), [(True, True), (False, False)])
def test_read_only_because_of_full_disks_is_looked_at_anew(
    tmp_path: Path, manual: bool, read_only: bool
) -> None:
    with EmbeddedBookie(tmp_path):
        pass
    status_file(tmp_path).write_bytes(encode_bookie_status(BookieStatus(BookieMode.READ_ONLY, 1, manual)))
    with EmbeddedBookie(tmp_path, overrides=REMEMBER) as bookie:
        assert ask_json(bookie, "GET", READ_ONLY) == {"readOnly": read_only}


def test_a_user_who_may_not_start_it(tmp_path: Path) -> None:
    bookie = EmbeddedBookie(tmp_path, overrides={"permittedStartupUsers": "nobody-of-this-name"})
    with pytest.raises(RefusedError, match="may not start"):
        bookie.start()
    assert not (tmp_path / "metadata.db").exists()


def test_full_disks_may_end_it(tmp_path: Path) -> None:
    full = {"diskUsageThreshold": "0.001", "diskUsageWarnThreshold": "0.001", "readOnlyModeEnabled": "false"}
    with pytest.raises(RefusedError, match="readOnlyModeEnabled=false"):
        EmbeddedBookie(tmp_path, overrides=full).start()


def flushes_s(monkeypatch: pytest.MonkeyPatch, behind: threading.Event) -> list[float]:
    """Return a list that gets the time of each flush at a stop; ``behind`` is set then."""
    times_s: list[float] = []
    clear = own_directories.clear_dirty

    def clearing(*arguments: Any) -> None:
        times_s.append(time.monotonic())
        clear(*arguments)
        behind.set()

    monkeypatch.setattr(own_directories, "clear_dirty", clearing)
    return times_s


def test_a_metadata_store_that_hangs_does_not_keep_a_stop_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def hangs(_: TreeRegistrationManager) -> None:
        answered.wait(20)
        raise ConnectionFailedError("too late")

    flushed_s = flushes_s(monkeypatch, answered)
    monkeypatch.setattr(bookie_service, "UNREGISTER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(TreeRegistrationManager, "unregister", hangs)
    bookie = EmbeddedBookie(tmp_path)
    bookie.start()
    began_s = time.monotonic()
    bookie.stop()
    # The flush did not wait for the store, which answered only after it.
    assert flushed_s[0] - began_s < 10
    assert not (tmp_path / "ledgers/current/DIRTY").exists()


def test_requests_that_wait_for_the_store_keep_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    waiting = threading.Semaphore(0)

    def hangs(_: TreeRegistrationManager) -> NoReturn:
        waiting.release()
        answered.wait(60)
        raise ConnectionFailedError("too late")

    bookie = EmbeddedBookie(tmp_path)
    bookie.start()
    monkeypatch.setattr(TreeRegistrationManager, "bookies", hangs)
    flushed_s = flushes_s(monkeypatch, answered)

    def lists() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            ask(bookie, "GET", "/api/v1/bookie/list_bookies")

    # More than an event loop has threads.
    dashboards = [threading.Thread(target=lists) for _ in range(40)]
    try:
        for each in dashboards:
            each.start()
        assert waiting.acquire(timeout=20)
        began_s = time.monotonic()
        assert ask_json(bookie, "GET", "/api/v1/bookie/info")["totalSpace"]
        assert time.monotonic() - began_s < 10
        began_s = time.monotonic()
        bookie.stop()
        assert flushed_s[0] - began_s < 15
    finally:
        answered.set()
        for each in dashboards:
            each.join()


def test_a_session_that_is_lost_and_back_changes_nothing_for_clients(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie, DemoClient(bookie.port) as client:
        assert bookie.service is not None
        bookie.service.session_lost()
        assert client.add(1, [0]).done == [0]
        bookie.service.session_restored()
        assert client.add(1, [1]).done == [1]


def test_a_registration_that_another_took_ends_it(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        assert bookie.service is not None
        told = threading.Event()
        note, bookie.service._on_failure = bookie.service._on_failure, lambda _: told.set()
        bookie.service.registration_failed(RefusedError("taken"))
        assert told.wait(20)
        assert str(bookie.service.failure) == "taken"
        bookie.service._on_failure = note


def test_several_directories_and_journals(tmp_path: Path) -> None:
    directory = {
        key: ",".join(str(tmp_path / f"{kind}{number}") for number in range(2))
        for key, kind in (("journalDirectories", "j"), ("ledgerDirectories", "l"), ("indexDirectories", "i"))
    }
    for entries in (range(10), range(10, 20)):
        with EmbeddedBookie(tmp_path, overrides=directory) as bookie, DemoClient(bookie.port) as client:
            for ledger in (4, 5):
                assert client.add(ledger, entries).done == list(entries)
                assert len(client.read(ledger, range(entries.stop)).bodies) == entries.stop
    for kind in "jli":
        for number in range(2):
            assert (tmp_path / f"{kind}{number}" / "current" / "VERSION").is_file()
