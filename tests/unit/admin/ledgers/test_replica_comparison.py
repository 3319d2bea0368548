"""Comparing replicas of a ledger whose end nobody tells."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest

from bkctl.admin.ledgers.replica_comparison import ReplicaComparison
from bkctl.client.errors import TooFewAnswersError
from bkctl.types import LedgerState
from tests.support.audited_cluster import ledger_metadata
from tests.support.drained_cluster import DrainedCluster


def compared(cluster: DrainedCluster, ledger: int) -> list[int]:
    client: Any = cluster.client
    client.store = cluster.store

    async def run() -> list[int]:
        comparison = ReplicaComparison(client, ledger)
        return [one.entry async for window in comparison.replicas() for one in window]

    return asyncio.run(run())


def test_an_open_ledger_whose_bookies_say_nothing_is_not_compared_as_an_empty_one() -> None:
    with contextlib.closing(DrainedCluster("abc")) as cluster:
        metadata = replace(ledger_metadata(("a", "b", "c")), state=LedgerState.OPEN)
        cluster.ledger(1, replace(metadata, last_entry=-1, length=0), last_entry=9)
        assert compared(cluster, 1)
        cluster.client.silent.update("abc")
        with pytest.raises(TooFewAnswersError, match="too few"):
            compared(cluster, 1)
