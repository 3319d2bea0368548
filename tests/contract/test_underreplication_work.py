"""Marking, taking and finishing ledgers, watches of nodes and the election, over every metadata store."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from bkctl.codec.underreplication import CheckKind, UnderreplicatedMark, mark_path
from bkctl.errors import ConnectionFailedError, CorruptionError, RefusedError
from bkctl.metadata.api import VersionConflictError
from bkctl.metadata.autorecovery_api import AuditorElection
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import ANY_VERSION, GuardMissingError, Node, NodeExistsError, NodeMissingError
from tests.support.autorecovery_nodes import holder_text, mark_text
from tests.support.metadata_sites import (  # noqa: F401 - two of them are fixtures
    PATIENCE_S,
    Site,
    site_fixture,
    store_fixture,
)
from tests.support.zookeeper import zookeeper_server  # noqa: F401 - a fixture

A, B, C = "bookie-a:3181", "bookie-b:3181", "bookie-c:3181"
NOW_MS = 1_795_263_329_069


def node_data(store: TreeMetadataStore, path: str) -> bytes | None:
    node = store._tree.get(f"{store.root}/{path}")
    return None if node is None else node.data


def put(store: TreeMetadataStore, path: str, data: bytes) -> None:
    store._tree.create_with_parents(f"{store.root}/{path}", data, below=store.root)


# --- watches of a node --------------------------------------------------------------------------------------


class Seen:
    """What a watch saw when it was called: the version, or None without a node."""

    def __init__(self, store: TreeMetadataStore, path: str) -> None:
        self.seen: queue.Queue[tuple[int, int] | None] = queue.Queue()
        tree = store._tree

        def look() -> None:
            node = tree.get(path)
            self.seen.put(None if node is None else (node.version, node.owner))

        self.watch = tree.watch_node(path, look)

    def until(self, wanted: Callable[[tuple[int, int] | None], bool]) -> None:
        while not wanted(self.seen.get(timeout=PATIENCE_S)):
            pass


def test_a_watch_of_a_node_hears_of_its_making_each_rewrite_and_its_deletion(
    site: Site, store: TreeMetadataStore
) -> None:
    path = f"{store.root}/watched"
    seen = Seen(store, path)
    seen.until(lambda state: state is None)
    other = site.open()._tree
    other.create(path, b"same")
    seen.until(lambda state: state == (0, 0))
    other.set(path, b"same", 0)
    seen.until(lambda state: state == (1, 0))
    other.delete(path)
    seen.until(lambda state: state is None)
    seen.watch.close()
    other.create(path, b"after the end")
    another = Seen(store, path)
    another.until(lambda state: state == (0, 0))
    another.watch.close()
    assert seen.seen.empty()


def test_a_watch_hears_that_a_session_took_its_node_along(site: Site, store: TreeMetadataStore) -> None:
    path = f"{store.root}/watched"
    other = site.open()
    other._tree.create(path, b"", ephemeral=True)
    seen = Seen(store, path)
    seen.until(lambda state: state is not None)
    site.expire(other)
    seen.until(lambda state: state is None)
    seen.watch.close()


def test_a_watch_of_a_node_goes_on_after_a_lost_session(site: Site, store: TreeMetadataStore) -> None:
    path = f"{store.root}/watched"
    store._tree.create(path, b"")
    store._tree.session()
    seen = Seen(store, path)
    seen.until(lambda state: state == (0, 0))
    site.expire(store)
    site.open()._tree.set(path, b"x", 0)
    seen.until(lambda state: state == (1, 0))
    seen.watch.close()


# --- the folders, marks, time stamps ------------------------------------------------------------------------


def test_what_the_first_auditor_or_worker_makes(store: TreeMetadataStore) -> None:
    for _ in range(2):
        store.underreplication.prepare()
        assert node_data(store, "underreplication/LAYOUT") == b'type: "BASIC"\nversion: 1\n'
        assert node_data(store, "underreplication/ledgers") == b""
        assert node_data(store, "underreplication/locks") == b""


def test_another_arrangement_is_refused(store: TreeMetadataStore) -> None:
    put(store, "underreplication/LAYOUT", b'type: "FANCY"\nversion: 1\n')
    with pytest.raises(RefusedError, match="FANCY 1"):
        store.underreplication.prepare()


def test_a_cluster_that_elects_by_pulsars_own_driver_is_refused(store: TreeMetadataStore) -> None:
    put(store, "underreplication/leader", b'{"value":"pulsar"}')
    with pytest.raises(RefusedError, match=r"underreplication/leader.*Pulsar"):
        store.underreplication.prepare()
    with pytest.raises(RefusedError, match="Pulsar"):
        store.auditor_election(A, lambda: None).run()


def test_a_mark_grows_and_its_time_is_that_of_the_last_growth(store: TreeMetadataStore) -> None:
    known = store.underreplication
    assert known.mark(3, [A], NOW_MS)
    assert node_data(store, mark_path(3)) == mark_text(UnderreplicatedMark((A,), NOW_MS))
    assert known.mark(3, [B, A, B], NOW_MS + 1)
    assert node_data(store, mark_path(3)) == mark_text(UnderreplicatedMark((A, B), NOW_MS + 1))
    # Java writes nothing either when nobody new is missing: whoever has taken the ledger may finish it.
    assert not known.mark(3, [A], NOW_MS + 2)
    assert not known.mark(3, [], NOW_MS + 2)
    assert known.mark_of(3) == UnderreplicatedMark((A, B), NOW_MS + 1)
    assert known.mark(4, [], None)
    assert node_data(store, mark_path(4)) == b""


def test_what_an_auditor_writes_stands_beside_its_vote(site: Site, store: TreeMetadataStore) -> None:
    known, vote = store.underreplication, f"{store.root}/vote"
    for write in (
        lambda: known.mark(3, [A], NOW_MS, guard=vote),
        lambda: known.set_checked_at(CheckKind.REPLICAS, NOW_MS, guard=vote),
    ):
        with pytest.raises(GuardMissingError, match="vote"):
            write()
    assert known.mark_of(3) is None
    assert known.checked_at(CheckKind.REPLICAS) is None
    other = site.open()
    other._tree.create(vote, b"", ephemeral=True)
    assert known.mark(3, [A], NOW_MS, guard=vote)
    assert known.mark(3, [B], NOW_MS + 1, guard=vote)
    known.set_checked_at(CheckKind.REPLICAS, NOW_MS, guard=vote)
    other.close()
    with pytest.raises(GuardMissingError, match="vote"):
        known.mark(3, [C], NOW_MS + 2, guard=vote)
    assert known.mark_of(3) == UnderreplicatedMark((A, B), NOW_MS + 1)
    assert known.checked_at(CheckKind.REPLICAS) == NOW_MS


def test_a_write_beside_another_node_is_refused_as_any_write_is(store: TreeMetadataStore) -> None:
    tree, guard, path = store._tree, f"{store.root}/guard", f"{store.root}/guarded"
    tree.create(guard, b"")
    with pytest.raises(NodeMissingError):
        tree.write_beside(guard, path, b"x", 0)
    with pytest.raises(NodeMissingError):
        tree.write_beside(guard, f"{path}/below", b"x", None)
    tree.write_beside(guard, path, b"x", None)
    with pytest.raises(NodeExistsError):
        tree.write_beside(guard, path, b"y", None)
    tree.write_beside(guard, path, b"y", 0)
    with pytest.raises(VersionConflictError):
        tree.write_beside(guard, path, b"z", 0)
    node = tree.get(path)
    assert node is not None
    assert (node.data, node.version) == (b"y", 1)


def test_marks_of_many_processes_are_all_kept(site: Site, store: TreeMetadataStore) -> None:
    bookies = [f"bookie-{number}:3181" for number in range(6)]
    stores = [site.open() for _ in bookies]
    markers = [
        threading.Thread(target=each.underreplication.mark, args=(3, [bookie], NOW_MS))
        for each, bookie in zip(stores, bookies, strict=True)
    ]
    for marker in markers:
        marker.start()
    for marker in markers:
        marker.join()
    found = store.underreplication.mark_of(3)
    assert found is not None
    assert sorted(found.replicas) == bookies


def test_a_damaged_mark_is_not_overwritten(store: TreeMetadataStore) -> None:
    put(store, mark_path(3), b"garbage")
    with pytest.raises(CorruptionError, match="urL0000000003"):
        store.underreplication.mark(3, [A], NOW_MS)
    taken = store.underreplication.acquire()
    assert taken is not None
    assert (taken.ledger, taken.mark) == (3, UnderreplicatedMark(()))


@pytest.mark.parametrize("kind", CheckKind)
def test_when_a_check_was_completed(store: TreeMetadataStore, kind: CheckKind) -> None:
    known = store.underreplication
    assert known.checked_at(kind) is None
    for completed_ms in (1_795_261_242_994, 1_795_261_242_995):
        known.set_checked_at(kind, completed_ms)
        assert known.checked_at(kind) == completed_ms
    assert node_data(store, f"underreplication/{kind.value}") == bytes.fromhex("08f3bca2ef9f34")


def test_the_first_delay_stays(store: TreeMetadataStore) -> None:
    known = store.underreplication
    assert known.initial_lost_bookie_recovery_delay(30) == 30
    assert known.initial_lost_bookie_recovery_delay(60) == 30
    node = store._tree.get(f"{store.root}/underreplication/lostBookieRecoveryDelay")
    assert node is not None
    assert node.version == 0  # a write would make an auditor look


# --- taking and finishing -----------------------------------------------------------------------------------


def test_a_taken_ledger_is_nobody_elses_until_it_is_given_back(site: Site, store: TreeMetadataStore) -> None:
    ours, theirs = store.underreplication, site.open().underreplication
    assert ours.acquire() is None
    ours.mark(3, [A], NOW_MS)
    taken = ours.acquire(host="worker-7")
    assert taken is not None
    assert (taken.ledger, taken.mark, taken.version) == (3, UnderreplicatedMark((A,), NOW_MS), 0)
    assert ours.is_held(taken)
    assert node_data(store, "underreplication/locks/urL0000000003") == holder_text("worker-7")
    assert (theirs.acquire(), theirs.acquire_ledger(3)) == (None, None)
    ours.release(taken)
    ours.release(taken)
    assert not ours.is_held(taken)
    assert ours.mark_of(3) is not None
    again = theirs.acquire()
    assert again is not None
    assert not ours.is_held(taken)
    ours.release(taken)  # theirs stays
    assert theirs.is_held(again)


def test_a_lock_that_a_failed_call_has_left_is_adopted(site: Site, store: TreeMetadataStore) -> None:
    """The answer got lost, and nobody in this process knows that the lock is its own."""
    other = site.open()
    store.underreplication.mark(7, [A], NOW_MS)
    store.underreplication.mark(8, [A], NOW_MS)
    lost = store.underreplication.acquire_ledger(7, host="us")
    theirs = other.underreplication.acquire_ledger(8, host="them")
    assert lost is not None
    assert theirs is not None
    assert store.underreplication.acquire() is None
    assert store.underreplication.acquire(skip=(7,), adopt=True) is None
    assert store.underreplication.acquire_ledger(8, host="us", unmarked=True, adopt=True) is None
    assert store.underreplication.acquire(adopt=True, host="us") == lost
    assert store.underreplication.finish(lost)
    assert other.underreplication.is_held(theirs)


def test_all_marks_are_found_but_those_to_be_skipped(store: TreeMetadataStore) -> None:
    known = store.underreplication
    ledgers = {3, 4, 0x10003, 1 << 40, 1234567890123456789}
    for ledger in ledgers:
        known.mark(ledger, [A], NOW_MS)
    put(store, "underreplication/ledgers/0000/0000/0000/0003/foreign", b"x")
    found = set()
    while (taken := known.acquire(skip={4})) is not None:
        found.add(taken.ledger)
    assert found == ledgers - {4}


def test_while_disabled_nothing_is_taken(store: TreeMetadataStore) -> None:
    known = store.underreplication
    known.mark(3, [A], NOW_MS)
    known.set_enabled(False)
    assert known.acquire() is None
    known.set_enabled(True)
    assert known.acquire() is not None


def test_what_is_finished_leaves_nothing_behind(store: TreeMetadataStore) -> None:
    known = store.underreplication
    known.prepare()
    known.mark(3, [A], NOW_MS)
    known.mark(0x20003, [A], NOW_MS)
    for ledger in (3, 0x20003):
        taken = known.acquire_ledger(ledger)
        assert taken is not None
        assert known.finish(taken)
        assert known.mark_of(ledger) is None
        assert store._tree.children(f"{store.root}/underreplication/locks") == []
    # Java removes the folder of the marks' four directories only, and so do we.
    assert store._tree.children(f"{store.root}/underreplication/ledgers") == []


def test_a_mark_made_anew_outlives_the_finish(store: TreeMetadataStore) -> None:
    known = store.underreplication
    known.mark(3, [A], NOW_MS)
    taken = known.acquire()
    assert taken is not None
    known.mark(3, [B], NOW_MS + 1)
    assert not known.finish(taken)
    assert known.mark_of(3) == UnderreplicatedMark((A, B), NOW_MS + 1)
    again = known.acquire()  # the lock was given back
    assert again is not None
    assert known.finish(again)


def test_a_mark_that_is_asked_for_again_outlives_the_finish(site: Site, store: TreeMetadataStore) -> None:
    """The bookie was up when the worker looked, and is gone again: no auditor would miss it once more."""
    auditor = site.open().underreplication
    auditor.mark(3, [A], NOW_MS)
    taken = store.underreplication.acquire(host="worker")
    assert taken is not None
    assert not auditor.mark(3, [A], NOW_MS + 1)
    assert not store.underreplication.finish(taken)
    assert auditor.mark_of(3) == UnderreplicatedMark((A,), NOW_MS)
    again = store.underreplication.acquire()
    assert again is not None
    assert store.underreplication.finish(again)
    # Where nobody works on it nothing is written.
    auditor.mark(3, [A], NOW_MS)
    assert not auditor.mark(3, [A], NOW_MS + 1)
    taken = store.underreplication.acquire()
    assert taken is not None
    assert taken.version == 0


def test_a_mark_that_is_asked_for_again_while_a_worker_finishes_is_there(
    site: Site, store: TreeMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker deletes the mark and its lock between the auditor's looks at the one and at the other."""
    auditor = site.open()
    auditor.underreplication.mark(3, [A], NOW_MS)
    taken = store.underreplication.acquire()
    assert taken is not None
    get = auditor._tree.get

    def finish_before_a_look_at_the_lock(path: str) -> Node | None:
        if "/locks/" in path:
            store.underreplication.finish(taken)
        return get(path)

    monkeypatch.setattr(auditor._tree, "get", finish_before_a_look_at_the_lock)
    auditor.underreplication.mark(3, [A], NOW_MS + 1)
    assert auditor.underreplication.mark_of(3) is not None


