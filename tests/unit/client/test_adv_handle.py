"""Ledgers whose writer chooses the ids, against bookies of ours in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import DuplicateEntryError, HandleClosedError, HandleFencedError
from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.server.life.embedded import LocalCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path_factory.mktemp("adv")) as running:
        yield running


def data_of(entry: int) -> bytes:
    return b"entry %d" % entry


def test_entries_in_any_order_are_read_in_order(cluster: LocalCluster) -> None:
    with BookKeeperSync(cluster.metadata_uri) as client:
        order = [7, 3, 0, 9, 1, 8, 2, 6, 5, 4]
        with client.create_adv() as ledger:
            assert ledger.append_all((entry, data_of(entry)) for entry in order) == 10
            assert ledger.last_add_confirmed == 9
            with pytest.raises(DuplicateEntryError):
                ledger.append(4, b"again")
        reader = client.open(ledger.ledger)
        assert [entry.payload for entry in reader.entries()] == [data_of(entry) for entry in range(10)]
        assert reader.length == sum(len(data_of(entry)) for entry in range(10))


def test_what_waits_for_a_gap_does_not_keep_out_what_fills_it(cluster: LocalCluster) -> None:
    """With as much outstanding as is allowed, the entries that all others wait for still get through."""

    async def check() -> None:
        settings = ClientSettings(outstanding_adds_max=4)
        async with await BookKeeper.connect(cluster.metadata_uri, settings) as client:
            ledger = await client.create_adv()
            above = [await ledger.submit(entry, data_of(entry)) for entry in (3, 4, 5, 6)]
            beyond = asyncio.ensure_future(ledger.append(7, data_of(7)))
            for entry in range(3):
                async with asyncio.timeout(20):
                    assert not above[0].done()
                    assert await ledger.append(entry, data_of(entry)) == entry
            async with asyncio.timeout(20):
                assert await asyncio.gather(*above, beyond) == [3, 4, 5, 6, 7]
            assert (await ledger.close()).last_entry == 7

    asyncio.run(check())


def test_more_than_may_be_outstanding_in_the_worst_order(cluster: LocalCluster) -> None:
    """What fills the gap comes last of all, behind more than there is room for."""
    with BookKeeperSync(cluster.metadata_uri, ClientSettings(outstanding_adds_max=4)) as client:
        with client.create_adv() as ledger:
            entries = [(entry, data_of(entry)) for entry in reversed(range(20))]
            assert client.call(asyncio.wait_for(ledger._submit(entries), 20)) == 20
        assert client.open(ledger.ledger).last_add_confirmed == 19


def test_a_gap_is_where_it_closes(cluster: LocalCluster) -> None:
    async def check() -> None:
        async with await BookKeeper.connect(cluster.metadata_uri) as client:
            ledger = await client.create_adv()
            await ledger.append(0, b"0")
            late = await ledger.submit(2, b"2")
            metadata = await ledger.close()
            assert (metadata.last_entry, metadata.length) == (0, 1)
            with pytest.raises(HandleClosedError):
                await late

    asyncio.run(check())


def test_recovery_of_what_its_writer_left(cluster: LocalCluster) -> None:
    async def check() -> None:
        async with await BookKeeper.connect(cluster.metadata_uri) as client:
            ledger = await client.create_adv(3, 3, 2)
            for entry in (1, 0, 2):
                await ledger.submit(entry, data_of(entry))
            await ledger.drain()
            above = await ledger.submit(4, data_of(4))
            # Behind the gap nothing can have been acknowledged.
            assert (await client.recover(ledger.ledger)).last_entry == 2
            with pytest.raises(HandleFencedError):
                await ledger.append(3, data_of(3))
            with pytest.raises(HandleFencedError):
                await above
            reader = await client.open(ledger.ledger)
            assert [entry.payload for entry in await reader.read(0, 2)] == [data_of(n) for n in range(3)]

    asyncio.run(check())
