"""The server's parser: every whole frame of a receive buffer in one call.

Plain adds and reads, which are nearly everything that a bookie is asked, come as runs of parallel lists
(``runs``), cut out by the tight loops of ``scan_v2`` and ``scan_v3``. Every other frame comes as a request,
or as the answer to one that the protocol refuses by itself (``refusal``), in the order of arrival.

Version of a connection
    It begins as v3. The first frame that does not parse as v3 makes it v2 for good, and is decoded again as
    v2. No v2 frame can be mistaken: it begins with a version of 0 to 2, which as a protobuf tag is illegal.

Hostile bytes
    end in a Close as the last segment, at worst; nothing is raised. Each frame is looked at by a tight loop
    once: where a loop finds at its end that a frame of its stretch is not plain, it drops what it did and the
    whole stretch is decoded frame by frame.

Source: ``org.apache.bookkeeper.proto.BookieProtoEncoding.RequestDecoder``.
"""

from __future__ import annotations

from bkctl.protocol import scan_v2, scan_v3, v2, v3
from bkctl.protocol.events import Answer, Close, Segment
from bkctl.protocol.framing import FRAME_BYTES_MAX, LENGTH, LENGTH_BYTES, ProtocolError, check_length
from bkctl.protocol.messages import Request, StartTlsRequest, Wire
from bkctl.protocol.refusal import refusal
from bkctl.protocol.runs import AddRun, ReadRun
from bkctl.protocol.wire import encode_response

_V2_VERSION_MAX = b"\x02"


class RequestParser:
    """The requests of one connection. ``wire`` is what the connection speaks as far as is known."""

    __slots__ = ("_frame_bytes_max", "wire")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self.wire = Wire.V3

    def parse(
        self, buffer: bytes | bytearray | memoryview, start: int = 0, end: int | None = None
    ) -> tuple[list[Segment], int]:
        """Return the segments of the whole frames in ``buffer[start:end]``, and the position behind them.

        Stops behind a START_TLS request and at a Close, each the last segment then. A buffer that is not
        ``bytes`` is copied once, because only slices of ``bytes`` are cheap to make and to keep.
        """
        if end is None:
            end = len(buffer)
        if type(buffer) is bytes:
            return self._parse(buffer, start, end)
        with memoryview(buffer) as view:
            data = bytes(view[start:end])
        segments, position = self._parse(data, 0, len(data))
        return segments, start + position

    def _parse(self, data: bytes, start: int, end: int) -> tuple[list[Segment], int]:
        segments: list[Segment] = []
        position = single_until = start
        while end - position >= LENGTH_BYTES:
            (length,) = LENGTH.unpack_from(data, position)
            try:
                check_length(length, self._frame_bytes_max)
            except ProtocolError as error:
                segments.append(Close(error.reason, error.detail))
                break
            stop = position + LENGTH_BYTES + length
            if stop > end:
                break
            if position >= single_until:
                # In a window of one frame's limit no whole frame is over it.
                run, after = self._scan(data, position, min(end, position + self._frame_bytes_max))
                if run is None:
                    single_until = after
                elif after > position:
                    segments.append(run)
                    position = after
                    continue
            segment = self._decode(data[position + LENGTH_BYTES : stop])
            segments.append(segment)
            if isinstance(segment, Close):
                break
            position = stop
            if isinstance(segment, StartTlsRequest):
                break
        return segments, position

    def _scan(self, data: bytes, start: int, end: int) -> tuple[AddRun | ReadRun | None, int]:
        """Return the run that starts with this frame, which is whole; an empty stretch if it is none."""
        head = data[start + LENGTH_BYTES : start + LENGTH_BYTES + 7]
        if self.wire is Wire.V3:
            if head in scan_v3.ADD_WIDTHS:
                return scan_v3.scan_adds(data, start, end)
            if head in scan_v3.READ_WIDTHS:
                return scan_v3.scan_reads(data, start, end)
            if head[:1] > _V2_VERSION_MAX:
                return None, start
            self.wire = Wire.V2
        if head.startswith(scan_v2.ADD_HEAD):
            return scan_v2.scan_adds(data, start, end)
        if head.startswith(scan_v2.READ_HEAD):
            return scan_v2.scan_reads(data, start, end)
        return None, start

    def _decode(self, payload: bytes) -> Segment:
        try:
            request = self._decode_request(payload)
        except ProtocolError as error:
            return Close(error.reason, error.detail)
        code = refusal(request)
        if code is None:
            return request
        return Answer(encode_response(request.refuse(code)), code, request)

    def _decode_request(self, payload: bytes) -> Request:
        if self.wire is Wire.V2:
            return v2.decode_request(payload)
        try:
            return v3.decode_request(payload)
        except ProtocolError as not_v3:
            self.wire = Wire.V2
            try:
                return v2.decode_request(payload)
            except ProtocolError as not_v2:
                raise (not_v2 if payload[:1] <= _V2_VERSION_MAX else not_v3) from None
