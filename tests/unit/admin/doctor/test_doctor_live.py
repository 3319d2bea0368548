"""The doctor's questions to a live bookie: one of ours, one that answers as Java's does, one in trouble."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bkctl.clock import SystemClock
from bkctl.codec.bookie_service_info import BookieServiceInfo, Endpoint, encode_bookie_service_info
from bkctl.codec.cookie import Cookie, encode_cookie
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.rows import from_ndjson

Run = Callable[..., Any]

_STATE = {"running": True, "readOnly": False, "shuttingDown": False, "availableForHighPriorityWrites": True}
_INFO = {"freeSpace": 80 << 30, "totalSpace": 100 << 30}
_SUSPENDED = {"isMajorGcSuspended": "false", "isMinorGcSuspended": "false"}
_SOUND = {
    "bookie": "b",
    "failure": None,
    "queues": [{"name": "journal", "unit": "entries", "length": 10, "bound": 1000, "rejected": 0}],
    "storages": [{"directory": "/l/current", "flush_failures": 0}],
    "checkpoint": {"failed": 0},
    "gc": [{"directory": "/l/current", "held_deletions": 0, "failed_passes": 0, "set_aside_logs": 0}],
    "disks": [{"directory": "/l/current", "total_bytes": 100, "free_bytes": 80, "full": False}],
}


class Answers:
    """What the paths of an HTTP admin say, a number as an error's status; a path without an answer is 404."""

    def __init__(self) -> None:
        self.paths: dict[str, object] = {
            "/api/v1/bookie/state": _STATE,
            "/api/v1/bookie/info": _INFO,
            "/api/v1/bookie/gc/suspend_compaction": _SUSPENDED,
        }
        self.url = ""


