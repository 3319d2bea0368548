"""A lock that counts what is done while it is held, in steps of the interpreter and not in seconds."""

from __future__ import annotations

import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class CountingLock:
    """Stands in for a ``threading.Lock`` that is used by ``with``.

    ``steps_max`` is the largest number of opcodes that one holder has executed so far; C calls count as one.
    """

    def __init__(self) -> None:
        self.steps_max = 0
        self._lock = threading.Lock()
        self._steps = 0
        self._previous: Any = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._steps = 0
        self._previous = sys.gettrace()
        sys.settrace(self._trace)
        self._trace(sys._getframe(1), "call", None)
        sys._getframe(1).f_trace = self._trace

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys._getframe(1).f_trace = None
        sys.settrace(self._previous)
        self.steps_max = max(self.steps_max, self._steps)
        self._lock.release()

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._steps += event == "opcode"
        return self._trace
