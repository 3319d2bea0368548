"""An error that nobody foresaw, as that there is no memory, is an answer, and costs no place."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from bkctl.clock import SystemClock
from bkctl.engine.add_run import AddRun as EngineAddRun
from bkctl.engine.engine_thread import call_all
from bkctl.engine.read_stage import ReadStage
from bkctl.engine.run_appender import RunAppender
from bkctl.engine.write_stage import WriteStage
from bkctl.metrics.latency import LatencyHistogram
from bkctl.protocol.messages import ReadLacRequest, ReadRequest, Request
from bkctl.protocol.runs import AddRun
from bkctl.server.life.event_loop import new_event_loop
from bkctl.server.wire import add_answers, add_runs, answers
from bkctl.server.wire.add_answers import AddAnswers, AddsInProgress, PendingAdds
from bkctl.server.wire.answers import Answer, AnswerQueue
from bkctl.server.wire.bookie_connection import BookieConnection
from bkctl.server.wire.bookie_server import BookieServer
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.connection_memory import ConnectionMemory
from bkctl.server.wire.connection_watch import ConnectionWatch
from bkctl.server.wire.read_pace import ReadPace
from bkctl.server.wire.read_queue import ReadQueue
from bkctl.server.wire.read_turns import ACTIVE_MAX
from bkctl.server.wire.stage_pool import StagePool
from bkctl.types import ResultCode
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import DisconnectedError, WireClient, add_request


def no_memory(*_: Any) -> Any:
    raise MemoryError


def forget_caches(patch: pytest.MonkeyPatch) -> None:
    """Have every read go to the disk."""
    patch.setattr(ReadStage, "cached", lambda *_: None)
    patch.setattr(ReadStage, "cached_records", lambda *_: None)
    patch.setattr(ReadStage, "read_records", lambda *_: None)


def assert_runs_are_answered(client: WireClient, code: ResultCode) -> None:
    """Read by more runs than there are turns: each read has this answer, and each run gives its turn back."""
    for _ in range(3 * ACTIVE_MAX):
        client.send([(ReadRequest(1, 0), None)] * 2)
        codes = [answer.response.code for answer in client.receive_all()]  # type: ignore[attr-defined]
        assert codes == [code] * 2


@pytest.mark.parametrize("run", [False, True], ids=["one by one", "a run"])
@pytest.mark.parametrize(
    ("name", "request_of"),
    [
        ("read_many", lambda entry: ReadRequest(1, entry)),
        ("read", lambda entry: ReadRequest(1, entry, priority=1)),
        ("last_add_confirmed", lambda _: ReadRequest(1, 0, previous_lac=-1, timeout_ms=10)),
        ("explicit_lac", lambda _: ReadLacRequest(1)),
    ],
    ids=["read", "high priority", "long poll", "lac"],
)
def test_reads_are_answered(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    request_of: Any,
    *,
    run: bool,
) -> None:
    caplog.set_level(logging.CRITICAL)
    count = 3 * ACTIVE_MAX
    requests: list[Request] = [request_of(entry) for entry in range(count)]
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(ReadStage, name, no_memory)
            forget_caches(patch)
            if run:
                client.send([(request, None) for request in requests])
                codes = [answer.response.code for answer in client.receive_all()]  # type: ignore[attr-defined]
            else:
                codes = [client.ask(request).code for request in requests]
            assert codes == [ResultCode.IO_ERROR] * count
        assert client.read(1, 0).code is ResultCode.OK


@pytest.mark.parametrize("loop", [new_event_loop, asyncio.new_event_loop], ids=["a bookie's", "asyncio's"])
def test_a_connection_that_cannot_be_made_costs_later_ones_nothing(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """An event loop may close the listener for such an error, and nobody would come in any more."""
    caplog.set_level(logging.CRITICAL)
    with ServedEngine(loop=loop()) as served:
        with monkeypatch.context() as patch, WireClient(served.port, timeout_s=5) as client:
            assert client.add(1, 0) is ResultCode.OK
            patch.setattr(BookieConnection, "__init__", no_memory)
            with WireClient(served.port, timeout_s=5) as other, suppress(DisconnectedError):
                other.add(1, 0)
            assert client.add(1, 1) is ResultCode.OK
        with WireClient(served.port, timeout_s=5) as client:
            assert client.add(1, 2) is ResultCode.OK


@pytest.mark.parametrize("recovery", [False, True])
def test_an_add_is_answered_and_no_longer_in_progress(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, recovery: bool
) -> None:
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(WriteStage, "_append_single", no_memory)
            patch.setattr(RunAppender, "append", no_memory)
            answer = client.ask(add_request(1, 1, recovery=recovery))
            assert answer.code is ResultCode.IO_ERROR
        served.until(lambda: served.server.adds.meter.length == 0, "an add is in progress")
        assert client.add(1, 1) is ResultCode.OK


@pytest.mark.parametrize("cached", [False, True], ids=["read", "cached"])
@pytest.mark.parametrize(
    ("where", "name"),
    [
        (ReadStage, "cached_records"),
        (ReadStage, "read_records"),
        (StagePool, "end"),
        (ReadQueue, "_read_together"),
        (ReadQueue, "_open_all"),
        (ReadStage, "count_cached"),
        (ReadStage, "claim_next"),
        (ReadPace, "note"),
        (BookieServer, "reads_ended"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_entries_are_answered_whatever_happens_around_the_reading(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: type,
    name: str,
    *,
    cached: bool,
) -> None:
    """Caches that cannot be asked are passed by, what is counted behind the answer is not counted."""
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            if not cached:
                forget_caches(patch)
            patch.setattr(where, name, no_memory)
            assert_runs_are_answered(client, ResultCode.OK)
        assert client.read(1, 0).code is ResultCode.OK


def test_a_reading_that_cannot_begin_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            forget_caches(patch)
            for where, name in [(ReadPace, "first_step"), (StagePool, "admit"), (StagePool, "begin")]:
                patch.setattr(where, name, no_memory)
                assert_runs_are_answered(client, ResultCode.IO_ERROR)
        assert client.read(1, 0).code is ResultCode.OK


def test_reads_that_come_alone_give_their_turns_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(BookieServer, "request_ended", no_memory)
            for _ in range(3 * ACTIVE_MAX):
                assert client.ask(ReadRequest(1, 0, priority=1)).code is ResultCode.OK


def test_a_connection_on_which_nothing_can_be_written_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A part of a frame may be on its way: what would follow is no frame."""
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(ConnectionWatch, "answered", no_memory)
            client.send([(add_request(1, 1), None)])
            assert len(client.socket.recv(1 << 16)) < 1 << 16
            assert client.socket.recv(1) == b""
        served.until(lambda: served.server.adds.meter.length == 0, "an add is in progress")
        with WireClient(served.port, timeout_s=5) as other:
            assert other.read(1, 1).code is ResultCode.OK


