"""Work on several items at a time, on a few threads and on the caller's own: mostly it waits for disks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

_Item = TypeVar("_Item")


class WorkThreads:
    """At most ``threads_max`` threads, the caller's included, one caller at a time.

    The first call starts them, and they wait for further calls until :meth:`close`. Where the system gives
    fewer, these do all the work.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None

    def failures_of(self, work: Callable[[_Item], object], items: Iterable[_Item]) -> list[Exception]:
        """Do the work on each item; return what it has raised, of whatever kind.

        No item is being worked on any more then: an error of one keeps nobody from learning of those of the
        others.
        """
        waiting = deque(items)
        failures: list[Exception] = []

        def go_on() -> None:
            # Every thread takes items until there are none: one that begins late finds nothing to do.
            while True:
                try:
                    item = waiting.popleft()
                except IndexError:
                    return
                try:
                    work(item)
                except Exception as error:  # noqa: BLE001 - returned when the other items are done
                    failures.append(error)

        others = self._started(go_on, min(self._threads_max, len(waiting)) - 1)
        try:
            go_on()
        finally:
            wait(others)
        for each in others:
            each.result()
        return failures

    def _started(self, work: Callable[[], None], threads: int) -> list[Future[None]]:
        started: list[Future[None]] = []
        # Without a thread, or memory for one, the others do its share.
        with suppress(RuntimeError, MemoryError):
            for _ in range(threads):
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(self._threads_max - 1, thread_name_prefix=self._name)
                started.append(self._pool.submit(work))
        return started

    def close(self) -> None:
        """End the threads; idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
