"""Cookies of ``bkctl cookie`` start Java bookies, and those of Java bookies are ours byte for byte."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.metadata.uri import open_metadata_store
from tests.support.grades import one_kept
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, BookieProcess, free_port, new_cluster
from tests.support.rows import from_ndjson
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

Run = Callable[..., Any]


def stored(uri: str, bookie: str) -> bytes:
    with open_metadata_store(uri, SETTINGS) as store:
        found = store.cookies.read_cookie(bookie)
    assert found is not None
    return found.data


def wait_for_http(port: int) -> None:
    """A Java bookie opens it after it has registered."""
    until = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5):
                return
        except OSError:
            assert time.monotonic() < until, "no HTTP admin after 30 s"
            time.sleep(0.05)


@pytest.mark.parametrize("custom_id", one_kept("the other id is an address", "bookie-of-rack.7", None))
def test_a_java_bookie_starts_with_a_cookie_of_ours(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    run_cli: Run,
    tmp_path: Path,
    custom_id: str | None,
) -> None:
    uri = new_cluster(zookeeper_server)
    folder = tmp_path / "bookie"
    indexes = folder / "index"
    http_port = free_port()
    http = {
        "httpServerEnabled": "true",
        "httpServerHost": "127.0.0.1",
        "httpServerPort": str(http_port),
        "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
    }
    with BookieProcess(folder, uri, custom_id, {"indexDirectories": str(indexes), **http}) as bookie:
        made = tmp_path / "cookie"
        places = (("--journal-dir", "journal"), ("--ledger-dir", "ledgers"), ("--index-dir", "index"))
        words = [word for option, name in places for word in (option, str(folder / name))]
        result = run_cli("cookie", "generate", bookie.bookie_id, *words, "--metadata", uri, "--out", made)
        assert result.exit_code == 0, result.stderr
        targets = [folder / name for _, name in places]
        result = run_cli(
            "cookie", "create", *targets, bookie.bookie_id, "--file", made, "--metadata", uri, "--yes"
        )
        assert result.exit_code == 0, result.stderr
        assert [row["action"] for row in from_ndjson(result.stdout)] == ["create"] * 4
        bookie.start(THEIRS)
        wait_for_http(http_port)
        url = f"http://127.0.0.1:{http_port}"
        live = run_cli("doctor", "--url", url, "--metadata", uri, "--skip", "disks")
        assert (live.exit_code, live.stdout) == (0, ""), (live.stdout, live.stderr)
        refused = run_cli("cookie", "delete", bookie.bookie_id, "--metadata", uri, "--yes")
        assert (refused.exit_code, "is registered" in refused.stderr) == (4, True)
        refused = run_cli("cookie", "delete", folder / "ledgers", "--yes")
        assert (refused.exit_code, "in use by java" in refused.stderr) == (4, True)
        bookie.stop()
    for target in targets:
        assert (target / "current/VERSION").read_bytes() == made.read_bytes()
    assert stored(uri, bookie.bookie_id) == made.read_bytes()


def test_ours_is_the_cookie_that_a_java_bookie_has_made(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    run_cli: Run,
    tmp_path: Path,
) -> None:
    uri = new_cluster(zookeeper_server)
    folder = tmp_path / "bookie"
    with BookieProcess(folder, uri, "bookie-1") as bookie:
        bookie.start(THEIRS)
        bookie.stop()
        conf = folder / "bk_server.conf"
        made = run_cli("cookie", "generate", "--conf", conf)
        theirs = (folder / "ledgers/current/VERSION").read_bytes()
        assert (made.exit_code, made.stdout.encode()) == (0, theirs)
        assert stored(uri, "bookie-1") == theirs
        same = run_cli("cookie", "diff", "--conf", conf)
        assert (same.exit_code, same.stdout) == (0, ""), same.stdout
        sound = run_cli("doctor", "--conf", conf)
        assert (sound.exit_code, sound.stdout) == (0, ""), sound.stdout
        bookie.start(OURS)
        bookie.stop()
    assert (folder / "journal/current/VERSION").read_bytes() == theirs
