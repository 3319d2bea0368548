"""Bounds of the stages behind the port, and what is left of a client that goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from bkctl.clock import SystemClock
from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.errors import TooManyRequestsError
from bkctl.protocol.messages import BatchReadRequest, ReadRequest, Wire
from bkctl.server.wire.answers import TOGETHER_MIN, TRIES, AnswerQueue
from bkctl.server.wire.stage_pool import StagePool
from bkctl.server.wire.untaken_answers import UntakenAnswers
from bkctl.types import ResultCode
from bkctl.vfs.faulty import FaultRule
from tests.support.engine_rig import EngineRig, entry_body, small_settings
from tests.support.served_engine import WAIT_S, ServedEngine
from tests.support.waiting import until
from tests.support.wire_client import WireClient, add_request

ID_MAX = (1 << 63) - 1


def long_poll(previous: int, timeout_ms: int | None = 600_000, ledger: int = 5) -> ReadRequest:
    return ReadRequest(ledger, -1, piggyback=True, previous_lac=previous, timeout_ms=timeout_ms)


# --- a stage


def test_a_full_stage_refuses_and_takes_again() -> None:
    gate, started = threading.Event(), threading.Event()
    pool = StagePool("read", SystemClock(), threads=1, requests_max=3)

    def job() -> None:
        started.set()
        assert gate.wait(WAIT_S)

    pool.submit(job)
    assert started.wait(WAIT_S)
    pool.submit(job, 2)
    with pytest.raises(TooManyRequestsError):
        pool.submit(job)
    assert pool.meter.rejected == 1
    gate.set()
    pool.stop()
    assert pool.meter.length == 0
    with pytest.raises(TooManyRequestsError):
        pool.submit(job)


def test_a_job_larger_than_the_stage_is_taken_when_it_is_alone() -> None:
    done = threading.Event()
    pool = StagePool("read", SystemClock(), threads=1, requests_max=3)
    pool.submit(done.set, 100)
    assert done.wait(WAIT_S)
    pool.stop()


def test_a_stopped_stage_drops_what_it_has_not_begun() -> None:
    """On a disk that hangs a stop would wait for every read that was ever asked for."""
    gate, started, later = threading.Event(), threading.Event(), threading.Event()
    pool = StagePool("read", SystemClock(), threads=1, requests_max=100)

    def job() -> None:
        started.set()
        assert gate.wait(WAIT_S)

    pool.submit(job)
    assert started.wait(WAIT_S)
    pool.submit(later.set)
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    until(lambda: pool.meter.length == 1, "what has not begun is not dropped")
    gate.set()
    stopping.join(WAIT_S)
    assert pool.meter.length == 0
    assert not later.is_set()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
def test_a_job_that_was_refused_for_want_of_a_thread_is_not_done_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The executor has queued it by then: a client would get two answers."""
    gate, started, done = threading.Event(), threading.Event(), threading.Event()
    pool = StagePool("read", SystemClock(), threads=2, requests_max=9)
    refused: list[None] = []

    def job() -> None:
        started.set()
        assert gate.wait(WAIT_S)

    def no_thread(thread: threading.Thread) -> None:
        raise error

    pool.submit(job)
    assert started.wait(WAIT_S)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(TooManyRequestsError):
            pool.submit(lambda: refused.append(None))
    pool.submit(done.set)
    gate.set()
    assert done.wait(WAIT_S)
    pool._executor.shutdown(wait=True)
    assert refused == []
    assert (pool.meter.length, pool.meter.done) == (0, 2)


def test_a_job_that_raises_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    pool = StagePool("read", SystemClock(), threads=1, requests_max=3)

    def job() -> None:
        raise ValueError("a bug")

    with caplog.at_level(logging.ERROR):
        pool.submit(job)
        pool.stop()
    assert pool.meter.failed == 1
    assert "was not answered" in caplog.text


# --- the port


