"""Adds and their answers where Python has no memory, once, at each place in turn: none is lost or doubled."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest

from bkctl import _kernels
from bkctl.clock import SystemClock
from bkctl.engine.add_run import AddRun as EngineAddRun
from bkctl.engine.add_run import RecordRun, SingleAdd
from bkctl.engine.journal.batch import JournalBatch
from bkctl.errors import StorageError
from bkctl.metrics.latency import LatencyHistogram
from bkctl.protocol import scan_v2
from bkctl.protocol.messages import Wire
from bkctl.protocol.runs import AddRun
from bkctl.protocol.wire import encode_request
from bkctl.server.wire.add_answers import AddAnswers, AddsInProgress, PendingAdds
from bkctl.server.wire.answers import TOGETHER_MIN, AnswerQueue
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.connection_memory import ConnectionMemory
from bkctl.server.wire.gathered_adds import GatheredAdds
from bkctl.server.wire.port import Port
from bkctl.server.wire.untaken_answers import UntakenAnswers
from bkctl.types import ResultCode
from tests.support.no_memory import without_memory
from tests.support.wire_client import add_request

CLIENTS = TOGETHER_MIN + 2
#: More than any of the calls below asks for memory.
PLACES = 150
FRAME = b"an answer"
ENTRIES = 2 * CLIENTS
#: The last byte of the entry's id in a body, and of the answer to an add, which ends with it.
_ENTRY_AT = 15
_ANSWER_BYTES = 28

compiled = pytest.mark.skipif(_kernels.IMPL != "native", reason="only compiled kernels make columns")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


class Sink:
    """A connection over a pair of sockets, on which nothing waits."""

    def __init__(self) -> None:
        self.untaken = UntakenAnswers()
        self.is_aborted = False
        self._socket, self._client = socket.socketpair()
        self._descriptor = self._socket.fileno()

    def free_descriptor(self) -> int:
        return self._descriptor

    def write(self, data: bytes, sent_bytes: int = 0, spent_s: float = 0.0) -> None:
        os.write(self._descriptor, data[sent_bytes:])

    def abort(self) -> None:
        self.is_aborted = True

    def got(self) -> bytes:
        """What the client has got, at the end."""
        self._socket.close()
        try:
            return self._client.recv(1 << 16)
        finally:
            self._client.close()


class Loop:
    """Notes what it is to call."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.fails = 0

    def call_soon(self, call: Callable[[], None]) -> None:
        if self.fails:
            self.fails -= 1
            raise MemoryError
        self.calls.append(call)

    def call_later(self, _: float, call: Callable[[], None]) -> None:
        self.call_soon(call)

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self.call_soon(call)

    def time(self) -> float:
        return 0.0

    def is_closed(self) -> bool:
        return False

    def turn(self) -> None:
        """Make the calls, and those that come of them."""
        while self.calls:
            self.calls.pop(0)()


@pytest.mark.parametrize("made", [True, False], ids=["made", "to be made"])
def test_each_connection_gets_its_answer_once_or_ends(*, made: bool) -> None:
    failed = 0
    for allowed in range(PLACES):
        loop, sinks = Loop(), [Sink() for _ in range(CLIENTS)]
        ended = [0] * CLIENTS

        def end(number: int, ended: list[int] = ended) -> None:
            ended[number] += 1

        queue = AnswerQueue(cast("Any", loop))
        queue.post(
            [
                (sink, FRAME if made else partial(bytes, FRAME), partial(end, number))
                for number, sink in enumerate(sinks)
            ]
        )
        (drain,) = loop.calls
        loop.calls.clear()
        failed += without_memory(drain, allowed)
        loop.turn()
        got = [sink.got() for sink in sinks]
        assert ended == [1] * CLIENTS, allowed
        assert all(
            data == FRAME or (sink.is_aborted and not data) for data, sink in zip(got, sinks, strict=True)
        ), (allowed, got)
    assert not failed, "an error got out"


