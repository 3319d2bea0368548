"""``autorecovery/bookie`` and ``autorecovery/decommission``: one job at a time, and its state."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bkctl.client.sync import BookKeeperSync
from bkctl.errors import ConnectionFailedError
from bkctl.metadata.underreplication import TreeUnderreplication
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.http.autorecovery_admin import AutoRecoveryAdmin
from bkctl.server.life.embedded import EmbeddedBookie, LocalCluster
from tests.support.admin_requests import ask, ask_json
from tests.support.replicas import wait_for
from tests.support.waiting import until

RECOVERY, DECOMMISSION = "/api/v1/autorecovery/bookie", "/api/v1/autorecovery/decommission"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path_factory.mktemp("removal")) as running:
        yield running


def put(bookie: EmbeddedBookie, path: str, **body: Any) -> tuple[int, str]:
    return ask(bookie, "PUT", path, json.dumps(body).encode())


def job(bookie: EmbeddedBookie) -> dict[str, Any]:
    found = ask_json(bookie, "GET", RECOVERY)["job"]
    assert found == ask_json(bookie, "GET", DECOMMISSION)["job"] or found["running"]
    return found  # type: ignore[no-any-return]


def ended(bookie: EmbeddedBookie) -> dict[str, Any]:
    until(lambda: not job(bookie)["running"])
    return job(bookie)


def test_a_job_moves_ledgers_and_a_decommission_deletes_the_cookie(cluster: LocalCluster) -> None:
    first, second, third = cluster.bookies
    assert ask_json(second, "GET", RECOVERY) == {"job": None}
    with (
        BookKeeperSync(cluster.metadata_uri) as client,
        open_metadata_store(cluster.metadata_uri) as store,
    ):
        ledgers = []
        for _ in range(8):
            with client.create(1, 1, 1) as handle:
                handle.append_all([b"x" * 200] * 10)
            ledgers.append(handle.ledger)

        def of(bookie: EmbeddedBookie) -> list[int]:
            found = [store.ledgers.read_ledger(ledger).metadata for ledger in ledgers]
            return [
                ledger
                for ledger, metadata in zip(ledgers, found, strict=True)
                if bookie.bookie_id in metadata.segments[0].bookies
            ]

        mine = of(first)
        status, text = put(second, RECOVERY, bookie_src=[first.bookie_id], bookie_dest=[third.bookie_id])
        assert (status, text) == (200, "Success send recovery request command.")
        row = ended(second)
        assert (row["outcome"], row["moved"], row["error"]) == ("done", len(mine), None)
        assert (row["kind"], row["bookies"]) == ("recovery", [first.bookie_id])
        assert row["entries_written"] == 10 * len(mine)
        assert not of(first)
        assert store.cookies.read_cookie(first.bookie_id) is not None
        status, text = put(second, DECOMMISSION, bookie_src=first.bookie_id)
        assert (status, "writable" in text) == (409, True)
        ask(first, "PUT", "/api/v1/bookie/state/readonly", b'{"readOnly": true}')
        until(lambda: first.bookie_id in store.registration.bookies().read_only)
        status, text = put(second, DECOMMISSION, bookie_src=first.bookie_id)
        assert (status, text) == (200, f"Success send decommission Bookie command {first.bookie_id}")
        row = ended(second)
        assert (row["outcome"], row["cookie_deleted"], row["left"]) == ("done", True, 0)
        assert store.cookies.read_cookie(first.bookie_id) is None


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (RECOVERY, {}, 400),
        (RECOVERY, {"bookie_src": []}, 400),
        (RECOVERY, {"bookie_src": "a:1"}, 400),
        (RECOVERY, {"bookie_src": [1]}, 400),
        (RECOVERY, {"bookie_src": ["nobody:1"]}, 404),
        (RECOVERY, {"bookie_src": ["{second}"], "bookie_dest": ["nobody:1"]}, 409),
        (RECOVERY, {"bookie_src": ["{second}"], "bookie_dest": ["{second}"]}, 409),
        (RECOVERY, {"bookie_src": ["{second}"], "delete_cookie": "yes"}, 400),
        (RECOVERY, {"bookie_src": ["{second}"], "delete_cookie": True}, 409),
        (DECOMMISSION, {"bookie_src": ["{second}"]}, 400),
        (DECOMMISSION, {"bookie_src": "{second}", "delete_cookie": False}, 409),
        (DECOMMISSION, {"bookie_src": "nobody:1"}, 404),
    ],
)
def test_what_could_only_fail_is_refused(
    cluster: LocalCluster, path: str, body: dict[str, Any], status: int
) -> None:
    third = cluster.bookies[2]
    text = json.dumps(body).replace("{second}", cluster.bookies[1].bookie_id)
    found, answer = ask(third, "PUT", path, text.encode())
    assert found == status, answer
    assert ask_json(third, "GET", path) == {"job": None}


def test_there_is_one_job_and_it_ends_with_its_process(tmp_path: Path) -> None:
    # With so few bytes a second a job lasts until it is stopped.
    with LocalCluster(2, tmp_path, overrides={"replicationRateByBytes": "1000"}) as cluster:
        first, second = cluster.bookies
        with BookKeeperSync(cluster.metadata_uri) as client:
            bookies: set[str] = set()
            while first.bookie_id not in bookies:
                with client.create(1, 1, 1) as handle:
                    handle.append_all([b"x" * 50_000] * 10)
                    bookies = set(handle.metadata.segments[0].bookies)
        assert put(second, RECOVERY, bookie_src=[first.bookie_id])[0] == 200
        assert job(second)["running"]
        status, text = put(second, RECOVERY, bookie_src=[first.bookie_id])
        assert (status, text) == (409, f"the recovery of bookie {first.bookie_id} is running")
        second.stop()
        second.start()
        assert ask_json(second, "GET", RECOVERY) == {"job": None}


def test_a_lock_whose_call_failed_does_not_outlive_the_job_of_a_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker could take the ledger as long as that bookie runs."""
    with (
        LocalCluster(2, tmp_path) as cluster,
        open_metadata_store(cluster.metadata_uri) as store,
        BookKeeperSync(cluster.metadata_uri) as client,
    ):
        first, second = cluster.bookies
        with client.create(2, 2, 2) as handle:
            handle.append(b"x")
        take = TreeUnderreplication.acquire_ledger

        def lose_the_answer(*args: Any, **how: Any) -> None:
            take(*args, **how)
            raise ConnectionFailedError("no answer")

        monkeypatch.setattr(TreeUnderreplication, "acquire_ledger", lose_the_answer)
        assert put(second, RECOVERY, bookie_src=[first.bookie_id])[0] == 200
        (row,) = ended(second)["not_moved"]
        assert (row["ledger"], row["outcome"]) == (handle.ledger, "failed")
        until(lambda: store.underreplication.replicator_of(handle.ledger) is None)


