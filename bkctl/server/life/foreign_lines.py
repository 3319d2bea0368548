"""Text that reaches stderr past the log, each line of it as one JSON object of the log.

A machine that reads a log of JSON lines can read nothing else. Text that is not logged - the refusal of an
option that is typed wrongly, a question, a library's print, the interpreter's own traceback - comes through
here. Text that C code writes to the descriptor itself, before it ends the process, does not.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

LOGGER = "bkctl.stderr"
#: A line that has no end is cut here.
LINE_CHARACTERS_MAX = 16 << 10
_OWN = "bkctl: "
_ERROR = "bkctl: error"


class ForeignLines:
    """A stream of text over ``stream``, which gets what ``formatted`` makes of each line of the text."""

    def __init__(self, stream: TextIO, formatted: Callable[[logging.LogRecord], str]) -> None:
        self.stream = stream
        self._formatted = formatted
        self._lock = threading.Lock()
        self._begun = ""

    def write(self, text: str) -> int:
        """Write text; a line that has not ended yet waits for its end."""
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            while len(self._begun) > LINE_CHARACTERS_MAX:
                lines.append(self._begun[:LINE_CHARACTERS_MAX])
                self._begun = self._begun[LINE_CHARACTERS_MAX:]
            for line in lines:
                self._write(line)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        """Return that this is no terminal: nothing is drawn here."""
        return False

    def end(self) -> None:
        """Write what has no end yet."""
        with self._lock:
            line, self._begun = self._begun, ""
            self._write(line)

    def _write(self, line: str) -> None:
        line = line.rstrip()
        if line:
            level = logging.ERROR if line.startswith(_ERROR) else logging.WARNING
            record = logging.LogRecord(LOGGER, level, "", 0, line.removeprefix(_OWN), None, None)
            self.stream.write(self._formatted(record) + "\n")
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def foreign_lines(formatted: Callable[[logging.LogRecord], str]) -> Iterator[None]:
    """Let standard error carry nothing but formatted lines inside the ``with`` block."""
    own = sys.stderr
    lines = ForeignLines(own, formatted)
    sys.stderr = cast("TextIO", lines)
    try:
        yield
    finally:
        lines.end()
        sys.stderr = own


def stream_of_log() -> TextIO:
    """Return the stream that takes whole lines of a log: standard error, below what makes lines of text."""
    stream: Any = sys.stderr
    while (below := vars(stream).get("stream") if hasattr(stream, "__dict__") else None) is not None:
        if isinstance(stream, ForeignLines):
            return cast("TextIO", below)
        stream = below
    return sys.stderr
