"""Clients that wait for a long poll: nobody waits for their ends, and what they send is read."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bkctl.config.server_keys.network import NetworkSettings
from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.server.wire import silent_sockets
from bkctl.server.wire.silent_sockets import LOOKED_AT_PER_TURN, PAUSE_S, SilentSockets
from bkctl.types import ResultCode
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import WireClient, add_request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the event loop reads them")
POLL = ReadRequest(7, -1, piggyback=True, previous_lac=100, timeout_ms=600_000)


class Loop:
    """An event loop that does nothing by itself."""

    def __init__(self) -> None:
        self.look: Callable[[], None] = lambda: None
        self.due: list[tuple[float, Callable[[], None]]] = []

    def add_reader(self, _: int, callback: Callable[[], None]) -> None:
        self.look = callback

    def remove_reader(self, _: int) -> None:
        self.look = lambda: None

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append((0.0, callback))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.due.append((delay_s, callback))


class Client:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.here, self.there = socket.socketpair()
        self.told: list[str] = []

    @property
    def descriptor(self) -> int:
        return self.here.fileno()

    def wake(self) -> None:
        self.told.append("wake")

    def hung_up(self) -> bool:
        self.told.append("hung up")
        return True

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def watched(loop: Loop) -> Iterator[SilentSockets]:
    silent = SilentSockets(loop)  # type: ignore[arg-type]
    silent.start()
    yield silent
    silent.stop()


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    made = [Client() for _ in range(5 * LOOKED_AT_PER_TURN)]
    yield made
    for client in made:
        client.close()


def test_a_turn_looks_at_some_and_ends_one_with_a_pause(
    loop: Loop, watched: SilentSockets, clients: list[Client]
) -> None:
    for client in clients:
        assert watched.watch(client, client.descriptor)
        client.there.close()
    for looks in range(1, 6):
        loop.look()
        assert len(watched) == len(clients) - looks * LOOKED_AT_PER_TURN
    for ended in range(1, len(clients) + 1):
        ((delay_s, callback),) = loop.due
        assert delay_s == (0.0 if ended == 1 else PAUSE_S)
        loop.due.clear()
        callback()
        assert sum(client.told == ["hung up"] for client in clients) == ended
    assert not loop.due
    assert not watched.end_one()


def test_what_a_client_sends_wakes_it_once_and_at_once(
    loop: Loop, watched: SilentSockets, clients: list[Client]
) -> None:
    client, other = clients[:2]
    for each in (client, other):
        watched.watch(each, each.descriptor)
    client.there.send(b"x")
    loop.look()
    loop.look()
    assert (client.told, other.told) == (["wake"], [])
    # Watched again with the byte still there: told at once.
    watched.watch(client, client.descriptor)
    loop.look()
    assert client.told == ["wake", "wake"]


def test_a_client_that_is_forgotten_is_told_nothing(
    loop: Loop, watched: SilentSockets, clients: list[Client]
) -> None:
    client = clients[0]
    watched.watch(client, client.descriptor)
    watched.forget(client, client.descriptor)
    client.there.close()
    loop.look()
    assert (client.told, loop.due) == ([], [])


def test_a_descriptor_that_is_another_clients_by_now(loop: Loop, watched: SilentSockets) -> None:
    old = Client()
    descriptor = old.descriptor
    watched.watch(old, descriptor)
    old.close()
    new = Client()
    try:
        if new.descriptor != descriptor:
            new.here = socket.socket(fileno=_duplicate(new.here, descriptor))
        assert watched.watch(new, descriptor)
        watched.forget(old, descriptor)
        new.there.send(b"x")
        loop.look()
        assert (old.told, new.told) == ([], ["wake"])
    finally:
        new.close()


def _duplicate(one: socket.socket, descriptor: int) -> int:
    import os

    os.dup2(one.fileno(), descriptor)
    one.close()
    return descriptor


def test_without_an_epoll_the_loop_reads(loop: Loop, watched: SilentSockets, clients: list[Client]) -> None:
    watched.stop()
    assert not watched.watch(clients[0], clients[0].descriptor)


def ask(client: WireClient, *requests: Any) -> None:
    client.send([(request, number) for number, request in enumerate(requests)])


def is_silent(served: ServedEngine) -> bool:
    return len(served.server.silent_sockets) == 1


def test_requests_behind_a_long_poll_are_answered_and_so_are_its_successors() -> None:
    with ServedEngine() as served, WireClient(served.port) as client:
        served.rig.add(7, 0)
        for number in range(1, 4):
            confirmed = served.rig.bookie.reads.last_add_confirmed(7)
            poll = ReadRequest(7, -1, piggyback=True, previous_lac=confirmed, timeout_ms=600_000)
            ask(client, poll)
            served.until(lambda: is_silent(served), "the socket is read by the loop")
            ask(client, add_request(8, number))
            (added,) = client.receive()
            assert added.response.code is ResultCode.OK  # type: ignore[attr-defined]
            # The entry confirms the one before it.
            served.rig.add(7, number)
            (polled,) = client.receive_all()
            assert polled.response.max_lac == confirmed + 1  # type: ignore[attr-defined]
        client.close()
        served.until_idle()


def test_a_client_that_goes_is_noticed_with_all_of_its_polls() -> None:
    with ServedEngine() as served:
        served.rig.add(7, 0)
        clients = [WireClient(served.port) for _ in range(20)]
        for client in clients:
            ask(client, POLL, POLL, POLL)
        served.until(lambda: len(served.server.silent_sockets) == 20, "not all are silent")
        assert served.server.long_polls.meter.length == 60
        for client in clients:
            client.close()
        served.until_idle()
        assert not len(served.server.silent_sockets)
        assert served.server.memory.held_bytes == 0


def test_half_a_frame_behind_a_long_poll_is_waited_for_and_timed_out() -> None:
    with (
        ServedEngine(settings=NetworkSettings(frame_timeout_ms=50)) as served,
        WireClient(served.port) as client,
    ):
        served.rig.add(7, 0)
        frame = client.connection.send(POLL, None)
        client.send_bytes(frame + b"\0\0\0\x40half")
        # Nobody is connected before the server has accepted it, so that idleness alone says nothing.
        served.until(lambda: served.server.watch.timed_out == 1, "the half frame is still waited for")
        served.until_idle()


def ten_go(served: ServedEngine) -> None:
    """Have ten clients wait for a long poll each, and go; the server has seen it of all when this returns."""
    clients = [WireClient(served.port) for _ in range(10)]
    for client in clients:
        ask(client, POLL)
    served.until(lambda: len(served.server.silent_sockets) == 10, "not all are silent")
    for client in clients:
        client.close()
    served.until(lambda: not len(served.server.silent_sockets), "nobody has looked")


def test_a_new_client_gets_the_place_of_one_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_sockets, "PAUSE_S", 3600.0)
    with ServedEngine(settings=NetworkSettings(connections_max=10)) as served:
        served.rig.add(7, 0)

        def end_all() -> None:
            while served.server.silent_sockets.end_one():
                pass

        # On a machine with other work most may have ended before this thread is back.
        for _ in range(50):
            ten_go(served)
            if served.server.connections > 10 - 5:
                break
            served.loop.call_soon_threadsafe(end_all)
            served.until(lambda: served.server.connections == 0, "some connections are left")
        else:
            pytest.fail("there was a place for each new client anyway")
        for _ in range(5):
            with WireClient(served.port, Wire.V2) as client:
                assert client.read(7, 0).code is ResultCode.OK
        assert served.server.connections_refused == 0


def test_a_place_that_was_given_back_is_given_to_one_new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while those that have gone, and were closed for another reason, still wait for their end."""
    monkeypatch.setattr(silent_sockets, "PAUSE_S", 3600.0)
    with ServedEngine(settings=NetworkSettings(connections_max=10)) as served:
        served.rig.add(7, 0)
        ten_go(served)

        def close_all() -> None:
            for connection in list(served.server._connections):
                connection.abort()

        served.loop.call_soon_threadsafe(close_all)
        served.until(lambda: served.server.connections == 0, "some connections are left")
        clients = [socket.create_connection(("127.0.0.1", served.port), 30) for _ in range(15)]
        served.until(
            lambda: served.server.connections + served.server.connections_refused >= 15, "not all are seen"
        )
        served.until(lambda: served.server.connections <= 10, "there are more connections than there may be")
        for client in clients:
            client.close()


def test_polls_of_clients_that_have_gone_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_sockets, "PAUSE_S", 3600.0)
    with ServedEngine(settings=NetworkSettings(long_polls_max=10)) as served, WireClient(served.port) as new:
        served.rig.add(7, 0)
        ten_go(served)

        def is_taken() -> bool:
            """Whether a poll of 1 ms is answered; a refused one makes room for the next."""
            poll = ReadRequest(7, -1, piggyback=True, previous_lac=100, timeout_ms=1)
            ask(new, *[poll] * 9)
            codes = {answer.response.code for answer in new.receive_all()}  # type: ignore[attr-defined]
            assert codes <= {ResultCode.OK, ResultCode.TOO_MANY_REQUESTS}
            return codes == {ResultCode.OK}

        served.until(is_taken, "those that have gone keep their places")
