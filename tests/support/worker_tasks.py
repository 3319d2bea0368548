"""Tasks for worker processes, which import them by name."""

from __future__ import annotations

import os
import signal
import time

from bkctl.errors import CorruptionError
from bkctl.reporting import Advance


def where(task: int, advance: Advance) -> tuple[int, int]:
    """The task and the process that did it, which tells its progress ten times."""
    for _ in range(10):
        time.sleep(0.002)
        advance(1)
    return task, os.getpid()


def elsewhere_fails(task: tuple[str, int], advance: Advance) -> int:
    """Fail as told in any process but ``parent``; there, go on for a while."""
    how, parent = task
    if os.getpid() == parent:
        where(0, advance)
        return parent
    if how == "error":
        raise CorruptionError("a row", expected="right", found="wrong", path="there")
    if how == "bug":
        raise KeyError("oops")
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def fails(task: int, advance: Advance) -> int:
    """Fail at once, wherever."""
    raise CorruptionError("a row", expected="right", found=str(task), path="anywhere")
