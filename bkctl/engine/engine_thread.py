"""The rule for the threads of engine and server: none of them ends silently.

A thread handles the errors that it expects. An unforeseen error, at the top of a thread, is one of two:

* It stops the bookie. :class:`EngineThread` logs it with its trace and hands it to ``on_failure`` as the
  reason; nothing more is acknowledged then. That is so wherever the work that was cut off cannot be known to
  be whole, which is everywhere unless there is a good reason.
* It is reported, and the thread goes on (:func:`reported`, :func:`call_all`). That is for work that is done
  again at the next turn, as the check of the disks is, and for calls of other people's code: an answer that
  cannot be given must not cost others theirs.

Threads are started here and nowhere else in engine and server; pools hand their errors to futures. The rule
for what such an error may cost is ``docs/adr/0041``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable

from bkctl.errors import LIMITS, BkctlError, StorageError

_log = logging.getLogger(__name__)

#: Calls for :func:`call_all`, gathered under a lock and made when it has been given back.
Actions = list[Callable[[], None]]


class EngineThread:
    """A daemon thread that runs ``body`` once.

    ``on_failure`` is called on the thread, once, with what ended the body, unless that is its return.
    """

    def __init__(self, name: str, body: Callable[[], None], on_failure: Callable[[BkctlError], None]) -> None:
        self._name = name
        self._body = body
        self._on_failure = on_failure
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. Raises StorageError when the system gives none."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise no_thread(self._name, error) from error
        self._thread = thread

    @property
    def is_alive(self) -> bool:
        """Whether the thread was started and has not ended."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether it is the thread that asks."""
        return self._thread is threading.current_thread()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the thread, unless it was never started or is the one that calls this."""
        if self._thread is not None and not self.is_current:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._body()
        except Exception as error:  # noqa: BLE001 - the rule: what ends a thread is known
            with contextlib.suppress(Exception):
                _log.critical("the thread %s ends", self._name, exc_info=error)
            reported(f"telling the end of {self._name}", self._on_failure, as_failure(self._name, error))


def as_failure(what: str, error: BaseException) -> BkctlError:
    """Return an error as one of ours; one that is unexpected names what it ended."""
    return error if isinstance(error, BkctlError) else StorageError(f"{what} failed: {error!r}")


def logged_failure(what: str, error: BaseException) -> BkctlError:
    """Return an error as one of ours (:func:`as_failure`); one that nobody foresaw is logged."""
    if not isinstance(error, BkctlError):
        report(what, error)
    return as_failure(what, error)


def no_thread(name: str, error: RuntimeError) -> StorageError:
    """Return the error for a thread that Python cannot start."""
    return StorageError(f"the system gives no thread for {name} ({error}); {LIMITS}")


def reported(what: str, call: Callable[..., object], *arguments: object) -> Exception | None:
    """Call ``call``; return the exception that it raised, which is logged, or None."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001 - the rule: others go on whatever is wrong with this one
        report(what, error)
        return error
    return None


def call_all(what: str, calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls; an error that one of them raises is logged, and the others are made all the same."""
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the rule, as in `reported`
            report(what, error)


def report(what: str, error: BaseException) -> None:
    """Log an unexpected error that has no consequence for other work, also where it cannot be logged."""
    with contextlib.suppress(Exception):
        _log.error("%s failed", what, exc_info=error)
