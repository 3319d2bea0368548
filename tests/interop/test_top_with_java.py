"""``bkctl top`` on a Java bookie beside one of ours, under load, found through ZooKeeper."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.java_cluster import OURS, THEIRS, BookieProcess, free_port, new_cluster
from tests.support.java_http import http_conf
from tests.support.slow_bookie import Load
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server

__all__ = ["zookeeper_server"]

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def bookies(
    zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[BookieProcess, int]]]:
    """One of each kind in a cluster, with the ports of their HTTP."""
    folder = tmp_path_factory.mktemp("top-java")
    uri = new_cluster(zookeeper_server)
    ports = {OURS: free_port(), THEIRS: free_port()}
    with (
        BookieProcess(folder / OURS, uri, conf=http_conf(ports[OURS])) as ours,
        # It listens everywhere and registers that.
        BookieProcess(
            folder / THEIRS, uri, conf=http_conf(ports[THEIRS]) | {"httpServerHost": "0.0.0.0"}
        ) as theirs,
    ):
        ours.start(OURS)
        theirs.start(THEIRS)
        yield {OURS: (ours, ports[OURS]), THEIRS: (theirs, ports[THEIRS])}
        theirs.stop()
        ours.stop()


def top(*words: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "bkctl", "top", "--once", "-o", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["bookies"]
    return found


def test_both_kinds_of_a_cluster_under_load(bookies: dict[str, tuple[BookieProcess, int]]) -> None:
    ours, theirs = bookies[OURS][0], bookies[THEIRS][0]
    words = ("--seconds", "6", "--connections", "1", "--window", "50", "--rate", "2000")
    with Load("add", ours.bookie_id, *words), Load("add", theirs.bookie_id, *words):
        # Both are at work once the generators have started.
        for _ in range(5):
            rows = {row["bookie"]: row for row in top("--metadata", ours.metadata_uri)}
            if all(row["adds_per_s"] > 1000 for row in rows.values()):
                break
    assert {bookie: row["source"] for bookie, row in rows.items()} == {
        ours.bookie_id: "bkctl",
        theirs.bookie_id: "java",
    }
    for bookie, row in rows.items():
        # Two thousand a second were asked for; a busy machine gives less, and makes up for it later.
        assert 1000 < row["adds_per_s"] < 20_000, bookie
        assert 0.8 < row["add_mb_per_s"] / (row["adds_per_s"] * 1060 / 1e6) < 1.2, "entries of 1 KiB"
        assert row["mode"] == "rw"
        assert [queue["name"] for queue in row["queues"]][:3] == ["write", "journal", "force_write"]
        journal_queue = row["queues"][1]
        assert journal_queue["length"] >= 0
        assert journal_queue["bound"] == 10_000
        (journal,) = row["journals"]
        assert journal["syncs_per_s"] > 0
        if bookie == theirs.bookie_id and journal["sync_busy"] is None:
            # Java counts whole milliseconds of each fsync: on a fast disk they add up to nothing.
            assert (journal["sync_p50_ms"] or 0) < 1
        else:
            assert 0 <= journal["sync_busy"] <= 1
            # On a disk in memory a sync takes less than a microsecond.
            assert journal["sync_busy"] > 0 or journal["sync_p50_ms"] < 0.1
        assert journal["group_entries"] > 0
        assert sum(half["bytes"] for half in row["write_cache"]) > 0
        assert row["cpu_cores_used"] > 0
        assert row["rss_bytes"] > 10 << 20
        (directory,) = row["ledger_dirs"]
        (disk,) = row["disks"]
        assert disk["dir"] == directory["dir"] == row["gc"][0]["dir"], "a directory has one name"
        assert 0 <= disk["used_fraction"] < 1
        assert row["bottleneck"]["stage"] != "unknown", row["bottleneck"]


def test_a_java_bookie_by_the_url_of_its_metrics(bookies: dict[str, tuple[BookieProcess, int]]) -> None:
    bookie, port = bookies[THEIRS]
    (row,) = top("--url", f"http://127.0.0.1:{port}/metrics", "--interval", "300ms")
    assert (row["source"], row["error"], row["mode"]) == ("java", None, "rw")
    assert row["bookie"] == f"127.0.0.1:{port}", "metrics do not say who they are of"
    assert row["cpu_cores_max"] >= 1
    assert bookie.bookie_id


@pytest.mark.thorough("tests/unit/admin/top has rows of bookies that are gone")
def test_a_java_bookie_that_is_gone_is_a_row_with_an_error(
    bookies: dict[str, tuple[BookieProcess, int]],
) -> None:
    """It hangs: its registration stays, its port takes connections, nothing answers."""
    bookie, port = bookies[THEIRS]
    bookie.pause()
    # Its session must not end meanwhile.
    resume = threading.Timer(20, bookie.resume)
    resume.start()
    try:
        command = [sys.executable, "-m", "bkctl", "top", "--once", "-o", "json", "--interval", "100ms"]
        words = [f"--url=http://127.0.0.1:{port}", f"--url=http://127.0.0.1:{bookies[OURS][1]}"]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
    finally:
        resume.cancel()
        resume.join()
        bookie.resume()
    assert done.returncode == 3
    errors = {row["bookie"]: row["error"] for row in json.loads(done.stdout)["bookies"]}
    assert errors.pop(f"127.0.0.1:{port}") in {"no answer within 3 s", "cannot connect: Connection refused"}
    assert errors == {bookies[OURS][0].bookie_id: None}
