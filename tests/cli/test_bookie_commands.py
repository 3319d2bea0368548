"""``bkctl bookie init|format|status`` and the mistakes that ``start`` answers before it starts anything."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.rows import from_csv, from_ndjson, same_in_every_format

Run = Callable[..., Any]

PORT = ("-X", "bookiePort=4181")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command without a configuration uses ./bkctl-data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BKCTL_METADATA_URI", raising=False)
    return tmp_path


@contextmanager
def admin(answers: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """An HTTP server with fixed answers; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, b""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- init and format ----------------------------------------------------------------------------------------


def test_init_makes_a_bookie_once(run_cli: Run, here: Path) -> None:
    made = run_cli("bookie", "init", *PORT)
    assert (made.exit_code, made.stderr) == (0, "")
    row = json.loads(made.stdout)
    assert row["bookie"] == "127.0.0.1:4181"
    assert row["dirs"] == [f"{here}/bkctl-data/journal", f"{here}/bkctl-data/ledgers"]
    assert row["instance_id"]
    again = run_cli("bookie", "init", *PORT)
    assert (again.exit_code, again.stdout) == (4, "")
    assert "initialised already" in again.stderr


def test_format_shows_asks_and_does(run_cli: Run, here: Path) -> None:
    nothing = run_cli("bookie", "format", *PORT)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "none of the bookie's directories is there" in nothing.stderr
    run_cli("bookie", "init", *PORT)
    rows = same_in_every_format(run_cli, "bookie", "format", *PORT, "--dry-run")
    assert [(Path(row["dir"]).name, row["entries"]) for row in rows] == [("journal", 1), ("ledgers", 1)]
    asked = run_cli("bookie", "format", *PORT, "--delete-cookie")
    assert asked.exit_code == 4
    assert (
        "in 2 directories and the bookie's cookie in the metadata store for good; add --yes" in asked.stderr
    )
    assert (here / "bkctl-data/journal/current/VERSION").exists()
    done = run_cli("bookie", "format", *PORT, "--yes")
    assert done.exit_code == 0
    assert from_ndjson(done.stdout) == rows
    assert not (here / "bkctl-data/journal/current/VERSION").exists()
    assert run_cli("bookie", "init", *PORT).exit_code == 4
    assert run_cli("bookie", "format", *PORT, "--yes", "--delete-cookie").exit_code == 0
    assert run_cli("bookie", "init", *PORT).exit_code == 0


def test_format_refuses_while_the_bookie_runs(run_cli: Run, here: Path) -> None:
    directories = {key: str(here / "b" / key) for key in ("journalDirectories", "ledgerDirectories")}
    options = [word for key, value in directories.items() for word in ("-X", f"{key}={value}")]
    with EmbeddedBookie(here / "b", overrides=directories):
        # --dry-run only looks.
        shown = run_cli("bookie", "format", *options, "--dry-run")
        assert (shown.exit_code, "; while it is, nothing is removed" in shown.stderr) == (0, True)
        refused = run_cli("bookie", "format", *options, "--yes")
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert "in use by" in refused.stderr


# --- status -------------------------------------------------------------------------------------------------


