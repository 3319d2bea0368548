"""The smallest client of a bookie: adds and reads over one connection, many outstanding at a time.

It has no metadata, no ensemble and no recovery; it exists for ``make demo`` and for tests of a bookie's
process, which want to know exactly what was acknowledged when the connection broke.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bkctl.codec import digest, entry
from bkctl.codec.digest import Digester
from bkctl.protocol.connection import ClientConnection, Completed
from bkctl.protocol.messages import AddRequest, ReadRequest, ReadResponse, Request, Wire
from bkctl.types import DigestType, ResultCode

MASTER_KEY = digest.master_key(b"demo")
TIMEOUT_S = 20.0
_RECEIVE_BYTES = 1 << 18
_DIGESTER = Digester(DigestType.CRC32C, b"")


def payload_of(ledger: int, number: int, size_bytes: int) -> bytes:
    """Bytes that only this entry has, so that a wrong answer shows."""
    block = hashlib.sha256(b"%d/%d" % (ledger, number)).digest()
    return (block * (size_bytes // len(block) + 1))[:size_bytes]


def body_of(ledger: int, number: int, size_bytes: int) -> bytes:
    """An entry as a BookKeeper client makes it: header with the running length, CRC-32C, payload."""
    header = entry.EntryHeader(ledger, number, number - 1, (number + 1) * size_bytes)
    return entry.encode(header, payload_of(ledger, number, size_bytes), _DIGESTER)


@dataclass(slots=True)
class Outcome:
    """What was answered: entry ids that were acknowledged, other codes, and whether the connection broke."""

    done: list[int] = field(default_factory=list)
    refused: dict[int, ResultCode] = field(default_factory=dict)
    bodies: dict[int, bytes] = field(default_factory=dict)
    broken: bool = False


class DemoClient:
    """One connection to a bookie; a context manager."""

    def __init__(self, port: int, wire: Wire = Wire.V3, host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((host, port), TIMEOUT_S)
        self._connection = ClientConnection(wire)

    def add(
        self,
        ledger: int,
        numbers: Iterable[int],
        *,
        size_bytes: int = 1000,
        window: int = 64,
        answered: Callable[[int], None] | None = None,
    ) -> Outcome:
        """Add entries, up to ``window`` outstanding, until all are answered or the connection breaks."""
        requests = (
            AddRequest(ledger, number, MASTER_KEY, body_of(ledger, number, size_bytes)) for number in numbers
        )
        return self._exchange(requests, window, answered)

    def read(self, ledger: int, numbers: Sequence[int], *, window: int = 64) -> Outcome:
        """Read entries; ``bodies`` of the outcome has what came."""
        return self._exchange((ReadRequest(ledger, number) for number in numbers), window, None)

    def _exchange(
        self, requests: Iterable[Request], window: int, answered: Callable[[int], None] | None
    ) -> Outcome:
        outcome = Outcome()
        waiting = iter(requests)
        more = True
        try:
            while more or self._connection.outstanding:
                frames = []
                while more and self._connection.outstanding < window:
                    request = next(waiting, None)
                    more = request is not None
                    if request is not None:
                        frames.append(self._connection.send(request))
                self._socket.sendall(b"".join(frames))
                if self._connection.outstanding:
                    self._take(outcome, answered)
        except ConnectionError:
            outcome.broken = True
        return outcome

    def _take(self, outcome: Outcome, answered: Callable[[int], None] | None) -> None:
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the bookie has closed the connection")
        for event in self._connection.feed(data):
            if not isinstance(event, Completed):
                raise ConnectionResetError(f"closed: {event}")
            number = event.request.entry  # type: ignore[attr-defined]
            code = event.response.code  # type: ignore[attr-defined]
            if code is not ResultCode.OK:
                outcome.refused[number] = code
                continue
            outcome.done.append(number)
            if isinstance(event.response, ReadResponse):
                outcome.bodies[number] = event.response.body or b""
            if answered is not None:
                answered(number)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
