"""A small synchronous client of one bookie: sockets under ``bkctl.protocol.connection.ClientConnection``."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from bkctl.codec import digest
from bkctl.protocol.connection import ClientConnection, Completed
from bkctl.protocol.messages import (
    AddRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    Response,
    Wire,
    WriteLacRequest,
)
from bkctl.types import ResultCode
from tests.support.engine_rig import entry_body, lac_packet

KEY = digest.master_key(b"secret")
TIMEOUT_S = 30.0
_RECEIVE_BYTES = 1 << 18


class DisconnectedError(Exception):
    """The bookie closed the connection, or is gone."""


class WireClient:
    """One connection; a context manager. Every wait ends with ``timeout_s`` at the latest."""

    def __init__(
        self,
        port: int,
        wire: Wire = Wire.V3,
        *,
        timeout_s: float = TIMEOUT_S,
        receive_bytes: int | None = None,
    ) -> None:
        self.socket = socket.socket()
        try:
            if receive_bytes is not None:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            self.socket.settimeout(timeout_s)
            self.socket.connect(("127.0.0.1", port))
        except OSError as error:
            self.socket.close()
            raise DisconnectedError(str(error)) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = ClientConnection(wire)

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # --- many at once

    def send(self, requests: Iterable[tuple[Request, object]]) -> None:
        """Send requests, each with its context, in one piece."""
        self.send_bytes(b"".join([self.connection.send(request, context) for request, context in requests]))

    def send_bytes(self, data: bytes) -> None:
        """Send whatever bytes."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise DisconnectedError(str(error)) from error

    def receive(self) -> list[Completed]:
        """Answers that have come, at least one packet of them. Raises DisconnectedError."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise DisconnectedError(str(error)) from error
        if not data:
            raise DisconnectedError("closed by the bookie")
        return [event for event in self.connection.feed(data) if isinstance(event, Completed)]

    def receive_all(self) -> list[Completed]:
        """Until nothing is outstanding."""
        answers: list[Completed] = []
        while self.connection.outstanding:
            answers += self.receive()
        return answers

    # --- one by one

    def ask(self, request: Request) -> Any:
        """The answer to one request; nothing else may be outstanding."""
        self.send([(request, None)])
        (answer,) = self.receive_all()
        response: Response = answer.response
        return response

    def add(
        self,
        ledger: int,
        entry: int,
        payload: bytes = b"payload",
        *,
        key: bytes = KEY,
        recovery: bool = False,
        deferred: bool = False,
    ) -> ResultCode:
        """Add an entry; the code of the answer."""
        request = add_request(ledger, entry, payload, key=key, recovery=recovery, deferred=deferred)
        return ResultCode(self.ask(request).code)

    def read(self, ledger: int, entry: int, *, fence: bool = False, key: bytes = KEY) -> Any:
        """Read an entry: the answer."""
        return self.ask(ReadRequest(ledger, entry, key if fence else None, fence))

    def fence(self, ledger: int) -> ResultCode:
        """Fence by a read of the newest entry; NO_ENTRY is what an empty ledger says behind its fence."""
        return ResultCode(self.read(ledger, -1, fence=True).code)

    def write_lac(self, ledger: int, lac: int) -> ResultCode:
        """Write an explicit LAC."""
        return ResultCode(self.ask(WriteLacRequest(ledger, lac, KEY, lac_packet(ledger, lac))).code)

    def read_lac(self, ledger: int) -> Any:
        """Explicit LAC and newest entry: the answer."""
        return self.ask(ReadLacRequest(ledger))

    def force(self, ledger: int) -> ResultCode:
        """Make deferred adds durable."""
        return ResultCode(self.ask(ForceLedgerRequest(ledger)).code)


def add_request(
    ledger: int,
    entry: int,
    payload: bytes = b"payload",
    *,
    key: bytes = KEY,
    recovery: bool = False,
    deferred: bool = False,
) -> AddRequest:
    """An add as a client sends it."""
    return AddRequest(ledger, entry, key, entry_body(ledger, entry, payload), recovery, deferred)
