"""Frames: how messages of every version stand on a connection, in both directions.

====== ==== ===================================================================
offset size field
====== ==== ===================================================================
0      i32  n, the number of payload bytes; does not count itself
4      n    payload: one message of protocol v2 or v3
====== ==== ===================================================================

The integer is big-endian and signed. ``nettyMaxFrameSizeBytes`` bounds payload and length word together, so
the largest payload of the default limit has 5 242 876 bytes. A negative length, one over the limit and a
frame without payload end the connection, without an answer.

Source: netty's ``LengthFieldBasedFrameDecoder`` as ``org.apache.bookkeeper.proto.BookieNettyServer`` sets it
up.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator

from bkctl.errors import ConnectionFailedError

#: Default of ``nettyMaxFrameSizeBytes``.
FRAME_BYTES_MAX = 5 * 1024 * 1024

LENGTH = struct.Struct(">i")
LENGTH_BYTES = LENGTH.size


class CloseReason(enum.Enum):
    """Why the peer's bytes end a connection; the value is for logs and counters."""

    NEGATIVE_LENGTH = "negative frame length"
    FRAME_TOO_LARGE = "frame over nettyMaxFrameSizeBytes"
    EMPTY_FRAME = "frame without payload"
    NEITHER_V2_NOR_V3 = "message of neither protocol version"
    TRUNCATED = "message shorter than its layout"
    UNKNOWN_OPERATION = "operation that protocol v2 does not have"
    UNKNOWN_CODE = "result code that the protocol does not have"
    CLEAR_AFTER_START_TLS = "clear bytes after START_TLS"
    TLS_REQUIRED = "request in clear where TLS is required"


class ProtocolError(ConnectionFailedError):
    """The peer sent what no rule of the protocol covers: the connection is of no use any more."""

    def __init__(self, reason: CloseReason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)


def encode_frame(payload: bytes) -> bytes:
    """Return the frame around one message."""
    return LENGTH.pack(len(payload)) + payload


def check_length(length: int, frame_bytes_max: int) -> None:
    """Raise ProtocolError unless a frame may announce ``length`` payload bytes."""
    if length < 0:
        raise ProtocolError(CloseReason.NEGATIVE_LENGTH, str(length))
    if length + LENGTH_BYTES > frame_bytes_max:
        raise ProtocolError(
            CloseReason.FRAME_TOO_LARGE, f"{length + LENGTH_BYTES} of {frame_bytes_max} bytes"
        )
    if length == 0:
        raise ProtocolError(CloseReason.EMPTY_FRAME)


class ReceiveBuffer:
    """Collects what arrives until the first frame is whole.

    A large frame that comes in many pieces is joined once, not once per piece. Holds less than one frame and
    one piece more than that.
    """

    __slots__ = ("_pieces", "_want", "frame_bytes_max", "held_bytes")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        #: The bytes held back.
        self.held_bytes = 0
        self._pieces: list[bytes] = []
        self._want = LENGTH_BYTES

    def add(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """Return the bytes held and ``data`` in one piece if that may be a whole frame; else keep them: None.

        The caller gives bytes that it does not use back by :meth:`keep`.
        """
        piece = data if type(data) is bytes else bytes(data)
        if not self._pieces:
            return piece
        self._pieces.append(piece)
        self.held_bytes += len(piece)
        if self.held_bytes < self._want:
            return None
        whole = b"".join(self._pieces)
        self._pieces.clear()
        self.held_bytes = 0
        self._want = LENGTH_BYTES
        return whole

    def keep(self, rest: bytes) -> None:
        """Hold the front of a frame that is not whole. Raises ProtocolError when it never can be."""
        if not rest:
            return
        self._pieces = [rest]
        self.held_bytes = len(rest)
        self._want = LENGTH_BYTES
        if len(rest) >= LENGTH_BYTES:
            length: int = LENGTH.unpack_from(rest)[0]
            check_length(length, self.frame_bytes_max)
            self._want += length

    def frames(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Yield the payloads that ``data`` completes, in order.

        Raises ProtocolError at a length that cannot be.
        """
        whole = self.add(data)
        if whole is None:
            return
        start = 0
        while len(whole) - start >= LENGTH_BYTES:
            (length,) = LENGTH.unpack_from(whole, start)
            check_length(length, self.frame_bytes_max)
            stop = start + LENGTH_BYTES + length
            if stop > len(whole):
                break
            yield whole[start + LENGTH_BYTES : stop]
            start = stop
        self.keep(whole[start:])
