"""Connections that stall: very many of them, each at one stage of its life, by plain non-blocking sockets."""

from __future__ import annotations

import contextlib
import enum
import itertools
import select
import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from bkctl.protocol.connection import ClientConnection
from bkctl.protocol.messages import ReadRequest, StartTlsRequest, Wire

KIB = 1 << 10
#: Half a frame of each connection: ten thousand of them hold more than a bookie gives to all.
HALF_FRAME_BYTES = 40 * KIB
#: What a client that does not read asks for: answers that stay below the bound of one connection.
UNREAD_ENTRIES = 12
UNREAD_ENTRY_BYTES = 32 * KIB
POLLS = 5
POLL_TIMEOUT_MS = 600_000

#: Connections that have not been accepted yet; a listener's queue is short.
_CONNECTING_MAX = 64
_PER_ADDRESS = 4_000
#: Not in every version of the module.
_BIND_ADDRESS_NO_PORT = 24
_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)
_HALF_A_HEAD = b"GET /heartbeat HTTP/1.1\r\nHost: localhost\r\nX-Stalled: "
_HUNG_UP = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP


class Stage(enum.Enum):
    """Where a connection stalls."""

    BEFORE_A_BYTE = "before a byte"
    HALF_A_FRAME = "half a frame"
    TLS_HELLO = "TLS hello"
    HALF_A_HEAD = "half a header"
    NOT_READING = "not reading"
    LONG_POLLS = "long polls"


def _first_bytes(stage: Stage, ledger: int) -> bytes:
    """Return what a connection sends at once; ``ledger`` has entries for those that read."""
    if stage is Stage.HALF_A_FRAME:
        return struct.pack(">I", 2 * HALF_FRAME_BYTES) + bytes(HALF_FRAME_BYTES)
    if stage is Stage.TLS_HELLO:
        return ClientConnection(Wire.V3).send(StartTlsRequest())
    if stage is Stage.HALF_A_HEAD:
        return _HALF_A_HEAD
    if stage is Stage.NOT_READING:
        reader = ClientConnection(Wire.V2)
        return b"".join([reader.send(ReadRequest(ledger, entry)) for entry in range(UNREAD_ENTRIES)])
    if stage is Stage.LONG_POLLS:
        waiting = ClientConnection(Wire.V3)
        poll = ReadRequest(ledger, -1, previous_lac=1 << 40, timeout_ms=POLL_TIMEOUT_MS)
        return b"".join([waiting.send(poll) for _ in range(POLLS)])
    return b""


class _Stalled:
    """One connection."""

    __slots__ = ("connecting", "listening", "socket", "to_send")

    def __init__(self, connection: socket.socket, to_send: bytes, *, listening: bool) -> None:
        self.socket = connection
        self.to_send = to_send
        self.connecting = True
        #: Whether it waits for an answer before it stalls.
        self.listening = listening


class StalledConnections:
    """Opens and holds connections to one port of the loopback; a context manager that closes them."""

    _addresses: Iterator[str] = (
        f"127.{second}.{third}.{fourth}"
        for second, third, fourth in itertools.product(range(1, 255), range(256), range(1, 255))
    )

    def __init__(self, stage: Stage, port: int, *, ledger: int = 0) -> None:
        self.refused = 0
        self._stage = stage
        self._port = port
        self._first = _first_bytes(stage, ledger)
        self._open: dict[int, _Stalled] = {}
        self._connecting = 0
        self._epoll = select.epoll()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def held(self) -> int:
        """How many the other side has not closed."""
        self.look()
        return len(self._open)

    def open(self, count: int, *, timeout_s: float) -> int:
        """Open so many, send what they send; return how many there were when time or descriptors ended."""
        end_s = time.monotonic() + timeout_s
        made = 0
        address = ""
        while made < count and time.monotonic() < end_s:
            if self._connecting >= _CONNECTING_MAX:
                self.look(wait_s=0.1)
                continue
            if made % _PER_ADDRESS == 0:
                address = next(self._addresses)
            try:
                self._begin(address)
            except OSError:
                break
            made += 1
            if made % 16 == 0:
                self.look()
        while self._connecting and time.monotonic() < end_s:
            self.look(wait_s=0.1)
        return made

    def _begin(self, address: str) -> None:
        connection = socket.socket()
        try:
            connection.setblocking(False)
            if self._stage is Stage.NOT_READING:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            connection.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            connection.bind((address, 0))
            connection.connect_ex(("127.0.0.1", self._port))
            self._epoll.register(connection, select.EPOLLOUT | select.EPOLLRDHUP)
        except OSError:
            connection.close()
            raise
        self._open[connection.fileno()] = _Stalled(
            connection, self._first, listening=self._stage is Stage.TLS_HELLO
        )
        self._connecting += 1

    def look(self, *, wait_s: float = 0.0) -> None:
        """Go on with those that connect or send, and forget those that the other side has closed."""
        for number, events in self._epoll.poll(wait_s):
            stalled = self._open[number]
            if events & _HUNG_UP:
                self.refused += 1
                self._forget(stalled)
                continue
            if stalled.connecting:
                stalled.connecting = False
                self._connecting -= 1
            try:
                if events & select.EPOLLIN:
                    self._answered(stalled)
                if stalled.to_send:
                    stalled.to_send = stalled.to_send[stalled.socket.send(stalled.to_send) :]
            except BlockingIOError:
                pass
            except OSError:
                self.refused += 1
                self._forget(stalled)
                continue
            self._watch(stalled)

    def _watch(self, stalled: _Stalled) -> None:
        """Ask for the events that matter from here on."""
        wanted = select.EPOLLRDHUP
        if stalled.to_send:
            wanted |= select.EPOLLOUT
        if stalled.listening:
            wanted |= select.EPOLLIN
        self._epoll.modify(stalled.socket, wanted)

    def _answered(self, stalled: _Stalled) -> None:
        """The answer to START_TLS is there: say half of a hello."""
        stalled.socket.recv(4 * KIB)
        stalled.to_send = _HELLO
        stalled.listening = False

    def _forget(self, stalled: _Stalled) -> None:
        if stalled.connecting:
            self._connecting -= 1
        del self._open[stalled.socket.fileno()]
        stalled.socket.close()

    def close(self) -> None:
        """Drop all that are left, at once."""
        for stalled in self._open.values():
            with contextlib.suppress(OSError):
                stalled.socket.close()
        self._open.clear()
        self._connecting = 0
        self._epoll.close()
