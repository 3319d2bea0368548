"""Requests and answers as values, the same for both versions of the protocol.

A request keeps what its answer has to repeat (``wire``, ``version``, ``txn_id`` and, where the server returns
the header as it came, ``raw_header``); ``request.answer(code, ...)`` makes the answer that belongs to it.
``v2`` and ``v3`` turn these values into bytes and back.

Ids are plain integers (i64), times are milliseconds, sizes are bytes. A master key is None where the message
has none. ``ledger`` and ``entry`` are those of the message; for an add over v3 the ids that count are the
first 16 bytes of the body (:attr:`AddRequest.key`), these are only repeated in the answer.

Source: ``BookkeeperProtocol`` and ``org.apache.bookkeeper.proto.BookieProtocol``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import ClassVar

from bkctl.protocol.codes import Operation
from bkctl.types import ResultCode

#: The priority that Java's client writes into recovery reads and adds; v2 has one bit for it.
HIGH_PRIORITY = 100

#: As the entry id of a read it asks for the newest entry; as a LAC it says that there is none yet.
LAST_ADD_CONFIRMED = -1

#: Name of the plugin of a server or client without authentication.
AUTH_DISABLED_PLUGIN = "AuthDisabledPlugin"

_INT_MAX = 2**31 - 1


class Wire(enum.IntEnum):
    """How a message is written: 2 is the binary form, 3 is protobuf."""

    V2 = 2
    V3 = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The fields of a request. ``version`` is the header's as it came; encoders write their current one."""

    operation: ClassVar[Operation]

    wire: Wire = Wire.V3
    version: int = 3
    txn_id: int = 0
    priority: int = 0

    @property
    def high_priority(self) -> bool:
        """Whether it goes to the high-priority stage. Java reads the u32 as a signed integer."""
        return 0 < self.priority <= _INT_MAX

    def refuse(self, code: ResultCode) -> Response:
        """Return the answer without any data."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The fields of all answers."""

    operation: ClassVar[Operation]

    wire: Wire = Wire.V3
    version: int = 3
    txn_id: int = 0


@dataclass(frozen=True, slots=True)
class AddResponse(Response):
    """The entry is durable (or journaled, with deferred sync), or why it is not stored."""

    operation: ClassVar[Operation] = Operation.ADD_ENTRY

    code: ResultCode
    ledger: int
    entry: int


