"""The client against bookies of ours, in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import (
    AccessDeniedError,
    ClosedDifferentlyError,
    HandleClosedError,
    HandleFencedError,
    LedgerExistsError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    RecoveryFailedError,
)
from bkctl.client.ops.recovery import RecoverySettings
from bkctl.client.ops.write import WriteSettings
from bkctl.client.settings import ClientSettings
from bkctl.codec.explicit_lac import ExplicitLac, encode_explicit_lac
from bkctl.errors import UsageError
from bkctl.net.settings import NetSettings
from bkctl.protocol.messages import (
    AddResponse,
    ReadRequest,
    ReadResponse,
    Wire,
    WriteLacRequest,
    WriteLacResponse,
)
from bkctl.server.life.embedded import LocalCluster
from bkctl.types import DigestType, LedgerState, ResultCode

Use = Callable[[BookKeeper], Awaitable[None]]

V2 = ClientSettings(net=NetSettings(wire=Wire.V2))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(4, tmp_path_factory.mktemp("bookkeeper")) as running:
        yield running


@contextlib.asynccontextmanager
async def client_of(
    cluster: LocalCluster, settings: ClientSettings | None = None
) -> AsyncIterator[BookKeeper]:
    async with await BookKeeper.connect(cluster.metadata_uri, settings) as client:
        yield client


def run(cluster: LocalCluster, use: Use, settings: ClientSettings | None = None) -> None:
    async def check() -> None:
        async with asyncio.timeout(60), client_of(cluster, settings) as client:
            await use(client)

    asyncio.run(check())


@pytest.mark.parametrize("settings", [None, V2], ids=["v3", "v2"])
@pytest.mark.parametrize("digest", DigestType, ids=lambda digest: digest.value)
def test_what_is_written_is_read(
    cluster: LocalCluster, digest: DigestType, settings: ClientSettings | None
) -> None:
    async def check(client: BookKeeper) -> None:
        pairs = (("application", b"test"),)
        async with await client.create(
            3, 2, 2, digest=digest, password=b"pw", custom_metadata=pairs
        ) as ledger:
            for number in range(5):
                assert await ledger.append(b"entry %d" % number) == number
            assert [entry.payload for entry in await ledger.read(1, 2)] == [b"entry 1", b"entry 2"]
        reader = await client.open(ledger.ledger, password=b"pw")
        assert (reader.closed, reader.last_add_confirmed, reader.length) == (True, 4, 35)
        assert reader.metadata.custom_metadata == pairs
        found = [entry async for entry in reader.entries()]
        assert [entry.payload for entry in found] == [b"entry %d" % number for number in range(5)]
        assert [entry.length for entry in found] == [7, 14, 21, 28, 35]

    run(cluster, check, settings)


def test_a_ledger_that_was_closed_empty(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        async with await client.create(1, 1, 1) as ledger:
            pass
        reader = await client.open(ledger.ledger)
        assert (reader.last_add_confirmed, reader.length) == (-1, 0)
        assert [entry async for entry in reader.entries()] == []

    run(cluster, check)


def test_a_chosen_id_and_one_that_is_taken(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        chosen = 2**40 + 7
        ledger = await client.create(1, 1, 1, ledger=chosen)
        assert ledger.ledger == chosen
        with pytest.raises(LedgerExistsError, match=str(chosen)):
            await client.create(1, 1, 1, ledger=chosen)

    run(cluster, check)


def test_more_bookies_than_there_are(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        with pytest.raises(NotEnoughBookiesError, match="5"):
            await client.create(5, 2, 2)
        with pytest.raises(UsageError):
            await client.create(3, 2, 3)

    run(cluster, check)


def test_many_outstanding_appends_stay_in_order_and_within_bounds(cluster: LocalCluster) -> None:
    settings = ClientSettings(outstanding_adds_max=16, outstanding_add_bytes_max=1 << 20)

    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 3, 2)
        pending = []
        for number in range(500):
            pending.append(await ledger.submit(b"%d" % number))
            assert ledger._machine.pending <= 16
        assert await asyncio.gather(*pending) == list(range(500))
        await ledger.close()
        reader = await client.open(ledger.ledger)
        assert [entry.payload for entry in await reader.read(0, 499)] == [b"%d" % n for n in range(500)]

    run(cluster, check, settings)


def test_an_entry_over_the_frame_limit_is_refused_here(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        async with await client.create(3, 2, 2) as ledger:
            with pytest.raises(UsageError, match="nettyMaxFrameSizeBytes"):
                await ledger.append(bytes(5 << 20))
            assert await ledger.append(bytes((5 << 20) - 1024)) == 0
            assert ledger.metadata.segments[0].first_entry == 0
            assert len(ledger.metadata.segments) == 1

    run(cluster, check)


def test_the_password_is_checked(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        async with await client.create(1, 1, 1, password=b"right", digest=DigestType.MAC) as ledger:
            await ledger.append(b"x")
        with pytest.raises(AccessDeniedError, match=f"ledger {ledger.ledger}"):
            await client.open(ledger.ledger, password=b"wrong")
        assert (await (await client.open(ledger.ledger)).read(0, 0))[0].payload == b"x"

    run(cluster, check)


def test_no_such_ledger(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        for call in (client.open, client.open_without_recovery, client.recover, client.ask_replicas):
            with pytest.raises(NoSuchLedgerError, match="ledger 999999"):
                await call(999_999)
        await client.delete(999_999)

    run(cluster, check)


def test_a_reader_follows_a_writer_that_it_leaves_alone(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        for number in range(3):
            await ledger.append(b"%d" % number)
        reader = await client.open_without_recovery(ledger.ledger)
        assert (reader.closed, reader.last_add_confirmed) == (False, 1)
        with pytest.raises(UsageError, match="entry 2 is not"):
            await reader.read(0, 2)
        assert len(await reader.read(0, 2, unconfirmed=True)) == 3
        assert await ledger.flush_last_add_confirmed() == 2
        assert await reader.read_last_add_confirmed() == 2
        await ledger.append(b"3")
        await ledger.close()
        assert await reader.read_last_add_confirmed() == 3
        assert (reader.closed, reader.length) == (True, 4)

    run(cluster, check)


@pytest.mark.parametrize("settings", [None, V2], ids=["v3", "v2"])
def test_tailing_follows_the_writer_to_the_end(
    cluster: LocalCluster, settings: ClientSettings | None
) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        await ledger.append(b"0")
        reader = await client.open_without_recovery(ledger.ledger)
        tailed: list[bytes] = []
        two = asyncio.Event()

        async def tail() -> None:
            async for entry in reader.tail():
                tailed.append(entry.payload)
                if len(tailed) == 2:
                    two.set()

        task = asyncio.ensure_future(tail())
        for number in range(1, 4):
            await ledger.append(b"%d" % number)
        await two.wait()
        assert tailed[:2] == [b"0", b"1"]
        await ledger.close()
        await task
        assert tailed == [b"0", b"1", b"2", b"3"]

    run(cluster, check, settings)


def test_tailing_a_ledger_that_is_deleted_ends_with_an_error(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        reader = await client.open_without_recovery(ledger.ledger)
        await client.delete(ledger.ledger)
        with pytest.raises(NoSuchLedgerError, match=f"ledger {ledger.ledger}"):
            async for _ in reader.tail():
                pass

    run(cluster, check, ClientSettings(tail_timeout_ms=100))


@pytest.mark.parametrize("settings", [None, V2], ids=["v3", "v2"])
def test_recovery_fences_the_writer_and_keeps_what_it_got_acknowledged(
    cluster: LocalCluster, settings: ClientSettings | None
) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        for number in range(10):
            await ledger.append(b"%d" % number)
        plan = await client.recover(ledger.ledger, settings=RecoverySettings(dry_run=True))
        assert (plan.last_entry, plan.entries_rewritten, plan.metadata.state) == (9, 1, LedgerState.OPEN)
        await ledger.append(b"10")
        async with await BookKeeper.connect(client.store.uri, settings) as other:
            result = await other.recover(ledger.ledger)
        assert (result.last_entry, result.length, result.metadata.state) == (10, 12, LedgerState.CLOSED)
        with pytest.raises(HandleFencedError, match=f"ledger {ledger.ledger}"):
            await ledger.append(b"11")
        with pytest.raises(HandleFencedError):
            await ledger.close()
        again = await client.recover(ledger.ledger)
        assert (again.adopted, again.last_entry) == (True, 10)

    run(cluster, check, settings)


def test_two_recoveries_at_once_agree(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 3, 2)
        await asyncio.gather(*[await ledger.submit(b"%d" % number) for number in range(50)])
        ledger.abandon()
        ends = await asyncio.gather(*(client.recover(ledger.ledger) for _ in range(4)))
        assert {(end.last_entry, end.length) for end in ends} == {(49, 90)}
        assert not all(end.adopted for end in ends)

    run(cluster, check)


def test_closing_after_somebody_closed_it_elsewhere(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        await client.recover(ledger.ledger)
        # The writer has not noticed: it closes at the same place, which is success.
        assert (await ledger.close()).state is LedgerState.CLOSED
        other = await client.create(3, 2, 2)
        await other.append(b"x")
        await client.recover(other.ledger)
        stored = await client.read_metadata(other.ledger)
        assert stored.metadata.last_entry == 0
        other._machine.lac = 5
        with pytest.raises(ClosedDifferentlyError, match=f"ledger {other.ledger}"):
            await other.close()

    run(cluster, check)


def test_after_a_close_nothing_is_appended(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(1, 1, 1)
        await ledger.close()
        await ledger.close()
        with pytest.raises(HandleClosedError, match=f"ledger {ledger.ledger}"):
            await ledger.append(b"late")

    run(cluster, check)


def test_a_client_that_ends_fails_what_is_outstanding(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        async with client_of(cluster) as other:
            ledger = await other.create(3, 2, 2)
            pending = await ledger.submit(b"x")
        with pytest.raises(HandleClosedError, match="before this was acknowledged"):
            await pending
        for call in (ledger.append(b"y"), ledger.close()):
            with pytest.raises(HandleClosedError):
                await call
        assert (await client.read_metadata(ledger.ledger)).metadata.state is LedgerState.OPEN

    run(cluster, check)


def test_deferred_sync_confirms_by_force(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2, write=WriteSettings(deferred_sync=True))
        for _ in range(3):
            await ledger.append(b"x")
        assert ledger.last_add_confirmed == -1
        assert await ledger.force() == 2
        assert (await ledger.close()).last_entry == 2

    run(cluster, check)


@pytest.mark.parametrize("ends_by", ["close", "abandon"])
def test_a_force_or_flush_after_the_end_is_refused(cluster: LocalCluster, ends_by: str) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        await ledger.append(b"x")
        if ends_by == "close":
            await ledger.close()
        else:
            ledger.abandon()
        for ask in (ledger.force, ledger.flush_last_add_confirmed):
            with pytest.raises(HandleClosedError):
                await asyncio.wait_for(ask(), 30)

    run(cluster, check)


def test_an_append_that_waits_for_room_ends_with_the_handle(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        first = await ledger.submit(b"on its way")
        waiting = asyncio.create_task(ledger.submit(b"waits for room"))
        await asyncio.sleep(0)
        ledger.abandon()
        for ended in (first, waiting):
            with pytest.raises(HandleClosedError):
                await asyncio.wait_for(ended, 30)

    run(cluster, check, ClientSettings(outstanding_adds_max=1))


def test_who_gives_up_a_drain_gives_up_no_append(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        append = asyncio.create_task(ledger.append(b"another caller's"))
        await asyncio.sleep(0)
        drain = asyncio.create_task(ledger.drain())
        await asyncio.sleep(0)
        drain.cancel()
        assert await append == 0

    run(cluster, check)


def test_delete(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(1, 1, 1)
        await ledger.close()
        await client.delete(ledger.ledger)
        with pytest.raises(NoSuchLedgerError):
            await client.open(ledger.ledger)

    run(cluster, check)


def test_fencing_asks_every_bookie(cluster: LocalCluster) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 2, 2)
        await ledger.append(b"x")
        _, plain = await client.ask_replicas(ledger.ledger)
        await ledger.append(b"y")
        _, fenced = await client.ask_replicas(ledger.ledger, fence=True)
        assert [len(plain.replicas), len(fenced.replicas)] == [3, 3]
        assert fenced.last_entry == 1
        with pytest.raises(HandleFencedError):
            await ledger.append(b"z")

    run(cluster, check)


def test_an_explicit_lac_whose_digest_does_not_check_moves_neither_plan_nor_run(
    cluster: LocalCluster,
) -> None:
    """A bookie takes a WRITE_LAC as it comes, and names it in its answers to plain reads."""

    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 3, 2, digest=DigestType.MAC, password=b"pw")
        for _ in range(10):
            await ledger.append(b"12345678")
        body = encode_explicit_lac(ExplicitLac(ledger.ledger, 5000)) + bytes(20)
        request = WriteLacRequest(ledger.ledger, 5000, ledger.access.key, body)
        answer = await client.pool.request(ledger.metadata.segments[0].bookies[0], request, 5)
        assert isinstance(answer, WriteLacResponse)
        assert answer.code is ResultCode.OK
        ledger.abandon()
        plan = await client.recover(ledger.ledger, settings=RecoverySettings(dry_run=True))
        result = await client.recover(ledger.ledger)
        assert (plan.last_entry, plan.length, plan.length_exact) == (9, 80, True)
        assert (result.last_entry, result.length, result.length_exact) == (9, 80, True)

    run(cluster, check)


# --- bookies that go ----------------------------------------------------------------------------------------


def test_a_bookie_that_stops_is_replaced_and_read_past(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LocalCluster(4, tmp_path_factory.mktemp("stopping")) as cluster:

        async def check(client: BookKeeper) -> None:
            ledger = await client.create(3, 3, 2)
            await ledger.append(b"before")
            gone = ledger.metadata.segments[0].bookies[0]
            stopped = next(bookie for bookie in cluster.bookies if bookie.bookie_id == gone)
            await asyncio.to_thread(stopped.stop)
            for number in range(1, 20):
                assert await ledger.append(b"after") == number
            segments = ledger.metadata.segments
            assert gone not in segments[-1].bookies
            assert gone in segments[0].bookies
            await ledger.close()
            reader = await client.open(ledger.ledger)
            assert [entry.payload for entry in await reader.read(0, 1)] == [b"before", b"after"]

        run(cluster, check)


def test_recovery_with_too_few_bookies_fails_naming_them_and_works_later(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with LocalCluster(2, tmp_path_factory.mktemp("too-few")) as cluster:

        async def check(client: BookKeeper) -> None:
            ledger = await client.create(2, 2, 1)
            await ledger.append(b"x")
            ledger.abandon()
            gone = cluster.bookies[1].bookie_id
            await asyncio.to_thread(cluster.bookies[1].stop)
            with pytest.raises(RecoveryFailedError, match=gone):
                await client.recover(ledger.ledger)
            assert (await client.read_metadata(ledger.ledger)).metadata.state is LedgerState.IN_RECOVERY
            await asyncio.to_thread(cluster.bookies[1].start)
            assert cluster.bookies[1].bookie_id == gone
            result = await client.recover(ledger.ledger)
            assert (result.last_entry, result.metadata.state) == (0, LedgerState.CLOSED)

        run(cluster, check)


@pytest.mark.parametrize("replicas", [0, 1, 2, 3])
def test_an_entry_that_its_writer_left_on_some_replicas(cluster: LocalCluster, replicas: int) -> None:
    async def check(client: BookKeeper) -> None:
        ledger = await client.create(3, 3, 2)
        for _ in range(5):
            await ledger.append(b"acked")
        ledger.abandon()
        body = ledger.access.encode(5, 4, 30, b"partly")
        bookies = ledger.metadata.segments[0].bookies
        for bookie in bookies[:replicas]:
            answer = await client.pool.request(bookie, ledger.access.add_request(5, body), 5)
            assert isinstance(answer, AddResponse)
            assert answer.code is ResultCode.OK
        result = await client.recover(ledger.ledger)
        # On one replica it cannot have been acknowledged: either end is right.
        assert result.last_entry in {0: {4}, 1: {4, 5}, 2: {5}, 3: {5}}[replicas]
        assert result.length == (30 if result.last_entry == 5 else 25)
        reader = await client.open(ledger.ledger)
        found = [entry.payload for entry in await reader.read(0, result.last_entry)]
        assert found == [b"acked"] * 5 + [b"partly"] * (result.last_entry - 4)
        if result.last_entry == 5:
            for bookie in bookies:
                copy = await client.pool.request(bookie, ReadRequest(ledger.ledger, 5), 5)
                assert isinstance(copy, ReadResponse)
                assert copy.code is ResultCode.OK

    run(cluster, check)