def test_status_of_a_bookie_of_ours(run_cli: Run, here: Path) -> None:
    with EmbeddedBookie(here / "b") as bookie:
        url = f"http://127.0.0.1:{bookie.http_port}"
        found = run_cli("bookie", "status", "--url", url + "/", "-o", "json")
        (row,) = from_ndjson(run_cli("bookie", "status", "--url", url, "-o", "ndjson").stdout)
        table = run_cli("bookie", "status", "--url", url, "-o", "table")
        assert bookie.bookie_id in table.stdout
        # This process has the bookie in it, and not the name of one: a signal would go to somebody else.
        assert "pid                   -\n" in table.stdout
        assert (
            table.stderr
            == "bkctl: to stop it: send its process SIGTERM, where it runs; it flushes, then ends\n"
        )
        # Found by its registration, too.
        uri = bookie.config.metadata.uri
        directories = (
            "-X",
            f"journalDirectories={here}/b/journal",
            "-X",
            f"ledgerDirectories={here}/b/ledgers",
        )
        chosen = ("-X", "bookiePort=0", "-X", "allowEphemeralPorts=true")
        by_registration = run_cli("bookie", "status", "--metadata", uri, *directories, *chosen, "-o", "json")
        told = run_cli("bookie", "status", "--metadata", uri, *directories, *chosen, "-o", "table").stderr
        quiet = run_cli(
            "--quiet", "bookie", "status", "--metadata", uri, *directories, *chosen, "-o", "table"
        )
    assert found.exit_code == 0
    assert json.loads(found.stdout)["pid"] is None
    assert json.loads(by_registration.stdout)["pid"] == os.getpid()
    assert (by_registration.stderr, quiet.stderr) == ("", "")
    assert told.startswith(f"bkctl: to stop it: kill {os.getpid()} (SIGTERM; it flushes, then ends)")
    assert json.loads(found.stdout).keys() == row.keys()
    assert (row["url"], row["bookie"]) == (url, bookie.bookie_id)
    assert (row["running"], row["read_only"], row["shutting_down"]) == (True, False, False)
    assert 0 < row["free_bytes"] < row["total_bytes"]
    assert json.loads(by_registration.stdout)["bookie"] == bookie.bookie_id
    gone = run_cli("bookie", "status", "--url", url)
    assert (gone.exit_code, gone.stdout) == (5, "")
    assert url in gone.stderr


def test_status_of_a_java_bookie(run_cli: Run) -> None:
    """It has no snapshot, and may have no info."""
    state = {"running": True, "readOnly": True, "shuttingDown": False, "availableForHighPriorityWrites": True}
    answers = {
        "/api/v1/bookie/state": (200, json.dumps(state).encode()),
        "/api/v1/bookie/info": (500, b"no"),
    }
    with admin(answers) as url:
        found = run_cli("bookie", "status", "--url", url, "-o", "json")
    row = json.loads(found.stdout)
    assert row.pop("url") == url
    assert row == {
        "bookie": None,
        "running": True,
        "read_only": True,
        "shutting_down": False,
        "high_priority_writes": True,
        "free_bytes": None,
        "total_bytes": None,
        "pid": None,
    }


def test_a_bookie_that_is_not_asked_is_named_with_its_process(run_cli: Run, here: Path) -> None:
    """One without an HTTP admin runs, and whoever wants to stop it needs its process."""
    with EmbeddedBookie(here / "b", overrides={"httpServerEnabled": "false"}) as bookie:
        places = (f"journalDirectories={here}/b/journal", f"ledgerDirectories={here}/b/ledgers")
        options = [word for each in places for word in ("-X", each)]
        chosen = (
            "--metadata",
            bookie.config.metadata.uri,
            "-X",
            "bookiePort=0",
            "-X",
            "allowEphemeralPorts=true",
        )
        done = run_cli("bookie", "status", *options, *chosen)
    assert (done.exit_code, done.stdout) == (5, "")
    assert "without an HTTP admin (httpServerEnabled); the directories are in use by " in done.stderr
    assert f"(pid {os.getpid()}): kill {os.getpid()} (SIGTERM;" in done.stderr


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"hello", b'{"running"', b"\xff", b"[" * 5000])
def test_status_of_something_else(run_cli: Run, body: bytes) -> None:
    with admin({"/api/v1/bookie/state": (200, body)}) as url:
        found = run_cli("bookie", "status", "--url", url)
    assert (found.exit_code, found.stdout) == (5, "")
    assert "HTTP admin" in found.stderr


def test_status_without_anything_to_ask(run_cli: Run, here: Path) -> None:
    nothing = run_cli("bookie", "status")
    assert nothing.exit_code == 5
    assert "Give --url" in nothing.stderr
    run_cli("bookie", "init", *PORT)
    stopped = run_cli("bookie", "status", *PORT)
    assert stopped.exit_code == 5
    assert "Start the bookie" in stopped.stderr
    assert re.search(r"no bookie is registered as \S+:\d+, which is its id", stopped.stderr)
    assert run_cli("bookie", "status", "--url", "host:8080").exit_code == 2
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert (
            run_cli("bookie", "status", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}").exit_code == 5
        )


