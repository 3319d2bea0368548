"""bkctl as `pip install bkctl` leaves it: what needs no extra works, and what needs one names it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.bookie_process import BookieProcess
from tests.support.plain_install import PlainInstall, absent_modules

DEMO = Path(__file__).resolve().parents[1] / "data" / "demo"
BOOKIE = DEMO / "bookie1"
Run = Callable[..., Any]


@pytest.fixture
def plain(tmp_path: Path) -> PlainInstall:
    return PlainInstall(tmp_path / "site")


@pytest.fixture
def java_bookie() -> Iterator[str]:
    """The URL of something that has metrics, and nothing else of a bookie."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/metrics"
            body = b'bookkeeper_server_ADD_ENTRY_count{success="true"} 1\n' if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_plain_installation_lacks_the_extras(plain: PlainInstall) -> None:
    for module in ("kazoo", "textual", "prometheus_client", "pyarrow", "duckdb", "pyspark", "pytest"):
        assert module in absent_modules()
        assert f"No module named '{module}'" in plain.python("-c", f"import {module}").stderr
    done = plain.python(
        "-c", "import typer, rich, rocksdict, crc32c, numpy, google.protobuf, aiohttp, uvloop"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_bookie_and_its_ledgers_need_no_extra(plain: PlainInstall, tmp_path: Path) -> None:
    directory = tmp_path / "bookie"
    directory.mkdir()
    keys = {"httpServerEnabled": "true", "httpServerPort": "0"}
    inside = ("/usr/bin/env", f"PYTHONPATH={plain.python_path}")
    with BookieProcess(directory, keys, inside=inside) as bookie:
        row = bookie.start()
        url = f"http://127.0.0.1:{row['http_port']}"
        uri = ("--metadata", f"embedded://{directory}/bkctl-data/metadata.db")
        written = plain.bkctl("ledger", "write", "-e", "1", "-o", "json", *uri, stdin="1\n2\n")
        assert written.returncode == 0, written.stderr
        ledger = str(json.loads(written.stdout)["ledger"])
        read = plain.bkctl("ledger", "read", ledger, "-o", "ndjson", *uri)
        assert len(read.stdout.splitlines()) == 2, read.stderr
        for words in (
            ("bookie", "status", "--url", url),
            ("top", "--url", url, "--once", "-o", "json", "--interval", "100ms"),
            ("bench", "add", f"127.0.0.1:{row['port']}", "--seconds", "0.2"),
            ("doctor", "--url", url),
        ):
            done = plain.bkctl(*words)
            assert done.returncode == 0, (words, done.stderr)
        assert bookie.stop() == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("version", "-o", "json"),
        ("entrylog", "scan", str(BOOKIE), "-o", "ndjson"),
        ("journal", "verify", str(BOOKIE), "-o", "ndjson"),
        ("index", "check", str(BOOKIE), "-o", "json"),
        ("inspect", str(BOOKIE), "-o", "json"),
        ("gc", "plan", str(BOOKIE), "--metadata", str(DEMO / "zk.json"), "-o", "json"),
        ("doctor", str(BOOKIE), "--deep", "-o", "ndjson"),
        ("pipeline", "list", "-o", "ndjson"),
    ],
    ids=lambda words: " ".join(words[:2]).replace(str(BOOKIE), "bookie"),
)
def test_commands_over_files_do_the_same_without_the_extras(
    plain: PlainInstall, run_cli: Run, words: tuple[str, ...]
) -> None:
    done, full = plain.bkctl(*words), run_cli(*words)
    assert (done.returncode, done.stdout) == (full.exit_code, full.stdout), done.stderr
    assert done.stdout


def test_a_rebuild_and_its_workers_need_no_extra(plain: PlainInstall, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(BOOKIE, copy)
    done = plain.bkctl("index", "rebuild", str(copy), "--yes", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert plain.bkctl("index", "check", str(copy)).returncode == 0


ZOOKEEPER = "zk://127.0.0.1:1/ledgers"
KAZOO = 'metadata in ZooKeeper needs the package kazoo: install "bkctl[zookeeper]"'
ARROW = 'bkctl pipeline run needs the packages pyarrow and duckdb: install "bkctl[pipeline]"'
SCREEN = 'the screen of bkctl top needs the packages textual and prometheus-client: install "bkctl[top]"'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("top", "--url", "http://127.0.0.1:1"), SCREEN),
        (("top", "--once", "--metadata", ZOOKEEPER), KAZOO),
        (("ledger", "list", "--metadata", ZOOKEEPER), KAZOO),
        (("bookie", "start", "-X", f"metadataServiceUri={ZOOKEEPER}"), KAZOO),
        (("doctor", str(BOOKIE), "--metadata", ZOOKEEPER), KAZOO),
        (("doctor", str(BOOKIE), "--only", "metadata", "--metadata", ZOOKEEPER), KAZOO),
        (("pipeline", "run", "stats", str(BOOKIE), "--out", "out"), ARROW),
    ],
    ids=["top", "top --once", "ledger list", "bookie start", "doctor", "doctor --only", "pipeline run"],
)
def test_what_needs_an_extra_names_it(
    plain: PlainInstall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = plain.bkctl(*words)
    assert (done.returncode, done.stdout) == (2, "")
    # A bookie's log is JSON lines.
    assert message in done.stderr.replace('\\"', '"')
    assert "bug" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_java_bookie_needs_the_parser_of_its_metrics(plain: PlainInstall, java_bookie: str) -> None:
    done = plain.bkctl("top", "--url", java_bookie, "--once", "-o", "json", "--interval", "100ms")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'needs the package prometheus-client: install "bkctl[top]"' in done.stderr


def test_a_session_of_spark_names_its_extra(plain: PlainInstall) -> None:
    done = plain.python("-c", "import bkctl.spark; bkctl.spark.session()")
    assert 'needs the packages pyspark and pyarrow: install "bkctl[spark]"' in done.stderr.splitlines()[-1]
