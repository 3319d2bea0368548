"""A drain on bookies in memory: killed anywhere it goes on, and nothing is dropped that is not elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from bkctl.client.adherence import Adherence
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.codec.underreplication import mark_name
from bkctl.errors import ConnectionFailedError, RefusedError
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import ANY_VERSION
from bkctl.replication import bookie_move
from bkctl.replication.bookie_drain import BookieDrain, DrainSettings
from bkctl.replication.bookie_move import BookieMove
from bkctl.replication.ledger_move import MoveSettings
from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.moved_ledger import MoveOutcome
from bkctl.replication.steps import ClientSteps
from bkctl.types import DigestType, LedgerState
from tests.support.audited_cluster import ledger_metadata
from tests.support.drained_cluster import ROOT, DrainedCluster, DyingTree, Killed
from tests.support.waiting import until

OPEN = LedgerState.OPEN


@pytest.fixture
def cluster() -> Iterator[DrainedCluster]:
    made = DrainedCluster("abcd")
    yield made
    made.close()


def fill(cluster: DrainedCluster) -> list[int]:
    """Closed ledgers in several forms, one marked for the bookie that leaves."""
    ledgers = [
        ledger_metadata(("out", "a", "b")),
        ledger_metadata(("a", "b", "c"), ("c", "out", "a"), ("out", "b", "d")),
        ledger_metadata(("out",)),
        replace(ledger_metadata(("a", "out", "c", "d")), write_quorum=2, ack_quorum=2),
        replace(ledger_metadata(("out", "a")), last_entry=-1, length=0),
        ledger_metadata(("a", "b", "c")),
    ]
    for ledger, metadata in enumerate(ledgers):
        cluster.ledger(ledger, metadata)
    cluster.store.underreplication.prepare()
    cluster.store.underreplication.mark(1, ["out"], 1_000)
    cluster.store.underreplication.mark(3, ["out", "b"], 1_000)
    return list(range(len(ledgers)))


def renew_session(tree: DyingTree, store: TreeMetadataStore) -> None:
    """Lose a session and begin the next one, until the end of the first was reported."""
    told = Mock()
    store.registration.add_session_listener(told)
    tree.lose_session()
    tree.restore_session()
    until(lambda: told.session_lost.called)


def assert_drained(cluster: DrainedCluster, ledgers: list[int]) -> None:
    for ledger in ledgers:
        metadata = cluster.metadata(ledger)
        assert all("out" not in segment.bookies for segment in metadata.segments)
        assert all(len(set(segment.bookies)) == len(segment.bookies) for segment in metadata.segments)
        assert not cluster.missing(ledger)
    assert cluster.store.cookies.read_cookie("out") is None


def test_everything_is_moved_and_the_cookie_goes(cluster: DrainedCluster) -> None:
    ledgers = fill(cluster)
    result = cluster.drain()
    assert (result.exit_code, result.moved, result.left, result.cookie_deleted) == (0, 5, 0, True)
    assert_drained(cluster, ledgers)
    # A mark that named the bookie alone says nothing any more; the other one does.
    marks = {ledger: mark.replicas for ledger, mark in cluster.store.underreplication.marked_ledgers()}
    assert marks == {3: ("out", "b")}
    assert cluster.store.underreplication.replicator_of(3) is None
    assert cluster.drain().exit_code == 0


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_each_write_of_metadata_it_goes_on(after: bool) -> None:
    dies_at = 0
    while True:
        dies_at += 1
        cluster = DrainedCluster("abcd")
        with contextlib.closing(cluster):
            ledgers = fill(cluster)
            tree, store = cluster.session(dies_at, after=after)
            try:
                cluster.drain(store)
                break
            except Killed:
                tree.lose_session()
            named = any("out" in one.bookies for at in ledgers for one in cluster.metadata(at).segments)
            assert not named or cluster.store.cookies.read_cookie("out") is not None
            assert all(not cluster.missing(ledger) for ledger in ledgers)
            assert cluster.drain().exit_code == 0
            assert_drained(cluster, ledgers)
    assert dies_at > 8


def test_a_bookie_that_is_down_is_drained_from_the_others(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    cluster.ledger(2, ledger_metadata(("out",)))
    cluster.go("out", read_only=True)
    cluster.client.silent.add("out")
    cluster.client.lose("out", 2, range(10))
    result = cluster.drain()
    assert (result.exit_code, result.moved, result.left) == (3, 1, 1)
    assert [(one.ledger, one.outcome) for one in result.rows] == [(2, MoveOutcome.LOST_NO_SOURCE)]
    assert cluster.store.cookies.read_cookie("out") is not None
    assert cluster.drain().exit_code == 4
    given_up = frozenset({2})
    settings = DrainSettings(wait_ms=0, poll_ms=1, settle_ms=0, accepted=given_up)
    result = cluster.drain(settings=settings, move=MoveSettings(accepted=given_up))
    assert (result.exit_code, result.cookie_deleted) == (1, True)
    (loss,) = result.accepted
    assert (loss.ledger, loss.lost_count, loss.accepted) == (2, 10, True)


def test_accepted_losses_take_along_nothing_that_somebody_has(cluster: DrainedCluster) -> None:
    """One entry is nowhere, another one only with a bookie that does not answer: that is no loss."""
    cluster.ledger(1, ledger_metadata(("out", "a")))
    for bookie in ("out", "a"):
        cluster.client.lose(bookie, 1, [4])
    cluster.client.lose("out", 1, [7])
    accept = MoveSettings(accepted=frozenset({1}))
    cluster.client.silent.add("a")
    result = cluster.drain(move=accept)
    assert (result.exit_code, result.rows[0].outcome) == (3, MoveOutcome.FAILED)
    assert "out" in cluster.metadata(1).segments[0].bookies
    cluster.client.silent.clear()
    assert cluster.drain().rows[0].outcome is MoveOutcome.LOST_NO_SOURCE
    result = cluster.drain(move=accept)
    assert (result.exit_code, result.accepted[0].lost) == (1, (4,))
    assert cluster.missing(1) == [(4, 0)]


def test_without_a_target_nothing_is_changed(cluster: DrainedCluster) -> None:
    before = ledger_metadata(("out", "a", "b", "c", "d"))
    cluster.ledger(1, before)
    result = cluster.drain()
    assert (result.exit_code, result.blocked) == (4, 1)
    assert result.rows[0].outcome is MoveOutcome.BLOCKED_NO_TARGET
    assert cluster.metadata(1) == before
    cluster.come("e")
    assert cluster.drain().exit_code == 0
    assert not cluster.missing(1)


def test_a_target_that_dies_under_the_copy_is_replaced(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    added: list[str] = []

    def die(bookie: str) -> None:
        added.append(bookie)
        if len(added) == 5:
            cluster.client.silent.add(bookie)

    cluster.client.before_add = die
    assert cluster.drain().exit_code == 0
    dead = next(iter(cluster.client.silent))
    assert dead not in cluster.metadata(1).segments[0].bookies
    assert not cluster.missing(1)


def test_a_bookie_that_takes_nothing_is_never_named(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    cluster.client.refusing.update("cd")
    result = cluster.drain()
    assert (result.exit_code, result.moved, result.rows[0].outcome) == (3, 0, MoveOutcome.FAILED)
    assert result.rows[0].reason.startswith("c, d did not take copies")
    assert "out" in cluster.metadata(1).segments[0].bookies
    assert cluster.store.cookies.read_cookie("out") is not None


def test_metadata_that_change_under_the_copy_are_looked_at_again(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    changed: list[int] = []

    def change(ledger: int) -> None:
        if not changed:
            changed.append(ledger)
            stored = cluster.store.ledgers.read_ledger(ledger)
            metadata = replace(stored.metadata, custom_metadata=(("by", b"another"),))
            cluster.store.ledgers.update_ledger(ledger, metadata, stored.version)

    cluster.client.before_write = change
    assert cluster.drain().exit_code == 0
    assert dict(cluster.metadata(1).custom_metadata) == {"by": b"another"}
    assert_drained(cluster, [1])


def test_a_mark_that_is_made_anew_meanwhile_stays(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    marks = cluster.store.underreplication
    marks.prepare()
    marks.mark(1, ["out"], 1_000)
    cluster.client.before_write = lambda ledger: marks.mark(ledger, ["a"], 2_000) and None
    assert cluster.drain().exit_code == 0
    assert {ledger: mark.replicas for ledger, mark in marks.marked_ledgers()} == {1: ("out", "a")}
    assert marks.replicator_of(1) is None


def test_a_ledger_that_a_worker_has_is_left_to_it(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    cluster.store.underreplication.prepare()
    cluster.store.underreplication.mark(1, ["b"], 1_000)
    _, worker = cluster.session()
    taken = worker.underreplication.acquire_ledger(1, host="worker")
    assert taken is not None
    result = cluster.drain()
    assert (result.exit_code, result.rows[0].outcome) == (3, MoveOutcome.BUSY)
    assert "worker" in result.rows[0].reason
    worker.underreplication.release(taken)
    assert cluster.drain().exit_code == 0


def test_a_damaged_mark_is_no_reason_to_stay(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    cluster.store.underreplication.prepare()
    cluster.store.underreplication.mark(1, ["out"], 1_000)
    path = next(one for one in cluster.shared.entries if one.endswith("urL0000000001"))
    cluster.tree.set(path, b"replica: {", 0)
    assert cluster.drain().exit_code == 0
    assert not cluster.missing(1)
    # What it says nobody knows, so it stays.
    assert path in cluster.shared.entries
    assert cluster.store.underreplication.replicator_of(1) is None


def test_places_off_the_policy_are_counted(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("a", "out"), ("out", "b"), ("a", "b")))
    asked: list[tuple[tuple[str, ...], int]] = []

    def adheres(ensemble: Sequence[str], write_quorum: int) -> Adherence:
        asked.append((tuple(ensemble), write_quorum))
        return Adherence.FAIL if len(asked) == 1 else Adherence.STRICT

    result = cluster.drain(adheres=adheres)
    assert (result.exit_code, result.off_policy) == (0, 1)
    assert asked == [(segment.bookies, 2) for segment in cluster.metadata(1).segments[:2]]


def test_no_writer_is_fenced_without_being_asked(cluster: DrainedCluster) -> None:
    still_open = ledger_metadata(("a", "out", "c"), ("out", "b", "c"), state=OPEN)
    cluster.ledger(1, still_open, last_entry=14)
    result = cluster.drain()
    assert (result.exit_code, result.moved, result.left) == (3, 0, 1)
    assert result.rows[0].outcome is MoveOutcome.WAITING_FOR_WRITER
    now = cluster.metadata(1)
    assert now.state is OPEN
    # What its writer has left behind is moved already.
    assert "out" not in now.segments[0].bookies
    assert now.segments[1] == still_open.segments[1]


def test_metadata_that_nobody_can_read_keep_the_cookie(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a")))
    cluster.ledger(2, ledger_metadata(("a", "b")))
    path = next(one for one in cluster.shared.entries if one.endswith("L0002"))
    cluster.tree.set(path, b"nonsense", 0)
    result = cluster.drain()
    assert (result.exit_code, result.moved, result.left) == (3, 1, 1)
    assert result.rows[0].outcome is MoveOutcome.BLOCKED_METADATA
    assert cluster.store.cookies.read_cookie("out") is not None
    result = cluster.drain(settings=DrainSettings(0, 1, 0, accepted=frozenset({2})))
    assert (result.exit_code, result.cookie_deleted) == (1, True)


def test_a_writable_bookie_is_refused_and_a_new_cookie_is_not_deleted(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a")))
    cluster.go("out", read_only=True)
    cluster.come("out")
    with pytest.raises(RefusedError, match="writable"):
        cluster.drain()
    cluster.go("out")

    def write_cookie(ledger: int) -> None:
        found = cluster.store.cookies.read_cookie("out")
        assert found is not None
        cluster.store.cookies.update_cookie("out", b"another bookie's", found.version)

    cluster.client.before_write = write_cookie
    result = cluster.drain()
    assert (result.exit_code, result.left, result.cookie_deleted) == (3, 0, False)
    assert "cookie" in result.reason
    assert cluster.store.cookies.read_cookie("out") is not None


def test_a_ledger_that_is_made_behind_the_first_pass_is_found(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a")))
    late: list[LedgerMetadata] = []

    def make(ledger: int) -> None:
        if not late:
            late.append(ledger_metadata(("out", "b")))
            cluster.ledger(0, late[0])

    cluster.client.before_write = make
    result = cluster.drain()
    assert (result.exit_code, result.moved) == (0, 2)
    assert_drained(cluster, [0, 1])


def test_what_waits_is_looked_at_again_and_the_whole_cluster_is_not(cluster: DrainedCluster) -> None:
    """A writer goes elsewhere while the drain waits for it."""
    cluster.ledger(1, ledger_metadata(("out", "a", "b"), state=OPEN), last_entry=4)
    for ledger in range(2, 6):
        cluster.ledger(ledger, ledger_metadata(("a", "b", "c")))
    passes: list[list[int]] = []
    listing = cluster.store.ledgers.read_ledgers

    def looked(ledgers: Iterable[int]) -> Iterator[Any]:
        passes.append(list(ledgers))
        if len(passes) == 3:
            stored = cluster.store.ledgers.read_ledger(1)
            moved = replace(stored.metadata, segments=(Segment(0, ("d", "a", "b")),))
            cluster.store.ledgers.update_ledger(1, moved, stored.version)
        return listing(passes[-1])

    cluster.store.ledgers.read_ledgers = looked  # type: ignore[method-assign]
    result = cluster.drain(settings=DrainSettings(wait_ms=60_000, poll_ms=1, settle_ms=0))
    assert (result.exit_code, result.cookie_deleted) == (0, True)
    assert passes == [[1, 2, 3, 4, 5], [1], [1], [1, 2, 3, 4, 5]]


def test_a_ledger_without_a_mark_is_moved_under_its_lock(cluster: DrainedCluster) -> None:
    """A collector of surplus replicas would else delete what was copied and is not named yet."""
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    holders = []

    def note(_: object) -> None:
        holders.append(cluster.store.underreplication.replicator_of(1))

    cluster.client.before_add = cluster.client.before_write = note
    assert cluster.drain().exit_code == 0
    assert set(holders) == {"drain"}
    assert cluster.store.underreplication.replicator_of(1) is None
    assert cluster.store.underreplication.mark_of(1) is None


def test_a_ledger_whose_lock_somebody_has_is_left_to_them_without_a_mark(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    _, collector = cluster.session()
    taken = collector.underreplication.acquire_ledger(1, host="collector", unmarked=True)
    assert taken is not None
    result = cluster.drain()
    assert (result.exit_code, result.rows[0].outcome) == (3, MoveOutcome.BUSY)
    assert not collector.underreplication.finish(taken)
    assert cluster.drain().exit_code == 0


@pytest.mark.parametrize("is_named", [True, False])
def test_a_damaged_lock_holds_up_its_ledger_alone(cluster: DrainedCluster, is_named: bool) -> None:
    cluster.ledger(1, ledger_metadata(("a", "out" if is_named else "b")))
    cluster.ledger(2, ledger_metadata(("out", "a")))
    cluster.client.fill(1, ledger_metadata(("a", "out")))
    tree, store = cluster.session()
    taken = store.underreplication.acquire_ledger(1, unmarked=True)
    assert taken is not None
    tree.set(f"{ROOT}/underreplication/locks/{mark_name(1)}", b"\xff" * 8, ANY_VERSION)
    result = cluster.drain()
    assert (result.exit_code, result.moved, result.left) == (3, 1, 1)
    (row,) = result.rows
    assert (row.ledger, row.outcome, "damaged" in row.reason) == (1, MoveOutcome.BUSY, True)
    store.underreplication.release(taken)
    assert cluster.drain().exit_code == 0


@pytest.mark.parametrize("has_digest", [True, False])
def test_a_copy_that_may_name_the_bookie_when_it_is_over_is_waited_for(
    cluster: DrainedCluster, has_digest: bool
) -> None:
    """A worker, or another drain, had chosen the bookie while it was writable."""
    after = ledger_metadata(("a", "b", "out"))
    cluster.ledger(1, after)
    stored = cluster.store.ledgers.read_ledger(1)
    now = replace(after, segments=(Segment(0, ("a", "b", "c")),))
    if not has_digest:
        now = replace(now, digest_type=None, password=None)
    version = cluster.store.ledgers.update_ledger(1, now, stored.version)
    _, worker = cluster.session()
    taken = worker.underreplication.acquire_ledger(1, host="worker", unmarked=True)
    assert taken is not None
    result = cluster.drain()
    assert (result.exit_code, result.cookie_deleted) == (3, False)
    assert (result.rows[0].outcome, "worker" in result.rows[0].reason) == (MoveOutcome.BUSY, True)
    cluster.client.silent.add("out")
    assert cluster.drain().exit_code == 3  # it does not tell what it has
    cluster.client.silent.clear()
    cluster.store.ledgers.update_ledger(1, after, version)
    worker.underreplication.release(taken)
    assert (cluster.drain().exit_code, cluster.missing(1)) == (0, [])
    assert_drained(cluster, [1])


def test_a_copy_that_may_have_chosen_the_bookie_is_waited_for_before_it_has_sent_anything(
    cluster: DrainedCluster,
) -> None:
    """The lock is older than the bookie's registration as one that is read-only."""
    now, after = ledger_metadata(("a", "b")), ledger_metadata(("a", "out"))
    cluster.ledger(1, now)
    version = cluster.store.ledgers.read_ledger(1).version
    _, worker = cluster.session()
    taken = worker.underreplication.acquire_ledger(1, host="worker", unmarked=True)
    assert taken is not None
    cluster.go("out", read_only=True)
    tree, _ = cluster.session()
    tree.create(f"{ROOT}/available/readonly/out", ephemeral=True)
    result = cluster.drain()
    assert (result.exit_code, result.cookie_deleted) == (3, False)
    assert (result.rows[0].outcome, "worker" in result.rows[0].reason) == (MoveOutcome.BUSY, True)
    cluster.client.fill(1, after)
    cluster.store.ledgers.update_ledger(1, after, version)
    worker.underreplication.release(taken)
    assert (cluster.drain().exit_code, cluster.missing(1)) == (0, [])
    assert_drained(cluster, [1])


