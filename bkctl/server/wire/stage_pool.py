"""A stage of the bookie that may wait for the disk: some threads behind a bounded queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from bkctl.clock import Clock
from bkctl.errors import TooManyRequestsError
from bkctl.metrics.stage import StageMeter

_log = logging.getLogger(__name__)


class StagePool:
    """Runs jobs on ``threads`` threads; at most ``requests_max`` requests wait or run.

    When it is full a job is refused with TooManyRequestsError. A job answers its requests itself and catches
    what it expects; anything it raises is a bug, logged here.
    """

    def __init__(self, name: str, clock: Clock, *, threads: int, requests_max: int) -> None:
        self.meter = StageMeter(name, bound=requests_max, unit="requests")
        self._clock = clock
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"bookie-{name.replace('_', '-')}")

    def submit(self, job: Callable[[], None], requests: int = 1) -> None:
        """Run ``job``, which stands for ``requests`` requests. Raises TooManyRequestsError."""
        self.admit(requests)
        self._begin(job, requests)

    def admit(self, requests: int) -> None:
        """Count requests that are going to be served by a job of :meth:`begin`, which calls :meth:`end`.

        Raises TooManyRequestsError.
        """
        with self._lock:
            if self.meter.length and self.meter.length + requests > self.meter.bound:
                self.meter.rejected += requests
                raise TooManyRequestsError(f"the {self.meter.name} stage is full")
            self.meter.length += requests

    def begin(self, job: Callable[[], None]) -> None:
        """Run a job that serves requests which were admitted. Raises TooManyRequestsError."""
        self._begin(job, 0)

    def end(self, requests: int, waited_s: float | None = None) -> None:
        """End admitted requests, which were served after ``waited_s``, or with None were not served."""
        with self._lock:
            self.meter.length -= requests
            if waited_s is not None:
                self.meter.done += requests
                self.meter.waited.add(waited_s, requests)

    def _begin(self, job: Callable[[], None], requests: int) -> None:
        # One thread takes the job out and has it: a worker, or the caller when the executor refuses it.
        turn = [job]
        try:
            future = self._executor.submit(self._work, turn, requests, self._clock.monotonic())
        except Exception as error:
            # Where the system gives no further thread, or no memory for one, the job is queued all the same,
            # for those there are.
            if not _taken(turn):
                return
            with self._lock:
                self.meter.length -= requests
            raise TooManyRequestsError(f"the {self.meter.name} stage takes nothing more now") from error
        future.add_done_callback(partial(self._report, requests))

    def stop(self) -> None:
        """Finish what is running, drop what is queued, end the threads."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _work(self, turn: list[Callable[[], None]], requests: int, queued_s: float) -> None:
        taken = _taken(turn)
        if not taken:
            return
        (job,) = taken
        started_s = self._clock.monotonic()
        try:
            job()
        finally:
            ended_s = self._clock.monotonic()
            with self._lock:
                self.meter.length -= requests
                self.meter.done += requests
                if requests:
                    self.meter.waited.add(started_s - queued_s, requests)
                self.meter.worked.add(ended_s - started_s)

    def _report(self, requests: int, future: Future[None]) -> None:
        if future.cancelled():
            with self._lock:
                self.meter.length -= requests
            return
        error = future.exception()
        if error is not None:
            self.meter.failed += 1
            _log.error("a request of the %s stage was not answered", self.meter.name, exc_info=error)


def _taken(turn: list[Callable[[], None]]) -> list[Callable[[], None]]:
    """Empty a turn and return the job that was in it; no job where another thread was faster."""
    try:
        return [turn.pop()]
    except IndexError:
        return []
