"""Protocol v3: answers. The byte tables are in ``v3``.

=========== ====================================================================
client      ``decode_response``
server      ``encode_response``
=========== ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable

from bkctl.errors import UsageError
from bkctl.protocol.codes import Operation, code_from_v3
from bkctl.protocol.framing import encode_frame
from bkctl.protocol.messages import (
    AddResponse,
    AuthResponse,
    BookieInfoResponse,
    ForceLedgerResponse,
    ListOfEntriesResponse,
    ReadLacResponse,
    ReadResponse,
    Response,
    StartTlsResponse,
    UnsupportedResponse,
    WriteLacResponse,
)
from bkctl.protocol.proto import bookkeeper_protocol_pb2 as pb
from bkctl.protocol.v3_message import header_of, parse
from bkctl.types import ResultCode

#: Id in an answer that has none, as when only the status came.
_NO_ID = -1

# --- server side -----------------------------------------------------------------------------------


def _answer(response: Response, code: ResultCode) -> pb.Response:
    return pb.Response(header=header_of(response.operation, response.txn_id), status=code.value)


def _echo(response: AuthResponse | StartTlsResponse | UnsupportedResponse) -> pb.Response:
    """With the request's header as it came, what it had beyond our fields included."""
    operation = response.requested if isinstance(response, UnsupportedResponse) else response.operation
    message = pb.Response(header=header_of(operation, response.txn_id), status=response.code.value)
    if response.raw_header:
        message.header.ParseFromString(response.raw_header)
    return message


def _write_add(response: AddResponse) -> pb.Response:
    message = _answer(response, response.code)
    part = message.addResponse
    part.status, part.ledgerId, part.entryId = message.status, response.ledger, response.entry
    return message


def _write_read(response: ReadResponse) -> pb.Response:
    message = _answer(response, response.code)
    part = message.readResponse
    part.status, part.ledgerId, part.entryId = message.status, response.ledger, response.entry
    if response.body is not None:
        part.body = response.body
    if response.max_lac is not None:
        part.maxLAC = response.max_lac
    if response.lac_update_ms is not None:
        part.lacUpdateTimestamp = response.lac_update_ms
    return message


def _write_auth(response: AuthResponse) -> pb.Response:
    message = _echo(response)
    if response.code is ResultCode.OK:
        message.authResponse.authPluginName = response.plugin.encode("utf-8", "surrogateescape")
        message.authResponse.payload = response.payload
    return message


def _write_write_lac(response: WriteLacResponse) -> pb.Response:
    message = _answer(response, response.code)
    message.writeLacResponse.status = message.status
    message.writeLacResponse.ledgerId = response.ledger
    return message


def _write_read_lac(response: ReadLacResponse) -> pb.Response:
    message = _answer(response, response.code)
    part = message.readLacResponse
    part.status, part.ledgerId = message.status, response.ledger
    if response.lac_body is not None:
        part.lacBody = response.lac_body
    if response.last_entry_body is not None:
        part.lastEntryBody = response.last_entry_body
    return message


def _write_bookie_info(response: BookieInfoResponse) -> pb.Response:
    message = _answer(response, response.code)
    part = message.getBookieInfoResponse
    part.status = message.status
    if response.total_bytes is not None:
        part.totalDiskCapacity = response.total_bytes
    if response.free_bytes is not None:
        part.freeDiskSpace = response.free_bytes
    return message


def _write_start_tls(response: StartTlsResponse) -> pb.Response:
    message = _echo(response)
    if response.code is ResultCode.OK:
        message.startTLSResponse.SetInParent()
    return message


def _write_force(response: ForceLedgerResponse) -> pb.Response:
    message = _answer(response, response.code)
    message.forceLedgerResponse.status = message.status
    message.forceLedgerResponse.ledgerId = response.ledger
    return message


def _write_list(response: ListOfEntriesResponse) -> pb.Response:
    message = _answer(response, response.code)
    part = message.getListOfEntriesOfLedgerResponse
    part.status, part.ledgerId = message.status, response.ledger
    if response.entries is not None:
        part.availabilityOfEntriesOfLedger = response.entries
    return message


def encode_response(response: Response) -> bytes:
    """The frame of an answer. Raises UsageError for one that v3 has no form for."""
    match response:
        case AddResponse():
            message = _write_add(response)
        case ReadResponse():
            message = _write_read(response)
        case ReadLacResponse():
            message = _write_read_lac(response)
        case WriteLacResponse():
            message = _write_write_lac(response)
        case ForceLedgerResponse():
            message = _write_force(response)
        case BookieInfoResponse():
            message = _write_bookie_info(response)
        case ListOfEntriesResponse():
            message = _write_list(response)
        case AuthResponse():
            message = _write_auth(response)
        case StartTlsResponse():
            message = _write_start_tls(response)
        case UnsupportedResponse():
            message = _echo(response)
        case _:
            raise UsageError(f"protocol v3 has no answer {type(response).__name__}")
    return encode_frame(message.SerializeToString())