def test_a_full_read_stage_is_answered_with_too_many_requests() -> None:
    rig = EngineRig()
    rig.start()
    for number in range(100):
        rig.add(5, number)
    rig.bookie.checkpoint()
    settings = NetworkSettings(reads_in_progress_max=10, read_threads=1)
    with ServedEngine(rig, settings) as served, contextlib.ExitStack() as stack:
        rig.system.inject(FaultRule("read", ".log", latency_s=0.5, error_number=None, count=1))
        clients = [stack.enter_context(WireClient(served.port)) for _ in range(3)]
        for client in clients:
            client.send([(ReadRequest(5, number), None) for number in range(50)])
        answers = [answer for client in clients for answer in client.receive_all()]
        codes = {answer.response.code for answer in answers}  # type: ignore[attr-defined]
        assert codes == {ResultCode.OK, ResultCode.TOO_MANY_REQUESTS}
        assert len(answers) == 150
        assert clients[0].read(5, 99).code is ResultCode.OK


def test_long_polls_over_their_bound_are_refused() -> None:
    settings = NetworkSettings(long_polls_max=3)
    with ServedEngine(settings=settings) as served, WireClient(served.port) as client:
        served.rig.add(5, 0)
        client.send([(long_poll(10), None) for _ in range(3)])
        served.until(lambda: served.server.long_polls.meter.length == 3, "no polls")
        client.send([(long_poll(10), "refused")])
        (refused,) = client.receive()
        assert refused.context == "refused"
        assert refused.response.code is ResultCode.TOO_MANY_REQUESTS  # type: ignore[attr-defined]
        client.close()
        served.until_idle()


@pytest.mark.parametrize("how", ["lac", "fence", "timeout"])
def test_a_long_poll_ends_by_whatever_comes_first(how: str) -> None:
    with (
        ServedEngine() as served,
        WireClient(served.port) as client,
        WireClient(served.port) as writer,
    ):
        assert writer.add(5, 0) is ResultCode.OK
        client.send([(long_poll(-1, 50 if how == "timeout" else 600_000), None)])
        if how != "timeout":
            served.until(lambda: len(served.server.long_polls._waits) == 1, "no long poll")
        if how == "lac":
            assert writer.add(5, 1) is ResultCode.OK
        elif how == "fence":
            assert writer.fence(5) is ResultCode.OK
        (answer,) = client.receive_all()
        body = entry_body(5, 0) if how == "lac" else None
        assert answer.response.code is ResultCode.OK  # type: ignore[attr-defined]
        assert answer.response.body == body  # type: ignore[attr-defined]
        client.close()
        writer.close()
        served.until_idle()


def test_the_long_polls_of_a_client_that_goes_go_with_it() -> None:
    """They would count against everybody else for the ten minutes that it asked for."""
    with ServedEngine() as served, WireClient(served.port) as client, WireClient(served.port) as other:
        served.rig.add(5, 0)
        client.send([(long_poll(10), None) for _ in range(500)])
        other.send([(long_poll(-1), None)])
        served.until(lambda: served.server.long_polls.meter.length == 501, "no polls")
        client.close()
        served.until(lambda: served.server.long_polls.meter.length == 1, "polls are left")
        served.rig.add(5, 1)
        assert len(other.receive_all()) == 1
        other.close()
        served.until_idle()
        descriptor = served.rig.bookie.table.get(5)
        assert descriptor is not None
        assert not descriptor.watches


def test_a_long_poll_outlives_the_first_real_master_key_of_its_ledger() -> None:
    """A ledger that a rebuild left with a blank key takes the first one that comes."""
    with ServedEngine() as served, WireClient(served.port) as client:
        served.rig.bookie.storages[0].ledgers.set(5, LedgerData(fenced=False, master_key=b""))
        client.send([(long_poll(-1), None)])
        served.until(lambda: len(served.server.long_polls._waits) == 1, "no long poll")
        served.rig.add(5, 0)
        served.rig.add(5, 1)
        assert len(client.receive_all()) == 1


