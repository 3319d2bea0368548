"""The body of a request, unpacked where ``Content-Encoding`` says that it is packed.

The library's own unpacking is off. It takes a stream that is cut off for a whole one, or waits for its rest,
and answers a broken one with 500.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from bkctl.errors import UsageError

if TYPE_CHECKING:
    from aiohttp import web

BODY_BYTES_MAX = 64 << 10

#: Parameters of zlib for the header of a stream: gzip's, zlib's, none at all.
_GZIP, _ZLIB, _BARE = 31, 15, -15
#: The lower half of the first byte of a stream with zlib's header.
_DEFLATED = 8


async def body_of(request: web.Request) -> bytes:
    """Read a request's body. Raises UsageError where it is not packed as it says, or in an unknown way."""
    content = await request.read()
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return content
    if encoding not in ("gzip", "deflate"):
        raise UsageError(f"Content-Encoding: expected gzip, deflate or identity, found {encoding[:40]!r}")
    return _unpacked(content, encoding) if content else content


def _unpacked(content: bytes, encoding: str) -> bytes:
    header = _GZIP if encoding == "gzip" else _ZLIB if content[0] & 0xF == _DEFLATED else _BARE
    stream = zlib.decompressobj(header)
    try:
        unpacked = stream.decompress(content, BODY_BYTES_MAX + 1)
    except zlib.error:
        raise UsageError(f"Content-Encoding: the body is not {encoding}") from None
    if len(unpacked) > BODY_BYTES_MAX:
        raise UsageError(f"Content-Encoding: the body unpacks to more than {BODY_BYTES_MAX} bytes")
    if not stream.eof or stream.unused_data:
        raise UsageError(f"Content-Encoding: the body is not one whole {encoding} stream")
    return unpacked
