"""One bookie of three that hangs, resets, sends garbage or entries that are not right: the others do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import ClientError, DigestMismatchError, NoAnswerError
from bkctl.client.settings import ClientSettings
from bkctl.net.settings import NetSettings
from bkctl.protocol import v3
from bkctl.protocol.framing import FRAME_BYTES_MAX, ReceiveBuffer
from bkctl.protocol.messages import ReadLacRequest, ReadRequest, Request
from bkctl.protocol.wire import encode_response
from bkctl.server.life.embedded import LocalCluster
from bkctl.types import LedgerState, ResultCode

#: Short enough that a test sees it, long enough that a slow machine is no bad bookie.
SETTINGS = ClientSettings(
    add_timeout_ms=1500, read_timeout_ms=1500, speculation=None, net=NetSettings(connect_timeout_ms=1500)
)
#: All that one operation may take with one bad bookie: a few time-outs one after the other.
BOUND_S = 12

Behaviour = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
    pass


async def reset(request: Request, writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def garbage(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\0\0\x0bnot a frame")


async def wrong_digest(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answers with an entry whose bytes were changed."""
    entry = getattr(request, "entry", -1)
    body = struct.pack(">qqqq", getattr(request, "ledger", 0), max(entry, 0), -1, 5) + b"\1\2\3\4wrong"
    if isinstance(request, ReadRequest):
        writer.write(encode_response(request.answer(ResultCode.OK, body)))
    elif isinstance(request, ReadLacRequest):
        writer.write(encode_response(request.answer(ResultCode.OK, None, body)))
    else:
        writer.write(encode_response(request.refuse(ResultCode.IO_ERROR)))