@pytest.mark.parametrize("wire", list(Wire))
def test_nothing_is_left_of_a_client_that_goes_in_the_middle(wire: Wire) -> None:
    rig = EngineRig(small_settings(write_cache_bytes=32 << 20))
    rig.start()
    for number in range(200):
        rig.add(5, number, payload=bytes(5000))
    rig.bookie.checkpoint()
    with ServedEngine(rig) as served:
        for turn in range(5):
            rig.system.inject(FaultRule("sync", ".txn", latency_s=0.05, error_number=None, count=1))
            with WireClient(served.port, wire) as client:
                client.send(
                    [(add_request(6, turn * 1000 + number, bytes(300)), None) for number in range(300)]
                )
                client.send(
                    [(ReadRequest(5, number % 200 if number % 3 else -1), None) for number in range(600)]
                )
                if wire is Wire.V3:
                    client.send([(long_poll(1 << 40), None)])
                client.send_bytes(b"\0\0\1")
        served.until_idle()
        assert rig.bookie.failure is None


def test_two_hundred_connections_are_served_and_one_too_many_is_closed() -> None:
    settings = NetworkSettings(connections_max=200)
    with ServedEngine(settings=settings) as served, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(WireClient(served.port, Wire.V2 if number % 2 else Wire.V3))
            for number in range(200)
        ]
        for number, client in enumerate(clients):
            client.send([(add_request(number, entry), None) for entry in range(5)])
        for client in clients:
            codes = {answer.response.code for answer in client.receive_all()}  # type: ignore[attr-defined]
            assert codes == {ResultCode.OK}
        extra = stack.enter_context(WireClient(served.port))
        assert extra.socket.recv(1) == b""
        assert served.server.connections_refused == 1
        stack.close()
        served.until_idle()


def test_a_batch_read_up_to_the_highest_id_is_answered() -> None:
    """Entry 2^63-1 may be written; behind it there is not even a key to look for."""
    with ServedEngine() as served, WireClient(served.port, Wire.V2) as client:
        assert client.add(5, ID_MAX) is ResultCode.OK
        assert client.add(5, ID_MAX - 1) is ResultCode.OK
        answer = client.ask(BatchReadRequest(5, ID_MAX - 1, 1, 10, 1 << 20, wire=Wire.V2, version=2))
        assert answer.code is ResultCode.OK
        assert len(answer.bodies) == 2
        assert client.read(5, ID_MAX).code is ResultCode.OK


def test_the_other_answers_are_sent_when_one_cannot_be_made(caplog: pytest.LogCaptureFixture) -> None:
    with ServedEngine() as served, WireClient(served.port) as client, contextlib.ExitStack() as later:
        assert client.add(5, 0) is ResultCode.OK
        (connection,) = served.server._connections
        other = later.enter_context(WireClient(served.port, timeout_s=5))
        assert other.read(5, 0).code is ResultCode.OK

        def broken() -> bytes:
            raise ValueError("a bug")

        with caplog.at_level(logging.ERROR):
            served.loop.call_soon_threadsafe(
                lambda: served.server.answers.post([(connection, broken, None), (connection, bytes, None)])
            )
            served.until(lambda: "making an answer failed" in caplog.text, "nothing was logged")
            assert other.read(5, 0).code is ResultCode.OK
            # Its client would wait in vain for the answer that was lost.
            assert client.socket.recv(1) == b""


class Socket:
    """Where answers go, which may be broken."""

    def __init__(self, *, broken: bool = False) -> None:
        self.untaken = UntakenAnswers()
        self.written: list[bytes] = []
        self.aborted = False
        self._broken = broken

    def free_descriptor(self) -> int:
        if self._broken:
            raise ValueError("a socket's bug")
        return -1

    def write(self, data: bytes, sent_bytes: int = 0, spent_s: float = 0.0) -> None:
        if self._broken:
            raise ValueError("a socket's bug")
        assert sent_bytes == 0
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True


