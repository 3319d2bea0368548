"""Connections that hold memory or a descriptor and do not go on are closed; others never are."""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkctl.errors import RefusedError
from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.server.http import bounded_listener
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.server.wire.bookie_server import BookieServer
from bkctl.server.wire.connection_memory import (
    HANDSHAKE_BYTES,
    POLL_BYTES,
    ConnectionMemory,
    adds_bytes_max,
    handshakes_max,
    polls_max,
)
from bkctl.server.wire.connection_watch import ConnectionWatch
from bkctl.server.wire.descriptor_limit import (
    bookie_connections_max,
    descriptor_limit,
    http_connections_max,
    raise_soft_limit,
    require_enough,
)
from bkctl.server.wire.handshakes import Handshakes
from bkctl.types import ResultCode
from tests.demo_client import DemoClient
from tests.support.manual_clock import ManualClock
from tests.support.wire_client import WireClient

WAIT_S = 30.0
MIB = 1 << 20


class Client:
    """A connection as the watch sees it."""

    def __init__(self, name: str, unread_bytes: int = 0, since_s: float | None = None) -> None:
        self.peer = name
        self.unread_bytes = unread_bytes
        self.unread_since_s = since_s
        self.is_paused = False
        self.closed = False

    def count_unread(self, now_s: float) -> int:
        return self.unread_bytes

    def stop_reading(self) -> None:
        self.unread_bytes = 0

    def abort(self) -> None:
        self.closed = True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clients() -> list[Client]:
    """All that are connected, where answers are looked for."""
    return []


@pytest.fixture
def memory() -> ConnectionMemory:
    return ConnectionMemory(10 * MIB)


@pytest.fixture
def watch(clock: ManualClock, clients: list[Client], memory: ConnectionMemory) -> ConnectionWatch:
    return ConnectionWatch(clients, memory, frame_timeout_ms=1000, now_s=clock.monotonic)  # type: ignore[arg-type]


def test_a_connection_that_never_says_anything_is_closed(clock: ManualClock, watch: ConnectionWatch) -> None:
    early, late = Client("early"), Client("late")
    watch.connected(early)  # type: ignore[arg-type]
    clock.advance(0.6)
    watch.connected(late)  # type: ignore[arg-type]
    clock.advance(0.5)
    watch.sweep()
    assert (early.closed, late.closed, watch.timed_out) == (True, False, 1)
    clock.advance(0.6)
    watch.sweep()
    assert late.closed


def test_a_connection_between_two_frames_rests_for_ever(clock: ManualClock, watch: ConnectionWatch) -> None:
    client = Client("resting")
    watch.connected(client)  # type: ignore[arg-type]
    watch.received(client, 0, went_on=True)  # type: ignore[arg-type]
    clock.advance(10_000)
    watch.sweep()
    assert not client.closed


def test_a_frame_has_its_time_from_its_first_byte_on(clock: ManualClock, watch: ConnectionWatch) -> None:
    client = Client("slow")
    watch.received(client, 100, went_on=False)  # type: ignore[arg-type]
    for _ in range(3):
        # Whole frames keep coming, and each time the next one has begun.
        clock.advance(0.9)
        watch.received(client, 100, went_on=True)  # type: ignore[arg-type]
        watch.sweep()
    assert not client.closed
    for _ in range(3):
        # A byte now and then is no whole frame.
        clock.advance(0.4)
        watch.received(client, 101, went_on=False)  # type: ignore[arg-type]
        watch.sweep()
    assert client.closed


def test_a_client_that_is_not_read_owes_nothing(clock: ManualClock, watch: ConnectionWatch) -> None:
    client = Client("waits for its turn")
    watch.received(client, 100, went_on=False)  # type: ignore[arg-type]
    client.is_paused = True
    clock.advance(5)
    watch.sweep()
    assert not client.closed
    client.is_paused = False
    clock.advance(1.1)
    watch.sweep()
    assert client.closed


