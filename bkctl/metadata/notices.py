"""One thread that reports events to listeners, so that neither a store's own thread nor a caller does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable

from bkctl.clock import Clock
from bkctl.errors import ConnectionFailedError

_LOG = logging.getLogger(__name__)

#: How long :meth:`NoticeThread.close` waits for an action that is under way.
_CLOSE_TIMEOUT_S = 30.0

#: When an action is tried again that failed for want of a connection.
_RETRY_DELAY_S = 1.0


class NoticeThread:
    """Runs actions one after the other, in the order of their times.

    An action is posted under a key; while it waits, another under the same key replaces it, so that what
    waits is bounded by the number of keys. The thread starts with the first action.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._condition = threading.Condition()
        self._waiting: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def post(self, key: Hashable, action: Callable[[], None], *, delay_s: float = 0.0) -> None:
        """Run ``action`` after ``delay_s``, or sooner when it was posted for sooner; not once closed."""
        due_s = self._clock.monotonic() + delay_s
        with self._condition:
            if self._closed:
                return
            if key in self._waiting:
                due_s = min(due_s, self._waiting[key][0])
            self._waiting[key] = (due_s, action)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def cancel(self, key: Hashable) -> None:
        """Forget the action that waits under ``key``."""
        with self._condition:
            self._waiting.pop(key, None)

    def close(self) -> None:
        """Forget what waits and end the thread; a second call does nothing."""
        with self._condition:
            self._closed = True
            self._waiting.clear()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (due := self._next()) is not None:
            key, action = due
            try:
                action()
            except ConnectionFailedError as error:
                _LOG.debug("%s: %s", self._name, error)
                self.post(key, action, delay_s=_RETRY_DELAY_S)
            except Exception:  # noqa: BLE001 - top of the thread: one listener's bug must not silence the others
                _LOG.exception("%s: a listener failed", self._name)

    def _next(self) -> tuple[Hashable, Callable[[], None]] | None:
        with self._condition:
            while not self._closed:
                if not self._waiting:
                    self._condition.wait()
                    continue
                key, (due_s, action) = min(self._waiting.items(), key=lambda item: item[1][0])
                wait_s = due_s - self._clock.monotonic()
                if wait_s <= 0:
                    del self._waiting[key]
                    return key, action
                self._condition.wait(wait_s)
        return None
