"""Protocol v2: the binary messages.

Header of every message, ``i32 = version << 24 | opcode << 16 | flags``. With version 0 the low byte is the
opcode and there are no flags. Java sends version 2 and takes 0, 1 and 2; an answer repeats version and opcode
with flags 0.

======= ============ ==========================================================
opcode  operation    flags
======= ============ ==========================================================
1       ADD          2 recovery, 4 high priority
2       READ         1 fence, 4 high priority
3       AUTH
7       BATCH_READ   1 fence, 4 high priority
======= ============ ==========================================================

Requests:

======== ============= ========================================================
message  offset, size  field
======== ============= ========================================================
ADD      0, 4          header
ADD      4, 20         master key
ADD      24, n         entry (``codec.entry``), 16 bytes or more
READ     0, 4          header
READ     4, 8          ledger id
READ     12, 8         entry id, -1 is the newest
READ     20, 20        master key, only with flag 1 and version 2 or more
BATCH    0, 4          header
BATCH    4, 8          ledger id
BATCH    12, 8         first entry id
BATCH    20, 8         request id, chosen by the client
BATCH    28, 4         entries at most, <= 0 is no limit
BATCH    32, 8         bytes at most
BATCH    40, 20        master key, as in READ
AUTH     0, 4          header
AUTH     4, n          ``AuthMessage`` (protobuf)
======== ============= ========================================================

Answers:

======== ============= ========================================================
ADD      0, 4          header
ADD      4, 4          result code (``codes``)
ADD      8, 8          ledger id
ADD      16, 8         entry id, as asked
READ     0, 24         as ADD
READ     24, n         entry, only with code 0
BATCH    0, 24         as ADD
BATCH    24, 8         request id
BATCH    32, n         per entry: i32 length, entry
AUTH     0, n          as the request; no code, no ids
======== ============= ========================================================

All integers are big-endian and signed. Bytes behind a READ or BATCH_READ request are ignored. A message that
is too short, or has another opcode, ends the connection.

Encoders make whole frames, length word included; decoders take a frame's payload.

Source: ``org.apache.bookkeeper.proto.BookieProtoEncoding``, ``BookieProtocol.PacketHeader``.
"""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError

from bkctl.codec.digest import MASTER_KEY_BYTES
from bkctl.errors import UsageError
from bkctl.protocol.codes import V2_CODES, V2_OPERATIONS, Operation, code_from_v2
from bkctl.protocol.framing import CloseReason, ProtocolError, encode_frame
from bkctl.protocol.messages import (
    HIGH_PRIORITY,
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Wire,
)
from bkctl.protocol.proto.bookkeeper_protocol_pb2 import AuthMessage
from bkctl.types import ResultCode

CURRENT_VERSION = 2

ADD, READ, AUTH, BATCH_READ = (
    V2_OPERATIONS[operation]
    for operation in (Operation.ADD_ENTRY, Operation.READ_ENTRY, Operation.AUTH, Operation.BATCH_READ_ENTRY)
)

FLAG_FENCE = 0x1
FLAG_RECOVERY_ADD = 0x2
FLAG_HIGH_PRIORITY = 0x4


_HEADER = struct.Struct(">I")
_ADD_IDS = struct.Struct(">qq")
_ADD_FRAME = struct.Struct(">iI20s")
_READ = struct.Struct(">Iqq")
_READ_FRAME = struct.Struct(">iIqq")
_BATCH = struct.Struct(">Iqqqiq")
_ANSWER = struct.Struct(">Iiqq")
_ANSWER_FRAME = struct.Struct(">iIiqq")
_BATCH_ANSWER = struct.Struct(">Iiqqq")
_SIZE = struct.Struct(">i")

_HEADER_BYTES = _HEADER.size
_ADD_IDS_OFFSET = _HEADER_BYTES + MASTER_KEY_BYTES
_ADD_BYTES_MIN = _ADD_IDS_OFFSET + _ADD_IDS.size

_OK = V2_CODES[ResultCode.OK]


def pack_header(version: int, opcode: int, flags: int = 0) -> int:
    """Return the header word."""
    return opcode if version == 0 else (version & 0xFF) << 24 | opcode << 16 | flags


def unpack_header(word: int) -> tuple[int, int, int]:
    """Return (version as a signed byte, opcode, flags) of an unsigned header word."""
    version = word >> 24
    if version == 0:
        return 0, word & 0xFF, 0
    return (version - 256 if version > 127 else version), word >> 16 & 0xFF, word & 0xFFFF


# --- server side --------------------------------------------------------------------------------------------