@pytest.mark.parametrize("position", [0, 1, 7])
def test_adds_of_a_run_that_is_taken_apart_are_all_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, position: int
) -> None:
    caplog.set_level(logging.CRITICAL)
    slices: list[int] = []
    original = add_runs._slice

    def fails_once(run: AddRun, start: int, stop: int) -> AddRun:
        slices.append(start)
        if len(slices) == position + 1:
            raise MemoryError
        return original(run, start, stop)

    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        with monkeypatch.context() as patch:
            patch.setattr(add_runs, "_slice", fails_once)
            client.send([(add_request(ledger, 0), ledger) for ledger in range(20)])
            answers = client.receive_all()
        codes = {answer.context: answer.response.code for answer in answers}  # type: ignore[attr-defined]
        assert len(answers) == len(codes) == 20
        assert {ResultCode.IO_ERROR} <= set(codes.values()) <= {ResultCode.OK, ResultCode.IO_ERROR}
        served.until(lambda: served.server.adds.meter.length == 0, "an add is in progress")
        for ledger, code in codes.items():
            read = client.read(cast("int", ledger), 0).code
            assert (read is ResultCode.OK) is (code is ResultCode.OK)


@pytest.mark.parametrize("name", ["answer_adds", "answer_run"])
def test_adds_whose_answers_cannot_be_made_end_their_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(add_runs, "answer_adds", no_memory)
            patch.setattr(add_answers, "answer_run", no_memory)
            if name == "answer_adds":
                served.rig.bookie.writes.set_read_only(True)
            else:
                # As where the kernels are not compiled: the frames are made behind the sync.
                patch.setattr(AddRun, "stored", property(lambda _: None, lambda _, frames: None))
            client.send([(add_request(1, 1 + entry), None) for entry in range(5)])
            assert client.socket.recv(1) == b""
        served.until(lambda: served.server.adds.meter.length == 0, "an add is in progress")


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [(AddsInProgress, "took", no_memory), (EngineAddRun, "count", property(no_memory))],
    ids=["took", "count"],
)
def test_adds_that_were_taken_are_answered_once_whatever_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: type, name: str, broken: Any
) -> None:
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, broken)
            for _ in range(2):
                client.send([(add_request(1, entry), entry) for entry in range(9)])
                answers = client.receive_all()
                assert [answer.response.code for answer in answers] == [ResultCode.OK] * 9  # type: ignore[attr-defined]
        served.until(lambda: served.server.adds.meter.length == 0, "an add is in progress")
        assert client.read(1, 8).code is ResultCode.OK
        assert client.connection.unmatched == 0


