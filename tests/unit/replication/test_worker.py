"""The worker over bookies of ours: a bookie goes for good, and every ledger gets all of its copies back."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bkctl.client.bookie_choice import PolicyChoice
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.ledger_handle import LedgerHandle
from bkctl.client.placement_policies import rack_aware
from bkctl.client.settings import ClientSettings
from bkctl.errors import StorageError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.autorecovery_api import Taken
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store, parse_metadata_uri
from bkctl.net.settings import NetSettings
from bkctl.protocol.messages import Wire
from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.settings import WorkerSettings
from bkctl.replication.verdict import VerdictKind
from bkctl.replication.worker import ReplicationWorker
from bkctl.server.life.embedded import EmbeddedBookie, LocalCluster
from bkctl.types import DigestType, LedgerState
from tests.support.replicas import assert_whole, replicas_of, wait_for
from tests.support.waiting import WAIT_S

METADATA = MetadataSettings(session_timeout_ms=3_000, watch_poll_ms=20)
CLIENT = ClientSettings(add_timeout_ms=3_000, read_timeout_ms=3_000)
QUICK = WorkerSettings(
    repair=RepairSettings(grace_ms=200), error_pause_ms=50, locks_held_ms=3_200, poll_ms=200
)


@dataclass
class Site:
    """A cluster, a client and a metadata store of the worker's own."""

    cluster: LocalCluster
    store: MetadataStore
    client: BookKeeper
    written: dict[int, list[bytes]] = field(default_factory=dict)

    def bookie(self, name: str) -> EmbeddedBookie:
        return next(one for one in self.cluster.bookies if one.bookie_id == name)

    async def lose(self, name: str) -> None:
        await asyncio.to_thread(self.bookie(name).stop)

    async def write(self, handle: LedgerHandle, count: int) -> None:
        payloads = self.written.setdefault(handle.ledger, [])
        for _ in range(count):
            payload = f"{handle.ledger}-{len(payloads)}".encode() * (1 + len(payloads) % 5)
            await handle.append(payload)
            payloads.append(payload)

    async def closed(self, *quorums: int, count: int = 20, digest: DigestType = DigestType.CRC32C) -> int:
        async with await self.client.create(*quorums, digest=digest, password=b"pw") as handle:
            await self.write(handle, count)
        return handle.ledger

    async def member_of(self, *ledgers: int) -> str:
        """A bookie that is in the last ensembles of all of them."""
        found = [(await self.client.read_metadata(one)).metadata.segments[-1].bookies for one in ledgers]
        return sorted(set.intersection(*map(set, found)))[0]

    def mark(self, *ledgers: int, bookie: str) -> None:
        for ledger in ledgers:
            self.store.underreplication.mark(ledger, [bookie], 1_700_000_000_000)

    def marked(self) -> set[int]:
        return {ledger for ledger, _ in self.store.underreplication.marked_ledgers()}

    @contextlib.asynccontextmanager
    async def worker(self, settings: WorkerSettings = QUICK) -> AsyncIterator[ReplicationWorker]:
        worker = ReplicationWorker(self.store, self.client, settings, host="worker")
        task = asyncio.get_running_loop().create_task(worker.run())
        try:
            yield worker
        finally:
            await worker.stop()
            await task

    async def until_unmarked(self, worker: ReplicationWorker) -> None:
        await wait_for(lambda: not self.marked(), "marks stay")
        await wait_for(lambda: not worker.status().at_work, f"still at work: {worker.status()}")


@pytest.fixture
def five(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(5, tmp_path) as running:
        yield running


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path) as running:
        yield running


@contextlib.asynccontextmanager
async def site_of(cluster: LocalCluster, settings: ClientSettings = CLIENT) -> AsyncIterator[Site]:
    store = await asyncio.to_thread(open_metadata_store, cluster.metadata_uri, METADATA)
    try:
        async with asyncio.timeout(4 * WAIT_S), BookKeeper(store, settings) as client:
            await asyncio.to_thread(store.underreplication.prepare)
            yield Site(cluster, store, client)
    finally:
        await asyncio.to_thread(store.close)


