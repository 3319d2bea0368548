"""``--quiet``: rows and errors, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bkctl.commands.frame.terminal_text import EscapingStream


def is_quiet() -> bool:
    """Return whether the command that runs says errors only."""
    return isinstance(sys.stderr, EscapingStream) and sys.stderr.quiet


@contextmanager
def quietly(wanted: bool) -> Iterator[None]:
    """Leave out messages that are no errors while a command runs, if that is wanted."""
    own = sys.stderr
    if wanted:
        stream = own.stream if isinstance(own, EscapingStream) else own
        sys.stderr = EscapingStream(stream, quiet=True)
    try:
        yield
    finally:
        sys.stderr = own