class Loop:
    """An event loop whose next wake-ups fail."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.calls: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        if self._failures:
            self._failures -= 1
            raise MemoryError
        self.calls.append(call)

    def is_closed(self) -> bool:
        return False


def test_an_answer_behind_a_wake_up_that_failed_takes_those_in_front_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    loop, sink = Loop(TRIES + 1), Socket()
    answers = AnswerQueue(cast("asyncio.AbstractEventLoop", loop))
    answers.post([(sink, lambda: b"one", None)])
    assert loop.calls == []
    answers.post([(sink, lambda: b"two", None)])
    answers.post([(sink, lambda: b"three", None)])
    (drain,) = loop.calls
    drain()
    assert sink.written == [b"onetwothree"]


def test_answers_that_cannot_be_joined_cost_their_own_connection_alone() -> None:
    ended: list[int] = []
    loop, sinks = Loop(0), [Socket() for _ in range(3)]
    answers = AnswerQueue(cast("asyncio.AbstractEventLoop", loop))
    for number, sink in enumerate(sinks):
        # Bytes and text have no join, as there is none where there is no memory.
        frames = cast("bytes", "text" if number == 1 else b"bytes")
        answers.post([(sink, partial(bytes, b"head"), None)])
        answers.post([(sink, partial(_same, frames), partial(ended.append, number))])
    (drain,) = loop.calls
    drain()
    assert [sink.written for sink in sinks] == [[b"headbytes"], [], [b"headbytes"]]
    assert [sink.aborted for sink in sinks] == [False, True, False]
    assert ended == [0, 1, 2]


def _same(frames: bytes) -> bytes:
    return frames


def test_an_answer_that_fails_costs_the_others_neither_their_frames_nor_their_end() -> None:
    ended: list[int] = []

    def broken_end() -> None:
        ended.append(2)
        raise ValueError("a bug")

    async def post() -> None:
        answers = AnswerQueue(asyncio.get_running_loop())
        ends = [lambda: ended.append(1), broken_end, lambda: ended.append(3)]
        answers.post([(sink, lambda: b"frames", end) for sink, end in zip(sinks, ends, strict=True)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    sinks = [Socket(), Socket(broken=True), Socket()]
    asyncio.run(post())
    assert [sink.written for sink in sinks] == [[b"frames"], [], [b"frames"]]
    assert ended == [1, 2, 3]


def test_of_many_connections_one_that_fails_costs_the_others_nothing() -> None:
    async def post() -> None:
        answers = AnswerQueue(asyncio.get_running_loop())
        answers.post([(sink, lambda: b"frames", None) for sink in sinks])
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    sinks = [Socket(broken=number == 2) for number in range(2 * TOGETHER_MIN)]
    asyncio.run(post())
    assert [sink.written for sink in sinks] == [
        [] if number == 2 else [b"frames"] for number in range(len(sinks))
    ]


def test_answers_are_written_at_once_on_the_loops_thread_and_in_their_order() -> None:
    ended: list[str] = []

    async def post() -> None:
        answers = AnswerQueue(asyncio.get_running_loop())
        answers.post([(sink, lambda: b"one", partial(ended.append, "one"))], at_once=True)
        assert (sink.written, ended) == ([b"one"], ["one"])
        # The loop is on its way to these: they are not overtaken.
        answers.post([(sink, lambda: b"two", None)])
        answers.post([(sink, lambda: b"three", None)], at_once=True)
        assert sink.written == [b"one"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sink.written == [b"one", b"twothree"]
        await asyncio.to_thread(answers.post, [(sink, lambda: b"four", None)], at_once=True)
        await asyncio.sleep(0)
        assert sink.written[2:] == [b"four"]

    sink = Socket()
    asyncio.run(post())


def test_a_thread_writes_no_answer_itself() -> None:
    loop, sink = Loop(0), Socket()
    answers = AnswerQueue(cast("asyncio.AbstractEventLoop", loop))
    answers.post([(sink, lambda: b"frames", None)], at_once=True)
    assert (sink.written, len(loop.calls)) == ([], 1)
