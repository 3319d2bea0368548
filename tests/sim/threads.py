"""Blocking calls of a simulated process: each has a thread, and one thread alone runs at any time.

A call runs until it asks the world for something; then it stands still until the world hands it an outcome.
So calls of one process, and of several, interleave at every request to the metadata store, by the seed alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from bkctl.errors import BkctlError


class KilledError(BaseException):
    """The process that a call belongs to was killed."""


class _Thread:
    """A thread that runs calls one after the other, each until it parks or ends."""

    def __init__(self) -> None:
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self.call: Callable[[], None] | None = None
        threading.Thread(target=self._live, name="simulated call", daemon=True).start()

    def _live(self) -> None:
        while True:
            self._go.acquire()
            assert self.call is not None
            self.call()
            self.call = None
            self._back.release()

    def run(self) -> None:
        """Let it run until it parks or its call has ended."""
        self._go.release()
        self._back.acquire()

    def park(self) -> None:
        self._back.release()
        self._go.acquire()


_IDLE: list[_Thread] = []
_RUNNING: list[Call] = []


def running_call() -> Call | None:
    """The call whose code is being run; None while the world itself is."""
    return _RUNNING[-1] if _RUNNING else None


class Call:
    """One blocking call. ``ended`` gets its value or its error, unless it was killed."""

    def __init__(self, work: Callable[[], object], ended: Callable[[object], None]) -> None:
        self._work = work
        self._ended = ended
        self._thread: _Thread | None = None
        self._outcome: object = None
        self._result: object = None
        self._killed = False

    def start(self) -> None:
        if self._killed:
            return
        self._thread = _IDLE.pop() if _IDLE else _Thread()
        self._thread.call = self._run
        self._go_on()

    def run_inline(self) -> None:
        """Run it to its end, without a thread: one that does not wait."""
        if not self._killed:
            self._run()
            self._ended(self._result)

    def _run(self) -> None:
        try:
            self._result = self._work()
        except KilledError:
            self._killed = True
        except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
            self._result = error

    def _go_on(self) -> None:
        thread = self._thread
        assert thread is not None
        _RUNNING.append(self)
        thread.run()
        _RUNNING.pop()
        if thread.call is None:
            self._thread = None
            _IDLE.append(thread)
            if not self._killed:
                self._ended(self._result)

    def wait(self) -> object:
        """Stand still until the world hands over an outcome; one that is an error is raised.

        For the call's own code.
        """
        if self._killed:
            raise KilledError
        assert self._thread is not None
        self._thread.park()
        if self._killed:
            raise KilledError
        if isinstance(self._outcome, BkctlError):
            raise self._outcome
        return self._outcome

    def resume(self, outcome: object) -> None:
        """Hand over what it waits for. For the world."""
        if self._thread is not None and not self._killed:
            self._outcome = outcome
            self._go_on()

    def kill(self) -> None:
        """End it, wherever it stands. For the world."""
        self._killed = True
        if self._thread is not None:
            self._go_on()