# --- client side -----------------------------------------------------------------------------------


def decode_response(payload: bytes) -> Response:
    """The answer in a frame's payload. Raises ProtocolError when it is not v3, or its status is unknown.

    The outer status counts; when that is OK, the one of the answer's part. Ids that did not come are -1.
    """
    message = pb.Response()
    parse(message, payload)
    return _ANSWER_READERS[message.header.operation](message)


def _code(message: pb.Response, part_status: int | None) -> ResultCode:
    """``part_status`` is None when the part did not come."""
    if message.status == pb.EOK and part_status is not None:
        return code_from_v3(part_status)
    return code_from_v3(message.status)


def _read_add_response(message: pb.Response) -> AddResponse:
    header, part = message.header, message.addResponse
    if not message.HasField("addResponse"):
        return AddResponse(_code(message, None), _NO_ID, _NO_ID, version=header.version, txn_id=header.txnId)
    return AddResponse(
        _code(message, part.status),
        part.ledgerId,
        part.entryId,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_read_response(message: pb.Response) -> ReadResponse:
    header, part = message.header, message.readResponse
    if not message.HasField("readResponse"):
        return ReadResponse(_code(message, None), _NO_ID, _NO_ID, version=header.version, txn_id=header.txnId)
    return ReadResponse(
        _code(message, part.status),
        part.ledgerId,
        part.entryId,
        part.body if part.HasField("body") else None,
        part.maxLAC if part.HasField("maxLAC") else None,
        part.lacUpdateTimestamp if part.HasField("lacUpdateTimestamp") else None,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_auth_response(message: pb.Response) -> AuthResponse:
    header, auth = message.header, message.authResponse
    return AuthResponse(
        _code(message, None),
        auth.authPluginName.decode("utf-8", "surrogateescape"),
        auth.payload,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_write_lac_response(message: pb.Response) -> WriteLacResponse:
    header, part = message.header, message.writeLacResponse
    came = message.HasField("writeLacResponse")
    return WriteLacResponse(
        _code(message, part.status if came else None),
        part.ledgerId if came else _NO_ID,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_read_lac_response(message: pb.Response) -> ReadLacResponse:
    header, part = message.header, message.readLacResponse
    came = message.HasField("readLacResponse")
    return ReadLacResponse(
        _code(message, part.status if came else None),
        part.ledgerId if came else _NO_ID,
        part.lacBody if part.HasField("lacBody") else None,
        part.lastEntryBody if part.HasField("lastEntryBody") else None,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_bookie_info_response(message: pb.Response) -> BookieInfoResponse:
    header, part = message.header, message.getBookieInfoResponse
    came = message.HasField("getBookieInfoResponse")
    return BookieInfoResponse(
        _code(message, part.status if came else None),
        part.totalDiskCapacity if part.HasField("totalDiskCapacity") else None,
        part.freeDiskSpace if part.HasField("freeDiskSpace") else None,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_start_tls_response(message: pb.Response) -> StartTlsResponse:
    header = message.header
    return StartTlsResponse(_code(message, None), version=header.version, txn_id=header.txnId)


def _read_force_response(message: pb.Response) -> ForceLedgerResponse:
    header, part = message.header, message.forceLedgerResponse
    came = message.HasField("forceLedgerResponse")
    return ForceLedgerResponse(
        _code(message, part.status if came else None),
        part.ledgerId if came else _NO_ID,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_list_response(message: pb.Response) -> ListOfEntriesResponse:
    header, part = message.header, message.getListOfEntriesOfLedgerResponse
    came = message.HasField("getListOfEntriesOfLedgerResponse")
    return ListOfEntriesResponse(
        _code(message, part.status if came else None),
        part.ledgerId if came else _NO_ID,
        part.availabilityOfEntriesOfLedger if part.HasField("availabilityOfEntriesOfLedger") else None,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_unsupported_response(message: pb.Response) -> UnsupportedResponse:
    header = message.header
    return UnsupportedResponse(
        _code(message, None), Operation(header.operation), version=header.version, txn_id=header.txnId
    )


_ANSWER_READERS: dict[int, Callable[[pb.Response], Response]] = {
    pb.READ_ENTRY: _read_read_response,
    pb.ADD_ENTRY: _read_add_response,
    pb.RANGE_READ_ENTRY: _read_unsupported_response,
    pb.RANGE_ADD_ENTRY: _read_unsupported_response,
    pb.AUTH: _read_auth_response,
    pb.WRITE_LAC: _read_write_lac_response,
    pb.READ_LAC: _read_read_lac_response,
    pb.GET_BOOKIE_INFO: _read_bookie_info_response,
    pb.START_TLS: _read_start_tls_response,
    pb.FORCE_LEDGER: _read_force_response,
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: _read_list_response,
    pb.BATCH_READ_ENTRY: _read_unsupported_response,
}