# --- what is wrong before anything is started ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("init", "--conf", "none.conf"), 6, "none.conf: no such file"),
        (("init", "-X", "bookiePort"), 2, "-X bookiePort: expected KEY=VALUE"),
        (("init", "-X", "bookiePort=many"), 2, "bookiePort: expected an int"),
        (("init", "-X", "bookiePrt=1"), 2, "-X bookiePrt: 'bookiePrt' is not a known key; did you mean b"),
        (
            ("start", "-X", "bookiePrt=1"),
            2,
            "-X bookiePrt: 'bookiePrt' is not a known key; did you mean book",
        ),
        (
            ("status", "-X", "bookiePrt=1"),
            2,
            "-X bookiePrt: 'bookiePrt' is not a known key; did you mean book",
        ),
        (("init", "-X", "ledgerStorageClass=com.example.OtherStorage"), 2, "expected one of org.apache"),
        (("init", "--metadata", "http://x"), 2, "unknown backend 'http'"),
        (("init", "-X", "bookiePort=0", "-X", "allowEphemeralPorts=true"), 4, "bookiePort=0"),
        (("start", "--log-format", "xml"), 2, "expected text or json"),
        (("start", "--memory", "much"), 2, "not a size"),
    ],
)
def test_mistakes(run_cli: Run, here: Path, words: tuple[str, ...], code: int, said: str) -> None:
    result = run_cli("bookie", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert not (here / "bkctl-data/journal").exists()


def test_what_is_to_be_said_of_the_configuration_is_on_stderr(run_cli: Run, here: Path) -> None:
    (here / "bk.conf").write_text(
        f"bookiePrt=4181\nbookiePort=4181\nallowLoopback=true\nadvertisedAddress=127.0.0.1\n"
        f"journalDirectories={here}/j\nledgerDirectories={here}/l\n"
        f"metadataServiceUri=embedded://{here}/metadata.db\n"
    )
    made = run_cli("bookie", "init", "--conf", "bk.conf")
    assert made.exit_code == 0
    assert made.stderr == "bkctl: bk.conf:1: 'bookiePrt' is not a known key; did you mean bookiePort?\n"
    assert json.loads(made.stdout)["dirs"] == [f"{here}/j", f"{here}/l"]


@pytest.mark.parametrize("verb", ["start", "init", "format", "status"])
def test_schema_and_help(run_cli: Run, verb: str) -> None:
    rows = from_csv(run_cli("bookie", verb, "--schema", "-o", "csv").stdout)
    assert all(row["meaning"] for row in rows)
    help_text = run_cli("bookie", verb, "--help").stdout
    assert ("[offline]" in help_text) is (verb == "format")
    assert "Examples:" in help_text


def test_the_ledgers_in_limbo_of_a_start_are_said_to_be_its_own(run_cli: Any) -> None:
    """A start that put none into limbo reports 0 although ledgers are in it since an earlier one."""
    rows = json.loads(run_cli("bookie", "start", "--schema", "-o", "json").stdout)
    (meaning,) = (row["meaning"] for row in rows if row["key"] == "limbo_ledgers")
    assert "that this start put in limbo" in meaning
    assert "those that were in it before are not counted" in meaning


@pytest.mark.parametrize("words", [("--dry-run",), ("--yes",)])
def test_a_rebuild_that_is_refused_makes_no_directory(
    run_cli: Run, here: Path, words: tuple[str, ...]
) -> None:
    """Later commands would take it for a bookie that is there."""
    done = run_cli("bookie", "rebuild", *words)
    assert done.exit_code == 6
    assert "no cluster" in done.stderr
    assert list(here.iterdir()) == []


def test_no_store_is_made_for_the_cookie_that_is_to_go(run_cli: Run, here: Path) -> None:
    """Without one the cookie is in another store, and the directories stay as they are."""
    (here / "l/current").mkdir(parents=True)
    (here / "l/current/0.log").write_bytes(b"entries")
    options = ("-X", f"journalDirectories={here}/l", "-X", f"ledgerDirectories={here}/l")
    store = ("--metadata", f"embedded://{here}/wrong/metadata.db")
    done = run_cli("bookie", "format", *options, *store, "--delete-cookie", "--yes")
    assert done.exit_code == 6
    assert (here / "l/current/0.log").read_bytes() == b"entries"
    assert not (here / "wrong").exists()
