"""Protocol v3: answers. The byte tables are in ``v3``.

=========== ====================================================================
client      ``decode_response``
server      ``encode_response``
=========== ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from bkctl.protocol.v3_message import parse, write_header
from bkctl.protocol.v3_part import Part
from bkctl.types import ResultCode

_LEDGER = {"ledgerId": "ledger"}
_PARTS: dict[int, Part[Any]] = {
    pb.ADD_ENTRY: Part(AddResponse, "addResponse", {**_LEDGER, "entryId": "entry"}),
    pb.READ_ENTRY: Part(
        ReadResponse,
        "readResponse",
        {**_LEDGER, "entryId": "entry"},
        {"body": "body", "maxLAC": "max_lac", "lacUpdateTimestamp": "lac_update_ms"},
    ),
    pb.READ_LAC: Part(
        ReadLacResponse,
        "readLacResponse",
        _LEDGER,
        {"lacBody": "lac_body", "lastEntryBody": "last_entry_body"},
    ),
    pb.WRITE_LAC: Part(WriteLacResponse, "writeLacResponse", _LEDGER),
    pb.FORCE_LEDGER: Part(ForceLedgerResponse, "forceLedgerResponse", _LEDGER),
    pb.GET_BOOKIE_INFO: Part(
        BookieInfoResponse,
        "getBookieInfoResponse",
        {},
        {"totalDiskCapacity": "total_bytes", "freeDiskSpace": "free_bytes"},
    ),
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: Part(
        ListOfEntriesResponse,
        "getListOfEntriesOfLedgerResponse",
        _LEDGER,
        {"availabilityOfEntriesOfLedger": "entries"},
    ),
}
_PART_OF_KIND = {part.kind: part for part in _PARTS.values()}

# --- server side -----------------------------------------------------------------------------------


def _echo(response: AuthResponse | StartTlsResponse | UnsupportedResponse) -> pb.Response:
    """Make a response with the request's header as it came, what it had beyond our fields included."""
    operation = response.requested if isinstance(response, UnsupportedResponse) else response.operation
    message = pb.Response(status=response.code.value)
    write_header(message, operation, response.txn_id)
    if response.raw_header:
        message.header.ParseFromString(response.raw_header)
    return message


def _write_auth(response: AuthResponse) -> pb.Response:
    message = _echo(response)
    if response.code is ResultCode.OK:
        message.authResponse.authPluginName = response.plugin.encode("utf-8", "surrogateescape")
        message.authResponse.payload = response.payload
    return message


def _write_start_tls(response: StartTlsResponse) -> pb.Response:
    message = _echo(response)
    if response.code is ResultCode.OK:
        message.startTLSResponse.SetInParent()
    return message


def _encode_part(part: Part[Any], response: Any) -> bytes:
    status = response.code.value
    message = pb.Response(status=status)
    write_header(message, response.operation, response.txn_id)
    content = part.of(message)
    content.status = status
    part.write(content, response)
    return encode_frame(message.SerializeToString())


def encode_response(response: Response) -> bytes:
    """Return the frame of an answer. Raises UsageError for one that v3 has no form for."""
    part = _PART_OF_KIND.get(type(response))
    if part is not None:
        return _encode_part(part, response)
    match response:
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
    """Return the answer in a payload. Raises ProtocolError when it is not v3 or has an unknown status.

    The outer status counts; when that is OK, the one of the answer's part. Ids that did not come are -1.
    """
    message = pb.Response()
    parse(message, payload)
    header = message.header
    part = _PARTS.get(header.operation)
    if part is None:
        return _ANSWER_READERS[header.operation](message)
    content = part.of(message)
    came = message.HasField(part.name)
    # The outer status counts; when that is OK, the one of the part.
    status = content.status if came and message.status == pb.EOK else message.status
    response: Response = part.kind(
        code_from_v3(status),
        *(part.required(content) if came else part.missing),
        version=header.version,
        txn_id=header.txnId,
        **part.others(content),
    )
    return response


def _read_auth_response(message: pb.Response) -> AuthResponse:
    header, auth = message.header, message.authResponse
    return AuthResponse(
        code_from_v3(message.status),
        auth.authPluginName.decode("utf-8", "surrogateescape"),
        auth.payload,
        version=header.version,
        txn_id=header.txnId,
    )


def _read_start_tls_response(message: pb.Response) -> StartTlsResponse:
    header = message.header
    return StartTlsResponse(code_from_v3(message.status), version=header.version, txn_id=header.txnId)


def _read_unsupported_response(message: pb.Response) -> UnsupportedResponse:
    header = message.header
    return UnsupportedResponse(
        code_from_v3(message.status), Operation(header.operation), version=header.version, txn_id=header.txnId
    )


_ANSWER_READERS: dict[int, Callable[[pb.Response], Response]] = {
    pb.RANGE_READ_ENTRY: _read_unsupported_response,
    pb.RANGE_ADD_ENTRY: _read_unsupported_response,
    pb.AUTH: _read_auth_response,
    pb.START_TLS: _read_start_tls_response,
    pb.BATCH_READ_ENTRY: _read_unsupported_response,
}