@pytest.mark.parametrize("what", ["nothing", "down", "no lock"])
def test_a_copy_that_has_not_chosen_the_bookie_is_not_waited_for(cluster: DrainedCluster, what: str) -> None:
    cluster.ledger(1, ledger_metadata(("a", "b", "c")))
    cluster.client.entries["out", 1, 0] = cluster.client.entries["a", 1, 0]
    _, worker = cluster.session()
    if what != "no lock":
        assert worker.underreplication.acquire_ledger(1, host="worker", unmarked=True) is not None
    if what == "nothing":
        cluster.client.lose("out", 1, range(1))
    elif what == "down":
        cluster.client.silent.add("out")
        cluster.go("out", read_only=True)
    assert cluster.drain().exit_code == 0


@pytest.mark.parametrize("call", ["create", "delete"])
def test_a_lock_that_a_failed_call_has_left_is_no_reason_to_wait(
    cluster: DrainedCluster, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is made, but the answer is lost; or it is not deleted when it is given back."""
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    cluster.store.underreplication.prepare()
    tree, store = cluster.session()
    carry_out = getattr(tree, call)

    def fail_once(path: str, *how: Any, **named: Any) -> Any:
        if "/locks/" not in path:
            return carry_out(path, *how, **named)
        monkeypatch.undo()
        if call == "create":
            carry_out(path, *how, **named)
        raise ConnectionFailedError("no answer")

    monkeypatch.setattr(tree, call, fail_once)
    settings = DrainSettings(wait_ms=200, poll_ms=1, settle_ms=0)
    assert cluster.drain(store, settings=settings).exit_code == 0
    assert cluster.store.underreplication.replicator_of(1) is None


def test_a_lock_that_a_drain_has_without_knowing_it_is_not_taken_from_a_move_at_work(
    cluster: DrainedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of the last pass is still there; the move of the ledger adopts it, and keeps it."""
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    cluster.store.underreplication.prepare()
    tree, store = cluster.session()
    look, is_away = tree.get, [True]

    def get(path: str) -> Any:
        if is_away[0] and "/locks/" in path:
            raise ConnectionFailedError("no answer")
        return look(path)

    monkeypatch.setattr(tree, "get", get)
    holders: list[str | None] = []
    cluster.client.before_add = lambda _: holders.append(cluster.store.underreplication.replicator_of(1))

    async def run() -> list[MoveOutcome]:
        client: Any = cluster.client
        client.store = store
        move = BookieMove(store, client, ["out"], host="drain")
        found = [row.outcome async for row in move.moved()]
        is_away[0] = False
        return found + [row.outcome async for row in move.moved()]

    assert asyncio.run(run()) == [MoveOutcome.FAILED, MoveOutcome.MOVED]
    assert set(holders) == {"drain"}
    assert cluster.store.underreplication.replicator_of(1) is None


@pytest.mark.parametrize("state", [LedgerState.CLOSED, LedgerState.IN_RECOVERY])
def test_a_ledger_that_cannot_be_looked_at_is_left_and_no_cookie_goes(
    cluster: DrainedCluster, state: LedgerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state is LedgerState.CLOSED:
        cluster.ledger(1, ledger_metadata(("out", "a", "b")))
        called: tuple[object, str] = (cluster.store.underreplication, "acquire_ledger")
    else:
        recovered_onto_the_leaving_one(cluster)
        called = (cluster.client, "read_metadata")
    monkeypatch.setattr(*called, Mock(side_effect=ConnectionFailedError("no answer")))
    result = cluster.drain()
    assert (result.exit_code, result.cookie_deleted) == (3, False)
    assert [(one.ledger, one.outcome) for one in result.rows] == [(1, MoveOutcome.FAILED)]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_lock_of_a_session_that_began_before_the_end_of_the_last_was_heard_of_is_no_reason_to_wait(
    cluster: DrainedCluster, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock counts as lost, while it is there for as long as the drain's process runs."""
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    listeners: list[Any] = []
    monkeypatch.setattr(cluster.store.registration, "add_session_listener", listeners.append)

    def hear_of_it(_: str) -> None:
        cluster.client.before_add = lambda bookie: None
        listeners[0].session_lost()
        if is_deleted:
            cluster.store.ledgers.delete_ledger(1, cluster.store.ledgers.read_ledger(1).version)

    cluster.client.before_add = hear_of_it
    settings = DrainSettings(wait_ms=200, poll_ms=1, settle_ms=0)
    assert cluster.drain(settings=settings).exit_code == 0
    assert cluster.store.underreplication.replicator_of(1) is None


def test_metadata_are_not_written_once_the_lock_is_lost(cluster: DrainedCluster) -> None:
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    before = cluster.metadata(1)
    tree, store = cluster.session()

    def lose(_: str) -> None:
        cluster.client.before_add = lambda bookie: None
        renew_session(tree, store)

    cluster.client.before_add = lose
    written = []
    cluster.client.before_write = written.append
    result = cluster.drain(store)
    assert (result.exit_code, result.rows[0].outcome) == (3, MoveOutcome.FAILED)
    assert "lock" in result.rows[0].reason
    assert (written, cluster.metadata(1)) == ([], before)
    assert cluster.drain().exit_code == 0


@pytest.mark.parametrize("is_slow", [False, True])
def test_without_a_digest_the_replica_that_leaves_is_the_source_of_its_successor(
    cluster: DrainedCluster, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that was damaged on another bookie would else become both of them."""
    if is_slow:
        monkeypatch.setattr(cluster.client, "slow_bookies", lambda: frozenset({"out"}))
    metadata = replace(ledger_metadata(("out", "a")), digest_type=DigestType.DUMMY)
    cluster.ledger(1, metadata)
    good = cluster.client.entries["out", 1, 4]
    cluster.client.damage("a", 1, 4)
    assert cluster.drain().exit_code == 0
    (segment,) = cluster.metadata(1).segments
    assert cluster.client.entries[segment.bookies[0], 1, 4] == good


def test_a_ledger_that_is_made_again_under_its_id_is_looked_at_again(cluster: DrainedCluster) -> None:
    """Its later segments are as they were, but hold more entries than were copied."""
    before = ledger_metadata(("out", "a", "b"), ("a", "out", "b"))
    cluster.ledger(1, before)

    def make_again(_: str) -> None:
        cluster.client.before_add = lambda bookie: None
        cluster.store.ledgers.delete_ledger(1, cluster.store.ledgers.read_ledger(1).version)
        after = replace(before, last_entry=before.last_entry + 5, ctime_ms=(before.ctime_ms or 0) + 1)
        cluster.ledger(1, after)

    cluster.client.before_add = make_again
    assert cluster.drain().exit_code == 0
    assert_drained(cluster, [1])


def test_a_writer_that_has_gone_on_is_not_stopped_while_nobody_tells_how_far_it_is(
    cluster: DrainedCluster,
) -> None:
    """It needs the bookie that leaves no more; a recovery that cannot end would be the end of it."""
    written = replace(ledger_metadata(("out", "a", "b"), ("a", "b", "c"), state=OPEN), ack_quorum=2)
    cluster.ledger(1, written, last_entry=14)
    cluster.client.silent = {"b", "c"}
    move = MoveSettings(RepairSettings(grace_ms=0), recover_open=True)
    result = cluster.drain(move=move)
    assert (result.exit_code, result.rows[0].outcome) == (3, MoveOutcome.FAILED)
    assert "how far" in result.rows[0].reason
    assert cluster.metadata(1).state is OPEN
    cluster.client.silent = set()
    assert cluster.drain(move=move).exit_code == 0
    assert cluster.metadata(1).state is OPEN


def test_a_ledger_is_not_recovered_once_the_lock_is_lost(
    cluster: DrainedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have it by then, and give its writer more time."""
    cluster.ledger(1, ledger_metadata(("out", "a", "b"), state=OPEN), last_entry=4)
    tree, store = cluster.session()

    async def lose(_: ClientSteps, seconds: float) -> None:
        renew_session(tree, store)

    monkeypatch.setattr(ClientSteps, "pause", lose)
    result = cluster.drain(store, move=MoveSettings(RepairSettings(grace_ms=1), recover_open=True))
    assert (result.exit_code, result.rows[0].outcome) == (3, MoveOutcome.FAILED)
    assert "lock" in result.rows[0].reason
    assert cluster.metadata(1).state is OPEN


def recovered_onto_the_leaving_one(cluster: DrainedCluster) -> LedgerMetadata:
    """A recovery that is at work has chosen the bookie in the place of c. Return what it will store."""
    after = replace(ledger_metadata(("a", "b", "c"), ("a", "b", "out")), last_entry=10)
    cluster.ledger(1, after)
    stored = cluster.store.ledgers.read_ledger(1)
    first = after.segments[:1]
    now = replace(after, state=LedgerState.IN_RECOVERY, last_entry=-1, length=0, segments=first)
    cluster.store.ledgers.update_ledger(1, now, stored.version)
    return after


def test_a_recovery_that_may_name_the_bookie_when_it_closes_its_ledger_is_waited_for(
    cluster: DrainedCluster,
) -> None:
    after = recovered_onto_the_leaving_one(cluster)
    result = cluster.drain()
    assert (result.exit_code, result.cookie_deleted) == (3, False)
    assert result.rows[0].outcome is MoveOutcome.WAITING_FOR_WRITER
    assert "bkctl ledger recover 1" in result.rows[0].reason
    cluster.client.silent.add("out")
    assert cluster.drain().exit_code == 3  # it does not tell what it has
    cluster.client.silent.clear()
    cluster.store.ledgers.update_ledger(1, after, cluster.store.ledgers.read_ledger(1).version)
    assert (cluster.drain().exit_code, cluster.missing(1)) == (0, [])
    assert_drained(cluster, [1])


def test_the_first_entry_of_the_last_ensemble_shows_such_a_recovery(cluster: DrainedCluster) -> None:
    metadata = ledger_metadata(("a", "b", "c"), ("a", "b", "d"), state=LedgerState.IN_RECOVERY)
    cluster.ledger(1, metadata, last_entry=10)
    cluster.client.entries["out", 1, 10] = cluster.client.entries["a", 1, 10]
    assert cluster.drain().rows[0].outcome is MoveOutcome.WAITING_FOR_WRITER


def test_a_ledger_that_is_being_recovered_is_closed_where_open_ones_may_be(cluster: DrainedCluster) -> None:
    recovered_onto_the_leaving_one(cluster)
    move = MoveSettings(RepairSettings(grace_ms=0), recover_open=True)
    assert cluster.drain(move=move).exit_code == 0
    assert_drained(cluster, [1])
    assert cluster.metadata(1).state is LedgerState.CLOSED


@pytest.mark.parametrize("what", ["entries of before", "nothing", "down", "unusable"])
def test_a_recovery_that_has_not_chosen_the_bookie_is_not_waited_for(
    cluster: DrainedCluster, what: str
) -> None:
    """A recovery writes to the last ensemble alone, and who is down has lost what it has anyway."""
    metadata = ledger_metadata(("a", "b", "out"), ("a", "b", "c"), state=LedgerState.IN_RECOVERY)
    cluster.ledger(1, metadata, last_entry=14)
    moved = replace(metadata, segments=(Segment(0, ("a", "b", "c")), metadata.segments[1]))
    if what == "unusable":
        moved = replace(moved, ensemble_size=4)
    elif what == "nothing":
        cluster.client.lose("out", 1, range(10))
    elif what == "down":
        cluster.client.entries["out", 1, 12] = cluster.client.entries["a", 1, 12]
        cluster.client.silent.add("out")
        cluster.go("out", read_only=True)
    cluster.store.ledgers.update_ledger(1, moved, cluster.store.ledgers.read_ledger(1).version)
    assert (cluster.drain().exit_code, cluster.metadata(1)) == (0, moved)


def test_a_drain_is_stopped_also_while_the_store_does_not_answer(
    cluster: DrainedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock ends with the session then; a bookie whose HTTP admin has begun it has to stop, too."""
    cluster.ledger(1, ledger_metadata(("out", "a", "b")))
    monkeypatch.setattr(bookie_move, "_GIVE_BACK_S", 0.1)

    async def run() -> bool:
        copies = asyncio.Event()
        cluster.client.before_add = lambda bookie: copies.set()
        cluster.client.store = cluster.store
        client: Any = cluster.client
        move = BookieMove(cluster.store, client, ["out"])
        drain = asyncio.create_task(BookieDrain(cluster.store, client, move).run())
        await copies.wait()
        away = Mock(side_effect=ConnectionFailedError("the store is away"))
        monkeypatch.setattr(cluster.tree, "get", away)
        drain.cancel()
        ended, _ = await asyncio.wait({drain}, timeout=30)
        drain.cancel()
        return bool(ended)

    assert asyncio.run(run())
