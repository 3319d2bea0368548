"""Protobuf varints, for the messages that are written and read without the runtime.

====== ==== ===================================================================
offset size field
====== ==== ===================================================================
0      1-10 seven bits per byte, lowest first; bit 7 is set in all but the last
====== ==== ===================================================================

A number below 2^63 takes nine bytes or fewer. The shortest form is the canonical one; a parser takes longer
ones too, the fast paths of the wire protocol leave them to the runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

#: Most bytes of a number from 0 to 2^63 - 1.
BYTES_MAX = 9

_CONTINUED = bytes(range(0x80, 0x100))
_LAST = itemgetter(-1)


def encode(number: int) -> bytes:
    """Return the canonical varint of a number from 0 to 2^64 - 1."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode(varint: bytes) -> int:
    """Return the number of one whole varint."""
    number = 0
    for byte in reversed(varint):
        number = number << 7 | byte & 0x7F
    return number


def are_canonical(pieces: Sequence[bytes]) -> bool:
    """Return whether each of ``pieces`` is one canonical varint of a number below 2^63, and nothing else.

    Every last byte ends a varint and there are as many such bytes as pieces, so no piece has two of them. An
    overlong form ends with a zero byte that is not all of it.
    """
    try:
        lasts = bytes(map(_LAST, pieces))
    except IndexError:  # an empty piece
        return False
    ends = b"".join(pieces).translate(None, _CONTINUED)
    if not lasts.isascii() or len(ends) != len(pieces) or max(map(len, pieces), default=0) > BYTES_MAX:
        return False
    zeros = lasts.count(0)
    return zeros == 0 or zeros == pieces.count(b"\0")