@pytest.mark.parametrize("wire", Wire)
def test_a_bookie_goes_for_good_and_every_ledger_gets_all_copies_back(five: LocalCluster, wire: Wire) -> None:
    """Closed, with every digest, E > Wq, several segments; open without a writer; with one that goes on."""

    async def check() -> None:
        async with site_of(five, replace(CLIENT, net=NetSettings(wire=wire))) as site:
            ledgers = [await site.closed(4, 3, 2, digest=digest) for digest in DigestType]
            ledgers.append(await site.closed(4, 2, 2))
            ledgers.append(await site.closed(3, 3, 2))
            ledgers.append(await site.closed(2, 2, 2, count=0))
            abandoned = await site.client.create(4, 3, 2, password=b"pw")
            await site.write(abandoned, 15)
            alive = await site.client.create(4, 3, 2, password=b"pw")
            await site.write(alive, 15)
            lost = await site.member_of(abandoned.ledger, alive.ledger)
            await site.lose(lost)
            # Those that had it go on elsewhere: several segments, the earlier ones with the lost bookie.
            await site.write(alive, 15)
            everything = [*ledgers, abandoned.ledger, alive.ledger]
            site.mark(*everything, bookie=lost)
            async with site.worker() as worker:
                await site.until_unmarked(worker)
                status = worker.status()
            # The writer that was alive was left alone.
            await site.write(alive, 5)
            await alive.close()
            for ledger in everything:
                stored = await assert_whole(site.client, ledger, site.written.get(ledger, []))
                assert stored.state is LedgerState.CLOSED
                assert all(lost not in segment.bookies for segment in stored.segments)
            assert status.rereplicated >= len(everything)
            assert status.entries_written == status.entries_read > 0
            assert (status.rereplicate_failed, status.resting, status.last_error) == (0, (), "")

    asyncio.run(check())


def test_what_cannot_be_done_rests_with_a_verdict_until_a_bookie_comes_back(three: LocalCluster) -> None:
    async def check() -> None:
        async with site_of(three) as site:
            whole = await site.closed(3, 3, 2)
            alone = await site.closed(1, 1, 1)
            lost = await site.member_of(alone)
            await site.lose(lost)
            site.mark(whole, alone, 4_711, bookie=lost)
            settings = WorkerSettings(
                repair=QUICK.repair, error_pause_ms=50, locks_held_ms=3_200_000, poll_ms=100
            )
            async with site.worker(settings) as worker:
                await wait_for(lambda: len(worker.status().resting) == 2, f"{worker.status()}")
                kinds = {one.ledger: one.kind for one in worker.status().resting}
                assert kinds == {
                    whole: VerdictKind.BLOCKED_NO_TARGET,
                    alone: VerdictKind.LOST_WRITE_QUORUM_OF_ONE,
                }
                # A ledger that is gone has no mark any more; the others keep theirs and their locks.
                assert site.marked() == {whole, alone}
                assert site.store.underreplication.replicator_of(whole) == "worker"
                tried = worker.status().rereplicate_failed
                await asyncio.sleep(0.5)
                assert worker.status().rereplicate_failed == tried == 2
                await asyncio.to_thread(site.bookie(lost).start)
                await site.until_unmarked(worker)
            for ledger in (whole, alone):
                await assert_whole(site.client, ledger, site.written[ledger])

    asyncio.run(check())


def test_a_worker_that_stops_gives_its_locks_back(three: LocalCluster) -> None:
    async def check() -> None:
        async with site_of(three) as site:
            lost = three.bookies[0].bookie_id
            ledger = await site.closed(3, 3, 2)
            await site.lose(lost)
            site.mark(ledger, bookie=lost)
            async with site.worker() as worker:
                await wait_for(lambda: worker.status().resting, f"{worker.status()}")
            assert not worker.status().running
            assert site.store.underreplication.replicator_of(ledger) is None
            assert site.marked() == {ledger}

    asyncio.run(check())


