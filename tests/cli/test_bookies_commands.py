"""``bkctl bookies``: list, info, probe, init."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from tests.support.rows import from_ndjson, same_in_every_format

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(2, tmp_path_factory.mktemp("bookies-commands")) as running:
        yield running


@pytest.fixture
def env(cluster: LocalCluster) -> dict[str, str]:
    return {"BKCTL_METADATA_URI": cluster.metadata_uri}


@pytest.fixture
def dead_bookie(cluster: LocalCluster) -> Iterator[str]:
    """Registered where nobody listens."""
    with open_metadata_store(cluster.metadata_uri) as store, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        bookie = f"127.0.0.1:{nobody.getsockname()[1]}"
        store.registration.register(bookie, RegistrationMode.READ_ONLY, b"")
        yield bookie


def test_list_names_bookies_with_their_addresses(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], dead_bookie: str
) -> None:
    uri = cluster.metadata_uri
    rows = same_in_every_format(run_cli, "bookies", "list", "--metadata", uri)
    modes = {bookie.bookie_id: "rw" for bookie in cluster.bookies}
    assert {row["bookie"]: row["mode"] for row in rows} == {**modes, dead_bookie: "ro"}
    first = next(row for row in rows if row["bookie"] == cluster.bookies[0].bookie_id)
    rpc = next(endpoint for endpoint in first["endpoints"] if endpoint["protocol"] == "bookie-rpc")
    assert rpc["port"] == cluster.bookies[0].port


def test_list_shows_those_that_are_down(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], dead_bookie: str
) -> None:
    """A bookie that has a cookie and is not registered."""

    def listed(*options: str) -> dict[str, str]:
        rows = from_ndjson(run_cli("bookies", "list", *options, env=env).stdout)
        return {row["bookie"]: row["mode"] for row in rows}

    with open_metadata_store(cluster.metadata_uri) as store:
        store.cookies.create_cookie("gone:3181", b"5\n")
        everyone = listed()
        assert listed("--all") == everyone
        assert listed("--mode", "down") == {"gone:3181": "down"}
        registered = listed("--mode", "rw", "--mode", "ro")
        store.cookies.delete_cookie("gone:3181", 0)
    running = {bookie.bookie_id: "rw" for bookie in cluster.bookies}
    assert registered == {**running, dead_bookie: "ro"}
    assert everyone == {**registered, "gone:3181": "down"}


def test_info_tells_the_room_of_every_bookie(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    result = run_cli("bookies", "info", env=env)
    rows = from_ndjson(result.stdout)
    assert result.exit_code == 0
    assert [row["bookie"] for row in rows] == sorted(bookie.bookie_id for bookie in cluster.bookies)
    assert all(0 < row["free_bytes"] <= row["total_bytes"] and row["error"] is None for row in rows)


def test_info_goes_on_past_a_dead_bookie(run_cli: Run, env: dict[str, str], dead_bookie: str) -> None:
    result = run_cli("bookies", "info", env=env)
    assert result.exit_code == 3
    (dead,) = [row for row in from_ndjson(result.stdout) if row["error"]]
    assert dead["bookie"] == dead_bookie
    assert dead["error"] == f"bookie {dead_bookie}: cannot connect to {dead_bookie}: Connection refused"
    assert run_cli("bookies", "info", dead_bookie, env=env).exit_code == 5


def test_probe_speaks_both_versions(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    bookie = cluster.bookies[0]
    result = run_cli("bookies", "probe", bookie.bookie_id, env=env)
    (row,) = from_ndjson(result.stdout)
    assert result.exit_code == 0
    assert row["address"] == f"127.0.0.1:{bookie.port}"
    assert row["v2_ms"] > 0
    assert row["v3_ms"] > 0


def test_probe_is_bounded_by_a_bookie_that_hangs(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        bookie = f"127.0.0.1:{hanging.getsockname()[1]}"
        result = run_cli("bookies", "probe", bookie, "--timeout", "100ms", env=env)
    (row,) = from_ndjson(result.stdout)
    assert result.exit_code == 5
    assert row["error"] == f"bookie {bookie}: no answer within 0.1 s"


def test_a_bookie_that_nobody_knows(run_cli: Run, env: dict[str, str]) -> None:
    (row,) = from_ndjson(run_cli("bookies", "probe", "nobody", env=env).stdout)
    assert "bookie nobody: is not registered, and its id is no host:port" in row["error"]


def test_a_uri_that_is_none_is_named_as_it_was_given(run_cli: Run, tmp_path: Path) -> None:
    """Once, and by the option or the key that was typed."""
    expected = "expected zk://host:2181/ledgers or embedded:///absolute/path, found 'host:2181'"
    conf = tmp_path / "client.conf"
    conf.write_text("metadataServiceUri=host:2181\n")
    nothing = {"BKCTL_METADATA_URI": None}
    for arguments, env, where in (
        (("--metadata", "host:2181"), nothing, "--metadata (BKCTL_METADATA_URI)"),
        ((), {"BKCTL_METADATA_URI": "host:2181"}, "--metadata (BKCTL_METADATA_URI)"),
        (("-X", "metadataServiceUri=host:2181"), nothing, "-X metadataServiceUri"),
        (("--conf", conf), nothing, f"{conf}:1: metadataServiceUri"),
    ):
        result = run_cli("bookies", "list", *arguments, env=env)
        assert (result.exit_code, result.stderr) == (2, f"bkctl: error: {where}: {expected}\n")


def test_init_makes_a_cluster_once(run_cli: Run, tmp_path: Path) -> None:
    env = {"BKCTL_METADATA_URI": f"embedded://{tmp_path}/new.db"}
    planned = json.loads(run_cli("bookies", "init", "--dry-run", env=env).stdout)
    assert (planned["created"], planned["instance_id"]) == (False, None)
    made = json.loads(run_cli("bookies", "init", env=env).stdout)
    assert made["created"]
    with open_metadata_store(env["BKCTL_METADATA_URI"]) as store:
        assert store.layout.instance_id() == made["instance_id"]
    assert run_cli("bookies", "init", env=env).exit_code == 4
    assert run_cli("bookies", "init", "--dry-run", env=env).exit_code == 4


def test_without_a_cluster_to_ask_the_usage_is_wrong(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_cli("bookies", "list", env={"BKCTL_METADATA_URI": None})
    assert result.exit_code == 2
    assert "which cluster?" in result.stderr


def test_a_root_that_is_no_cluster_is_not_an_empty_list(run_cli: Run, tmp_path: Path) -> None:
    result = run_cli("bookies", "list", "--metadata", f"embedded://{tmp_path}/nothing.db")
    assert (result.exit_code, result.stdout) == (6, "")
