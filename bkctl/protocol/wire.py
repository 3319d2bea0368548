"""Encode and decode messages of both versions of the protocol; ``wire`` of a message says which it has."""

from __future__ import annotations

from bkctl.protocol import v2, v3
from bkctl.protocol.messages import Request, Response, Wire


def encode_request(request: Request) -> bytes:
    """Return the frame of a request. Raises UsageError when its version cannot say it."""
    return v2.encode_request(request) if request.wire is Wire.V2 else v3.encode_request(request)


def encode_response(response: Response) -> bytes:
    """Return the frame of an answer. Raises UsageError when its version cannot say it."""
    return v2.encode_response(response) if response.wire is Wire.V2 else v3.encode_response(response)


def decode_response(payload: bytes, wire: Wire) -> Response:
    """Return the answer in a frame's payload. Raises ProtocolError when there is none in it."""
    return v2.decode_response(payload) if wire is Wire.V2 else v3.decode_response(payload)
