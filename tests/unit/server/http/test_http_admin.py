"""The HTTP admin of a running bookie: every path, in Java's form, and the snapshot."""

from __future__ import annotations

import gzip
import http.client
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.engine.bookie import Bookie
from bkctl.errors import StorageError
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.http.snapshot import snapshot
from bkctl.server.life.embedded import EmbeddedBookie
from tests.demo_client import DemoClient
from tests.support.admin_requests import ask, ask_json

READ_ONLY = "/api/v1/bookie/state/readonly"


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBookie]:
    with EmbeddedBookie(tmp_path_factory.mktemp("http"), overrides={"bookieId": "b"}) as running:
        yield running


def test_the_paths_and_forms_of_java(bookie: EmbeddedBookie) -> None:
    assert ask(bookie, "GET", "/heartbeat") == (200, "OK\n")
    assert ask(bookie, "POST", "/heartbeat") == (200, "OK\n")
    assert ask(bookie, "GET", "/api/v1/bookie/is_ready") == (200, "OK")
    assert ask_json(bookie, "GET", "/api/v1/bookie/state") == {
        "running": True,
        "readOnly": False,
        "shuttingDown": False,
        "availableForHighPriorityWrites": True,
    }
    assert ask_json(bookie, "GET", READ_ONLY) == {"readOnly": False}
    info = ask_json(bookie, "GET", "/api/v1/bookie/info")
    assert 0 < info["freeSpace"] < info["totalSpace"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/v1/bookie/nothing", 404),
        ("PUT", "/api/v1/bookie/info", 405),
        ("POST", "/api/v1/bookie/is_ready", 405),
        ("DELETE", READ_ONLY, 405),
        ("PUT", "/api/v1/bkctl/snapshot", 405),
    ],
)
def test_other_paths_and_methods(bookie: EmbeddedBookie, method: str, path: str, status: int) -> None:
    assert ask(bookie, method, path)[0] == status


@pytest.mark.parametrize(
    "body",
    [
        "",
        "nothing",
        "[]",
        "{}",
        "null",
        '"readOnly"',
        '{"readOnly": 1}',
        '{"readOnly": "true"}',
        "\xff{",
        "[" * 9000,
    ],
    ids=lambda body: body[:20],
)
def test_a_body_that_is_no_mode_changes_nothing(bookie: EmbeddedBookie, body: str) -> None:
    status, text = ask(bookie, "PUT", READ_ONLY, body.encode("latin-1"))
    assert (status, text[:5]) == (400, "ERROR")
    assert ask_json(bookie, "GET", READ_ONLY) == {"readOnly": False}


def test_a_body_without_end_is_cut_off(bookie: EmbeddedBookie) -> None:
    assert ask(bookie, "PUT", READ_ONLY, b" " * (70 << 10))[0] == 413


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(b'{"readOnly": false}')[:-9]),
        ("gzip", gzip.compress(b'{"readOnly": false}')[:5]),
        ("deflate", b"no deflate"),
        ("deflate", zlib.compress(b'{"readOnly": false}')[:-5]),
        ("br", b"no brotli"),
        ("zstd", b"no zstd"),
        ("compress", b"{}"),
        ("gzip, gzip", b"{}"),
        ("x" * 5000, b"{}"),
        ("gzip", gzip.compress(b" " * (70 << 10))),
        ("gzip", gzip.compress(b"{}") + b"more"),
    ],
    # A packed body has the time in it: as the name of a test it would be another one in each process.
    ids=[
        "no gzip",
        "cut gzip",
        "front of gzip",
        "no deflate",
        "cut deflate",
        "br",
        "zstd",
        "compress",
        "gzip twice",
        "a long name",
        "large",
        "more behind it",
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_that_is_not_as_it_is_called_is_refused(
    bookie: EmbeddedBookie,
    caplog: pytest.LogCaptureFixture,
    method: str,
    encoding: str,
    body: bytes,
    chunked: bool,
) -> None:
    assert bookie.http_port is not None
    connection = http.client.HTTPConnection("127.0.0.1", bookie.http_port, timeout=20)
    path = "/api/v1/bookie/state/readonly" if method == "PUT" else "/heartbeat"
    with caplog.at_level("WARNING"):
        connection.request(
            method,
            path,
            iter([body]) if chunked else body,
            {"Content-Encoding": encoding},
            encode_chunked=chunked,
        )
        answer = connection.getresponse()
        text = answer.read().decode()
    connection.close()
    assert answer.status == 400
    assert "Content-Encoding" in text
    assert len(text) < 300
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes), ("GZip", gzip.compress)],
)
def test_a_packed_body_is_read(
    bookie: EmbeddedBookie, encoding: str, packed: Callable[[bytes], bytes]
) -> None:
    assert bookie.http_port is not None
    for body in (b'{"readOnly": 1}', b""):
        connection = http.client.HTTPConnection("127.0.0.1", bookie.http_port, timeout=20)
        connection.request(
            "PUT", "/api/v1/bookie/state/readonly", packed(body), {"Content-Encoding": encoding}
        )
        answer = connection.getresponse()
        assert answer.status == 400
        assert "readOnly" in answer.read().decode()
        connection.close()


