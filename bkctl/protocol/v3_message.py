"""Protocol v3: the parsing and the header that requests and answers share.

========= === ====== ===========================================================
field     no. type   meaning
========= === ====== ===========================================================
version   1   enum   3
operation 2   enum   ``codes.Operation``
txnId     3   uint64 chosen by the client, repeated in the answer
priority  4   uint32 not repeated
========= === ====== ===========================================================
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from bkctl.protocol.codes import Operation
from bkctl.protocol.framing import CloseReason, ProtocolError
from bkctl.protocol.proto import bookkeeper_protocol_pb2 as pb


def parse(message: pb.Request | pb.Response, payload: bytes) -> None:
    """Fill ``message``. Raises ProtocolError (NEITHER_V2_NOR_V3) when it does not parse or lacks a field."""
    try:
        message.MergeFromString(payload)
    except DecodeError as error:
        raise ProtocolError(CloseReason.NEITHER_V2_NOR_V3, "not a v3 message") from error
    if not message.IsInitialized():
        raise ProtocolError(CloseReason.NEITHER_V2_NOR_V3, "a required field is missing")


def write_header(message: pb.Request | pb.Response, operation: Operation, txn_id: int) -> None:
    """Set the header of ``message`` in place, which is faster than to copy one into it."""
    header: Any = message.header
    header.version = pb.VERSION_THREE
    header.operation = operation.value
    header.txnId = txn_id
