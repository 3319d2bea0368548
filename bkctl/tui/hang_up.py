"""Whether the terminal is gone.

The kernel sends SIGHUP only to those whose controlling terminal it was. Others, under some container runtimes
and session managers, read an end of file for ever. The screen library's thread that writes to the terminal
ends at the first error, and its event loop then waits for a place in that thread's queue: so a thread of its
own watches the terminal.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import TextIO

#: As a shell reports a program that SIGHUP ended.
EXIT_CODE = 128 + signal.SIGHUP
_LOOK_INTERVAL_S = 0.2


def has_hung_up(terminal: TextIO | None) -> bool:
    """Return whether the other end of the terminal is closed, or the descriptor is."""
    if terminal is None or terminal.closed:
        return True
    poll = select.poll()
    poll.register(terminal.fileno(), 0)
    return bool(poll.poll(0))


def end_with(terminal: TextIO | None) -> None:
    """End this process at once when the terminal is gone, whatever its other threads do then.

    Nothing of a screen has to be written to its end: a recording is whole after every sample.
    """

    def watch() -> None:
        while not has_hung_up(terminal):
            time.sleep(_LOOK_INTERVAL_S)
        os._exit(EXIT_CODE)

    threading.Thread(target=watch, name="terminal-watch", daemon=True).start()
