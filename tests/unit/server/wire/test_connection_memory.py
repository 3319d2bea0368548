"""One budget for what connections have a bookie hold: adds, long polls, handshakes, answers nobody takes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from bkctl.config.server_keys.network import NetworkSettings
from bkctl.protocol.connection import ClientConnection
from bkctl.protocol.messages import ReadRequest, StartTlsRequest, Wire
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.wire import bookie_connection
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.client_socket import unsent_bytes
from bkctl.server.wire.connection_memory import POLL_BYTES, READ_BYTES, ConnectionMemory
from bkctl.server.wire.connection_watch import ConnectionWatch
from bkctl.server.wire.read_turns import REQUESTS_MAX, ReadTurns
from bkctl.server.wire.untaken_answers import ON_ITS_WAY_S, UntakenAnswers
from bkctl.types import ResultCode
from bkctl.vfs.faulty import FaultRule
from tests.support.engine_rig import EngineRig, small_settings
from tests.support.manual_clock import ManualClock
from tests.support.served_engine import ServedEngine
from tests.support.tls_files import BOOKIE_TLS
from tests.support.waiting import until
from tests.support.wire_client import DisconnectedError, WireClient, add_request

MIB = 1 << 20


@pytest.mark.parametrize("alone", [False, True], ids=["runs", "one by one"])
def test_bytes_of_adds_in_progress_stop_the_reading_of_the_socket(alone: bool) -> None:
    """A quarter of 8 MiB; ``alone``: adds that come by themselves, as those of a recovery do."""
    with (
        ServedEngine(settings=NetworkSettings(connection_memory_bytes_max=8 * MIB)) as served,
        WireClient(served.port, Wire.V3 if alone else Wire.V2) as client,
        WireClient(served.port) as other,
    ):
        assert client.add(5, 0) is ResultCode.OK
        served.rig.system.inject(FaultRule("sync", ".txn", latency_s=0.5, error_number=None, count=1))
        payload = bytes(100_000)
        adds = [(add_request(5, number, payload, recovery=alone), None) for number in range(1, 200)]
        begin = served.server.adds.begin
        adds_bytes, taken_bytes = 0, 0

        def watched(connection: Channel, count: int, size_bytes: int) -> None:
            nonlocal adds_bytes, taken_bytes
            begin(connection, count, size_bytes)
            adds_bytes = max(adds_bytes, served.server.adds.size_bytes)
            taken_bytes = max(taken_bytes, served.server.memory.held_bytes)

        served.server.adds.begin = watched  # type: ignore[method-assign]
        thread = threading.Thread(target=client.send, args=(adds,))
        thread.start()
        while thread.is_alive() or client.connection.outstanding:
            client.receive()
        thread.join()
        # What was read in one go may go over it.
        assert MIB <= adds_bytes <= 3 * MIB
        assert adds_bytes <= taken_bytes <= 8 * MIB
        assert other.add(6, 0) is ResultCode.OK
        served.until(lambda: served.server.adds.size_bytes == 0, "adds are left")
        assert served.server.adds.meter.length == 0


def test_adds_that_are_refused_are_held_no_longer() -> None:
    with ServedEngine() as served, WireClient(served.port, Wire.V2) as client:
        assert client.add(5, 0) is ResultCode.OK
        assert client.fence(5) is ResultCode.OK
        client.send([(add_request(5, number, bytes(1000)), None) for number in range(1, 50)])
        codes = {answer.response.code for answer in client.receive_all()}  # type: ignore[attr-defined]
        assert codes == {ResultCode.FENCED}
        served.until(lambda: served.server.adds.size_bytes == 0, "adds are left")
        assert served.server.adds.meter.length == 0


def test_long_polls_are_in_the_budget_and_one_more_is_refused() -> None:
    settings = NetworkSettings(connection_memory_bytes_max=MIB)
    bound = MIB // 2 // POLL_BYTES
    with ServedEngine(settings=settings) as served, WireClient(served.port) as client:
        assert client.add(5, 0) is ResultCode.OK
        poll = ReadRequest(5, -1, piggyback=True, previous_lac=1 << 40, timeout_ms=600_000)
        client.send([(poll, None)] * (bound + 3))
        refused = client.receive()
        while len(refused) < 3:
            refused += client.receive()
        assert {each.response.code for each in refused} == {ResultCode.TOO_MANY_REQUESTS}  # type: ignore[attr-defined]
        polls = served.server.long_polls.meter
        served.until(lambda: polls.length == bound, "not all of them wait")
        assert served.server.memory.held_bytes >= bound * POLL_BYTES
        client.close()
        served.until_idle()
        assert served.server.memory.held_bytes < MIB // 8


def test_answers_of_many_that_do_not_read_share_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asks for less than the bound of one connection, so that its transport never calls itself full."""

    def small_buffer(connected: socket.socket) -> None:
        # On the loopback the system would take all of it.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    monkeypatch.setattr(bookie_connection, "keep_alive", small_buffer)
    size_bytes, clients = 100_000, 60
    rig = EngineRig(small_settings(write_cache_bytes=32 * MIB))
    rig.start()
    for number in range(4):
        rig.add(5, number, payload=bytes(size_bytes))
    with (
        ServedEngine(rig, NetworkSettings(connection_memory_bytes_max=8 * MIB)) as served,
        ExitStack() as stack,
    ):
        for _ in range(clients):
            slow = stack.enter_context(WireClient(served.port, Wire.V2, receive_bytes=4096))
            slow.send([(ReadRequest(5, number, wire=Wire.V2, version=2), None) for number in range(4)])
        other = stack.enter_context(WireClient(served.port))
        served.until(lambda: served.server.watch.evicted > 0, "nobody is closed")
        for number in range(4):
            assert other.read(5, number).code is ResultCode.OK

        def held_bytes() -> int:
            transports = [each._transport for each in list(served.server._connections)]
            return sum(each.get_write_buffer_size() for each in transports if each is not None)

        served.until(lambda: held_bytes() <= 8 * MIB, "answers take more than the budget")
        assert served.server.connections > 5
        assert not [each for each in list(served.server._connections) if each.write_paused]


