"""A worker finds again what an auditor has found by chance."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest

from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.settings import WorkerSettings
from bkctl.replication.worker import ReplicationWorker
from tests.support.audited_cluster import ledger_metadata
from tests.support.drained_cluster import DrainedCluster


async def work_on(cluster: DrainedCluster, settings: WorkerSettings) -> None:
    client: Any = cluster.client
    client.store = cluster.store
    worker = ReplicationWorker(cluster.store, client, settings, host="worker")
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        while cluster.store.underreplication.mark_of(1) is not None:  # noqa: ASYNC110 - the store wakes nobody
            await asyncio.sleep(0.01)
        await worker.stop()
        await task


@pytest.mark.parametrize("percentage", [1, 50])
def test_a_mark_stays_until_what_a_check_has_found_by_chance_is_copied(percentage: int) -> None:
    with contextlib.closing(DrainedCluster("abc")) as cluster:
        cluster.ledger(1, ledger_metadata(("a", "b", "c")))
        # Neither the first entry nor the last one.
        cluster.client.lose("b", 1, [4])
        cluster.store.underreplication.prepare()
        cluster.store.underreplication.mark(1, ["b"], 1_000)
        check = replace(RepairSettings().check, percentage=percentage)
        asyncio.run(work_on(cluster, WorkerSettings(repair=RepairSettings(check=check))))
        assert not cluster.missing(1)