@dataclass(frozen=True, slots=True)
class AddRequest(Request):
    """Store an entry. ``recovery`` is not refused by the fence; ``deferred_sync`` exists in v3 only."""

    operation: ClassVar[Operation] = Operation.ADD_ENTRY

    ledger: int
    entry: int
    master_key: bytes = field(repr=False)
    body: bytes = field(repr=False)
    recovery: bool = False
    deferred_sync: bool = False

    @property
    def key(self) -> bytes:
        """Ledger and entry id as the entry itself has them, 16 bytes (fewer where the body is shorter)."""
        return self.body[:16]

    def answer(self, code: ResultCode) -> AddResponse:
        return AddResponse(
            code, self.ledger, self.entry, wire=self.wire, version=self.version, txn_id=self.txn_id
        )

    def refuse(self, code: ResultCode) -> AddResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class ReadResponse(Response):
    """``entry`` is the id asked for, so -1 stays -1; only a long poll that brings an entry names that one."""

    operation: ClassVar[Operation] = Operation.READ_ENTRY

    code: ResultCode
    ledger: int
    entry: int
    body: bytes | None = field(default=None, repr=False)
    max_lac: int | None = None
    lac_update_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest(Request):
    """Read an entry, -1 for the newest. The last three exist in v3 only."""

    operation: ClassVar[Operation] = Operation.READ_ENTRY

    ledger: int
    entry: int
    master_key: bytes | None = field(default=None, repr=False)
    fence: bool = False
    piggyback: bool = False
    previous_lac: int | None = None
    timeout_ms: int | None = None

    @property
    def long_poll(self) -> bool:
        """Whether it waits for the LAC to pass ``previous_lac``, up to ``timeout_ms``."""
        return self.previous_lac is not None and not self.fence

    def answer(
        self,
        code: ResultCode,
        body: bytes | None = None,
        *,
        entry: int | None = None,
        max_lac: int | None = None,
        lac_update_ms: int | None = None,
    ) -> ReadResponse:
        """Make the answer; ``entry`` only where it names another one than was asked for (a long poll's)."""
        return ReadResponse(
            code,
            self.ledger,
            self.entry if entry is None else entry,
            body,
            max_lac,
            lac_update_ms,
            wire=self.wire,
            version=self.version,
            txn_id=self.txn_id,
        )

    def refuse(self, code: ResultCode) -> ReadResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class BatchReadResponse(Response):
    """Consecutive entries from ``entry`` on."""

    operation: ClassVar[Operation] = Operation.BATCH_READ_ENTRY

    code: ResultCode
    ledger: int
    entry: int
    request_id: int
    bodies: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class BatchReadRequest(Request):
    """Read consecutive entries, v2 only. ``count_max`` <= 0 is no limit; the first entry always comes."""

    operation: ClassVar[Operation] = Operation.BATCH_READ_ENTRY

    ledger: int
    entry: int
    request_id: int
    count_max: int
    size_bytes_max: int
    master_key: bytes | None = field(default=None, repr=False)
    fence: bool = False

    def answer(self, code: ResultCode, bodies: tuple[bytes, ...] = ()) -> BatchReadResponse:
        return BatchReadResponse(
            code, self.ledger, self.entry, self.request_id, bodies, wire=self.wire, version=self.version
        )

    def refuse(self, code: ResultCode) -> BatchReadResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class ReadLacResponse(Response):
    """The body of the last WRITE_LAC and the entry with the highest id; either may be absent."""

    operation: ClassVar[Operation] = Operation.READ_LAC

    code: ResultCode
    ledger: int
    lac_body: bytes | None = field(default=None, repr=False)
    last_entry_body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReadLacRequest(Request):
    """Ask for the explicit LAC, v3 only."""

    operation: ClassVar[Operation] = Operation.READ_LAC

    ledger: int

    def answer(
        self, code: ResultCode, lac_body: bytes | None = None, last_entry_body: bytes | None = None
    ) -> ReadLacResponse:
        return ReadLacResponse(code, self.ledger, lac_body, last_entry_body, txn_id=self.txn_id)

    def refuse(self, code: ResultCode) -> ReadLacResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class WriteLacResponse(Response):
    """The explicit LAC is durable, or why it is not."""

    operation: ClassVar[Operation] = Operation.WRITE_LAC

    code: ResultCode
    ledger: int


@dataclass(frozen=True, slots=True)
class WriteLacRequest(Request):
    """Store an explicit LAC, v3 only. The one in ``body`` (``codec.explicit_lac``) counts, not ``lac``."""

    operation: ClassVar[Operation] = Operation.WRITE_LAC

    ledger: int
    lac: int
    master_key: bytes = field(repr=False)
    body: bytes = field(repr=False)

    def answer(self, code: ResultCode) -> WriteLacResponse:
        return WriteLacResponse(code, self.ledger, txn_id=self.txn_id)

    def refuse(self, code: ResultCode) -> WriteLacResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class ForceLedgerResponse(Response):
    """Everything written to the ledger before the request is durable, or why it is not."""

    operation: ClassVar[Operation] = Operation.FORCE_LEDGER

    code: ResultCode
    ledger: int