def test_answers_that_lie_in_the_system_share_the_budget_when_nobody_takes_them() -> None:
    """The transport has handed over all of them, and the client has acknowledged none."""
    size_bytes, clients = 100_000, 200
    rig = EngineRig(small_settings(write_cache_bytes=32 * MIB))
    rig.start()
    for number in range(4):
        rig.add(5, number, payload=bytes(size_bytes))
    with (
        ServedEngine(rig, NetworkSettings(connection_memory_bytes_max=8 * MIB)) as served,
        ExitStack() as stack,
    ):
        other = stack.enter_context(WireClient(served.port))
        for _ in range(clients):
            slow = stack.enter_context(WireClient(served.port, Wire.V2, receive_bytes=4096))
            slow.send([(ReadRequest(5, number, wire=Wire.V2, version=2), None) for number in range(2)])

        def unsent() -> int:
            return sum(unsent_bytes(each._socket) for each in list(served.server._connections))

        served.until(lambda: served.server.watch.evicted + unsent() > 8 * MIB, "nothing waits in the system")

        def the_others_are_closed() -> bool:
            # Somebody has to read, or nothing asks for room.
            assert other.read(5, 0).code is ResultCode.OK
            return unsent() <= 8 * MIB + 2 * clients * 1024

        served.until(the_others_are_closed, "the system holds more than the budget")
        assert served.server.watch.evicted > 0
        assert not [each for each in list(served.server._connections) if each.write_paused]


