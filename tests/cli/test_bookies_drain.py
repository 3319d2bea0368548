"""``bkctl bookies drain`` and ``recover``: plan, rehearsal, the real thing, what it says and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from tests.support.live_writer import live_writer
from tests.support.replicas import assert_whole
from tests.support.rows import from_ndjson
from tests.support.waiting import until

Run = Callable[..., Any]

PAYLOADS = [b"%d" % number * 20 for number in range(10)]


class Four:
    """Four bookies, ledgers on them, and a store to look at."""

    def __init__(self, cluster: LocalCluster, store: MetadataStore, client: BookKeeperSync) -> None:
        self.cluster = cluster
        self.store = store
        self.client = client
        self.uri = ("--metadata-uri", cluster.metadata_uri)
        self.bookies = [one.bookie_id for one in cluster.bookies]

    def closed(self, *quorums: int) -> int:
        handle = self.client.create(*quorums)
        handle.append_all(PAYLOADS)
        handle.close()
        return handle.ledger

    def members(self, ledger: int) -> set[str]:
        found = self.store.ledgers.read_ledger(ledger).metadata
        return {bookie for segment in found.segments for bookie in segment.bookies}

    def writes_to(self, ledger: int) -> tuple[str, ...]:
        """Return the bookies of the newest ensemble of ``ledger``, which its writer writes to."""
        return tuple(self.store.ledgers.read_ledger(ledger).metadata.segments[-1].bookies)

    def assert_whole(self, *ledgers: int) -> None:
        async def check() -> None:
            async with BookKeeper(self.store) as client:
                for ledger in ledgers:
                    await assert_whole(client, ledger, PAYLOADS)

        asyncio.run(check())


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Four]:
    with (
        LocalCluster(4, tmp_path / "cluster") as cluster,
        open_metadata_store(cluster.metadata_uri) as store,
        BookKeeperSync(cluster.metadata_uri, ClientSettings()) as client,
    ):
        yield Four(cluster, store, client)


def test_a_bookie_is_drained_under_writes_and_its_cookie_goes_last(run_cli: Run, four: Four) -> None:
    ledgers = [four.closed(3, 3, 2) for _ in range(4)] + [four.closed(1, 1, 1) for _ in range(4)]
    leaving = sorted(four.members(ledgers[0]))[0]
    named = [ledger for ledger in ledgers if leaving in four.members(ledger)]
    command = ("bookies", "drain", leaving, *four.uri)
    with live_writer(four.cluster.metadata_uri, 3, 3, 2) as writer:
        until(lambda: writer.appended > 5)
        planned = run_cli(*command, "--dry-run")
        row = json.loads(planned.stdout)
        assert row["moved"] + row["left"] == row["ledgers"] >= len(named), planned.stderr
        assert (row["mode"], row["dry_run"], row["cookie_deleted"]) == ("rw", True, False)
        assert leaving in four.store.registration.bookies().writable
        assert run_cli(*command).exit_code == 4  # nobody can be asked
        done = run_cli(*command, "--yes")
        appended = writer.appended
        until(lambda: writer.appended > appended + 5)
        assert writer.error is None
    row = json.loads(done.stdout)
    assert done.exit_code == 0, (row, done.stderr)
    assert (row["outcome"], row["left"], row["cookie_deleted"]) == ("done", 0, True)
    assert row["moved"] >= len(named)
    assert f"bookie {leaving} is read-only now" in done.stderr
    assert four.store.cookies.read_cookie(leaving) is None
    for ledger in (*ledgers, writer.ledger):
        assert leaving not in four.members(ledger)
    four.assert_whole(*ledgers)
    assert leaving in four.store.registration.bookies().read_only
    again = run_cli(*command, "--yes")
    assert (again.exit_code, json.loads(again.stdout)["ledgers"]) == (0, 0)


def test_the_first_of_several_ledgers_without_a_target_is_named(run_cli: Run, four: Four) -> None:
    first, _ = four.closed(4, 2, 2), four.closed(4, 2, 2)
    row = json.loads(run_cli("bookies", "drain", min(four.members(first)), "--dry-run", *four.uri).stdout)
    says = f"2 ledgers cannot be moved; the first of them is ledger {first}: no writable bookie "
    assert row["reason"].startswith(says), row["reason"]


def test_what_has_no_target_is_refused_before_anything_is_changed(run_cli: Run, four: Four) -> None:
    wide, narrow = four.closed(4, 2, 2), four.closed(1, 1, 1)
    (leaving,) = four.members(narrow)
    command = ("bookies", "drain", leaving, "--yes", *four.uri)
    assert run_cli(*command, "--dry-run").exit_code == 4
    assert run_cli(*command, "--dry-run", "--partly").exit_code == 3
    refused = run_cli(*command)
    row = json.loads(refused.stdout)
    assert (refused.exit_code, row["outcome"], row["moved"]) == (4, "blocked", 0), refused.stderr
    (kept,) = row["not_moved"]
    assert (kept["ledger"], kept["outcome"]) == (wide, "blocked_no_target")
    assert "--partly" in row["reason"]
    assert leaving in four.store.registration.bookies().writable
    partly = run_cli(*command, "--partly")
    row = json.loads(partly.stdout)
    assert (partly.exit_code, row["outcome"], row["moved"], row["left"]) == (3, "partly", 1, 1), partly.stderr
    assert four.store.cookies.read_cookie(leaving) is not None
    four.assert_whole(wide, narrow)
    # What could be moved has been; what is left is blocked.
    assert run_cli(*command, "--partly").exit_code == 4


@pytest.mark.thorough("tests/unit/replication/test_bookie_drain.py has it without a cluster")
def test_an_idle_writer_keeps_its_ledger_until_somebody_asks_for_recovery(run_cli: Run, four: Four) -> None:
    idle = four.client.create(3, 3, 2)
    idle.append_all(PAYLOADS)
    leaving = sorted(four.members(idle.ledger))[0]
    command = ("bookies", "drain", leaving, "--yes", "--wait", "0s", *four.uri)
    waiting = run_cli(*command)
    row = json.loads(waiting.stdout)
    assert (waiting.exit_code, row["outcome"], row["left"]) == (3, "partly", 1), waiting.stderr
    assert row["not_moved"][0]["outcome"] == "waiting_for_writer"

    def has_changed_over() -> bool:
        idle.append(b"it is not fenced")
        return leaving not in four.writes_to(idle.ledger)

    # An entry makes the writer change to another bookie, or the next one does, where the two that acknowledge
    # it are quicker than the one that refuses it; what is behind the change can be copied.
    until(has_changed_over)
    assert run_cli(*command).exit_code == 0
    assert leaving not in four.members(idle.ledger)
    other = four.client.create(3, 3, 2)
    other.append_all(PAYLOADS)
    second = sorted(four.members(other.ledger))[0]
    quick = ("--recover-open", "-X", "openLedgerRereplicationGracePeriod=50")
    command = ("bookies", "recover", second, "--ledger", str(other.ledger), "--yes", *four.uri)
    assert run_cli(*command).exit_code == 3
    blocked = run_cli(*command, *quick)
    # Closed it is, but of the three bookies that are left all have it.
    assert (blocked.exit_code, from_ndjson(blocked.stdout)[0]["outcome"]) == (4, "blocked_no_target")
    four.assert_whole(other.ledger)


@pytest.mark.thorough("tests/unit/replication/test_bookie_drain.py has it without a cluster")
def test_a_bookie_that_is_gone_is_drained_but_for_what_it_alone_had(run_cli: Run, four: Four) -> None:
    shared, alone = four.closed(3, 2, 2), four.closed(1, 1, 1)
    (leaving,) = four.members(alone)
    while leaving not in four.members(shared):
        shared = four.closed(3, 2, 2)
    next(one for one in four.cluster.bookies if one.bookie_id == leaving).stop()
    until(lambda: leaving not in four.store.registration.bookies().everyone)
    command = ("bookies", "drain", leaving, "--yes", "--wait", "0s", *four.uri)
    refused = run_cli(*command)
    row = json.loads(refused.stdout)
    assert (refused.exit_code, row["mode"]) == (4, None), refused.stderr
    assert [(one["ledger"], one["outcome"]) for one in row["not_moved"]] == [(alone, "lost_no_source")]
    partly = run_cli(*command, "--partly")
    row = json.loads(partly.stdout)
    assert (partly.exit_code, row["left"], row["cookie_deleted"]) == (3, 1, False), partly.stderr
    four.assert_whole(shared)
    accepted = run_cli(*command, "--accept-losses", str(alone))
    row = json.loads(accepted.stdout)
    assert (accepted.exit_code, row["outcome"], row["cookie_deleted"]) == (1, "done_with_losses", True), row
    (loss,) = row["losses"]
    assert (loss["ledger"], loss["lost_count"]) == (alone, len(PAYLOADS))
    assert f"ledger {alone}: moved (10 entries lost, from 0 on)" in accepted.stderr


def test_replicas_are_recovered_to_a_bookie_of_choice(run_cli: Run, four: Four) -> None:
    ledgers = [four.closed(2, 2, 2) for _ in range(6)]
    source = sorted(four.members(ledgers[0]))[0]
    target = next(one for one in four.bookies if one not in four.members(ledgers[0]))
    command = ("bookies", "recover", source, "--to", target, *four.uri)
    movable = [one for one in ledgers if source in (them := four.members(one)) and target not in them]
    stuck = [one for one in ledgers if {source, target} == four.members(one)]
    code = 3 if stuck else 0
    planned = run_cli(*command, "--dry-run", "--every-entry")
    assert planned.exit_code == code, planned.stderr
    rows = {row["ledger"]: row for row in from_ndjson(planned.stdout)}
    assert {one for one, row in rows.items() if row["outcome"] == "movable"} == set(movable)
    assert rows[ledgers[0]]["entries"] == 10
    estimated = {ledger: rows[ledger]["bytes"] for ledger in movable}
    done = run_cli(*command, "--yes")
    assert done.exit_code == code, done.stderr
    rows = {row["ledger"]: row for row in from_ndjson(done.stdout)}
    assert {ledger: rows[ledger]["bytes"] for ledger in movable} == estimated, "the heads of entries count"
    for ledger in movable:
        assert rows[ledger]["outcome"] == "moved"
        assert rows[ledger]["targets"] == [target]
        assert source not in four.members(ledger)
    four.assert_whole(*ledgers)
    assert source in four.store.registration.bookies().writable
    assert run_cli("bookies", "recover", source, "--to", source, *four.uri).exit_code == 2
    assert run_cli("bookies", "recover", source, "--to", "nobody:1", *four.uri).exit_code == 4
    assert run_cli("bookies", "recover", "nobody:1", "--yes", *four.uri).exit_code == 6
