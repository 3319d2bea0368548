"""Adds and their answers where Python has no memory, once, at each place in turn: none is lost or doubled."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from bkctl import _kernels
from bkctl.server.wire.answers import TOGETHER_MIN, AnswerQueue
from bkctl.server.wire.untaken_answers import UntakenAnswers
from tests.support.no_memory import without_memory

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
            (sink, FRAME if made else partial(bytes, FRAME), partial(end, number))
            for number, sink in enumerate(sinks)
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
    AnswerQueue(cast("Any", loop)).post((sink, FRAME, None) for sink in sinks)
    loop.turn()
    assert [sink.is_aborted for sink in sinks] == [True] * CLIENTS
    assert [sink.got() for sink in sinks] == [FRAME] * CLIENTS
