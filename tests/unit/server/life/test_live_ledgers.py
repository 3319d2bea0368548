"""What a bookie asks the metadata store about its ledgers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkctl.errors import RefusedError
from bkctl.server.life.live_ledgers import LiveLedgers
from tests.support.audited_cluster import ledger_metadata
from tests.support.drained_cluster import DrainedCluster


@pytest.fixture
def cluster() -> Iterator[DrainedCluster]:
    made = DrainedCluster("abc")
    for ledger, bookies in enumerate((("a", "b"), ("b", "c"), ("c", "a"))):
        made.ledger(ledger, ledger_metadata(bookies))
    made.ledger(7, ledger_metadata(("b", "c"), ("c", "a")))
    yield made
    made.close()


def test_the_ledgers_of_a_bookie_are_those_that_name_it_in_any_segment(cluster: DrainedCluster) -> None:
    store = cluster.store
    asked = LiveLedgers(store, "a", store.layout.instance_id())
    assert list(asked.kept_here()) == [0, 2, 7]
    assert [ledger for ledger in range(9) if asked.is_kept_here(ledger)] == [0, 2, 7]
    assert list(LiveLedgers(store, "stranger", store.layout.instance_id()).kept_here()) == []


def test_another_cluster_says_nothing_about_the_ledgers_of_a_bookie(cluster: DrainedCluster) -> None:
    with pytest.raises(RefusedError, match="does not know the ledgers of this bookie"):
        list(LiveLedgers(cluster.store, "a", "another instance").kept_here())