@contextmanager
def serving(answers: Answers) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.paths.get(self.path)
            content = json.dumps(found).encode()
            self.send_response(404 if found is None else found if isinstance(found, int) else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing to stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        answers.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def answers() -> Iterator[Answers]:
    found = Answers()
    with serving(found):
        yield found


def examined(run_cli: Run, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    result = run_cli("doctor", *words, "-o", "ndjson", env={"BKCTL_METADATA_URI": None})
    return result.exit_code, from_ndjson(result.stdout), result.stderr


def test_a_java_bookie_that_is_well(run_cli: Run, answers: Answers) -> None:
    code, rows, said = examined(run_cli, "--url", answers.url)
    assert (code, rows) == (0, [])
    assert said == "bkctl: 6 checks, nothing found\n"


def test_a_java_bookie_in_trouble(run_cli: Run, answers: Answers) -> None:
    answers.paths["/api/v1/bookie/state"] = {**_STATE, "readOnly": True, "running": False}
    answers.paths["/api/v1/bookie/info"] = {"freeSpace": 2 << 30, "totalSpace": 100 << 30}
    answers.paths["/api/v1/bookie/gc/suspend_compaction"] = {**_SUSPENDED, "isMajorGcSuspended": "true"}
    code, rows, _ = examined(run_cli, "--url", answers.url)
    assert code == 1
    assert [(row["check"], row["severity"], row["next"]) for row in rows] == [
        ("state", "error", f"bkctl bookie status --url {answers.url}"),
        ("read_only", "warning", f"bkctl bookie status --url {answers.url}"),
        ("gc", "warning", f"bkctl bookie compact --resume --url {answers.url}"),
        ("disks", "error", f"bkctl bookie gc --url {answers.url}"),
    ]


@pytest.mark.parametrize(
    ("changed", "check", "severity", "found", "following"),
    [
        ({"failure": "sync failed"}, "state", "error", "the bookie has failed: sync failed", "bookie status"),
        (
            {"queues": [{"name": "journal", "unit": "entries", "length": 900, "bound": 1000, "rejected": 0}]},
            "queues",
            "warning",
            "the journal queue holds 900 of 1000 entries",
            "top",
        ),
        (
            {"queues": [{"name": "write", "unit": "entries", "length": 0, "bound": 1000, "rejected": 7}]},
            "queues",
            "warning",
            "the write stage has rejected 7",
            "top",
        ),
        (
            {"storages": [{"directory": "/l/current", "flush_failures": 3}]},
            "flushes",
            "error",
            "3 flushes failed",
            "doctor",
        ),
        ({"checkpoint": {"failed": 2}}, "flushes", "error", "2 checkpoints failed", "doctor"),
        (
            {"gc": [{"directory": "/l/current", "held_deletions": 40}]},
            "gc",
            "warning",
            "the deletion of 40 ledgers is held back",
            "bookie gc",
        ),
        (
            {"gc": [{"directory": "/l/current", "failed_passes": 4}]},
            "gc",
            "warning",
            "4 passes of the collection ended with an error",
            "bookie gc",
        ),
        (
            {"disks": [{"directory": "/l/current", "total_bytes": 100, "free_bytes": 1, "full": True}]},
            "disks",
            "error",
            "99.0% of the disk are in use",
            "bookie gc",
        ),
        (
            {"disks": [{"directory": "/l/current", "total_bytes": 100, "free_bytes": 8, "full": False}]},
            "disks",
            "warning",
            "92.0% of the disk are in use",
            "bookie gc",
        ),
    ],
)
def test_a_bookie_of_ours_in_trouble(
    run_cli: Run,
    answers: Answers,
    changed: dict[str, object],
    check: str,
    severity: str,
    found: str,
    following: str,
) -> None:
    answers.paths["/api/v1/bkctl/snapshot"] = _SOUND
    assert examined(run_cli, "--url", answers.url)[:2] == (0, [])
    answers.paths["/api/v1/bkctl/snapshot"] = {**_SOUND, **changed}
    code, (row,), _ = examined(run_cli, "--url", answers.url)
    assert (code, row["bookie"], row["check"], row["severity"]) == (1, "b", check, severity)
    assert found in row["found"]
    assert row["next"].startswith(f"bkctl {following} --url {answers.url}")


@pytest.mark.parametrize("path", ["bkctl/snapshot", "bkctl/gc", "bookie/gc/suspend_compaction"])
def test_a_page_of_ours_that_is_refused_is_no_good_news(run_cli: Run, answers: Answers, path: str) -> None:
    """With an error in place of its queues a bookie is not taken for a Java bookie that has none to tell."""
    answers.paths["/api/v1/bkctl/snapshot"] = _SOUND
    answers.paths[f"/api/v1/{path}"] = 500
    code, (row,), _ = examined(run_cli, "--url", answers.url)
    assert (code, row["check"], row["severity"]) == (1, "state", "warning")
    assert f"/api/v1/{path}: HTTP status 500" in row["found"]


def test_a_java_bookie_in_the_metadata(run_cli: Run, answers: Answers, tmp_path: Path) -> None:
    """It does not tell its id; it is known by the address that it has registered."""
    uri = f"embedded://{tmp_path}/m.db"
    port = int(answers.url.rpartition(":")[2])
    endpoints = (
        Endpoint("bookie", 3181, "127.0.0.1", "bookie-rpc"),
        Endpoint("httpserver", port, "0.0.0.0", "http"),
    )
    with open_metadata_store(uri) as store:
        store.layout.initialise_cluster()
        code, rows, _ = examined(run_cli, "--url", answers.url, "--metadata", uri)
        assert (code, [row["check"] for row in rows]) == (1, ["registration"])
        assert f"has registered the HTTP address {answers.url}" in rows[0]["found"]
        info = encode_bookie_service_info(BookieServiceInfo(endpoints))
        store.registration.register("theirs", RegistrationMode.READ_ONLY, info)
        code, rows, _ = examined(run_cli, "--url", answers.url, "--metadata", uri)
        assert [(row["check"], row["severity"]) for row in rows] == [
            ("registration", "warning"),
            ("registration", "error"),
        ]
        assert "registered as ro, while the bookie says that it is writable" in rows[0]["found"]
        assert "has no cookie of bookie theirs" in rows[1]["found"]
        store.cookies.create_cookie("theirs", encode_cookie(Cookie(5, "theirs", "/j", "1\t/l")))
        store.registration.register("theirs", RegistrationMode.WRITABLE, info)
        with open_metadata_store(uri) as another:
            # Whoever registered that has nothing to do with this bookie.
            another.registration.register("damaged", RegistrationMode.WRITABLE, b"\xff\xff\xff")
            code, rows, _ = examined(run_cli, "--url", answers.url, "--metadata", uri)
            assert (code, rows) == (0, [])
            store.registration.unregister()
            code, rows, _ = examined(run_cli, "--url", answers.url, "--metadata", uri)
            assert [(row["check"], row["severity"]) for row in rows] == [("registration", "error")]
            assert "registration of bookie damaged" in rows[0]["found"], "it may be the one"
        store.registration.register("theirs", RegistrationMode.WRITABLE, info)
        for url in (answers.url, answers.url.replace("127.0.0.1", "localhost")):
            code, rows, _ = examined(run_cli, "--url", url, "--metadata", uri)
            assert (code, rows) == (0, [])


def test_collections_that_do_not_end_well(run_cli: Run, answers: Answers) -> None:
    hour_ms = 3_600_000
    now_ms = SystemClock().time_ms()
    aside = [{"log_id": 28, "reason": "ledgers map at offset 9"}]
    answers.paths["/api/v1/bkctl/snapshot"] = _SOUND
    answers.paths["/api/v1/bkctl/gc"] = [
        {"directory": "/a", "set_aside": aside, "last_pass": {"started_ms": 1, "ended_ms": 2}},
        {"directory": "/b", "last_pass": {"started_ms": 1, "ended_ms": 2, "failure": "no room"}},
        {
            "directory": "/c",
            "phase": "listing",
            "last_pass": {"started_ms": now_ms - 7 * hour_ms, "ended_ms": None},
        },
        {"directory": "/d", "last_pass": {"started_ms": now_ms - hour_ms, "ended_ms": None}},
    ]
    code, rows, _ = examined(run_cli, "--url", answers.url)
    assert (code, [row["dir"] for row in rows]) == (1, ["/a", "/b", "/c"])
    assert (rows[0]["log_id"], rows[0]["next"]) == (28, "bkctl entrylog verify /a/1c.log")
    assert rows[1]["found"] == "the last collection was stopped: no room"
    assert rows[2]["found"] == "a collection has been listing for 7 hours"


def test_a_running_bookie_of_ours(run_cli: Run, tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/metadata.db"
    with EmbeddedBookie(tmp_path / "b", metadata_uri=uri, overrides={"bookieId": "b"}) as bookie:
        url = f"http://127.0.0.1:{bookie.http_port}"
        only = ("--skip", "disks")  # the machine's disk is not what is looked at
        code, rows, said = examined(run_cli, "--url", url, "--metadata", uri, *only)
        assert (code, rows) == (0, []), rows
        assert said == "bkctl: 6 checks, nothing found\n"
        code, rows, _ = examined(run_cli, tmp_path / "b", "--metadata", uri, *only, "--notes")
        assert code == 0, rows
        assert {row["check"] for row in rows if "in use by" in row["found"]} <= {"holders"}
        with open_metadata_store(uri) as store:
            stored = store.cookies.read_cookie("b")
            assert stored is not None
            store.cookies.delete_cookie("b", stored.version)
        code, rows, _ = examined(run_cli, "--url", url, "--metadata", uri, *only)
        assert (code, [row["check"] for row in rows]) == (1, ["registration"])
        assert "has no cookie of bookie b: it will not start again" in rows[0]["found"]
        empty = f"embedded://{tmp_path}/other.db"
        code, rows, _ = examined(run_cli, "--url", url, "--metadata", empty, *only)
        assert (code, [row["found"] for row in rows]) == (1, [f"{empty}: there is no cluster"])
