"""The members of one JSON object that is too large to be held, one after the other."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from bkctl.errors import CorruptionError
from bkctl.vfs.base import ReadableFile

WINDOW_BYTES = 1 << 20
#: Bound on the text of one member.
MEMBER_CHARS_MAX = 16 << 20

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


class Member(NamedTuple):
    """A name with its value; ``length`` bytes from ``offset`` hold both, with the colon between them."""

    name: str
    value: object
    offset: int
    length: int


def members(file: ReadableFile, what: str) -> Iterator[Member]:
    """Yield the members of the object that a file holds, in their order, a name that comes twice included.

    Raises CorruptionError about ``what`` for text that is no JSON object, StorageError. Members that were
    yielded before the error are as they stand in the file, but the object is whole only at the end.
    """
    text: _Text | None = None
    try:
        text = _Text(file)
        yield from _members(text, what)
    except json.JSONDecodeError as error:
        offset = error.pos + (text.chars_before if text is not None else 0)
        raise CorruptionError(what, offset=offset, expected="JSON", found="other text") from None
    except (ValueError, RecursionError):
        raise CorruptionError(what, expected="JSON", found="other bytes") from None


def parse_member(data: bytes) -> tuple[str, object]:
    """Return the name and the value of a member's bytes. Raises ValueError."""
    found = list(json.loads(b"{" + data + b"}").items())
    if len(found) != 1:
        raise ValueError("no member")
    name, value = found[0]
    return name, value


def _members(text: _Text, what: str) -> Iterator[Member]:
    if text.next() != "{":
        if text.next() and text.next() in '["-0123456789tfn':
            raise CorruptionError(what, expected="one JSON object", found="another value")
        raise text.unexpected()
    text.take(1)
    if text.next() == "}":
        text.take(1)
    else:
        yield text.member()
        while text.next() == ",":
            text.take(1)
            text.next()
            yield text.member()
        if text.next() != "}":
            raise text.unexpected()
        text.take(1)
    if text.next():
        raise text.unexpected()


class _Text:
    """A window of the text that moves on. ``chars_before`` are the characters before it."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogatepass").decode
        self._read_bytes = 0
        self._text = ""
        self._at = 0
        self._offset = 0
        self._ended = False
        self.chars_before = 0
        self._more()
        if self._text.startswith("\ufeff"):
            self.take(1)

    def next(self) -> str:
        """Skip white space; the character behind it, empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self.take(found.end() - self._at)
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more()

    def take(self, chars: int) -> None:
        """Go on behind so many characters."""
        passed = self._text[self._at : self._at + chars]
        self._offset += len(passed) if passed.isascii() else len(passed.encode("utf-8", "surrogatepass"))
        self._at += chars

    def member(self) -> Member:
        """Return the member that begins here."""
        while True:
            try:
                name, value, end = self._member_here()
            except json.JSONDecodeError:
                # Perhaps it is only cut off by the end of the window.
                if self._ended or len(self._text) - self._at > MEMBER_CHARS_MAX:
                    raise
                self._more()
                continue
            offset = self._offset
            self.take(end - self._at)
            return Member(name, value, offset, self._offset - offset)

    def _member_here(self) -> tuple[str, object, int]:
        text = self._text
        if text[self._at : self._at + 1] != '"':
            raise self.unexpected()
        name, end = _DECODER.raw_decode(text, self._at)
        end = self._behind_space(end)
        if text[end : end + 1] != ":":
            raise json.JSONDecodeError("no colon", text, end)
        value, end = _DECODER.raw_decode(text, self._behind_space(end + 1))
        if end == len(text) and not self._ended:
            raise json.JSONDecodeError("a number may go on", text, end)
        return name, value, end

    def _behind_space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None
        return found.end()

    def unexpected(self) -> json.JSONDecodeError:
        """Return the error about the character here."""
        return json.JSONDecodeError("unexpected", self._text, self._at)

    def _more(self) -> None:
        data = self._file.read_at(self._read_bytes, WINDOW_BYTES)
        self._read_bytes += len(data)
        self._ended = not data or self._read_bytes >= self._file.size_bytes
        self.chars_before += self._at
        self._text = self._text[self._at :] + self._decode(data, self._ended)
        self._at = 0