@compiled
def test_answers_of_which_it_is_not_known_whether_they_went_are_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There was no memory for the numbers of the bytes that were sent."""

    def sends_and_fails(descriptors: list[int], pieces: list[bytes]) -> list[int]:
        send_pieces(descriptors, pieces)
        raise MemoryError

    send_pieces = _kernels.send_pieces
    monkeypatch.setattr(_kernels, "send_pieces", sends_and_fails)
    loop, sinks = Loop(), [Sink() for _ in range(CLIENTS)]
    AnswerQueue(cast("Any", loop)).post([(sink, FRAME, None) for sink in sinks])
    loop.turn()
    assert [sink.is_aborted for sink in sinks] == [True] * CLIENTS
    assert [sink.got() for sink in sinks] == [FRAME] * CLIENTS


class Connection:
    """A connection whose socket cannot be told to wait."""

    def pause_adds(self, paused: bool) -> None:
        raise MemoryError


def test_adds_that_were_not_let_in_are_not_counted() -> None:
    memory = ConnectionMemory(1000)
    adds = AddsInProgress(10, 1000, memory, LatencyHistogram())
    with pytest.raises(MemoryError):
        adds.begin(cast("Channel", Connection()), 10, 500)
    assert (adds.meter.length, adds.size_bytes, memory.held_bytes) == (0, 0, 0)


def test_who_takes_memory_has_it_whether_room_can_be_made_or_not() -> None:
    memory = ConnectionMemory(1000)

    def fails() -> None:
        raise MemoryError

    memory.on_full = fails
    memory.take(1001)
    assert memory.held_bytes == 1001


class Engine:
    """A bookie and its port: notes what becomes of each add, by its entry id."""

    def __init__(self, *, whole: bool, parts: int = 1) -> None:
        #: Whether runs are taken as a whole.
        self.whole = whole
        self.parts = parts
        self.took = [0] * ENTRIES
        self.refused = [0] * ENTRIES
        self.loop = Loop()
        self.bookie = self.writes = self.add_answers = self
        self.adds = AddsInProgress(1000, 1 << 20, ConnectionMemory(1 << 30), LatencyHistogram())

    def now_s(self) -> float:
        return 0.0

    def add_run(self, run: EngineAddRun | RecordRun) -> bool:
        if self.whole:
            for pending in cast("Sequence[PendingAdds]", run.context):
                self._note(pending.run, self.took)
        return self.whole

    def add(self, add: SingleAdd) -> None:
        self.took[add.body[_ENTRY_AT]] += 1

    def end_of_known(self, grants: Sequence[bytes], start: int) -> int:
        return start

    def refuse(self, pending: Sequence[PendingAdds], code: ResultCode) -> None:
        for each in pending:
            self._note(each.run, self.refused)
            self.adds.end(each.count, each.size_bytes)

    def write(self, frames: bytes) -> None:
        """Take the answers to adds that were refused one by one."""
        for end in range(_ANSWER_BYTES, len(frames) + 1, _ANSWER_BYTES):
            self.refused[frames[end - 1]] += 1

    @staticmethod
    def _note(run: AddRun, into: list[int]) -> None:
        # Asks for no memory: either all of a run is noted or nothing.
        first, last = run.bodies[0], run.bodies[-1]
        into[first[_ENTRY_AT]] += 1
        if last is not first:
            into[last[_ENTRY_AT]] += 1


def runs() -> list[AddRun]:
    """A run of two adds for each client."""
    made = []
    for number in range(CLIENTS):
        adds = [
            dataclasses.replace(add_request(1 + number % 2, 2 * number + at), wire=Wire.V2, version=2)
            for at in (0, 1)
        ]
        frames = b"".join(map(encode_request, adds))
        run, _ = scan_v2.scan_adds(frames, 0, len(frames))
        assert run is not None
        # Now, or the notes would ask for memory as well.
        assert len(run.bodies) == 2
        made.append(run)
    return made


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "one by one"])
@pytest.mark.parametrize("place", [0, 1, 2, CLIENTS], ids=["alone", "first", "second", "the turn's end"])
def test_each_add_is_taken_or_refused_and_counted_while_it_is_in_progress(
    place: int, parts: int, *, whole: bool
) -> None:
    for allowed in range(PLACES):
        engine = Engine(whole=whole, parts=parts)
        intake = GatheredAdds(cast("Port", engine))
        raised: set[int] = set()
        for number, run in enumerate(runs()):
            call = partial(intake.add, cast("Channel", engine), run)
            if number != place:
                call()
            elif without_memory(call, allowed):
                raised.add(number)
        (turn_ends,) = engine.loop.calls or [lambda: None]
        if place < CLIENTS:
            turn_ends()
        else:
            assert not without_memory(turn_ends, allowed)
        for entry in range(ENTRIES):
            answers = engine.took[entry] + engine.refused[entry]
            # The connection of an add that was not taken in ends.
            assert answers == 1 or (not answers and entry // 2 in raised), (allowed, entry, answers)
        assert engine.adds.meter.length == sum(engine.took), allowed
        assert (engine.adds.size_bytes > 0) is (sum(engine.took) > 0)


@compiled
def test_a_turn_whose_end_cannot_be_called_is_not_waited_for() -> None:
    """Else nothing that is gathered later would be handed to the engine, whoever sends it."""
    engine = Engine(whole=True)
    intake = GatheredAdds(cast("Port", engine))
    first, second, *others = runs()
    intake.add(cast("Channel", engine), first)
    engine.loop.fails = 1
    with pytest.raises(MemoryError):
        intake.add(cast("Channel", engine), second)
    for run in others:
        intake.add(cast("Channel", engine), run)
    engine.loop.turn()
    assert engine.took == [1, 1, 0, 0] + [1] * (ENTRIES - 4)
    assert engine.adds.meter.length == ENTRIES - 2


class Engaged(Sink):
    """A connection that is read again when it may be."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = False

    def pause_adds(self, paused: bool) -> None:
        self.is_read = not paused


