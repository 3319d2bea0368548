"""Protocol v3: requests. The byte tables are in ``v3``.

=========== ====================================================================
client      ``encode_request``
server      ``decode_request``
=========== ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable

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
from bkctl.protocol.v3_message import header_of, parse

_DEFERRED_SYNC = 1
_FENCE = pb.ReadRequest.FENCE_LEDGER
_PIGGYBACK = pb.ReadRequest.ENTRY_PIGGYBACK
_RECOVERY_ADD = pb.AddRequest.RECOVERY_ADD
_TOTAL = pb.GetBookieInfoRequest.TOTAL_DISK_CAPACITY
_FREE = pb.GetBookieInfoRequest.FREE_DISK_SPACE

# --- server side ----------------------------------------------------------------------------------


def decode_request(payload: bytes) -> Request:
    """The request in a frame's payload. Raises ProtocolError (NEITHER_V2_NOR_V3) when it is not v3."""
    message = pb.Request()
    parse(message, payload)
    return _READERS[message.header.operation](message)


def _read_add(message: pb.Request) -> AddRequest:
    header, add = message.header, message.addRequest
    return AddRequest(
        add.ledgerId,
        add.entryId,
        add.masterKey,
        add.body,
        recovery=add.HasField("flag") and add.flag == _RECOVERY_ADD,
        deferred_sync=bool(add.writeFlags & _DEFERRED_SYNC),
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
    )


def _read_read(message: pb.Request) -> ReadRequest:
    header, read = message.header, message.readRequest
    flag = read.flag if read.HasField("flag") else 0
    return ReadRequest(
        read.ledgerId,
        read.entryId,
        read.masterKey if read.HasField("masterKey") else None,
        fence=flag == _FENCE,
        piggyback=flag == _PIGGYBACK,
        previous_lac=read.previousLAC if read.HasField("previousLAC") else None,
        timeout_ms=read.timeOut if read.HasField("timeOut") else None,
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
    )


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


def _read_write_lac(message: pb.Request) -> WriteLacRequest:
    header, lac = message.header, message.writeLacRequest
    return WriteLacRequest(
        lac.ledgerId,
        lac.lac,
        lac.masterKey,
        lac.body,
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
    )


def _read_read_lac(message: pb.Request) -> ReadLacRequest:
    header = message.header
    return ReadLacRequest(
        message.readLacRequest.ledgerId,
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
    )


def _read_bookie_info(message: pb.Request) -> BookieInfoRequest:
    header, requested = message.header, message.getBookieInfoRequest.requested
    return BookieInfoRequest(
        total=bool(requested & _TOTAL),
        free=bool(requested & _FREE),
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
    )


def _read_start_tls(message: pb.Request) -> StartTlsRequest:
    header = message.header
    return StartTlsRequest(
        header.SerializeToString(), version=header.version, txn_id=header.txnId, priority=header.priority
    )


def _read_force(message: pb.Request) -> ForceLedgerRequest:
    header = message.header
    return ForceLedgerRequest(
        message.forceLedgerRequest.ledgerId,
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
    )


def _read_list(message: pb.Request) -> ListOfEntriesRequest:
    header = message.header
    return ListOfEntriesRequest(
        message.getListOfEntriesOfLedgerRequest.ledgerId,
        version=header.version,
        txn_id=header.txnId,
        priority=header.priority,
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
    pb.READ_ENTRY: _read_read,
    pb.ADD_ENTRY: _read_add,
    pb.RANGE_READ_ENTRY: _read_unsupported,
    pb.RANGE_ADD_ENTRY: _read_unsupported,
    pb.AUTH: _read_auth,
    pb.WRITE_LAC: _read_write_lac,
    pb.READ_LAC: _read_read_lac,
    pb.GET_BOOKIE_INFO: _read_bookie_info,
    pb.START_TLS: _read_start_tls,
    pb.FORCE_LEDGER: _read_force,
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: _read_list,
    pb.BATCH_READ_ENTRY: _read_unsupported,
}

# --- client side ----------------------------------------------------------------------------------


def encode_request(request: Request) -> bytes:
    """The frame of a request, with version 3. Raises UsageError for one that v3 cannot say."""
    operation = request.requested if isinstance(request, UnsupportedRequest) else request.operation
    message = pb.Request(header=header_of(operation, request.txn_id))
    if request.priority:
        message.header.priority = request.priority
    match request:
        case AddRequest():
            _write_add_request(message.addRequest, request)
        case ReadRequest():
            _write_read_request(message.readRequest, request)
        case ReadLacRequest():
            message.readLacRequest.ledgerId = request.ledger
        case WriteLacRequest():
            lac = message.writeLacRequest
            lac.ledgerId, lac.lac = request.ledger, request.lac
            lac.masterKey, lac.body = request.master_key, request.body
        case ForceLedgerRequest():
            message.forceLedgerRequest.ledgerId = request.ledger
        case BookieInfoRequest():
            requested = (_TOTAL if request.total else 0) | (_FREE if request.free else 0)
            message.getBookieInfoRequest.requested = requested
        case ListOfEntriesRequest():
            message.getListOfEntriesOfLedgerRequest.ledgerId = request.ledger
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


def _write_add_request(part: pb.AddRequest, request: AddRequest) -> None:
    part.ledgerId, part.entryId = request.ledger, request.entry
    part.masterKey, part.body = request.master_key, request.body
    if request.deferred_sync:
        part.writeFlags = _DEFERRED_SYNC
    if request.recovery:
        part.flag = _RECOVERY_ADD


def _write_read_request(part: pb.ReadRequest, request: ReadRequest) -> None:
    if request.fence and request.piggyback:
        raise UsageError("a read is either fencing or piggybacking, the flag holds one of them")
    part.ledgerId, part.entryId = request.ledger, request.entry
    if request.master_key is not None:
        part.masterKey = request.master_key
    if request.previous_lac is not None:
        part.previousLAC = request.previous_lac
    if request.timeout_ms is not None:
        part.timeOut = request.timeout_ms
    if request.fence:
        part.flag = _FENCE
    if request.piggyback:
        part.flag = _PIGGYBACK
