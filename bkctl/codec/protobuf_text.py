r"""Protobuf text, as far as BookKeeper stores it: cookies, ledger metadata of format 2.

Written like Java's ``TextFormat.printer()``::

    name: 3                 one field per line, fields in number order
    name: "text"
    message {
      name: 3               two more spaces per level
    }

Strings and bytes are written alike: printable ASCII as it is except ``\"``, ``\'`` and ``\\``; the control
bytes 7 to 13 as ``\a \b \t \n \v \f \r``; every other byte, those of UTF-8 included, as three octal digits.

Any spelling that Java reads is read: either quote, adjacent literals, ``\x`` and octal and ``\u`` escapes,
``#`` comments, ``;`` and ``,`` between fields, lists, ``<>`` for ``{}``, a repeated singular field (the last
one counts). A field that the message does not have is skipped, as 4.18.0 does; 4.17.3 refuses it.

The text goes to protobuf's parser only after every literal with an escape or a non-ASCII character has been
rewritten with plain octal escapes, comments have gone, and nesting has been bounded: the parser itself
recurses without a limit in unknown fields, needs quadratic time for runs of backslashes, and lets escapes
pass that do not exist. An error tells the offset of a line or of a literal and never repeats the text,
because text may hold passwords.

Source: protobuf-java 3.25 ``com.google.protobuf.TextFormat`` and ``TextFormatEscaper``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bkctl.errors import CorruptionError

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: Bound on messages and lists within each other; what is stored needs two.
NESTING_MAX = 32

_SHORT_ESCAPES = {
    0x07: r"\a",
    0x08: r"\b",
    0x09: r"\t",
    0x0A: r"\n",
    0x0B: r"\v",
    0x0C: r"\f",
    0x0D: r"\r",
    0x22: r"\"",
    0x27: r"\'",
    0x5C: r"\\",
}
_ESCAPED = [
    _SHORT_ESCAPES.get(byte, chr(byte) if 0x20 <= byte <= 0x7E else f"\\{byte:03o}") for byte in range(256)
]
_PLAIN_OCTAL = [
    chr(byte) if 0x20 <= byte <= 0x7E and byte not in b"\"'\\" else f"\\{byte:03o}" for byte in range(256)
]
_SHORT_UNESCAPES = {text[1:].encode(): bytes([byte]) for byte, text in _SHORT_ESCAPES.items()} | {b"?": b"?"}

_PIECE = re.compile(
    r"""
    (?P<plain>    [^"'\#{}<>\[\]]++ )
  | (?P<comment>  \#[^\n]*+ )
  | (?P<literal>  "(?:[^"\\\n]++|\\[^\n])*+" | '(?:[^'\\\n]++|\\[^\n])*+' )
  | (?P<open>     [{<\[] )
  | (?P<close>    [}>\]] )
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)


def quote(value: bytes) -> str:
    """A literal in double quotes, escaped as Java does it."""
    return '"' + "".join([_ESCAPED[byte] for byte in value]) + '"'


def merge_text(message: Message, text: bytes, *, what: str, base: int = 0) -> None:
    """Set in ``message`` the fields that ``text`` holds; required fields are not checked.

    ``what`` and ``base``, the offset of the text in the caller's bytes, go into the CorruptionError that is
    raised when the text does not parse.
    """
    try:
        characters = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptionError(what, offset=base + error.start, expected="UTF-8 text") from None
    plain = _plain_text(characters, what, base)

    from google.protobuf import text_format

    try:
        text_format.Merge(plain, message, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise CorruptionError(
            what,
            offset=base + _line_offset(text, error.GetLine()),
            expected="protobuf text",
            found="a line that does not parse",
        ) from None


def _plain_text(text: str, what: str, base: int) -> str:
    """The same text with plain literals and without comments, line by line where it was."""
    pieces: list[str] = []
    position = depth = 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            offset = base + len(text[:position].encode())
            raise CorruptionError(what, offset=offset, expected="a closing quote", found="end of line")
        kind = piece.lastgroup
        if kind == "literal":
            offset = position
            pieces.append(_plain_literal(piece[0], text, offset, what, base))
        elif kind != "comment":
            depth += (kind == "open") - (kind == "close")
            if depth > NESTING_MAX:
                offset = base + len(text[:position].encode())
                raise CorruptionError(what, offset=offset, expected=f"at most {NESTING_MAX} levels")
            pieces.append(piece[0])
        position = piece.end()
    return "".join(pieces)


def _plain_literal(literal: str, text: str, position: int, what: str, base: int) -> str:
    if "\\" not in literal and literal.isascii():
        return literal
    try:
        value = _ESCAPE.sub(_unescape, literal[1:-1].encode())
    except ValueError:
        offset = base + len(text[:position].encode())
        raise CorruptionError(
            what, offset=offset, expected="escapes of protobuf text", found="another escape"
        ) from None
    return '"' + "".join([_PLAIN_OCTAL[byte] for byte in value]) + '"'


def _unescape(found: re.Match[bytes]) -> bytes:
    """What an escape stands for; ValueError when it stands for nothing."""
    octal, hexadecimal, short_code, long_code, other = found.groups()
    if octal is not None:
        return bytes([int(octal, 8)])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    code = short_code or long_code
    if code is not None:
        return chr(int(code, 16)).encode()
    try:
        return _SHORT_UNESCAPES[other]
    except KeyError:
        raise ValueError from None


def _line_offset(text: bytes, line: int | None) -> int:
    """Offset of a line counted from 1; zero when the line is not known."""
    offset = 0
    for _ in range((line or 1) - 1):
        end = text.find(b"\n", offset)
        if end < 0:
            break
        offset = end + 1
    return offset