def decode_request(payload: bytes) -> Request:
    """Return the request in a frame's payload. Raises ProtocolError for what ends the connection."""
    _require(payload, _HEADER_BYTES)
    version, opcode, flags = unpack_header(_HEADER.unpack_from(payload)[0])
    priority = HIGH_PRIORITY if flags & FLAG_HIGH_PRIORITY else 0
    if opcode == ADD:
        _require(payload, _ADD_BYTES_MIN)
        ledger, entry = _ADD_IDS.unpack_from(payload, _ADD_IDS_OFFSET)
        return AddRequest(
            ledger,
            entry,
            payload[_HEADER_BYTES:_ADD_IDS_OFFSET],
            payload[_ADD_IDS_OFFSET:],
            recovery=bool(flags & FLAG_RECOVERY_ADD),
            wire=Wire.V2,
            version=version,
            priority=priority,
        )
    if opcode == READ:
        _require(payload, _READ.size)
        _, ledger, entry = _READ.unpack_from(payload)
        fence = bool(flags & FLAG_FENCE)
        return ReadRequest(
            ledger,
            entry,
            _master_key(payload, _READ.size, version) if fence else None,
            fence=fence,
            wire=Wire.V2,
            version=version,
            priority=priority,
        )
    if opcode == BATCH_READ:
        return _decode_batch_read(payload, version, flags, priority)
    if opcode == AUTH:
        message = _auth_message(payload)
        name = message.authPluginName.decode("utf-8", "surrogateescape")
        return AuthRequest(name, message.payload, wire=Wire.V2, version=version)
    raise ProtocolError(CloseReason.UNKNOWN_OPERATION, f"opcode {opcode}, version {version}")


def _decode_batch_read(payload: bytes, version: int, flags: int, priority: int) -> BatchReadRequest:
    _require(payload, _BATCH.size)
    _, ledger, entry, request_id, count_max, size_bytes_max = _BATCH.unpack_from(payload)
    fence = bool(flags & FLAG_FENCE)
    return BatchReadRequest(
        ledger,
        entry,
        request_id,
        count_max,
        size_bytes_max,
        _master_key(payload, _BATCH.size, version) if fence else None,
        fence=fence,
        wire=Wire.V2,
        version=version,
        priority=priority,
    )


def _master_key(payload: bytes, offset: int, version: int) -> bytes | None:
    """Return the key of a fencing read; versions before 2 have none."""
    if version < CURRENT_VERSION:
        return None
    _require(payload, offset + MASTER_KEY_BYTES)
    return payload[offset : offset + MASTER_KEY_BYTES]


def encode_response(response: Response) -> bytes:
    """Return the frame of an answer. Raises UsageError for one that v2 has no form for."""
    header = pack_header(response.version, V2_OPERATIONS.get(response.operation, 0))
    if isinstance(response, AddResponse):
        return _ANSWER_FRAME.pack(
            _ANSWER.size, header, V2_CODES[response.code], response.ledger, response.entry
        )
    if isinstance(response, ReadResponse):
        body = response.body if response.code is ResultCode.OK and response.body is not None else b""
        code = V2_CODES[response.code]
        return (
            _ANSWER_FRAME.pack(_ANSWER.size + len(body), header, code, response.ledger, response.entry) + body
        )
    if isinstance(response, BatchReadResponse):
        code = V2_CODES[response.code]
        ids = (response.ledger, response.entry, response.request_id)
        pieces = [b"", _BATCH_ANSWER.pack(header, code, *ids)]
        for body in response.bodies if response.code is ResultCode.OK else ():
            pieces += (_SIZE.pack(len(body)), body)
        pieces[0] = _SIZE.pack(sum(map(len, pieces)))
        return b"".join(pieces)
    if isinstance(response, AuthResponse) and response.code is ResultCode.OK:
        return encode_frame(_HEADER.pack(header) + _auth_bytes(response.plugin, response.payload))
    raise UsageError(f"protocol v2 has no answer {type(response).__name__}")


# --- client side --------------------------------------------------------------------------------------------


def encode_add(master_key: bytes, body: bytes, flags: int = 0) -> bytes:
    """Return the frame of an add; ``master_key`` has 20 bytes, ``body`` is the entry."""
    return _ADD_FRAME.pack(_ADD_IDS_OFFSET + len(body), 0x02010000 | flags, master_key) + body


def encode_read(ledger: int, entry: int) -> bytes:
    """Return the frame of a plain read."""
    return _READ_FRAME.pack(_READ.size, 0x02020000, ledger, entry)