def test_beside_a_worker_a_job_has_locks_of_its_own(tmp_path: Path) -> None:
    """A worker adopts the locks of its session that it does not know: a failed call may have left them."""
    with (
        LocalCluster(2, tmp_path, overrides={"replicationRateByBytes": "1000"}) as cluster,
        open_metadata_store(cluster.metadata_uri) as store,
        BookKeeperSync(cluster.metadata_uri) as client,
    ):
        first, second = (bookie.bookie_id for bookie in cluster.bookies)
        named: tuple[str, ...] = ()
        while first not in named:
            with client.create(1, 1, 1) as handle:
                handle.append_all([b"x" * 50_000] * 10)
                named = handle.metadata.segments[0].bookies
        known = store.underreplication
        known.prepare()
        known.mark(handle.ledger, [first], None)

        async def check() -> None:
            admin = AutoRecoveryAdmin(
                cluster.bookies[1].config, store, Mock(), lambda _: open_metadata_store(cluster.metadata_uri)
            )
            port = await admin.start("127.0.0.1", 0)
            try:
                body = json.dumps({"bookie_src": [first], "bookie_dest": [second]})
                assert await asyncio.to_thread(_put, port, body) == 200
                await wait_for(lambda: known.replicator_of(handle.ledger), "no lock")
                assert await asyncio.to_thread(known.acquire, adopt=True) is None
            finally:
                await admin.stop()

        asyncio.run(check())
        assert known.replicator_of(handle.ledger) is None


def _put(port: int, body: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("PUT", RECOVERY, body.encode())
        return connection.getresponse().status
    finally:
        connection.close()