def test_a_finish_that_is_tried_again_leaves_a_mark_made_since(
    site: Site, store: TreeMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the deletion was lost; the version of a mark made anew is that of the deleted one."""
    known = store.underreplication
    known.mark(3, [A], NOW_MS)
    taken = known.acquire()
    assert taken is not None
    delete = store._tree.delete

    def lose_the_answer(path: str, version: int = ANY_VERSION) -> None:
        delete(path, version)
        raise ConnectionFailedError("no answer")

    with monkeypatch.context() as lossy:
        lossy.setattr(store._tree, "delete", lose_the_answer)
        with pytest.raises(ConnectionFailedError):
            known.finish(taken)
    time.sleep(0.005)
    site.open().underreplication.mark(3, [B], NOW_MS)
    assert not known.finish(taken)
    assert known.mark_of(3) == UnderreplicatedMark((B,), NOW_MS)
    assert known.replicator_of(3) is None


def test_a_mark_that_somebody_removed_is_finished(site: Site, store: TreeMetadataStore) -> None:
    known = store.underreplication
    known.mark(3, [A], NOW_MS)
    taken = known.acquire()
    assert taken is not None
    store._tree.delete(f"{store.root}/{mark_path(3)}")
    assert known.finish(taken)
    assert known.acquire_ledger(3) is None
    assert store.underreplication.replicator_of(3) is None


def test_with_the_session_the_lock_is_lost_and_nothing_is_finished(
    site: Site, store: TreeMetadataStore
) -> None:
    ours, theirs = store.underreplication, site.open().underreplication
    ours.mark(3, [A], NOW_MS)
    taken = ours.acquire()
    assert taken is not None
    lost = threading.Event()
    watch = store._tree.watch_node(
        f"{store.root}/underreplication/locks/urL0000000003",
        lambda: None if ours.is_held(taken) else lost.set(),
    )
    site.expire(store)
    assert lost.wait(PATIENCE_S)
    watch.close()
    assert not ours.is_held(taken)
    again = theirs.acquire()
    assert again is not None
    assert not ours.finish(taken)
    assert theirs.is_held(again)
    assert theirs.mark_of(3) is not None


def test_a_worker_hears_of_marks_of_locks_and_of_the_switch(site: Site, store: TreeMetadataStore) -> None:
    ours, theirs = store.underreplication, site.open().underreplication
    ours.prepare()
    changed = threading.Event()
    watch = ours.watch_work(changed.set)

    def heard() -> None:
        assert changed.wait(PATIENCE_S)
        changed.clear()

    heard()
    theirs.mark(3, [A], NOW_MS)
    heard()
    taken = theirs.acquire()
    assert taken is not None
    while True:  # one report may stand for several changes, and several come for one
        heard()
        if ours.acquire() is None:
            break
    theirs.release(taken)
    while (mine := ours.acquire()) is None:
        heard()
    ours.release(mine)
    theirs.set_enabled(False)
    while ours.enabled():
        heard()
    theirs.set_enabled(True)
    while not ours.enabled():
        heard()
    watch.close()


def test_the_delay_and_the_switch_are_watched(site: Site, store: TreeMetadataStore) -> None:
    ours, theirs = store.underreplication, site.open().underreplication
    ours.set_lost_bookie_recovery_delay(30)
    versions: queue.Queue[int] = queue.Queue()

    def look() -> None:
        node = store._tree.get(f"{store.root}/underreplication/lostBookieRecoveryDelay")
        versions.put(-1 if node is None else node.version)

    watch = ours.watch_lost_bookie_recovery_delay(look)
    while versions.get(timeout=PATIENCE_S) != 0:
        pass
    theirs.set_lost_bookie_recovery_delay(30)
    while versions.get(timeout=PATIENCE_S) != 1:
        pass
    watch.close()


# --- the election -------------------------------------------------------------------------------------------


class Candidate:
    """A candidate whose :meth:`run` is waited for in a thread."""

    def __init__(self, store: TreeMetadataStore, bookie: str) -> None:
        self.store = store
        self.lost = threading.Event()
        self.election: AuditorElection = store.auditor_election(bookie, self.lost.set)
        self.outcome: queue.Queue[bool] = queue.Queue()
        self.stand()

    def stand(self) -> None:
        self.thread = threading.Thread(target=lambda: self.outcome.put(self.election.run()), daemon=True)
        self.thread.start()

    def elected(self) -> bool:
        return self.outcome.get(timeout=PATIENCE_S)

    def wait_for_a_vote(self, votes: int) -> None:
        """Until so many votes are there."""
        counted = threading.Event()
        tree, folder = self.store._tree, f"{self.store.root}/underreplication/auditorelection"
        watch = tree.watch_children(
            folder, lambda: counted.set() if len(tree.children(folder) or ()) == votes else None
        )
        assert counted.wait(PATIENCE_S)
        watch.close()


def test_the_first_is_elected_and_the_next_when_it_resigns(site: Site, store: TreeMetadataStore) -> None:
    first = Candidate(store, A)
    assert first.elected()
    assert first.election.is_elected()
    assert node_data(store, "underreplication/auditorelection") == holder_text(A)
    second = Candidate(site.open(), B)
    second.wait_for_a_vote(2)
    third = Candidate(site.open(), C)
    third.wait_for_a_vote(3)
    assert second.outcome.empty()
    assert not second.election.is_elected()
    assert store.underreplication.auditor() == A
    first.election.resign()
    assert second.elected()
    assert store.underreplication.auditor() == B
    assert node_data(store, "underreplication/auditorelection") == holder_text(B)
    assert third.outcome.empty()
    third.election.resign()
    assert not third.elected()
    second.election.resign()
    assert not second.lost.is_set()
    assert store.underreplication.auditor() is None


def test_a_candidate_in_the_middle_that_goes_elects_nobody(site: Site, store: TreeMetadataStore) -> None:
    first = Candidate(store, A)
    assert first.elected()
    middle = Candidate(site.open(), B)
    middle.wait_for_a_vote(2)
    last = Candidate(site.open(), C)
    last.wait_for_a_vote(3)
    middle.election.resign()
    assert not middle.elected()
    last.wait_for_a_vote(2)
    assert last.outcome.empty()
    first.election.resign()
    assert last.elected()
    last.election.resign()


def test_a_candidate_that_resigns_while_it_votes_leaves_no_vote(
    store: TreeMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other one would be elected as long as its session lives."""
    tree, folder = store._tree, f"{store.root}/underreplication/auditorelection"
    election = store.auditor_election(A, lambda: None)
    create = tree.create

    def resign_first(path: str, *args: Any, **how: Any) -> str:
        if path.startswith(f"{folder}/"):
            election.resign()
        return create(path, *args, **how)

    monkeypatch.setattr(tree, "create", resign_first)
    assert not election.run()
    assert not tree.children(folder)
    assert not election.is_elected()


def test_with_its_session_the_auditor_loses_its_office(site: Site, store: TreeMetadataStore) -> None:
    first, second = Candidate(store, A), Candidate(site.open(), B)
    elected, other = (first, second) if _is_first(first, second) else (second, first)
    site.expire(elected.store)
    assert elected.lost.wait(PATIENCE_S)
    assert not elected.election.is_elected()
    assert other.elected()
    elected.stand()  # again, behind the other one
    elected.wait_for_a_vote(2)
    assert elected.outcome.empty()
    other.election.resign()
    assert elected.elected()
    elected.election.resign()


def _is_first(first: Candidate, second: Candidate) -> bool:
    while True:
        for candidate in (first, second):
            try:
                assert candidate.outcome.get(timeout=0.05)
            except queue.Empty:
                continue
            return candidate is first


def test_a_waiting_candidate_that_loses_its_session_votes_again(site: Site, store: TreeMetadataStore) -> None:
    first = Candidate(store, A)
    assert first.elected()
    second = Candidate(site.open(), B)
    second.wait_for_a_vote(2)
    site.expire(second.store)
    second.wait_for_a_vote(2)
    assert not second.lost.is_set()
    first.election.resign()
    assert second.elected()
    assert second.election.is_elected()
    second.election.resign()


def test_a_vote_that_somebody_deletes_is_the_end_of_the_office(site: Site, store: TreeMetadataStore) -> None:
    first = Candidate(store, A)
    assert first.elected()
    tree, folder = site.open()._tree, f"{store.root}/underreplication/auditorelection"
    for name in tree.children(folder) or ():
        tree.delete(f"{folder}/{name}")
    assert first.lost.wait(PATIENCE_S)
    assert not first.election.is_elected()
    first.election.resign()


def test_a_session_has_one_vote_also_after_a_lost_answer(
    site: Site, store: TreeMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the vote that nobody knows of stays when the known one is withdrawn, and nobody is auditor."""
    create = store._tree.create

    def twice(path: str, data: bytes = b"", *, sequence: bool = False, **how: bool) -> str:
        if sequence:
            create(path, data, sequence=True, **how)  # carried out, and its answer got lost
        return create(path, data, sequence=sequence, **how)

    monkeypatch.setattr(store._tree, "create", twice)
    first = Candidate(store, A)
    assert first.elected()
    votes = store._tree.children(f"{store.root}/underreplication/auditorelection")
    assert votes == ["V_0000000000"]
    second = Candidate(site.open(), B)
    second.wait_for_a_vote(2)
    first.election.resign()
    assert second.elected()
    second.election.resign()
    with pytest.raises(NodeMissingError):
        store._tree.delete(f"{store.root}/underreplication/auditorelection/V_0000000001")


def test_a_candidate_that_waits_for_long_watches_once(
    site: Site, store: TreeMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that keeps each watch until it fires would hold one more with every look."""
    monkeypatch.setattr("bkctl.metadata.auditor_election._LOOK_AGAIN_S", 0.01)
    first = Candidate(store, A)
    assert first.elected()
    waiting = site.open()
    watched: list[str] = []
    looks = threading.Semaphore(0)
    watch, children = waiting._tree.watch_node, waiting._tree.children

    def watch_node(path: str, changed: Callable[[], None]) -> object:
        watched.append(path)
        return watch(path, changed)

    def listed(path: str) -> list[str] | None:
        looks.release()
        return children(path)

    monkeypatch.setattr(waiting._tree, "watch_node", watch_node)
    monkeypatch.setattr(waiting._tree, "children", listed)
    second = Candidate(waiting, B)
    for _ in range(10):
        assert looks.acquire(timeout=PATIENCE_S)
    assert len(watched) == 1
    first.election.resign()
    assert second.elected()
    second.election.resign()
