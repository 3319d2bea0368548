"""Waiting for what other threads or processes bring about, without an event of theirs to wait on."""

from __future__ import annotations

import threading
from collections.abc import Callable

WAIT_S = 30.0
_LOOK_S = 0.01


def until(what: Callable[[], bool], saying: str = "it does not come about") -> None:
    """Look until it is so; fails, saying so, when that takes too long."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / _LOOK_S)):
        if what():
            return
        pause.wait(_LOOK_S)
    raise AssertionError(saying)