def test_partial_frames_share_a_budget(watch: ConnectionWatch, memory: ConnectionMemory) -> None:
    small = [Client(f"small {number}") for number in range(5)]
    for client in small:
        watch.received(client, MIB, went_on=False)  # type: ignore[arg-type]
    large = Client("large")
    watch.received(large, 4 * MIB, went_on=False)  # type: ignore[arg-type]
    assert watch.held_bytes == 9 * MIB
    one_more = Client("one more")
    watch.received(one_more, 2 * MIB, went_on=False)  # type: ignore[arg-type]
    assert large.closed
    assert not [client for client in (*small, one_more) if client.closed]
    assert (watch.held_bytes, watch.evicted) == (7 * MIB, 1)
    assert memory.held_bytes == watch.held_bytes
    for client in (*small, one_more):
        watch.disconnected(client)  # type: ignore[arg-type]
    assert watch.held_bytes == memory.held_bytes == 0


def test_answers_that_are_not_taken_share_it_the_longest_goes(
    watch: ConnectionWatch, clients: list[Client]
) -> None:
    clients += [Client(f"reader {number}", 2 * MIB, since_s=float(number)) for number in range(6)]
    for client in clients:
        watch.answered(client.unread_bytes)
    assert [client.closed for client in clients] == [True, True, True, False, False, False]
    # Two took theirs meanwhile.
    clients[3].unread_bytes = clients[4].unread_bytes = 0
    clients[5].unread_bytes = 9 * MIB
    watch.answered(7 * MIB)
    assert [client.closed for client in clients] == [True, True, True, False, False, False]


def test_answers_below_a_connections_own_bound_are_in_the_budget(
    watch: ConnectionWatch, clients: list[Client], memory: ConnectionMemory
) -> None:
    """Whatever the transport calls a full buffer: very many of them, each less than that, are much."""
    taken = [0]

    def look() -> int:
        taken[0] += 1
        return 400 << 10

    class Slow(Client):
        def count_unread(self, now_s: float) -> int:
            return 0 if self.closed else look()

    for number in range(200):
        clients.append(Slow(f"slow {number}"))
        watch.answered(400 << 10)
    open_ones = sum(not client.closed for client in clients)
    assert open_ones * (400 << 10) <= 10 * MIB
    assert open_ones > 10
    assert memory.held_bytes <= 10 * MIB
    # A quarter was made free each time, so that not every answer has all connections looked at.
    assert taken[0] < 200 * 50


def test_answers_that_were_taken_cost_nobody_a_connection(
    watch: ConnectionWatch, clients: list[Client], memory: ConnectionMemory
) -> None:
    clients.append(Client("quick"))
    for _ in range(1000):
        watch.answered(MIB)
    assert not clients[0].closed
    assert watch.evicted == 0
    assert memory.held_bytes <= 10 * MIB


def test_adds_and_long_polls_leave_others_less(watch: ConnectionWatch, memory: ConnectionMemory) -> None:
    client = Client("half a frame")
    watch.received(client, 4 * MIB, went_on=False)  # type: ignore[arg-type]
    memory.take(6 * MIB)
    assert not client.closed
    memory.take(1)
    assert client.closed
    assert memory.held_bytes == 6 * MIB + 1


def test_the_parts_of_the_budget_leave_frames_and_answers_theirs() -> None:
    for bytes_max in (8 * MIB, 256 * MIB, 4096 * MIB):
        others = (
            adds_bytes_max(bytes_max)
            + polls_max(bytes_max) * POLL_BYTES
            + handshakes_max(bytes_max) * HANDSHAKE_BYTES
        )
        assert others <= bytes_max * 7 // 8


def test_one_that_stalls_gives_its_place_to_a_new_one(clock: ManualClock, watch: ConnectionWatch) -> None:
    stalls, waits, young = Client("stalls"), Client("waits for the bookie"), Client("young")
    waits.is_paused = True
    watch.connected(waits)  # type: ignore[arg-type]
    watch.connected(stalls)  # type: ignore[arg-type]
    clock.advance(0.9)
    watch.connected(young)  # type: ignore[arg-type]
    assert not watch.displace()
    clock.advance(0.2)
    assert watch.displace()
    assert (stalls.closed, waits.closed, young.closed, watch.displaced) == (True, False, False, 1)
    assert not watch.displace()


def test_handshakes_that_stall_make_room_for_others() -> None:
    memory = ConnectionMemory(10 * MIB)
    handshakes = Handshakes(memory, 2)
    clients = [Client(f"client {number}") for number in range(4)]
    for client in clients:
        handshakes.begin(client)  # type: ignore[arg-type]
    assert [client.closed for client in clients] == [True, True, False, False]
    for client in clients:
        handshakes.end(client)  # type: ignore[arg-type]
    assert (len(handshakes), handshakes.crowded_out, memory.held_bytes) == (0, 2, 0)