def encode_request(request: Request) -> bytes:
    """Return the frame of a request, with version 2. Raises UsageError for one that v2 cannot say."""
    flags = FLAG_HIGH_PRIORITY if request.high_priority else 0
    if isinstance(request, AddRequest):
        return _encode_add_request(request, flags)
    if isinstance(request, ReadRequest):
        if request.piggyback or request.long_poll:
            raise UsageError("protocol v2 has no long poll")
        key = _fence_key(request.fence, request.master_key)
        flags |= FLAG_FENCE if request.fence else 0
        header = pack_header(CURRENT_VERSION, READ, flags)
        return _READ_FRAME.pack(_READ.size + len(key), header, request.ledger, request.entry) + key
    if isinstance(request, BatchReadRequest):
        key = _fence_key(request.fence, request.master_key)
        flags |= FLAG_FENCE if request.fence else 0
        message = _BATCH.pack(
            pack_header(CURRENT_VERSION, BATCH_READ, flags),
            request.ledger,
            request.entry,
            request.request_id,
            request.count_max,
            request.size_bytes_max,
        )
        return encode_frame(message + key)
    if isinstance(request, AuthRequest):
        header = pack_header(CURRENT_VERSION, AUTH)
        return encode_frame(_HEADER.pack(header) + _auth_bytes(request.plugin, request.payload))
    raise UsageError(f"protocol v2 has no {type(request).__name__}: it needs a v3 connection")


def _encode_add_request(request: AddRequest, flags: int) -> bytes:
    if request.deferred_sync:
        raise UsageError("protocol v2 has no deferred sync")
    if len(request.master_key) != MASTER_KEY_BYTES:
        raise UsageError(f"a master key of {len(request.master_key)} bytes: protocol v2 takes 20")
    return encode_add(
        request.master_key, request.body, flags | (FLAG_RECOVERY_ADD if request.recovery else 0)
    )


def _fence_key(fence: bool, master_key: bytes | None) -> bytes:
    if not fence:
        return b""
    if master_key is None or len(master_key) != MASTER_KEY_BYTES:
        raise UsageError("a fencing read over protocol v2 needs a master key of 20 bytes")
    return master_key


def decode_response(payload: bytes) -> Response:
    """Return the answer in a frame's payload. Raises ProtocolError when there is none in it."""
    _require(payload, _HEADER_BYTES)
    version, opcode, _ = unpack_header(_HEADER.unpack_from(payload)[0])
    if opcode in (ADD, READ):
        _require(payload, _ANSWER.size)
        _, number, ledger, entry = _ANSWER.unpack_from(payload)
        code = ResultCode.OK if number == _OK else code_from_v2(number)
        if opcode == ADD:
            return AddResponse(code, ledger, entry, wire=Wire.V2, version=version)
        body = payload[_ANSWER.size :] if number == _OK else None
        return ReadResponse(code, ledger, entry, body, wire=Wire.V2, version=version)
    if opcode == BATCH_READ:
        _require(payload, _BATCH_ANSWER.size)
        _, number, ledger, entry, request_id = _BATCH_ANSWER.unpack_from(payload)
        return BatchReadResponse(
            code_from_v2(number),
            ledger,
            entry,
            request_id,
            _split_bodies(payload, _BATCH_ANSWER.size),
            wire=Wire.V2,
            version=version,
        )
    if opcode == AUTH:
        message = _auth_message(payload)
        name = message.authPluginName.decode("utf-8", "surrogateescape")
        return AuthResponse(ResultCode.OK, name, message.payload, wire=Wire.V2, version=version)
    raise ProtocolError(CloseReason.UNKNOWN_OPERATION, f"opcode {opcode}, version {version}")


def _split_bodies(payload: bytes, start: int) -> tuple[bytes, ...]:
    bodies = []
    while start < len(payload):
        _require(payload, start + _SIZE.size)
        (size,) = _SIZE.unpack_from(payload, start)
        start += _SIZE.size
        if size < 0:
            raise ProtocolError(CloseReason.TRUNCATED, f"entry of {size} bytes in a batch")
        _require(payload, start + size)
        bodies.append(payload[start : start + size])
        start += size
    return tuple(bodies)


def _require(payload: bytes, size: int) -> None:
    if len(payload) < size:
        raise ProtocolError(CloseReason.TRUNCATED, f"{len(payload)} of {size} bytes")


def _auth_message(payload: bytes) -> AuthMessage:
    message = AuthMessage()
    try:
        message.MergeFromString(payload[_HEADER_BYTES:])
    except DecodeError as error:
        raise ProtocolError(CloseReason.TRUNCATED, "AuthMessage") from error
    if not message.IsInitialized():
        raise ProtocolError(CloseReason.TRUNCATED, "AuthMessage")
    return message


def _auth_bytes(plugin: str, payload: bytes) -> bytes:
    name = plugin.encode("utf-8", "surrogateescape")
    return AuthMessage(authPluginName=name, payload=payload).SerializeToString()
