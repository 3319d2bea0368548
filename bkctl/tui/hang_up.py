"""Whether the terminal is gone.

The kernel sends SIGHUP only to those whose controlling terminal it was. Others, under some container runtimes
and session managers, read an end of file for ever.
"""

from __future__ import annotations

import select
import signal
from typing import TextIO

#: As a shell reports a program that SIGHUP ended.
EXIT_CODE = 128 + signal.SIGHUP


def has_hung_up(terminal: TextIO | None) -> bool:
    """Whether the other end of the terminal is closed, or the descriptor is."""
    if terminal is None or terminal.closed:
        return True
    poll = select.poll()
    poll.register(terminal.fileno(), 0)
    return bool(poll.poll(0))
