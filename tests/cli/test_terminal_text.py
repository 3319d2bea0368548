"""Other people's text reaches a terminal harmless: on stderr, in tables and in CSV."""

from __future__ import annotations

import http.server
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bkctl.commands.bookies.drain import _Progress
from bkctl.commands.frame.terminal_text import EscapingStream, escaped, escaping, unescaped
from bkctl.replication.bookie_drain import DrainPhase, DrainProgress

#: Moves the cursor, sets the window's title, forges a line, and turns the direction of writing.
HOSTILE = "a\x1b[2J\x1b]0;owned\x07\x9b31m\u202eb"
HARMFUL = ("\x1b", "\x07", "\x9b", "\u202e")


def bkctl(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bkctl", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )


def harmless(done: subprocess.CompletedProcess[str]) -> None:
    for text in (done.stdout, done.stderr):
        assert not [mark for mark in HARMFUL if mark in text], text


def test_every_character_that_steers_a_terminal_is_visible() -> None:
    shown = escaped(
        "".join(map(chr, (*range(32), *range(127, 160), 0x200E, 0x202A, 0x202E, 0x2066, 0x2069, 0x2028)))
    )
    assert shown.isascii()
    assert shown.isprintable()
    assert escaped("Käse 日本 µs €") == "Käse 日本 µs €"


def test_a_stream_keeps_lines_and_tabs() -> None:
    inner = io.StringIO()
    stream = escaping(inner)
    assert stream.write(f"{HOSTILE}\n\tnext\n") == len(HOSTILE) + 7
    stream.writelines(["x\x1b", "y\n"])
    assert inner.getvalue() == "a\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202eb\n\tnext\nx\\x1by\n"
    assert not stream.isatty()
    assert escaping(stream) is stream
    assert isinstance(stream, EscapingStream)
    assert unescaped(stream) is inner
    assert unescaped(inner) is inner


@pytest.mark.parametrize("form", ["table", "csv", "ndjson"])
@pytest.mark.parametrize("command", [("entrylog", "verify"), ("doctor",), ("inspect",)])
def test_names_of_files(tmp_path: Path, command: tuple[str, ...], form: str) -> None:
    folder = tmp_path / HOSTILE / "current"
    folder.mkdir(parents=True)
    (folder / "0.log").write_bytes(b"BKLO" + bytes(2000))
    done = bkctl(
        *command, str(folder.parent if command[0] == "doctor" else folder / "0.log"), "-o", form, cwd=tmp_path
    )
    harmless(done)
    assert "owned" in done.stdout + done.stderr


def test_a_message_is_one_line_whatever_is_in_it(tmp_path: Path) -> None:
    done = bkctl("entrylog", "verify", str(tmp_path / "a\nbkctl: all is well"), cwd=tmp_path)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1


class Hostile(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = (HOSTILE * 5 + "\nbkctl: forged").encode()
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hostile_bookie() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("words", [("bookie", "status"), ("bookie", "gc"), ("gc", "explain")])
def test_answers_of_a_bookie(tmp_path: Path, hostile_bookie: str, words: tuple[str, ...]) -> None:
    done = bkctl(*words, "--url", hostile_bookie, cwd=tmp_path)
    assert done.returncode != 0
    harmless(done)
    assert not [line for line in done.stderr.splitlines() if line.startswith("bkctl: forged")]


@pytest.mark.parametrize(("quiet", "drawn"), [(False, True), (True, False)])
def test_the_progress_of_a_drain_is_drawn_on_one_line(
    monkeypatch: pytest.MonkeyPatch, quiet: bool, drawn: bool
) -> None:
    """Its own control sequences were shown as text, with one line behind the other."""
    below = io.StringIO()
    monkeypatch.setattr(below, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", EscapingStream(below, quiet=quiet))
    plan = SimpleNamespace(ledgers=4, bytes=2048)
    with _Progress(plan) as shown:  # type: ignore[arg-type]
        shown._line_s = 0.0
        shown.tell(DrainProgress(DrainPhase.MOVING, 2, 9, 1024, None, 2.0, 512.0, 2.0))
    line = "\r\x1b[Kmoving: 2 of 4 ledgers, 1.0 KiB of about 2.0 KiB, 512 B/s, 2 s left"
    assert below.getvalue() == (f"{line}\r\x1b[K" if drawn else "")