def test_a_worker_stops_although_a_lock_cannot_be_given_back(
    three: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with site_of(three) as site:
            lost = three.bookies[0].bookie_id
            ledgers = [await site.closed(3, 3, 2) for _ in range(2)]
            await site.lose(lost)
            site.mark(*ledgers, bookie=lost)
            known = site.store.underreplication
            release = known.release

            def refuse(taken: Taken) -> None:
                if taken.ledger == ledgers[0]:
                    raise StorageError("the file is damaged")
                release(taken)

            async with site.worker() as worker:
                await wait_for(lambda: len(worker.status().resting) == 2, f"{worker.status()}")
                monkeypatch.setattr(known, "release", refuse)
                async with asyncio.timeout(10):
                    await worker.stop()
            assert not worker.status().running
            assert known.replicator_of(ledgers[1]) is None

    asyncio.run(check())


def test_two_workers_share_the_marks(five: LocalCluster) -> None:
    async def check() -> None:
        async with site_of(five) as site, site_of(five) as other:
            lost = five.bookies[1].bookie_id
            ledgers = [await site.closed(3, 2, 2, count=10) for _ in range(12)]
            await site.lose(lost)
            site.mark(*ledgers, bookie=lost)
            async with site.worker() as first, other.worker() as second:
                await site.until_unmarked(first)
                await site.until_unmarked(second)
                assert first.status().rereplicated + second.status().rereplicated >= len(ledgers)
            for ledger in ledgers:
                await assert_whole(site.client, ledger, site.written[ledger])

    asyncio.run(check())


def test_a_worker_that_loses_its_session_begins_anew(five: LocalCluster) -> None:
    """What it was copying is dropped with the lock, and copied again under the next one."""

    async def check() -> None:
        async with site_of(five) as site:
            lost = five.bookies[1].bookie_id
            ledgers = [await site.closed(4, 3, 2, count=30) for _ in range(4)]
            await site.lose(lost)
            site.mark(*ledgers, bookie=lost)
            settings = replace(QUICK, rate_bytes_per_s=400)
            async with site.worker(settings) as worker:
                await wait_for(lambda: worker.status().entries_written > 3, f"{worker.status()}")
                await asyncio.to_thread(expire, site.store)
                await wait_for(lambda: worker.status().sessions_lost == 1, f"{worker.status()}")
                worker._rate._bytes_per_s = None
                await site.until_unmarked(worker)
            for ledger in ledgers:
                await assert_whole(site.client, ledger, site.written[ledger])

    asyncio.run(check())


def expire(store: MetadataStore) -> None:
    """End the session as another process does that writes after the lease has run out."""
    assert isinstance(store, TreeMetadataStore)
    session = (store._tree.session(),)
    with (
        contextlib.closing(sqlite3.connect(parse_metadata_uri(store.uri).location, timeout=20)) as file,
        file,
    ):
        file.execute("DELETE FROM nodes WHERE owner = ?", session)
        file.execute("DELETE FROM sessions WHERE id = ?", session)


def test_nothing_is_done_while_autorecovery_is_disabled(three: LocalCluster) -> None:
    async def check() -> None:
        async with site_of(three) as site:
            ledger = await site.closed(2, 2, 2)
            site.store.underreplication.set_enabled(False)
            site.mark(ledger, bookie="127.0.0.1:1")
            async with site.worker() as worker:
                await asyncio.sleep(0.5)
                assert site.marked() == {ledger}
                site.store.underreplication.set_enabled(True)
                await site.until_unmarked(worker)

    asyncio.run(check())


def test_a_copy_that_is_missing_on_a_bookie_that_is_up_is_made_again(three: LocalCluster) -> None:
    """BK#3905: the ensemble is all the bookies that there are, and one has come back empty."""

    async def check() -> None:
        async with site_of(three) as site:
            empty = three.bookies[2]
            ledger = await site.closed(3, 3, 2)
            assert empty.service is not None
            assert empty.service.bookie is not None
            await asyncio.to_thread(empty.service.bookie.delete_ledger, ledger)
            assert any(one.payload is None for one in await replicas_of(site.client, ledger))
            before = await site.client.read_metadata(ledger)
            site.mark(ledger, bookie=empty.bookie_id)
            async with site.worker() as worker:
                await site.until_unmarked(worker)
            await assert_whole(site.client, ledger, site.written[ledger])
            assert await site.client.read_metadata(ledger) == before

    asyncio.run(check())


def test_replicas_in_one_rack_move_and_a_ledger_of_format_1_is_copied(five: LocalCluster) -> None:
    """The first three bookies stand in one rack; metadata of format 1 tell neither digest nor password."""
    near = {one.bookie_id for one in five.bookies[:3]}

    async def check() -> None:
        async with site_of(five) as site:
            choice = PolicyChoice(
                site.store.registration,
                lambda names: {name: "/near" if name in near else f"/far/{name}" for name in names},
                rack_aware,
            )
            repair = replace(QUICK.repair, mends=choice.mends, password=b"pw")
            narrow = [await site.closed(2, 2, 2) for _ in range(6)]
            for ledger in narrow[3:]:
                stored = await site.client.read_metadata(ledger)
                old = replace(
                    stored.metadata, metadata_version=1, digest_type=None, password=None, ctime_ms=None
                )
                site.store.ledgers.update_ledger(ledger, old, stored.version)
            lost = await site.member_of(narrow[5])
            await site.lose(lost)
            site.mark(*narrow, bookie=lost)
            async with site.worker(replace(QUICK, repair=repair)) as worker:
                await site.until_unmarked(worker)
                assert worker.status().read_s > 0 < worker.status().write_s
            for ledger in narrow:
                stored = await site.client.read_metadata(ledger)
                for segment in stored.metadata.segments:
                    assert lost not in segment.bookies
                    assert not near.issuperset(segment.bookies)
                if ledger in narrow[3:]:
                    assert stored.metadata.digest_type is None
                    told = replace(
                        stored.metadata, metadata_version=3, digest_type=DigestType.CRC32C, password=b"pw"
                    )
                    site.store.ledgers.update_ledger(ledger, told, stored.version)
                await assert_whole(site.client, ledger, site.written[ledger])

    asyncio.run(check())