def test_a_scrape_says_its_format(bookie: EmbeddedBookie) -> None:
    assert bookie.http_port is not None
    client = http.client.HTTPConnection("127.0.0.1", bookie.http_port, timeout=5)
    try:
        client.request("GET", "/metrics")
        answer = client.getresponse()
        assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.read().startswith(b"# TYPE ")
    finally:
        client.close()


def test_read_only_refuses_adds_and_is_registered_until_it_is_lifted(bookie: EmbeddedBookie) -> None:
    with open_metadata_store(bookie.config.metadata.uri) as metadata, DemoClient(bookie.port) as client:
        assert client.add(1, [0]).done == [0]
        assert ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": true}') == {"readOnly": True}
        registered = metadata.registration.bookies()
        assert (registered.writable, registered.read_only) == ((), ("b",))
        assert ask_json(bookie, "GET", "/api/v1/bookie/state")["readOnly"] is True
        assert {code.name for code in client.add(1, [1]).refused.values()} == {"READ_ONLY"}
        assert client.read(1, [0]).done == [0]
        # Once more changes nothing.
        assert ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": true}') == {"readOnly": True}
        assert ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": false}') == {"readOnly": False}
        assert metadata.registration.bookies().writable == ("b",)
        assert client.add(1, [1]).done == [1]


def test_forced_read_only_is_not_lifted_over_http(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path, overrides={"forceReadOnlyBookie": "true"}) as forced:
        status, text = ask(forced, "PUT", READ_ONLY, b'{"readOnly": false}')
        assert (status, "forceReadOnlyBookie" in text) == (409, True)
        assert ask_json(forced, "GET", READ_ONLY) == {"readOnly": True}


def test_a_disk_that_cannot_be_asked_is_an_error_with_its_reason(
    bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Bookie) -> tuple[int, int]:
        raise StorageError("/ledgers: Input/output error")

    monkeypatch.setattr(Bookie, "disk_space", fails)
    assert ask(bookie, "GET", "/api/v1/bookie/info") == (500, "/ledgers: Input/output error")


def test_before_it_serves_and_while_it_leaves(
    bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookie.service, "ready", False)
    assert ask(bookie, "GET", "/api/v1/bookie/is_ready")[0] == 503
    assert ask_json(bookie, "GET", "/api/v1/bookie/state")["running"] is False
    monkeypatch.setattr(bookie.service, "bookie", None)
    assert ask(bookie, "GET", "/api/v1/bookie/info")[0] == 503
    assert ask(bookie, "GET", "/api/v1/bookie/gc") == (503, "Bookie is not fully started yet")
    assert ask(bookie, "PUT", "/api/v1/bookie/gc/suspend_compaction", b"no JSON")[0] == 503
    assert ask(bookie, "PUT", READ_ONLY, b'{"readOnly": true}')[0] == 409
    assert ask_json(bookie, "GET", "/api/v1/bkctl/snapshot") == {
        "bookie": "b",
        "ready": False,
        "shutting_down": False,
    }


def test_the_snapshot_has_every_stage_by_its_name(bookie: EmbeddedBookie) -> None:
    with DemoClient(bookie.port) as client:
        client.add(2, range(100))
        client.read(2, range(100))
        found = ask_json(bookie, "GET", "/api/v1/bkctl/snapshot")
    queues: dict[str, dict[str, Any]] = {queue["name"]: queue for queue in found["queues"]}
    assert list(queues) == [
        "write", "journal", "force_write", "callback", "read", "high_priority", "long_poll", "flush",
    ]  # fmt: skip
    assert all(queue["bound"] > 0 and queue["length"] >= 0 for queue in queues.values())
    assert queues["journal"]["done"] >= 100
    assert found["reads"]["done"] >= 100
    assert found["connections"] >= 1
    assert found["journals"][0]["mark"]["journal_id"] > 0
    assert found["storages"][0]["puts"] >= 100
    assert [cache["flushing"] for cache in found["storages"][0]["write_cache"]] == [False, False]
    assert (found["bookie"], found["failure"]) == ("b", None)


def test_the_snapshot_is_plain_values(bookie: EmbeddedBookie) -> None:
    assert bookie.service is not None
    with DemoClient(bookie.port) as client:
        ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": true}')
        client.add(2, range(3))  # refused: counted by code
        ask_json(bookie, "PUT", READ_ONLY, b'{"readOnly": false}')
    values = snapshot(bookie.service)
    assert json.loads(json.dumps(values, allow_nan=False))["adds"]["refused"]


def test_it_listens_on_loopback_only(bookie: EmbeddedBookie) -> None:
    assert bookie.config.http.host == "127.0.0.1"
    assert bookie.http_port is not None
    client = http.client.HTTPConnection("127.0.0.2", bookie.http_port, timeout=5)
    with pytest.raises(ConnectionRefusedError):
        client.request("GET", "/heartbeat")
    client.close()
