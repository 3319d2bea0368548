"""Marks, votes and switches of autorecovery, over every kind of metadata store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.underreplication import UnderreplicatedMark, mark_name, mark_path
from bkctl.errors import CorruptionError
from bkctl.metadata.api import NoClusterError
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from tests.support.autorecovery_nodes import holder_text, mark_text
from tests.support.cluster_removal import remove_cluster
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

MARK = UnderreplicatedMark(("bookie-1:3181", "bookie-2:3181"), 1795263329069)


@pytest.fixture(params=["memory", "embedded", pytest.param("zookeeper", marks=pytest.mark.interop)])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    unique = uuid.uuid4().hex
    if request.param == "memory":
        return f"memory://{unique}"
    if request.param == "embedded":
        return f"embedded://{tmp_path}/metadata.db"
    server: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
    return f"zk://{server.address}/{unique}-ledgers"


@pytest.fixture
def store(uri: str) -> Iterator[TreeMetadataStore]:
    with open_metadata_store(uri) as opened:
        assert isinstance(opened, TreeMetadataStore)
        opened.layout.initialise_cluster()
        yield opened


def put(store: TreeMetadataStore, path: str, data: bytes) -> None:
    """As Java's autorecovery leaves it."""
    store._tree.create_with_parents(f"{store.root}/{path}", data, below=store.root)


def test_a_new_cluster_has_nothing(store: TreeMetadataStore) -> None:
    known = store.underreplication
    assert (known.enabled(), known.auditor(), known.lost_bookie_recovery_delay_s()) == (True, None, None)
    assert (known.mark_of(3), known.replicator_of(3), list(known.marked_ledgers())) == (None, None, [])


def test_without_a_cluster_that_is_what_is_said(uri: str) -> None:
    with open_metadata_store(uri) as opened:
        known = opened.underreplication
        questions: list[Callable[[], object]] = [
            known.enabled,
            known.auditor,
            known.lost_bookie_recovery_delay_s,
            lambda: known.set_enabled(False),
            lambda: known.set_lost_bookie_recovery_delay(1),
            lambda: known.mark_of(3),
            lambda: known.replicator_of(3),
            lambda: list(known.marked_ledgers()),
            known.locks,
        ]
        for question in questions:
            with pytest.raises(NoClusterError):
                question()


def test_marks_are_listed_ascending_and_found_by_ledger(store: TreeMetadataStore) -> None:
    ledgers = [1234567890123456789, 3, 2147483646, 0x10000, 0xFFFF]
    for ledger in ledgers:
        put(store, mark_path(ledger), mark_text(MARK))
    put(store, "underreplication/ledgers/0000/0000/0000/0003/foreign", b"x")
    put(store, "underreplication/ledgers/foreign", b"x")
    put(store, f"underreplication/locks/{mark_name(3)}", holder_text("worker-7"))
    known = store.underreplication
    assert list(known.marked_ledgers()) == [(ledger, MARK) for ledger in sorted(ledgers)]
    assert (known.mark_of(3), known.replicator_of(3)) == (MARK, "worker-7")
    assert (known.mark_of(4), known.replicator_of(0xFFFF)) == (None, None)
    put(store, f"underreplication/locks/{mark_name(1 << 40)}", holder_text("worker-8"))
    put(store, "underreplication/locks/foreign", b"x")
    assert {ledger: lock.host for ledger, lock in known.locks().items()} == {
        3: "worker-7",
        1 << 40: "worker-8",
    }
    assert known.locks()[3] == known.lock_of(3)
    put(store, f"underreplication/locks/{mark_name(4)}", b"\xff")
    assert (len(known.locks()), known.locks()[4].host) == (3, "")
    assert mark_name(4) in known.locks()[4].damage


def test_a_cluster_that_goes_is_not_the_end_of_the_list(store: TreeMetadataStore) -> None:
    """Else an operator would take the rest for replicated."""
    for ledger in (3, 1 << 40):
        put(store, mark_path(ledger), mark_text(MARK))
    listing = store.underreplication.marked_ledgers()
    assert next(listing) == (3, MARK)
    remove_cluster(store)
    with pytest.raises(NoClusterError):
        list(listing)


def test_the_lowest_vote_is_the_auditors_whatever_the_parent_says(store: TreeMetadataStore) -> None:
    put(store, "underreplication/auditorelection", holder_text("long-gone:3181"))
    assert store.underreplication.auditor() is None
    put(store, "underreplication/auditorelection/V_0000000009", holder_text("second:3181"))
    put(store, "underreplication/auditorelection/V_0000000002", holder_text("first:3181"))
    assert store.underreplication.auditor() == "first:3181"


def test_the_switches(store: TreeMetadataStore) -> None:
    known = store.underreplication
    for enabled in (False, False, True, True):
        known.set_enabled(enabled)
        assert known.enabled() is enabled
    for seconds in (30, 30, 0):
        known.set_lost_bookie_recovery_delay(seconds)
        assert known.lost_bookie_recovery_delay_s() == seconds
    node = store._tree.get(f"{store.root}/underreplication/lostBookieRecoveryDelay")
    assert node is not None
    # The same value is written again: that is what makes an auditor look.
    assert (node.data, node.version) == (b"0", 2)
    assert known.lost_bookie_recovery_delay_written() == (0, 2)


def test_only_the_delay_is_everybodys(store: TreeMetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java has it, in a cluster with access control too."""
    created: dict[str, bool] = {}
    create = store._tree.create_with_parents

    def seen(path: str, data: bytes, *, open_to_all: bool = False, **how: Any) -> Any:
        created[path.rpartition("/")[2]] = open_to_all
        return create(path, data, open_to_all=open_to_all, **how)

    monkeypatch.setattr(store._tree, "create_with_parents", seen)
    store.underreplication.set_lost_bookie_recovery_delay(1)
    store.underreplication.set_enabled(False)
    assert created == {"lostBookieRecoveryDelay": True, "disable": False}


def test_damage_names_the_node(store: TreeMetadataStore) -> None:
    put(store, mark_path(3), b"garbage")
    put(store, "underreplication/lostBookieRecoveryDelay", b"soon")
    known = store.underreplication
    questions: list[Callable[[], object]] = [lambda: known.mark_of(3), lambda: list(known.marked_ledgers())]
    for question in questions:
        with pytest.raises(CorruptionError, match="urL0000000003"):
            question()
    with pytest.raises(CorruptionError, match="lostBookieRecoveryDelay"):
        known.lost_bookie_recovery_delay_s()
