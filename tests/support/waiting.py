"""Waiting for what other threads or processes bring about, without an event of theirs to wait on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WAIT_S = 60.0
_LOOK_S = 0.01


def until(what: Callable[[], bool], saying: str = "it does not come about") -> None:
    """Look until it is so; fails, saying so, when that takes too long."""
    pause = threading.Event()
    ends_s = time.monotonic() + WAIT_S
    while time.monotonic() < ends_s:
        if what():
            return
        pause.wait(_LOOK_S)
    raise AssertionError(saying)
