"""Makes text harmless for a terminal, whoever wrote it.

Names of files, metadata, answers of bookies and of HTTP servers are other people's text. A control character
in it can move the cursor, change the window's title or hide what stands before it, and a character that turns
the direction of writing can make a command read as another one. All of them are shown as ``\\x1b`` or
``\\u202e``.
"""

from __future__ import annotations

from typing import IO, Any, TextIO, cast

#: C0 and C1 control characters, line and paragraph separators, marks that change the direction of writing.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    code: f"\\u{code:04x}"
    for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
#: Characters that separate lines and columns of a program's own text.
_CONTROL_BUT_LAYOUT = {code: shown for code, shown in _CONTROL.items() if chr(code) not in "\n\r\t"}


def escaped(text: str) -> str:
    """Return text as one line in which everything that would steer a terminal is visible."""
    return text.translate(_CONTROL)


#: A message that is no error begins so; --quiet drops it.
_MESSAGES, _ERRORS = ("bkctl: ", "("), "bkctl: error: "


class EscapingStream:
    """A stream of text that reaches the terminal escaped; all else is the stream's below it.

    Line ends and tabs pass: what is written is a program's own lines with other people's text in them.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.stream = stream
        self.quiet = quiet

    def write(self, text: str) -> int:
        """Write text, escaped, and of messages only errors if quiet; the count is that of the given text."""
        if self.quiet and text.startswith(_MESSAGES) and not text.startswith(_ERRORS):
            return len(text)
        self.stream.write(text.translate(_CONTROL_BUT_LAYOUT))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts, each escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def escaping(stream: TextIO) -> TextIO:
    """Return a stream that escapes what is written to ``stream``."""
    return stream if isinstance(stream, EscapingStream) else cast("TextIO", EscapingStream(stream))


def unescaped(stream: TextIO) -> IO[str]:
    """Return the stream below one that escapes, for a program's own drawing: a progress bar."""
    return stream.stream if isinstance(stream, EscapingStream) else stream