@pytest.mark.parametrize("code", [ResultCode.OK, ResultCode.IO_ERROR])
@pytest.mark.parametrize("where", ["the journal's thread", "the loop"])
def test_answers_of_the_journal_are_given_once_and_counted_down(
    where: str, code: ResultCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    for allowed in range(PLACES):
        loop, connections = Loop(), [Engaged() for _ in range(CLIENTS)]
        memory = ConnectionMemory(1000)
        adds = AddsInProgress(2 * CLIENTS, 1 << 20, memory, LatencyHistogram())
        sink = AddAnswers(AnswerQueue(cast("Any", loop)), adds, SystemClock())
        pending = []
        for connection, run in zip(connections, runs(), strict=True):
            channel = cast("Channel", connection)
            adds.begin(channel, run.count, run.size_bytes)
            pending.append(PendingAdds(channel, run, 0.0))
        assert not connections[-1].is_read
        batches = [JournalBatch([], 0, 0, sink, [one]) for one in pending]
        fails = partial(sink.journal_failed, batches, StorageError("no"))
        posts = partial(sink.journaled, batches) if code is ResultCode.OK else fails
        if where == "the loop":
            posts()
            (drain,) = loop.calls
            loop.calls.clear()
            assert not without_memory(drain, allowed), allowed
        else:
            assert not without_memory(posts, allowed), allowed
        loop.turn()
        for number, connection in enumerate(connections):
            entries = {2 * number, 2 * number + 1}
            got = connection.got()
            found = [got[end - 1] for end in range(_ANSWER_BYTES, len(got) + 1, _ANSWER_BYTES)]
            assert sorted(found) == sorted(entries) or (connection.is_aborted and not found), allowed
        assert (adds.meter.length, adds.size_bytes, memory.held_bytes) == (0, 0, 0), allowed
        assert adds.meter.done == 2 * CLIENTS
        assert connections[-1].is_read or connections[-1].is_aborted, allowed
