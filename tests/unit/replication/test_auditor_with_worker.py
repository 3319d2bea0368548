"""An auditor and a worker of ours on bookies of ours: what one finds the other repairs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bkctl.client.bookkeeper import BookKeeper
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.metadata.settings import MetadataSettings
from bkctl.replication.auditor import Auditor
from bkctl.replication.auditor_status import Measure
from bkctl.replication.bookie_check import named_bookies
from bkctl.replication.worker import ReplicationWorker
from bkctl.server.life.embedded import LocalCluster
from bkctl.types import DigestType
from tests.support.manual_time import eventually

METADATA = MetadataSettings(watch_poll_ms=20)
WAIT_S = 60.0
ENTRIES = 20


async def write(client: BookKeeper, digest: DigestType) -> int:
    async with await client.create(3, 2, 2, password=b"pw", digest=digest) as ledger:
        for entry in range(ENTRIES):
            await ledger.append(b"%d" % entry)
    return ledger.ledger


def test_the_ledgers_of_a_bookie_that_is_gone_for_good_are_whole_again(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        async with await BookKeeper.connect(cluster.metadata_uri, metadata=METADATA) as client:
            ledgers = [await write(client, digest) for digest in DigestType]
            store = client.store
            auditor = Auditor(store, "auditor", AuditorSettings(ledger_check_interval_s=1), client=client)
            worker = ReplicationWorker(store, client)
            work = [asyncio.create_task(auditor.run()), asyncio.create_task(worker.run())]
            await eventually(lambda: auditor.status().is_elected, WAIT_S)
            gone = cluster.bookies[0].bookie_id
            await asyncio.to_thread(cluster.bookies[0].stop)

            def is_whole() -> bool:
                named = {
                    bookie for ledger in ledgers for bookie in named_bookies(metadata_of(client, ledger))
                }
                return gone not in named and not list(store.underreplication.marked_ledgers())

            await eventually(is_whole, WAIT_S)
            # The check of all ledgers reads what the worker wrote, and finds nothing to be marked.
            checks = auditor.status().summaries[Measure.LEDGER_CHECK_TIME].count
            await eventually(
                lambda: auditor.status().summaries[Measure.LEDGER_CHECK_TIME].count >= checks + 2, WAIT_S
            )
            assert list(store.underreplication.marked_ledgers()) == []
            for ledger in ledgers:
                handle = await client.open(ledger, password=b"pw")
                found = await handle.read(0, ENTRIES - 1)
                assert [entry.payload for entry in found] == [b"%d" % entry for entry in range(ENTRIES)]
            await auditor.stop()
            await worker.stop()
            await asyncio.gather(*work)

    with LocalCluster(4, tmp_path) as cluster:
        asyncio.run(scenario(cluster))


def metadata_of(client: BookKeeper, ledger: int) -> LedgerMetadata:
    return client.store.ledgers.read_ledger(ledger).metadata