# --- a bookie


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[EmbeddedBookie]:
    overrides = {"bkctlFrameTimeoutMs": "300", "bkctlConnectionMemoryMaxMb": "8"}
    with EmbeddedBookie(tmp_path, overrides=overrides) as running:
        yield running


def server_of(bookie: EmbeddedBookie) -> BookieServer:
    assert bookie.service is not None
    assert bookie.service.server is not None
    return bookie.service.server


def closes(connection: socket.socket) -> bool:
    """Whether the other side closes within the test's patience."""
    connection.settimeout(WAIT_S)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.parametrize("sent", [b"", b"\0", struct.pack(">I", 100) + b"half of a frame"])
def test_a_client_that_stalls_is_closed_and_one_that_rests_is_not(
    bookie: EmbeddedBookie, sent: bytes
) -> None:
    with WireClient(bookie.port, Wire.V3) as resting:
        assert resting.ask(ReadRequest(1, 0)).code is ResultCode.NO_LEDGER
        with socket.create_connection(("127.0.0.1", bookie.port)) as stalled:
            stalled.sendall(sent)
            assert closes(stalled)
        assert resting.ask(ReadRequest(1, 0)).code is ResultCode.NO_LEDGER
    assert server_of(bookie).watch.timed_out == 1


def test_partial_frames_of_many_connections_are_bounded(bookie: EmbeddedBookie) -> None:
    frame = struct.pack(">I", 4 * MIB) + bytes(3 * MIB)
    stalled = [socket.create_connection(("127.0.0.1", bookie.port)) for _ in range(6)]
    try:
        for connection in stalled:
            connection.settimeout(WAIT_S)
            try:
                connection.sendall(frame)
            except OSError:
                continue  # closed while it was sent
        until(lambda: server_of(bookie).watch.evicted >= 1 or server_of(bookie).watch.timed_out >= 4)
        assert server_of(bookie).watch.held_bytes <= 8 * MIB
        with DemoClient(bookie.port) as client:
            assert client.add(1, range(10), size_bytes=100).done == list(range(10))
    finally:
        for connection in stalled:
            connection.close()


def test_half_a_head_does_not_hold_a_connection_of_the_http_admin(
    bookie: EmbeddedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_listener, "HEAD_TIMEOUT_S", 0.3)
    assert bookie.http_port is not None
    for sent in (b"", b"GET /heartbeat HTTP/1.1\r\nHost: local"):
        with socket.create_connection(("127.0.0.1", bookie.http_port)) as stalled:
            stalled.sendall(sent)
            assert closes(stalled)
    with socket.create_connection(("127.0.0.1", bookie.http_port)) as kept:
        kept.settimeout(WAIT_S)
        for _ in range(3):
            kept.sendall(b"GET /heartbeat HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(4096).startswith(b"HTTP/1.1 200")
        # And after the last answer it may rest no longer than a head may take.
        assert closes(kept)


def test_connections_of_the_http_admin_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkctl.server.http.guarded_http.http_connections_max", lambda _: 3)
    with EmbeddedBookie(tmp_path) as bookie:
        assert bookie.http_port is not None
        open_ones = [socket.create_connection(("127.0.0.1", bookie.http_port)) for _ in range(3)]
        try:
            for connection in open_ones:
                connection.settimeout(WAIT_S)
                connection.sendall(b"GET /heartbeat HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            with socket.create_connection(("127.0.0.1", bookie.http_port)) as one_too_many:
                assert closes(one_too_many)
        finally:
            for connection in open_ones:
                connection.close()


# --- descriptors


@pytest.mark.parametrize("descriptors", [64, 256, 1024, 4096, 20_000, 65_536, 1 << 20])
def test_files_keep_a_reserve_however_many_clients_connect(descriptors: int) -> None:
    taken = bookie_connections_max(descriptors, 10_000) + http_connections_max(descriptors)
    assert descriptors - taken >= min(4096, descriptors // 4)
    assert bookie_connections_max(descriptors, 10_000) <= 10_000


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert descriptor_limit() == min(soft, 512)
        raise_soft_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_bookie_that_could_not_open_its_files_does_not_start() -> None:
    require_enough(128)
    with pytest.raises(RefusedError, match=r"40 files and connections.*ulimit -Hn"):
        require_enough(40)
