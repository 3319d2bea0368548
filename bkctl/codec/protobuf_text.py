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

The text goes to protobuf's parser one word per line, without comments, and with every literal that has an
escape or a non-ASCII character rewritten in plain octal escapes. The parser itself takes quadratic time for
long lines and for runs of backslashes, recurses without a limit in unknown fields, and lets escapes pass
that do not exist; words and nesting are therefore bounded here. An error names the offset of a word or a
literal and never repeats the text, because text may hold passwords.

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

#: Bound on the characters of one literal; unescaping takes some 200 bytes of memory for each.
LITERAL_CHARACTERS_MAX = 1 << 20

#: Bound on words, literals and signs in one text; a segment of three bookies takes a dozen. At some 20 us
#: each the bound is five seconds.
WORDS_MAX = 1 << 18

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
    (?P<space>    [ \t\r\n\f\v]++ | \#[^\n]*+ )
  | (?P<word>     [^ \t\r\n\f\v"'\#{}<>\[\];,]++ | [;,] )
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
    """Return a literal in double quotes, escaped as Java does it."""
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
    pieces, positions = _plain_pieces(characters, what, base)

    from google.protobuf import text_format

    try:
        text_format.Merge("\n".join(pieces), message, allow_unknown_field=True)
    except text_format.ParseError as error:
        line = error.GetLine() or 1
        position = positions[line - 1] if line <= len(positions) else len(characters)
        raise CorruptionError(
            what,
            offset=_byte_offset(characters, position, base),
            expected="protobuf text",
            found="what does not parse",
        ) from None


def _plain_pieces(text: str, what: str, base: int) -> tuple[list[str], list[int]]:
    """Return the words, plain literals and signs, each with its position in the text."""
    pieces: list[str] = []
    positions: list[int] = []
    position = depth = 0
    while position < len(text):
        found = _PIECE.match(text, position)
        if found is None:
            raise CorruptionError(
                what,
                offset=_byte_offset(text, position, base),
                expected="a closing quote",
                found="end of line",
            )
        kind, piece = found.lastgroup, found[0]
        if kind == "literal":
            if len(piece) > LITERAL_CHARACTERS_MAX:
                raise CorruptionError(
                    what,
                    offset=_byte_offset(text, position, base),
                    expected=f"at most {LITERAL_CHARACTERS_MAX} characters in a literal",
                    found=str(len(piece)),
                )
            try:
                piece = _plain_literal(piece)
            except ValueError:
                raise CorruptionError(
                    what,
                    offset=_byte_offset(text, position, base),
                    expected="escapes of protobuf text",
                    found="another escape",
                ) from None
        depth += (kind == "open") - (kind == "close")
        if depth > NESTING_MAX or len(pieces) >= WORDS_MAX:
            raise CorruptionError(
                what,
                offset=_byte_offset(text, position, base),
                expected=f"at most {NESTING_MAX} levels and {WORDS_MAX} words",
            )
        if kind != "space":
            pieces.append(piece)
            positions.append(position)
        position = found.end()
    return pieces, positions


def _plain_literal(literal: str) -> str:
    """Return the same literal with plain octal escapes; ValueError for an escape that stands for nothing."""
    if "\\" not in literal and literal.isascii():
        return literal
    value = _ESCAPE.sub(_unescape, literal[1:-1].encode())
    return '"' + "".join([_PLAIN_OCTAL[byte] for byte in value]) + '"'


def _byte_offset(text: str, position: int, base: int) -> int:
    return base + len(text[:position].encode())


def _unescape(found: re.Match[bytes]) -> bytes:
    """Return the character that an escape stands for; ValueError when it stands for nothing."""
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
