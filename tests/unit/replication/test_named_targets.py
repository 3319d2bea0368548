"""Targets of a drain's copies that die, or say nothing, when the metadata name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bkctl.client.machine import Event, Instruction, MetadataFailed, ReadMetadata, WriteMetadata
from bkctl.client.ops.metadata_update import UNKNOWN_MAX
from bkctl.errors import ConnectionFailedError
from bkctl.metadata.api import StoredLedger
from bkctl.replication.bookie_drain import DrainSettings
from bkctl.replication.ledger_move import LedgerMove
from bkctl.replication.moved_ledger import MovedLedger, MoveOutcome
from tests.support.audited_cluster import ledger_metadata
from tests.support.drained_cluster import DrainedCluster
from tests.unit.replication.test_bookie_drain import assert_drained, renew_session


@pytest.fixture
def cluster() -> Iterator[DrainedCluster]:
    made = DrainedCluster("abcd")
    yield made
    made.close()


@pytest.mark.parametrize("lost", [False, True])
def test_a_target_that_dies_before_it_is_named_does_not_keep_the_place(
    cluster: DrainedCluster, lost: bool
) -> None:
    """The store was away, say: the bookie that leaves has the only copy that anybody can read."""
    cluster.ledger(1, ledger_metadata(("out",)))
    tree, store = cluster.session()
    dead: list[str] = []

    def die(ledger: int) -> None:
        if not dead:
            dead.extend({bookie for bookie, *_ in cluster.client.entries} - {"out"})
            cluster.client.silent.update(dead)
            if lost:
                renew_session(tree, store)

    cluster.client.before_write = die
    settings = DrainSettings(wait_ms=200, poll_ms=1, settle_ms=0)
    assert cluster.drain(store, settings=settings).exit_code == 0
    (segment,) = cluster.metadata(1).segments
    assert dead
    assert segment.bookies[0] not in dead
    assert_drained(cluster, [1])


def test_a_drain_is_not_done_while_neither_the_target_nor_the_bookie_tells_what_it_has(
    cluster: DrainedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way to both was cut, say; who leaves may have the only copy."""
    cluster.ledger(1, ledger_metadata(("out",)))
    silent = cluster.client.silent

    def cut(_: int) -> None:
        silent.update({bookie for bookie, *_ in cluster.client.entries})

    cluster.client.before_write = cut
    result = cluster.drain()
    assert (result.exit_code, result.cookie_deleted) == (3, False)
    assert (result.rows[0].outcome, "not answer" in result.rows[0].reason) == (MoveOutcome.FAILED, True)
    silent.clear()
    cluster.ledger(2, ledger_metadata(("out",)))
    moves = LedgerMove._row

    def then_mended(move: LedgerMove, outcome: MoveOutcome, *reason: str) -> MovedLedger:
        silent.clear()
        return moves(move, outcome, *reason)

    monkeypatch.setattr(LedgerMove, "_row", then_mended)
    result = cluster.drain(settings=DrainSettings(wait_ms=2_000, poll_ms=1, settle_ms=0))
    assert (result.exit_code, result.moved) == (0, 1)
    assert_drained(cluster, [1, 2])


class AwayStore:
    """A store that goes away at the ``number``-th write of a ledger's metadata, which it may carry out."""

    def __init__(self, cluster: DrainedCluster, patch: pytest.MonkeyPatch, number: int) -> None:
        self._ledgers, self._left, self._asks = cluster.store.ledgers, number, 0
        self._event = cluster.client._event
        self.went_away = False
        #: Called when the write was carried out; None where it is not.
        self.behind_write: Callable[[], None] | None = None
        patch.setattr(cluster.client, "_event", self.event)
        patch.setattr(cluster.client, "read_metadata", self.read_metadata)

    def event(self, instruction: Instruction) -> Event:
        if not isinstance(instruction, WriteMetadata | ReadMetadata):
            return self._event(instruction)
        failed = MetadataFailed(instruction.token, ConnectionFailedError("no answer"))
        if self._asks:
            self._asks -= 1
            return failed
        self._left -= isinstance(instruction, WriteMetadata)
        if self._left or self.went_away:
            return self._event(instruction)
        self.went_away = True
        # Longer than the write waits, and the next try finds it away as well.
        self._asks = UNKNOWN_MAX + 1
        if self.behind_write is not None:
            self._event(instruction)
            self.behind_write()
        return failed

    async def read_metadata(self, ledger: int) -> StoredLedger:
        if self._asks:
            self._asks -= 1
            raise ConnectionFailedError("no answer")
        return self._ledgers.read_ledger(ledger)


@pytest.mark.parametrize("lost", ["the answer to the name", "the place that is given back"])
def test_a_target_that_could_not_be_asked_when_it_was_named_is_asked_later(
    cluster: DrainedCluster, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    cluster.ledger(1, ledger_metadata(("out",)))
    dead: list[str] = []

    def die(_: int = 1) -> None:
        if not dead:
            dead.extend({bookie for bookie, *_ in cluster.client.entries} - {"out"})
            cluster.client.silent.update(dead)

    if lost == "the answer to the name":
        store = AwayStore(cluster, monkeypatch, 1)
        store.behind_write = die
    else:
        store = AwayStore(cluster, monkeypatch, 2)
        cluster.client.before_write = die
    result = cluster.drain(settings=DrainSettings(wait_ms=2_000, poll_ms=1, settle_ms=0))
    assert (store.went_away, result.exit_code, result.moved) == (True, 0, 1)
    (segment,) = cluster.metadata(1).segments
    assert dead
    assert segment.bookies[0] not in dead
    assert_drained(cluster, [1])
