from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from bkctl.errors import NotFoundError
from bkctl.net.errors import GarbageError, NotConnectedError, RequestTimeoutError, SilentBookieError
from bkctl.net.pool import BookiePool
from bkctl.net.settings import NetSettings
from bkctl.protocol import v2, v3
from bkctl.protocol.framing import FRAME_BYTES_MAX, ReceiveBuffer
from bkctl.protocol.messages import ReadLacRequest, ReadLacResponse, ReadRequest, ReadResponse, Request, Wire
from bkctl.protocol.wire import encode_response
from bkctl.types import ResultCode

BOOKIE = "bookie-7"
Answerer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


class FakeBookie:
    """Decodes requests and lets a test answer them."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer
        self.connections = 0
        self.requests: list[Request] = []
        self.arrived = asyncio.Condition()
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        received = ReceiveBuffer(FRAME_BYTES_MAX)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for payload in received.frames(data):
                    decode = v2.decode_request if payload[:1] <= b"\2" else v3.decode_request
                    request = decode(payload)
                    async with self.arrived:
                        self.requests.append(request)
                        self.arrived.notify_all()
                    await self._answer(request, writer)
        writer.close()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(5), self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def running(
    answer: Answerer, settings: NetSettings | None = None
) -> AsyncIterator[tuple[FakeBookie, BookiePool]]:
    bookie = FakeBookie(answer)
    server = await asyncio.start_server(bookie.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def resolve(name: str) -> tuple[str, int]:
        assert name == BOOKIE
        return "127.0.0.1", port

    pool = BookiePool(resolve, settings)
    try:
        yield bookie, pool
    finally:
        await pool.close()
        bookie.hang_up()
        server.close()
        await server.wait_closed()


async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(encode_response(request.refuse(ResultCode.NO_LEDGER)))


async def silence(request: Request, writer: asyncio.StreamWriter) -> None:
    pass


def test_answers_find_their_requests_over_one_connection() -> None:
    async def check() -> None:
        async with running(echo) as (bookie, pool):
            answers = await asyncio.gather(
                *(pool.request(BOOKIE, ReadLacRequest(ledger), 5) for ledger in range(200))
            )
            assert [answer.ledger for answer in answers if isinstance(answer, ReadLacResponse)] == list(
                range(200)
            )
            assert bookie.connections == 1

    asyncio.run(check())


def test_requests_of_one_turn_leave_in_one_piece() -> None:
    sizes: list[int] = []

    async def check() -> None:
        async with running(echo) as (_, pool):
            await pool.request(BOOKIE, ReadLacRequest(1), 5)
            (connection,) = pool._connections.values()
            link = connection._link
            assert link is not None
            write = link.transport.write
            link.transport.write = lambda data: sizes.append(len(data)) or write(data)  # type: ignore[method-assign,func-returns-value]
            await asyncio.gather(*(pool.request(BOOKIE, ReadLacRequest(1), 5) for _ in range(50)))

    asyncio.run(check())
    assert len(sizes) == 1


def test_no_more_than_the_bound_is_outstanding() -> None:
    held: list[tuple[Request, asyncio.StreamWriter]] = []

    async def hold(request: Request, writer: asyncio.StreamWriter) -> None:
        held.append((request, writer))

    async def check() -> None:
        async with running(hold, NetSettings(outstanding_max=3, waiting_max=4)) as (bookie, pool):
            first = [asyncio.ensure_future(pool.request(BOOKIE, ReadLacRequest(n), 5)) for n in range(3)]
            await bookie.wait_for(3)
            waiting = [asyncio.ensure_future(pool.request(BOOKIE, ReadLacRequest(n), 5)) for n in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(NotConnectedError, match=r"bookie-7.* 3 requests .* 4 waiting"):
                await pool.request(BOOKIE, ReadLacRequest(9), 5)
            assert len(bookie.requests) == 3
            while not all(future.done() for future in first + waiting):
                while held:
                    await echo(*held.pop(0))
                await asyncio.sleep(0)

    asyncio.run(check())


def test_a_silent_bookie_times_out_and_its_connection_is_not_used_again() -> None:
    async def check() -> None:
        async with running(silence) as (bookie, pool):
            with pytest.raises(RequestTimeoutError, match=r"bookie-7: no answer within 0.05 s"):
                await pool.request(BOOKIE, ReadLacRequest(1), 0.05)
            with pytest.raises(RequestTimeoutError):
                await pool.request(BOOKIE, ReadLacRequest(1), 0.05)
            assert bookie.connections == 2

    asyncio.run(check())


def test_one_late_answer_is_dropped_and_the_connection_stays() -> None:
    late: list[Request] = []

    async def hold_the_first(request: Request, writer: asyncio.StreamWriter) -> None:
        if not late:
            late.append(request)
        else:
            await echo(request, writer)

    async def check() -> None:
        async with running(hold_the_first) as (bookie, pool):
            slow = asyncio.ensure_future(pool.request(BOOKIE, ReadLacRequest(1), 0.2))
            await bookie.wait_for(1)
            await pool.request(BOOKIE, ReadLacRequest(2), 5)
            with pytest.raises(RequestTimeoutError):
                await slow
            answer = await pool.request(BOOKIE, ReadLacRequest(3), 5)
            assert isinstance(answer, ReadLacResponse)
            assert answer.ledger == 3
            assert bookie.connections == 1

    asyncio.run(check())


def test_over_v2_a_late_answer_never_serves_a_later_request() -> None:
    held: list[tuple[Request, asyncio.StreamWriter]] = []

    async def hold_entry_0(request: Request, writer: asyncio.StreamWriter) -> None:
        assert isinstance(request, ReadRequest)
        if request.entry == 0:
            held.append((request, writer))
        else:
            writer.write(encode_response(request.answer(ResultCode.OK, bytes(40))))

    def give(index: int, code: ResultCode) -> None:
        request, writer = held[index]
        assert isinstance(request, ReadRequest)
        writer.write(encode_response(request.answer(code, bytes(40) if code is ResultCode.OK else None)))

    async def check() -> None:
        async with running(hold_entry_0, NetSettings(wire=Wire.V2)) as (bookie, pool):
            slow = asyncio.ensure_future(pool.request(BOOKIE, ReadRequest(1, 0), 0.2))
            await bookie.wait_for(1)
            await pool.request(BOOKIE, ReadRequest(1, 5), 5)
            with pytest.raises(RequestTimeoutError):
                await slow
            again = asyncio.ensure_future(pool.request(BOOKIE, ReadRequest(1, 0), 5))
            await bookie.wait_for(3)
            give(0, ResultCode.NO_ENTRY)
            give(1, ResultCode.OK)
            answer = await again
            assert isinstance(answer, ReadResponse)
            assert answer.code is ResultCode.OK

    asyncio.run(check())


def test_over_v2_requests_without_answers_do_not_use_up_the_connection() -> None:
    async def answer_entry_9(request: Request, writer: asyncio.StreamWriter) -> None:
        assert isinstance(request, ReadRequest)
        if request.entry == 9:
            await echo(request, writer)

    async def check() -> None:
        settings = NetSettings(wire=Wire.V2, outstanding_max=4)
        async with running(answer_entry_9, settings) as (bookie, pool):
            for round_of in range(3):
                lost = asyncio.ensure_future(pool.request(BOOKIE, ReadRequest(1, round_of), 0.2))
                await bookie.wait_for(2 * round_of + 1)
                await pool.request(BOOKIE, ReadRequest(1, 9), 5)
                with pytest.raises(RequestTimeoutError):
                    await lost
            assert bookie.connections == 1
            await pool.request(BOOKIE, ReadRequest(1, 9), 5)
            assert bookie.connections == 2

    asyncio.run(check())


def test_over_v2_a_fencing_read_has_a_connection_of_its_own() -> None:
    async def check() -> None:
        async with running(echo, NetSettings(wire=Wire.V2)) as (bookie, pool):
            await pool.request(BOOKIE, ReadRequest(1, -1), 5)
            await pool.request(BOOKIE, ReadRequest(1, -1, master_key=bytes(20), fence=True), 5)
            assert bookie.connections == 2

    asyncio.run(check())


def test_a_reset_fails_what_is_outstanding_and_the_next_request_connects_again() -> None:
    async def check() -> None:
        async with running(silence) as (bookie, pool):
            asked = [asyncio.ensure_future(pool.request(BOOKIE, ReadLacRequest(n), 5)) for n in range(3)]
            await bookie.wait_for(3)
            bookie.hang_up()
            for outcome in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(outcome, NotConnectedError)
                assert "bookie-7: connection lost" in str(outcome)
            bookie._answer = echo
            await pool.request(BOOKIE, ReadLacRequest(1), 5)
            assert bookie.connections == 2

    asyncio.run(check())


@pytest.mark.parametrize(
    "garbage",
    [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\5abcde", b"\x7f\0\0\0"],
    ids=["another protocol", "negative length", "empty frame", "no message", "too long"],
)
def test_garbage_is_named_with_the_bookie_and_ends_the_connection(garbage: bytes) -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(garbage)

    async def check() -> None:
        async with running(answer) as (bookie, pool):
            for _ in range(2):
                with pytest.raises(GarbageError, match="bookie-7: answers what is no BookKeeper protocol"):
                    await pool.request(BOOKIE, ReadLacRequest(1), 5)
            assert bookie.connections == 2

    asyncio.run(check())


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        async def resolve(bookie: str) -> tuple[str, int]:
            return "127.0.0.1", port

        async def check() -> None:
            pool = BookiePool(resolve)
            with pytest.raises(NotConnectedError, match=rf"bookie-7: cannot connect to 127.0.0.1:{port}"):
                await pool.request(BOOKIE, ReadLacRequest(1), 5)
            await pool.close()

        asyncio.run(check())


@pytest.mark.parametrize(("host", "port"), [("x" * 300, 3181), ("127.0.0.1", 2**20), ("a..b", 1)])
def test_a_registration_that_is_no_address(host: str, port: int) -> None:
    async def resolve(bookie: str) -> tuple[str, int]:
        return host, port

    async def check() -> None:
        pool = BookiePool(resolve)
        with pytest.raises(NotConnectedError, match="bookie-7"):
            await pool.request(BOOKIE, ReadLacRequest(1), 5)
        await pool.close()

    asyncio.run(check())


def test_a_bookie_that_nobody_knows() -> None:
    async def resolve(bookie: str) -> tuple[str, int]:
        raise NotFoundError("not registered")

    async def check() -> None:
        pool = BookiePool(resolve)
        with pytest.raises(NotConnectedError, match="bookie-7: not registered"):
            await pool.request(BOOKIE, ReadLacRequest(1), 5)
        await pool.close()

    asyncio.run(check())


def test_connecting_takes_its_time_from_the_requests_too() -> None:
    async def resolve(bookie: str) -> tuple[str, int]:
        await asyncio.Event().wait()
        raise AssertionError

    async def check() -> None:
        pool = BookiePool(resolve, NetSettings(connect_timeout_ms=200))
        short = asyncio.ensure_future(pool.request(BOOKIE, ReadLacRequest(1), 0.05))
        long = asyncio.ensure_future(pool.request(BOOKIE, ReadLacRequest(1), 5))
        with pytest.raises(RequestTimeoutError, match=r"not connected within 0.05 s"):
            await short
        with pytest.raises(NotConnectedError, match=r"no connection within 0.2 s"):
            await long
        await pool.close()

    asyncio.run(check())


def test_close_fails_what_is_outstanding_and_refuses_more() -> None:
    async def check() -> None:
        async with running(silence) as (bookie, pool):
            asked = asyncio.ensure_future(pool.request(BOOKIE, ReadLacRequest(1), 5))
            await bookie.wait_for(1)
            await pool.close()
            with pytest.raises(NotConnectedError, match="the client was closed"):
                await asked
            with pytest.raises(NotConnectedError, match="the client is closed"):
                await pool.request(BOOKIE, ReadLacRequest(1), 5)

    asyncio.run(check())


def test_an_outcome_never_comes_before_send_has_returned() -> None:
    async def check() -> None:
        outcomes: list[object] = []
        async with running(echo) as (_, pool):
            await pool.close()
            pool.send(BOOKIE, ReadLacRequest(1), outcomes.append, 5)
            assert outcomes == []
            await asyncio.sleep(0)
            assert isinstance(outcomes[0], SilentBookieError)

    asyncio.run(check())