async def io_error(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(encode_response(request.refuse(ResultCode.IO_ERROR)))


BEHAVIOURS = [hang, reset, garbage, wrong_digest, io_error]
named = pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(4, tmp_path_factory.mktemp("bad-bookies")) as running:
        yield running


@contextlib.asynccontextmanager
async def bad_server(behaviour: Behaviour) -> AsyncIterator[int]:
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        received = ReceiveBuffer(FRAME_BYTES_MAX)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for payload in received.frames(data):
                    await behaviour(v3.decode_request(payload), writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


@contextlib.asynccontextmanager
async def misled_client(
    cluster: LocalCluster,
    behaviour: Behaviour,
    bad: Collection[str],
    settings: ClientSettings = SETTINGS,
) -> AsyncIterator[BookKeeper]:
    """A client that finds a bad server in the place of the bookies in ``bad``."""
    async with (
        bad_server(behaviour) as port,
        await BookKeeper.connect(cluster.metadata_uri, settings) as client,
    ):
        resolve = client.pool._resolve

        async def misled(bookie: str) -> tuple[str, int]:
            return ("127.0.0.1", port) if bookie in bad else await resolve(bookie)

        client.pool._resolve = misled
        yield client


async def a_ledger(cluster: LocalCluster, entries: int, *, close: bool) -> tuple[int, tuple[str, ...]]:
    async with await BookKeeper.connect(cluster.metadata_uri) as client:
        ledger = await client.create(3, 3, 2)
        for number in range(entries):
            await ledger.append(b"%d" % number)
        if close:
            await ledger.close()
        return ledger.ledger, ledger.metadata.segments[0].bookies


def bounded(check: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        began_s = time.monotonic()
        await check()
        assert time.monotonic() - began_s < BOUND_S

    asyncio.run(run())


@named
def test_reads_take_the_next_replica(cluster: LocalCluster, behaviour: Behaviour) -> None:
    async def check() -> None:
        ledger, bookies = await a_ledger(cluster, 3, close=True)
        async with misled_client(cluster, behaviour, {bookies[0]}) as client:
            reader = await client.open(ledger)
            assert [entry.payload for entry in await reader.read(0, 2)] == [b"0", b"1", b"2"]

    bounded(check)


@named
def test_when_all_are_bad_the_error_names_ledger_entry_and_bookie(
    cluster: LocalCluster, behaviour: Behaviour
) -> None:
    async def check() -> None:
        ledger, bookies = await a_ledger(cluster, 1, close=True)
        async with misled_client(cluster, behaviour, bookies) as client:
            reader = await client.open(ledger)
            with pytest.raises(ClientError) as caught:
                await reader.read(0, 0)
            error = caught.value
            assert (error.ledger, error.entry, error.bookie) == (ledger, 0, bookies[0])
            assert f"ledger {ledger}, entry 0, bookie {bookies[0]}: " in str(error)
            if behaviour is wrong_digest:
                assert isinstance(error, DigestMismatchError)
            elif behaviour is not io_error:
                assert isinstance(error, NoAnswerError)

    bounded(check)


@named
def test_a_writer_replaces_it(cluster: LocalCluster, behaviour: Behaviour) -> None:
    async def check() -> None:
        misled: set[str] = set()
        async with misled_client(cluster, behaviour, misled) as client:
            ledger = await client.create(3, 3, 3)
            bad = ledger.metadata.segments[0].bookies[1]
            misled.add(bad)
            for number in range(3):
                assert await ledger.append(b"x") == number
            assert bad not in ledger.metadata.segments[-1].bookies
            assert (await ledger.close()).last_entry == 2

    bounded(check)


@named
def test_recovery_goes_on_without_it(cluster: LocalCluster, behaviour: Behaviour) -> None:
    async def check() -> None:
        ledger, bookies = await a_ledger(cluster, 4, close=False)
        async with misled_client(cluster, behaviour, {bookies[2]}) as client:
            result = await client.recover(ledger)
            assert (result.last_entry, result.metadata.state) == (3, LedgerState.CLOSED)
            reader = await client.open(ledger)
            assert [entry.payload for entry in await reader.read(0, 3)] == [b"0", b"1", b"2", b"3"]

    bounded(check)


@named
def test_asking_all_replicas_names_it(cluster: LocalCluster, behaviour: Behaviour) -> None:
    async def check() -> None:
        ledger, bookies = await a_ledger(cluster, 2, close=False)
        async with misled_client(cluster, behaviour, {bookies[1]}) as client:
            _, found = await client.ask_replicas(ledger)
            (unknown,) = [replica for replica in found.replicas if not replica.known]
            assert (unknown.index, unknown.bookie) == (1, bookies[1])
            assert f"bookie {bookies[1]}" in str(unknown.error)
            assert found.last_entry == 1

    bounded(check)


def counting_hang(reads: list[int]) -> Behaviour:
    """A bookie that hangs, and notes which entries it is asked for."""

    async def behaviour(request: Request, writer: asyncio.StreamWriter) -> None:
        if isinstance(request, ReadRequest) and request.entry >= 0:
            reads.append(request.entry)

    return behaviour


def test_a_recovery_beside_a_bookie_that_hangs_waits_for_it_at_most_once(cluster: LocalCluster) -> None:
    """It leads the reads of every third entry; each used to wait until the next replica was asked early."""

    async def check() -> None:
        async with await BookKeeper.connect(cluster.metadata_uri) as client:
            ledger = await client.create(3, 3, 2)
            await asyncio.gather(*[await ledger.submit(b"x") for _ in range(18)])
            ledger.abandon()
        hung = ledger.metadata.segments[0].bookies[0]
        reads: list[int] = []
        async with misled_client(cluster, counting_hang(reads), {hung}) as client:
            result = await client.recover(ledger.ledger)
            assert (result.last_entry, result.entries_rewritten) == (17, 18)
            assert len(reads) <= 1

    asyncio.run(check())


def test_a_recovery_waits_for_no_time_of_adds_to_a_bookie_that_hangs(cluster: LocalCluster) -> None:
    """E3 Wq2 Aq2: two of three entries need another bookie in its place; an add may take a minute here."""

    async def check() -> None:
        async with await BookKeeper.connect(cluster.metadata_uri) as client:
            ledger = await client.create(3, 2, 2)
            await asyncio.gather(*[await ledger.submit(b"x") for _ in range(12)])
            ledger.abandon()
        hung = ledger.metadata.segments[0].bookies[0]
        patient = ClientSettings(add_timeout_ms=60_000, read_timeout_ms=60_000)
        async with (
            asyncio.timeout(50),
            misled_client(cluster, counting_hang([]), {hung}, patient) as client,
        ):
            result = await client.recover(ledger.ledger)
            assert (result.last_entry, result.entries_rewritten) == (11, 12)
            assert hung not in result.metadata.segments[-1].bookies

    asyncio.run(check())


def test_a_reader_beside_a_bookie_that_hangs_asks_it_last_after_the_first_wait(cluster: LocalCluster) -> None:
    async def check() -> None:
        ledger, bookies = await a_ledger(cluster, 60, close=True)
        reads: list[int] = []
        async with misled_client(cluster, counting_hang(reads), {bookies[0]}) as client:
            reader = await client.open(ledger)
            assert len([entry async for entry in reader.entries()]) == 60
            # Those of the first batch, which were all on their way before it was known.
            assert all(entry < 16 for entry in reads)

    asyncio.run(check())