def test_who_reads_begins_anew_and_who_takes_a_byte_now_and_then_does_not() -> None:
    reader, trickle = UntakenAnswers(), UntakenAnswers()
    trickle.handed(1_000_000)
    for second in range(10):
        reader.handed(1_000_000)
        assert reader.count(0, 400_000, now_s=second) == 0
        assert reader.since_s == second
        held_bytes = 1_000_000 - second
        assert trickle.count(0, held_bytes, now_s=second) == (held_bytes if second >= ON_ITS_WAY_S else 0)
        assert trickle.since_s == 0
    assert reader.count(0, 0, now_s=10) == 0
    assert reader.none_since_look
    assert reader.since_s is None


def test_a_full_transport_counts_at_once() -> None:
    answers = UntakenAnswers()
    answers.handed(300)
    answers.handed(200)
    answers.begin(1.0)
    assert answers.count(400, 100, now_s=1.5) == 400 + 300
    assert answers.count(400, 100, now_s=2.0) == 400 + 300 + 100
    assert answers.since_s == 1.0
    answers.end()
    assert answers.since_s is None


def test_a_handshake_that_fails_leaves_no_connection(tmp_path: Path) -> None:
    """By garbage, by a client that goes, and because others take its place: none is counted for ever."""
    overrides = {**BOOKIE_TLS, "bkctlConnectionMemoryMaxMb": "8"}
    with EmbeddedBookie(tmp_path, overrides=overrides) as bookie, ExitStack() as stack:
        assert bookie.service is not None
        server = bookie.service.server
        assert server is not None
        stalled = []
        for number in range(40):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", bookie.port), 30))
            plain.sendall(ClientConnection(Wire.V3).send(StartTlsRequest()))
            assert plain.recv(4096)
            plain.sendall(b"no hello at all" if number % 4 == 0 else b"\x16\x03\x01\x02\x00\x01")
            stalled.append(plain)
        until(lambda: server.connections <= 16, "too many shake hands")
        assert server.handshakes.crowded_out > 0
        for plain in stalled:
            plain.close()
        until(lambda: server.connections == 0, "connections are left")
        assert len(server.handshakes) == 0
        # Some answers, which nobody has counted yet.
        assert server.memory.held_bytes < 10_000
        with WireClient(bookie.port) as client:
            assert client.add(1, 0) is ResultCode.OK


def test_a_new_client_has_the_place_of_one_that_stalls(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path, overrides={"bkctlMaxConnections": "20"}) as bookie, ExitStack() as stack:
        resting = stack.enter_context(WireClient(bookie.port))
        assert resting.add(1, 0) is ResultCode.OK
        for _ in range(19):
            stack.enter_context(socket.create_connection(("127.0.0.1", bookie.port)))

        def serves_a_new_client() -> bool:
            try:
                with WireClient(bookie.port) as new:
                    return new.read(1, 0).code is ResultCode.OK
            except DisconnectedError:
                return False

        until(serves_a_new_client, "the places stay with those who say nothing")
        # Who has said something keeps his.
        assert resting.add(1, 1) is ResultCode.OK


def test_runs_of_reads_that_wait_are_bounded_by_their_requests() -> None:
    told: list[bool] = []
    turns = ReadTurns(lambda: False, told.append)
    for _ in range(3):
        turns.add(lambda: None, requests=REQUESTS_MAX // 2)
    assert told == [True]
    assert turns.requests * READ_BYTES < 8 * MIB


class Loop:
    """Turns of an event loop."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_later(self, _: float, __: Callable[..., None], *___: object) -> None:
        """Time does not pass."""

    def call_soon(self, what: Callable[[], None]) -> None:
        self.soon.append(what)

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for what in due:
            what()


def test_thousands_that_go_at_once_leave_the_loop_its_turns() -> None:
    loop = Loop()
    watch = ConnectionWatch([], ConnectionMemory(MIB), frame_timeout_ms=1000, now_s=ManualClock().monotonic)
    watch.start(loop)  # type: ignore[arg-type]
    ended = [0]

    def end() -> None:
        ended[0] += 1

    for _ in range(1000):
        watch.end_soon(end)
    most = 0
    while loop.soon:
        before = ended[0]
        loop.turn()
        most = max(most, ended[0] - before)
    assert ended[0] == 1000
    assert most <= 20