class CountsOnce(Counter[ResultCode]):
    """Finds no memory for the first number."""

    failed = False

    def __setitem__(self, key: ResultCode, value: int) -> None:
        if not self.failed:
            self.failed = True
            raise MemoryError
        super().__setitem__(key, value)


@pytest.mark.parametrize("refused", [Counter, CountsOnce])
def test_runs_without_memory_for_their_answers_are_no_longer_in_progress(
    refused: type[Counter[ResultCode]],
) -> None:
    ended = [Connection(), Connection()]
    in_progress = AddsInProgress(100, 1 << 20, ConnectionMemory(1 << 30), LatencyHistogram())
    posted: list[Answer] = []
    in_progress.refused = refused()
    answers = AddAnswers(cast("AnswerQueue", Posted(posted)), in_progress, SystemClock())
    pending: list[PendingAdds] = []
    for connection in ended:
        run = cast("AddRun", Run())
        pending.append(PendingAdds(cast("Channel", connection), run, 0.0))
        in_progress.begin(cast("Channel", connection), 3, 30)

    class Unanswerable(list[PendingAdds]):
        def __iter__(self) -> Any:
            if not posted:
                raise MemoryError
            return super().__iter__()

    answers.refuse(Unanswerable(pending), ResultCode.IO_ERROR)
    ((_, frames, done),) = posted
    assert frames() == b""
    assert done is not None
    call_all("ending a request", [done])
    assert [each.aborted for each in ended] == [True, True]
    assert in_progress.meter.length == 0


def test_answers_that_cannot_be_put_together_end_their_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served:
        with monkeypatch.context() as patch, WireClient(served.port, timeout_s=5) as client:
            assert client.add(1, 0) is ResultCode.OK
            patch.setattr(answers, "_joined", no_memory)
            client.send([(add_request(1, 1 + entry), None) for entry in range(5)])
            assert client.socket.recv(1) == b""
            served.until(lambda: served.server.adds.meter.length == 0, "an add is in progress")
        with WireClient(served.port, timeout_s=5) as client:
            assert client.add(1, 6) is ResultCode.OK


@pytest.mark.parametrize("name", ["_pending", "sum"])
def test_answers_to_many_runs_without_memory_for_a_list_of_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Each run is answered, or its connection ends; none of them stays in progress."""
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served:
        with monkeypatch.context() as patch, WireClient(served.port, timeout_s=5) as client:
            assert client.add(1, 0) is ResultCode.OK
            patch.setattr(add_answers, name, no_memory, raising=False)
            client.send([(add_request(1, 1 + entry), None) for entry in range(5)])
            with suppress(DisconnectedError):
                codes = [answer.response.code for answer in client.receive_all()]  # type: ignore[attr-defined]
                assert codes == [ResultCode.OK] * 5
            served.until(lambda: served.server.adds.meter.length == 0, "an add is in progress")
            assert served.server.adds.size_bytes == 0
        with WireClient(served.port, timeout_s=5) as client:
            assert client.add(1, 6) is ResultCode.OK


def test_one_connection_that_cannot_be_read_again_costs_the_others_nothing() -> None:
    connections = [Connection(), Connection(broken=True), Connection(), Connection()]
    in_progress = AddsInProgress(1, 1 << 20, ConnectionMemory(1 << 30), LatencyHistogram())
    for connection in connections:
        in_progress.begin(cast("Channel", connection), 1, 10)
    assert [each.paused for each in connections] == [True] * 4
    in_progress.end(4, 40)
    assert [each.paused for each in connections if not each.broken] == [False] * 3


class Run:
    """A run of three adds."""

    size_bytes = 30
    count = 3


class Posted:
    """Takes answers, and writes none."""

    def __init__(self, posted: list[Answer]) -> None:
        self._posted = posted

    def post(self, answers: list[Answer], *, at_once: bool = False) -> None:
        self._posted.extend(answers)


class Connection:
    """A connection that may be broken."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.paused = self.aborted = False

    def pause_adds(self, paused: bool) -> None:
        if self.broken and not paused:
            raise MemoryError
        self.paused = paused

    def abort(self) -> None:
        self.aborted = True
