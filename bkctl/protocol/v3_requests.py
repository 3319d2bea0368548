"""Protocol v3: requests. The byte tables are in ``v3``.

=========== ====================================================================
client      ``encode_request``
server      ``decode_request``
=========== ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bkctl.errors import UsageError
from bkctl.protocol.codes import Operation
from bkctl.protocol.framing import encode_frame
from bkctl.protocol.messages import (
    AddRequest,
    AuthRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    UnsupportedRequest,
    WriteLacRequest,
)
from bkctl.protocol.proto import bookkeeper_protocol_pb2 as pb
from bkctl.protocol.v3_message import parse, write_header
from bkctl.protocol.v3_part import Message, Part

_DEFERRED_SYNC = 1
_FENCE = pb.ReadRequest.FENCE_LEDGER
_PIGGYBACK = pb.ReadRequest.ENTRY_PIGGYBACK
_RECOVERY_ADD = pb.AddRequest.RECOVERY_ADD
_TOTAL = pb.GetBookieInfoRequest.TOTAL_DISK_CAPACITY
_FREE = pb.GetBookieInfoRequest.FREE_DISK_SPACE

# --- tables of fields -----------------------------------------------------------------------------


def _read_add_flags(part: Message) -> dict[str, Any]:
    return {
        "recovery": part.HasField("flag") and part.flag == _RECOVERY_ADD,
        "deferred_sync": bool(part.writeFlags & _DEFERRED_SYNC),
    }


def _write_add_flags(part: Message, request: AddRequest) -> None:
    if request.deferred_sync:
        part.writeFlags = _DEFERRED_SYNC
    if request.recovery:
        part.flag = _RECOVERY_ADD


def _read_read_flags(part: Message) -> dict[str, Any]:
    flag = part.flag if part.HasField("flag") else 0
    return {"fence": flag == _FENCE, "piggyback": flag == _PIGGYBACK}


def _write_read_flags(part: Message, request: ReadRequest) -> None:
    if request.fence and request.piggyback:
        raise UsageError("a read is either fencing or piggybacking, the flag holds one of them")
    if request.fence:
        part.flag = _FENCE
    if request.piggyback:
        part.flag = _PIGGYBACK


def _read_requested(part: Message) -> dict[str, Any]:
    return {"total": bool(part.requested & _TOTAL), "free": bool(part.requested & _FREE)}


def _write_requested(part: Message, request: BookieInfoRequest) -> None:
    part.requested = (_TOTAL if request.total else 0) | (_FREE if request.free else 0)


_LEDGER = {"ledgerId": "ledger"}
_PARTS: dict[int, Part[Any]] = {
    pb.ADD_ENTRY: Part(
        AddRequest,
        "addRequest",
        {**_LEDGER, "entryId": "entry", "masterKey": "master_key", "body": "body"},
        read_flags=_read_add_flags,
        write_flags=_write_add_flags,
    ),
    pb.READ_ENTRY: Part(
        ReadRequest,
        "readRequest",
        {**_LEDGER, "entryId": "entry"},
        {"masterKey": "master_key", "previousLAC": "previous_lac", "timeOut": "timeout_ms"},
        read_flags=_read_read_flags,
        write_flags=_write_read_flags,
    ),
    pb.READ_LAC: Part(ReadLacRequest, "readLacRequest", _LEDGER),
    pb.WRITE_LAC: Part(
        WriteLacRequest,
        "writeLacRequest",
        {**_LEDGER, "lac": "lac", "masterKey": "master_key", "body": "body"},
    ),
    pb.FORCE_LEDGER: Part(ForceLedgerRequest, "forceLedgerRequest", _LEDGER),
    pb.GET_BOOKIE_INFO: Part(
        BookieInfoRequest,
        "getBookieInfoRequest",
        {},
        read_flags=_read_requested,
        write_flags=_write_requested,
    ),
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: Part(ListOfEntriesRequest, "getListOfEntriesOfLedgerRequest", _LEDGER),
}
_PART_OF_KIND = {part.kind: part for part in _PARTS.values()}

# --- server side ----------------------------------------------------------------------------------


def decode_request(payload: bytes) -> Request:
    """Return the request in a frame's payload. Raises ProtocolError (NEITHER_V2_NOR_V3) when it is not v3."""
    message = pb.Request()
    parse(message, payload)
    header = message.header
    part = _PARTS.get(header.operation)
    if part is None:
        return _READERS[header.operation](message)
    content = part.of(message)
    request: Request = part.kind(
        *part.required(content),
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
        **part.others(content),
    )
    return request


def _read_auth(message: pb.Request) -> AuthRequest:
    header, auth = message.header, message.authRequest
    return AuthRequest(
        auth.authPluginName.decode("utf-8", "surrogateescape"),
        auth.payload,
        header.SerializeToString(),
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
    )


def _read_start_tls(message: pb.Request) -> StartTlsRequest:
    header = message.header
    return StartTlsRequest(
        header.SerializeToString(), version=header.version, txn_id=header.txnId, priority=header.priority
    )


def _read_unsupported(message: pb.Request) -> UnsupportedRequest:
    header = message.header
    return UnsupportedRequest(
        Operation(header.operation),
        header.SerializeToString(),
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
    )


_READERS: dict[int, Callable[[pb.Request], Request]] = {
    pb.RANGE_READ_ENTRY: _read_unsupported,
    pb.RANGE_ADD_ENTRY: _read_unsupported,
    pb.AUTH: _read_auth,
    pb.START_TLS: _read_start_tls,
    pb.BATCH_READ_ENTRY: _read_unsupported,
}

# --- client side ----------------------------------------------------------------------------------


def encode_request(request: Request) -> bytes:
    """Return the frame of a request, with version 3. Raises UsageError for one that v3 cannot say."""
    operation = request.requested if isinstance(request, UnsupportedRequest) else request.operation
    message = pb.Request()
    write_header(message, operation, request.txn_id)
    if request.priority:
        message.header.priority = request.priority
    part = _PART_OF_KIND.get(type(request))
    if part is not None:
        content = part.of(message)
        content.SetInParent()
        part.write(content, request)
        return encode_frame(message.SerializeToString())
    match request:
        case AuthRequest():
            message.authRequest.authPluginName = request.plugin.encode("utf-8", "surrogateescape")
            message.authRequest.payload = request.payload
        case StartTlsRequest():
            message.startTLSRequest.SetInParent()
        case UnsupportedRequest():
            pass
        case _:
            raise UsageError(f"protocol v3 has no {type(request).__name__}: it needs a v2 connection")
    return encode_frame(message.SerializeToString())
