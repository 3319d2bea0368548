"""Pages of the HTTP admin: ledgers, configuration, cluster, autorecovery; parameters that are wrong."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from aiohttp import web

from bkctl.client.ops.ledger_access import LedgerEntry
from bkctl.client.sync import BookKeeperSync
from bkctl.server.http import bookie_pages, ledger_pages
from bkctl.server.http import guarded_http as http_admin
from bkctl.server.http.admin import HttpAdmin
from bkctl.server.http.cluster_pages import _readable
from bkctl.server.http.guard import Guard
from bkctl.server.http.store_threads import StoreThreads
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.storage_kinds import SORTED_LEDGER_STORAGE
from tests.support.admin_requests import ask, ask_json

API = "/api/v1"


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBookie]:
    with EmbeddedBookie(tmp_path_factory.mktemp("pages"), overrides={"bookieId": "b"}) as running:
        yield running


@pytest.fixture(scope="module")
def client(bookie: EmbeddedBookie) -> Iterator[BookKeeperSync]:
    with BookKeeperSync(bookie.config.metadata.uri) as running:
        yield running


def test_an_open_ledger_is_read_up_to_what_is_confirmed(
    bookie: EmbeddedBookie, client: BookKeeperSync
) -> None:
    with client.create(1, 1, 1, password=b"secret") as ledger:
        for payload in (b"a", b"b\xff", b"c"):
            ledger.append(payload)
        path = f"{API}/ledger/read?ledger_id={ledger.ledger}"
        # The last one is confirmed by nobody yet, as far as the bookie knows.
        assert ask_json(bookie, "GET", path) == {"0": "a", "1": "b\N{REPLACEMENT CHARACTER}"}
        assert ask_json(bookie, "GET", f"{path}&end_entry_id=2").keys() == {"0", "1"}
        shown = ask_json(bookie, "GET", f"{API}/ledger/metadata?ledger_id={ledger.ledger}")
        (values,) = shown.values()
        assert (values["state"], values["closed"], values["password"]) == ("OPEN", False, None)
        listed = ask(bookie, "GET", f"{API}/ledger/list?print_metadata=true")[1]
        assert "secret" not in listed


def test_pages_of_a_list(
    bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch, client: BookKeeperSync
) -> None:
    made = []
    for _ in range(5):
        with client.create(1, 1, 1) as ledger:
            made.append(ledger.ledger)
    everything = [int(ledger) for ledger in ask_json(bookie, "GET", f"{API}/ledger/list")]
    assert everything == sorted(everything)
    assert set(made) <= set(everything)
    monkeypatch.setattr(ledger_pages, "LEDGERS_PER_PAGE", 2)
    found: list[int] = []
    for page in range(1, 20):
        ids = [int(ledger) for ledger in ask_json(bookie, "GET", f"{API}/ledger/list?page={page}")]
        assert len(ids) <= 2
        found += ids
    assert found == everything
    monkeypatch.setattr(ledger_pages, "METADATA_MAX", 3)
    status, text = ask(bookie, "GET", f"{API}/ledger/list?print_metadata=true")
    assert (status, "page=1" in text) == (400, True)
    decoded = ask_json(bookie, "GET", f"{API}/ledger/list?print_metadata=true&decode_meta=true&page=1")
    assert [each["ledgerId"] for each in decoded.values()] == everything[:2]


def test_an_answer_does_not_grow_without_bound(
    bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch, client: BookKeeperSync
) -> None:
    with client.create(1, 1, 1) as ledger:
        ledger.append_all([b"x" * 100] * 20)
    path = f"{API}/ledger/read?ledger_id={ledger.ledger}"
    assert len(ask_json(bookie, "GET", path)) == 20
    monkeypatch.setattr(ledger_pages, "PAYLOAD_BYTES_MAX", 1000)
    status, text = ask(bookie, "GET", path)
    assert (status, "entry 10" in text) == (400, True)
    assert len(ask_json(bookie, "GET", f"{path}&start_entry_id=10&end_entry_id=19")) == 10
    monkeypatch.setattr(ledger_pages, "ENTRIES_MAX", 5)
    assert ask(bookie, "GET", path)[0] == 400
    assert len(ask_json(bookie, "GET", f"{path}&end_entry_id=4")) == 5


def test_a_large_answer_is_whole(bookie: EmbeddedBookie, client: BookKeeperSync) -> None:
    payload = b'\xff"\\' * 100_000
    with client.create(1, 1, 1) as ledger:
        ledger.append_all([payload] * 5)
    path = f"{API}/ledger/read?ledger_id={ledger.ledger}"
    found = ask_json(bookie, "GET", path)
    assert list(found) == [str(entry) for entry in range(5)]
    assert set(found.values()) == {payload.decode("ascii", "replace")}
    assert ask_json(bookie, "GET", f"{path}&page=7") == {"Entries for page: ": "7"}


def test_a_large_answer_leaves_the_loop_its_turns() -> None:
    """One entry alone, too: the others on the loop have a turn for each piece of it."""

    async def entries() -> AsyncIterator[LedgerEntry]:
        yield LedgerEntry(1, 0, -1, 4 << 20, bytes(4 << 20))

    async def turns_of_others() -> int:
        turns = 0
        body = asyncio.ensure_future(ledger_pages._body({}, entries()))
        while not body.done():
            turns += 1
            await asyncio.sleep(0)
        assert len(await body) > 4 << 20
        return turns

    assert asyncio.run(turns_of_others()) >= 64


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ledger/metadata", 400),
        ("/ledger/metadata?ledger_id=", 400),
        ("/ledger/metadata?ledger_id=x", 400),
        ("/ledger/metadata?ledger_id=-1", 400),
        ("/ledger/metadata?ledger_id=9223372036854775808", 400),
        (f"/ledger/metadata?ledger_id={'9' * 5000}", 400),
        # 1 behind zeros, cut off behind twenty digits, would be the ledger 0, which there is.
        (f"/ledger/metadata?ledger_id={'0' * 20}1", 400),
        ("/ledger/metadata?ledger_id=0_0", 400),
        ("/ledger/metadata?ledger_id=%D9%A0", 400),
        ("/ledger/metadata?ledger_id=4611686018427387904", 404),
        ("/ledger/read?ledger_id=4611686018427387904", 404),
        ("/ledger/read?ledger_id=0&start_entry_id=-1", 400),
        ("/ledger/read?ledger_id=0&start_entry_id=5&end_entry_id=3", 400),
        ("/ledger/read?ledger_id=0&page=one", 400),
        ("/ledger/list?page=0", 400),
        ("/ledger/list?page=9223372036854775807", 400),
        ("/ledger/list?page=2147483647", 200),
        ("/autorecovery/who_is_auditor", 404),
        ("/autorecovery/lost_bookie_recovery_delay", 404),
        ("/autorecovery/list_under_replicated_ledger", 404),
        ("/bookie/expand_storage", 501),
        ("/nothing", 404),
    ],
)
def test_what_cannot_be_answered_says_why(bookie: EmbeddedBookie, path: str, status: int) -> None:
    found, text = ask(bookie, "GET", API + path)
    assert found == status, text
    assert text


def test_the_manual_names_every_path_and_no_other(bookie: EmbeddedBookie) -> None:
    manual = (Path(__file__).resolve().parents[4] / "docs" / "http.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|(?: ([A-Zany, ]+) \|)?", manual, re.MULTILINE)
    named: dict[str, set[str]] = {}
    for paths, methods in rows:
        for path in re.findall(r"`([^`]+)`", paths):
            full = path if path.startswith("/") else f"{API}/{path}"
            named.setdefault(full, set()).update(methods.replace(" ", "").split(",") if methods else {"501"})
    assert named == {path: _methods(bookie, path) for path in _routes(bookie)}


def _routes(bookie: EmbeddedBookie) -> set[str]:
    application = web.Application()
    assert bookie.service is not None
    admin = object.__new__(HttpAdmin)
    admin._service, admin._guard = bookie.service, Guard(None, "127.0.0.1")
    admin._store_threads, admin._open_store = StoreThreads(), Mock()
    admin._add_routes(application.router)
    return {str(resource.canonical) for resource in application.router.resources()}


def _methods(bookie: EmbeddedBookie, path: str) -> set[str]:
    """What the running bookie says to each method."""
    statuses = {method: ask(bookie, method, path, b"[]")[0] for method in ("GET", "PUT", "POST", "DELETE")}
    if set(statuses.values()) == {200}:
        return {"any"}
    if set(statuses.values()) == {501}:
        return {"501"}
    return {method for method, status in statuses.items() if status != 405}


def test_a_ledger_that_is_deleted_twice(bookie: EmbeddedBookie, client: BookKeeperSync) -> None:
    with client.create(1, 1, 1) as ledger:
        pass
    path = f"{API}/ledger/delete?ledger_id={ledger.ledger}"
    for _ in range(2):
        assert ask_json(bookie, "DELETE", path) == f"Deleted ledger: {ledger.ledger}"
    assert str(ledger.ledger) not in ask_json(bookie, "GET", f"{API}/ledger/list")


def test_the_configuration_that_was_given(bookie: EmbeddedBookie) -> None:
    given = ask_json(bookie, "GET", f"{API}/config/server_config")
    assert (given["bookieId"], given["httpServerPort"]) == ("b", "0")
    assert all(isinstance(value, str) for value in given.values())
    assert "diskCheckInterval" not in given


def test_secrets_and_lists_of_the_configuration(tmp_path: Path) -> None:
    ledgers = [str(tmp_path / name) for name in ("x", "y")]
    overrides = {
        "ledgerDirectories": ",".join(ledgers),
        "allowMultipleDirsUnderSameDiskPartition": "true",
        "httpServerKeyStorePassword": "hidden",
        "someKeyOfAnother": "hidden too",
    }
    with EmbeddedBookie(tmp_path / "b", overrides=overrides) as two:
        given = ask_json(two, "GET", f"{API}/config/server_config")
        assert given["ledgerDirectories"] == f"[{ledgers[0]}, {ledgers[1]}]"
        assert given["httpServerKeyStorePassword"] is given["someKeyOfAnother"] is None
        assert "hidden" not in json.dumps(given)


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"flushInterval": "250"}, 200, "Success"),
        ({"flushInterval": 250}, 200, "Success"),
        ({"flushInterval": "0"}, 400, "flushInterval"),
        ({"flushInterval": "soon"}, 400, "flushInterval"),
        ({"flushInterval": True}, 400, "flushInterval"),
        ({"noSuchKey": "1"}, 400, "noSuchKey"),
        ({"flushInterval": "999", "journalDirectories": "/x"}, 409, "restart"),
        (["flushInterval"], 400, "expected"),
    ],
)
def test_changing_the_configuration(bookie: EmbeddedBookie, body: object, status: int, word: str) -> None:
    found, text = ask(bookie, "PUT", f"{API}/config/server_config", json.dumps(body).encode())
    assert (found, word in text) == (status, True), text
    # All or nothing.
    assert ask_json(bookie, "GET", f"{API}/config/server_config").get("flushInterval") in (None, "250")


def test_the_flush_interval_is_what_the_bookie_does(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path, overrides={"flushInterval": "60000"}) as slow:
        assert slow.service is not None
        assert slow.service.bookie is not None
        ask(slow, "PUT", f"{API}/config/server_config", b'{"flushInterval": "70000"}')
        assert slow.service.bookie.checkpointer.interval_s == 70


def test_sanity_writes_reads_and_leaves_nothing(
    bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ask_json(bookie, "GET", f"{API}/ledger/list")
    assert ask_json(bookie, "PUT", f"{API}/bookie/sanity") == {"passed": True, "readOnly": False}
    assert ask_json(bookie, "GET", f"{API}/ledger/list") == before
    ask(bookie, "PUT", f"{API}/bookie/state/readonly", b'{"readOnly": true}')
    assert ask_json(bookie, "PUT", f"{API}/bookie/sanity") == {"passed": True, "readOnly": True}
    ask(bookie, "PUT", f"{API}/bookie/state/readonly", b'{"readOnly": false}')

    async def insane(*_: object) -> bool:
        return False

    monkeypatch.setattr(bookie_pages, "is_sane", insane)
    assert ask_json(bookie, "PUT", f"{API}/bookie/sanity") == {"passed": False, "readOnly": False}


def test_the_cluster_in_numbers(bookie: EmbeddedBookie) -> None:
    assert ask_json(bookie, "GET", f"{API}/bookie/cluster_info") == {
        "auditorElected": False,
        "auditorId": "",
        "clusterUnderReplicated": False,
        "ledgerReplicationEnabled": True,
        "totalBookiesCount": 1,
        "writableBookiesCount": 1,
        "readonlyBookiesCount": 0,
        "unavailableBookiesCount": 0,
    }


def test_autorecovery_without_any(bookie: EmbeddedBookie) -> None:
    path = f"{API}/autorecovery/status"
    for text, wanted in (("false", False), ("false", False), ("TRUE", True), ("true", True)):
        assert ask_json(bookie, "PUT", f"{path}?enabled={text}") == {"enabled": wanted}
        assert ask_json(bookie, "GET", path) == {"enabled": wanted}
    for parameters in ("", "?enabled=", "?enabled=maybe"):
        assert ask(bookie, "PUT", path + parameters)[0] == 400
    assert ask(bookie, "PUT", f"{API}/autorecovery/trigger_audit")[0] == 404
    for body in (b"", b"[]", b'{"delay_seconds": -1}', b'{"delay_seconds": "3"}', b'{"delay_seconds": true}'):
        assert ask(bookie, "PUT", f"{API}/autorecovery/lost_bookie_recovery_delay", body)[0] == 400


def test_a_body_that_does_not_come_is_not_waited_for(
    bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_admin, "_BODY_TIMEOUT_S", 0.05)
    assert bookie.http_port is not None
    with socket.create_connection(("127.0.0.1", bookie.http_port), timeout=20) as connection:
        head = f"PUT {API}/bookie/state/readonly HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\r\n"
        connection.sendall(f'{head}{{"readOnly":'.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")
    assert ask_json(bookie, "GET", f"{API}/bookie/state/readonly") == {"readOnly": False}


def test_too_many_requests_at_once_are_told_so(
    bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_admin, "_REQUESTS_MAX", 0)
    assert ask(bookie, "GET", f"{API}/bookie/state") == (503, "too many requests at once")


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1000(1KB)"),
        (61493288960, "61493288960(61.493GB)"),
        (270553174016, "270553174016(270.553GB)"),
        (1_500_000, "1500000(1.5MB)"),
        (1999, "1999(1.999KB)"),
        (10**18, "1000000000000000000(1000000TB)"),
    ],
)
def test_sizes_for_people_are_cut_off(size_bytes: int, text: str) -> None:
    assert _readable(size_bytes) == text


def test_index_files_are_listed(tmp_path: Path) -> None:
    """They are in the index directories; the page has their names, as Java's."""
    overrides = {
        "ledgerStorageClass": SORTED_LEDGER_STORAGE,
        "indexDirectories": str(tmp_path / "apart"),
        "flushInterval": "100",
    }
    with (
        EmbeddedBookie(tmp_path / "b", overrides=overrides) as running,
        BookKeeperSync(running.config.metadata.uri) as client,
    ):
        with client.create(1, 1, 1, password=b"") as ledger:
            ledger.append(b"x")
            name = f"{ledger.ledger:x}.idx"
        deadline = time.monotonic() + 20
        while not list((tmp_path / "apart").rglob(name)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for query in ("", "?file_type=index"):
            answer = ask_json(running, "GET", f"{API}/bookie/list_disk_file{query}")
            assert answer["index files"] == f"{name}\t"
