"""Counting answers in what a connection received, without taking each apart.

As long as answers are successes of one length, which is what a load of equal requests brings, a whole block
is checked by the fronts of its answers alone. Anything else is decoded frame by frame.
"""

from __future__ import annotations

import struct
from collections import Counter

from bkctl.protocol import v2, v3
from bkctl.protocol.codes import V2_CODES, V3_CODES
from bkctl.protocol.framing import CloseReason, ProtocolError
from bkctl.protocol.messages import AddResponse, ReadResponse, Response

_LENGTH = struct.Struct(">i")
_V2_FRONT_BYTES = 12


class AnswerCounter:
    """Splits a stream of answers of protocol version ``wire``; ``codes`` counts them by result code."""

    def __init__(self, wire: int) -> None:
        self.codes: Counter[int] = Counter()
        self._wire = wire
        self._rest = b""
        self._success_bytes = 0
        # Length, header and code of a v2 success; of v3 nothing but the length is known without decoding.
        self._success_front = b""
        #: Takes the front of a success of the usual length.
        self._front_of = struct.Struct("")

    def feed(self, data: bytes) -> int:
        """Count the answers that ``data`` completes. Raises ProtocolError for what answers no add or read."""
        if self._rest:
            data = self._rest + data
        position = total = 0
        while len(data) - position >= _LENGTH.size:
            length = _LENGTH.unpack_from(data, position)[0]
            if length <= 0:
                reason = CloseReason.NEGATIVE_LENGTH if length else CloseReason.EMPTY_FRAME
                raise ProtocolError(reason, str(length))
            size = 4 + length
            if size == self._success_bytes:
                count = self._block(data, position, size)
                if count:
                    position += count * size
                    total += count
                    continue
            if position + size > len(data):
                break
            self._one(data[position : position + size], size)
            position += size
            total += 1
        self._rest = data[position:]
        return total

    def _block(self, data: bytes, position: int, size: int) -> int:
        """Count answers at ``position`` that are successes of the usual length; 0 to have one decoded."""
        count = (len(data) - position) // size
        end = position + count * size
        fronts = [front for (front,) in self._front_of.iter_unpack(memoryview(data)[position:end])]
        good = count
        if fronts.count(self._success_front) < count:
            good = next(place for place, front in enumerate(fronts) if front != self._success_front)
        if good:
            self.codes[0] += good
        return good

    def _one(self, frame: bytes, size: int) -> None:
        response: Response
        payload = frame[_LENGTH.size :]
        if self._wire == 2:
            response = v2.decode_response(payload)
            numbers = V2_CODES
        else:
            response = v3.decode_response(payload)
            numbers = V3_CODES
        if not isinstance(response, AddResponse | ReadResponse):
            raise ProtocolError(CloseReason.UNKNOWN_OPERATION, f"{type(response).__name__}, not asked for")
        number = numbers[response.code]
        self.codes[number] += 1
        # Over v3 an error has another length than a success: its codes take more bytes.
        if number == 0:
            self._success_bytes = size
            self._success_front = frame[:_V2_FRONT_BYTES] if self._wire == 2 else frame[: _LENGTH.size]
            front_bytes = len(self._success_front)
            self._front_of = struct.Struct(f"{front_bytes}s{size - front_bytes}x")