@dataclass(frozen=True, slots=True)
class ForceLedgerRequest(Request):
    """Make what was written so far durable, v3 only."""

    operation: ClassVar[Operation] = Operation.FORCE_LEDGER

    ledger: int

    def answer(self, code: ResultCode) -> ForceLedgerResponse:
        return ForceLedgerResponse(code, self.ledger, txn_id=self.txn_id)

    def refuse(self, code: ResultCode) -> ForceLedgerResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class BookieInfoResponse(Response):
    """Bytes over all ledger directories; what was not asked for is None."""

    operation: ClassVar[Operation] = Operation.GET_BOOKIE_INFO

    code: ResultCode
    total_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BookieInfoRequest(Request):
    """Ask for disk space, v3 only."""

    operation: ClassVar[Operation] = Operation.GET_BOOKIE_INFO

    total: bool = False
    free: bool = False

    def answer(
        self, code: ResultCode, total_bytes: int | None = None, free_bytes: int | None = None
    ) -> BookieInfoResponse:
        return BookieInfoResponse(code, total_bytes, free_bytes, txn_id=self.txn_id)

    def refuse(self, code: ResultCode) -> BookieInfoResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class ListOfEntriesResponse(Response):
    """``entries`` is the encoded list (``entry_list``)."""

    operation: ClassVar[Operation] = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER

    code: ResultCode
    ledger: int
    entries: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ListOfEntriesRequest(Request):
    """Ask which entries of a ledger are here, v3 only."""

    operation: ClassVar[Operation] = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER

    ledger: int

    def answer(self, code: ResultCode, entries: bytes | None = None) -> ListOfEntriesResponse:
        return ListOfEntriesResponse(code, self.ledger, entries, txn_id=self.txn_id)

    def refuse(self, code: ResultCode) -> ListOfEntriesResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class AuthResponse(Response):
    """v2 has no code here, so it is OK there. ``raw_header`` (v3) is sent as it is when not empty."""

    operation: ClassVar[Operation] = Operation.AUTH

    code: ResultCode
    plugin: str = ""
    payload: bytes = field(default=b"", repr=False)
    raw_header: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AuthRequest(Request):
    """One step of an authentication. Bytes of a name that are not UTF-8 stand as surrogates."""

    operation: ClassVar[Operation] = Operation.AUTH

    plugin: str
    payload: bytes = field(repr=False)
    raw_header: bytes = field(default=b"", repr=False, compare=False)

    def answer(self, code: ResultCode, plugin: str, payload: bytes = b"") -> AuthResponse:
        # A v2 answer names version 2 whatever the request did.
        return AuthResponse(
            code,
            plugin,
            payload,
            self.raw_header,
            wire=self.wire,
            version=int(self.wire),
            txn_id=self.txn_id,
        )

    def refuse(self, code: ResultCode) -> AuthResponse:
        return self.answer(code, "")


@dataclass(frozen=True, slots=True)
class StartTlsResponse(Response):
    """OK: the TLS handshake follows on this connection."""

    operation: ClassVar[Operation] = Operation.START_TLS

    code: ResultCode
    raw_header: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class StartTlsRequest(Request):
    """Go on in TLS; always written as v3, on a v2 connection too."""

    operation: ClassVar[Operation] = Operation.START_TLS

    raw_header: bytes = field(default=b"", repr=False, compare=False)

    def answer(self, code: ResultCode) -> StartTlsResponse:
        return StartTlsResponse(code, self.raw_header, txn_id=self.txn_id)

    def refuse(self, code: ResultCode) -> StartTlsResponse:
        return self.answer(code)


@dataclass(frozen=True, slots=True)
class UnsupportedResponse(Response):
    """The answer to an operation that has a number in v3 and no message."""

    operation: ClassVar[Operation] = Operation.RANGE_READ_ENTRY

    code: ResultCode
    requested: Operation
    raw_header: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class UnsupportedRequest(Request):
    """RANGE_READ_ENTRY, RANGE_ADD_ENTRY or BATCH_READ_ENTRY over v3."""

    operation: ClassVar[Operation] = Operation.RANGE_READ_ENTRY

    requested: Operation
    raw_header: bytes = field(default=b"", repr=False, compare=False)

    def refuse(self, code: ResultCode) -> UnsupportedResponse:
        return UnsupportedResponse(code, self.requested, self.raw_header, txn_id=self.txn_id)
