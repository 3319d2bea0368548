"""Keeps the mode that the cluster reads of this bookie up to date: writable or read-only.

A change is registered by a thread of its own, because the metadata store may take seconds to answer or to
fail, and the thread that finds a disk full or free again has other things to do than to wait for it. A
registration that fails is tried again until it succeeds: at once when the session is back, and every
``RETRY_S``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bkctl.engine.engine_thread import EngineThread
from bkctl.errors import BkctlError
from bkctl.metadata.api import RegistrationEndedError, RegistrationMode

_log = logging.getLogger(__name__)

#: Between two attempts while the metadata store is away.
RETRY_S = 2.0


class ModeRegistrar:
    """Registers the mode that ``mode`` returns, by calling ``register``, one call at a time.

    ``on_failure`` is called when the thread ends by an unexpected error.
    """

    def __init__(
        self,
        mode: Callable[[], RegistrationMode],
        register: Callable[[RegistrationMode], None],
        on_failure: Callable[[BkctlError], None],
    ) -> None:
        self._mode = mode
        self._register = register
        self._registering = threading.Lock()
        self._registered: RegistrationMode | None = None
        self._failure: str | None = None
        self._stopping = False
        self._wake = threading.Event()
        self._thread = EngineThread("bookie-registrar", self._run, on_failure)

    def start(self) -> None:
        """Register for the first time, then follow the mode. Raises what the first registration raises."""
        with self._registering:
            mode = self._mode()
            self._register(mode)
            self._registered = mode
        self._thread.start()
        # The mode may have changed during the registration.
        self._wake.set()

    def stop(self) -> None:
        """Register nothing any more, behind what is on its way."""
        self._stopping = True
        self._wake.set()
        with self._registering:
            pass

    def changed(self) -> None:
        """Look soon whether the mode has changed or the store is back. Never blocks."""
        self._wake.set()

    def register_now(self) -> bool:
        """Register what has changed on this thread; False when it will have to be tried again."""
        with self._registering:
            while not self._stopping and (mode := self._mode()) is not self._registered:
                try:
                    self._register(mode)
                except RegistrationEndedError:
                    return True  # the bookie leaves, and no later attempt has another end
                except BkctlError as error:
                    # It is unknown how far the call came. Clients that see the old mode learn the new one
                    # from the bookie's answers.
                    self._registered = None
                    self._note_failure(str(error))
                    return False
                self._registered = mode
                self._note_failure(None)
            return True

    def _run(self) -> None:
        missing = False
        while True:
            self._wake.wait(RETRY_S if missing else None)
            self._wake.clear()
            if self._stopping:
                return
            missing = not self.register_now()

    def _note_failure(self, failure: str | None) -> None:
        """Log one line for each new reason of failure, and one when the registration succeeds again."""
        if failure is None and self._failure is not None:
            _log.warning("the mode is registered now: %s", self._registered)
        elif failure is not None and failure != self._failure:
            _log.error("the mode could not be registered, it is tried again: %s", failure)
        self._failure = failure
