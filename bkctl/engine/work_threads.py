"""Work on several items at a time, on a few threads and on the caller's own: mostly it waits for disks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from bkctl.errors import SyncError

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
        count = len(waiting)
        # Of each item: also of one that is worked on by a call which the pool has refused. It queues a call
        # before it asks for a thread, and a thread that it has may take the call all the same.
        ended: SimpleQueue[Exception | None] = SimpleQueue()

        def go_on() -> None:
            # Every thread takes items until there are none: one that begins late finds nothing to do.
            while True:
                try:
                    item = waiting.popleft()
                except IndexError:
                    return
                ended.put(_failure_of(work, item))

        self._start(go_on, min(self._threads_max, count) - 1)
        go_on()
        return [failure for failure in (ended.get() for _ in range(count)) if failure is not None]

    def do_all(self, work: Callable[[_Item], object], items: Iterable[_Item]) -> None:
        """Do the work on each item.

        Raises a failure once no item is being worked on any more, a failed sync first: behind any other one a
        flush may be tried again.
        """
        failures = self.failures_of(work, items)
        if failures:
            raise next((each for each in failures if isinstance(each, SyncError)), failures[0])

    def _start(self, work: Callable[[], None], threads: int) -> None:
        # Without a thread, or memory for one, the others do its share.
        with suppress(RuntimeError, MemoryError):
            for _ in range(threads):
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(self._threads_max - 1, thread_name_prefix=self._name)
                self._pool.submit(work)

    def close(self) -> None:
        """End the threads; idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


def _failure_of(work: Callable[[_Item], object], item: _Item) -> Exception | None:
    try:
        work(item)
    except Exception as error:  # noqa: BLE001 - returned when the other items are done
        return error
    return None
