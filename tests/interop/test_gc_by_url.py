"""``bkctl bookie gc|compact`` and ``bkctl gc .. --url`` against a live bookie, Java's and ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.gc import over_http
from bkctl.client.sync import BookKeeperSync
from tests.support.grades import one_kept
from tests.support.java_cluster import OURS, THEIRS, BookieProcess, free_port, new_cluster
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

Cli = Callable[..., Any]
PAYLOAD = b"x" * 2000
ENTRIES = 150
LEDGERS = 6


class Live:
    """A bookie that collects only when it is asked to."""

    def __init__(self, bookie: BookieProcess, client: BookKeeperSync, kind: str, url: str) -> None:
        self.bookie = bookie
        self.client = client
        self.kind = kind
        self.url = url
        self.ledgers: list[int] = []

    def write(self) -> None:
        """Interleaved ledgers in several logs, with nothing left in caches, at which no collection looks."""
        writers = [self.client.create(1, 1, 1) for _ in range(LEDGERS)]
        for _ in range(ENTRIES):
            for writer in writers:
                writer.append(PAYLOAD)
        for writer in writers:
            writer.close()
        self.ledgers = [writer.ledger for writer in writers]
        until(lambda: self.logs_bytes() > LEDGERS * ENTRIES * len(PAYLOAD), "the bookie does not flush")

    def delete(self, ledgers: list[int]) -> None:
        for ledger in ledgers:
            self.client.delete(ledger)
            self.ledgers.remove(ledger)

    def check(self) -> None:
        for ledger in self.ledgers:
            reader = self.client.open(ledger)
            assert reader is not None
            assert [entry.payload for entry in reader.read(0, ENTRIES - 1)] == [PAYLOAD] * ENTRIES

    def logs_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.bookie.folder.rglob("current/*.log"))


@pytest.fixture(params=one_kept("as over one of Java's", THEIRS, OURS))
def live(
    request: pytest.FixtureRequest,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
) -> Iterator[Live]:
    port = free_port()
    uri = new_cluster(zookeeper_server)
    conf = {
        "httpServerEnabled": "true",
        "httpServerPort": str(port),
        "httpServerHost": "127.0.0.1",
        "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
        "logSizeLimit": str(256 << 10),
        "flushInterval": "200",
        "gcWaitTime": "3600000",
        "minorCompactionThreshold": "0.2",
        "majorCompactionThreshold": "0.9",
        "compactionRateByEntries": "1000000",
    }
    with BookieProcess(tmp_path / "bookie", uri, conf=conf) as bookie:
        bookie.start(request.param)
        with BookKeeperSync(uri) as client:
            yield Live(bookie, client, request.param, f"http://127.0.0.1:{port}")


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_collect_compact_suspend_and_explain_by_url(run_cli: Cli, live: Live) -> None:
    live.write()
    before = live.logs_bytes()
    live.delete(live.ledgers[::2])
    # A collection alone deletes ledgers, and logs only where nothing lives.
    done = run_cli("bookie", "gc", "--url", live.url, "-o", "ndjson")
    assert done.exit_code == 0, done.stderr
    (row,) = rows_of(done.stdout)
    assert not row["collecting"]
    assert (row["dir"] is None) == (live.kind == THEIRS)
    ended_ms = row["last_major_ms"]
    live.check()

    # Suspended: what names no kind does not compact, and the suspension is told.
    assert run_cli("bookie", "compact", "--suspend", "--url", live.url).exit_code == 0
    assert over_http.suspended(live.url) == (True, True)
    explained = run_cli("gc", "explain", "--url", live.url, "-o", "ndjson")
    assert explained.exit_code == 0, explained.stderr
    rows = rows_of(explained.stdout)
    if live.kind == THEIRS:
        (only,) = rows
        assert only["log_id"] is None
        assert "major compaction suspended" in only["why"]
        logs = len(list(live.bookie.folder.rglob("ledgers/current/*.log")))
        assert f"; {logs} entry logs" in only["why"]
    else:
        assert {row["log_id"] for row in rows} == {
            int(path.stem, 16) for path in live.bookie.folder.rglob("ledgers/current/*.log")
        }
        assert any("major is suspended" in row["why"] for row in rows)
    assert run_cli("bookie", "compact", "--resume", "--url", live.url).exit_code == 0
    assert over_http.suspended(live.url) == (False, False)

    # Compaction gives the dead half back, and nothing that lives is lost.
    done = run_cli("bookie", "compact", "--major", "--url", live.url, "-o", "ndjson")
    assert done.exit_code == 0, done.stderr
    # A Java bookie without statistics does not count them.
    assert rows_of(done.stdout)[0]["last_major_ms"] > ended_ms
    assert live.logs_bytes() < 0.75 * before
    live.check()


@pytest.mark.thorough("the same requests; tests/cli/test_gc_online_commands.py has plans")
def test_plan_and_run_by_url(run_cli: Cli, live: Live) -> None:
    live.write()
    planned = run_cli("gc", "plan", "--url", live.url)
    if live.kind == THEIRS:
        assert planned.exit_code == 4
        assert "does not report what its logs hold" in planned.stderr
    else:
        assert [row["copied_bytes"] for row in rows_of(planned.stdout)] == [0] * 9
    before = live.logs_bytes()
    live.delete(live.ledgers[1:])
    done = run_cli("gc", "run", "--url", live.url, "--major", "--yes", "-o", "ndjson")
    assert done.exit_code == 0, done.stderr
    rows = rows_of(done.stdout)
    assert all(row["done"] for row in rows)
    if live.kind == THEIRS:
        (only,) = rows
        assert only["action"] == "collect"
    else:
        assert {row["action"] for row in rows} <= {"delete_ledgers", "remove", "compact"}
        assert rows[0]["ledgers"] == LEDGERS - 1
    assert live.logs_bytes() < 0.6 * before
    live.check()
    # Java's deletions are nothing to be confirmed.
    confirmed = run_cli("bookie", "gc", "--confirm-deletions", "--url", live.url)
    assert confirmed.exit_code == (4 if live.kind == THEIRS else 0)
