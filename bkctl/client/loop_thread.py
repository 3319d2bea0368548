"""An event loop in a thread of its own, for callers without one: its work survives their interrupts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from bkctl.errors import UsageError

_Value = TypeVar("_Value")
_Item = TypeVar("_Item")


class LoopThread:
    """An event loop in a thread, which runs until :meth:`close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._begun: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bookkeeper-client", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether :meth:`close` was not called so far."""
        return self._thread.is_alive()

    def call(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Return the outcome of a coroutine. Raises UsageError after :meth:`close`."""
        if not self._thread.is_alive():
            work.close()
            raise UsageError("the client is closed")
        future: Future[_Value] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def run(self, make: Callable[[], Coroutine[Any, Any, _Value]]) -> _Value:
        """Return the outcome of a coroutine that the loop's thread makes; it goes on after an interrupt here.

        An interrupt comes to the calling thread alone: no coroutine is made and then never started.
        """
        if not self._thread.is_alive():
            raise UsageError("the client is closed")
        outcome: Future[_Value] = Future()

        def hand_over(task: asyncio.Task[_Value]) -> None:
            self._begun.discard(task)
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def begin() -> None:
            task = self._loop.create_task(make())
            self._begun.add(task)
            task.add_done_callback(hand_over)

        self._loop.call_soon_threadsafe(begin)
        return outcome.result()

    def close(self) -> None:
        """End the loop and its thread; a second call does nothing."""
        if not self._thread.is_alive():
            return
        self.run(_cancel_the_others)
        self.run(self._loop.shutdown_asyncgens)
        self.run(self._loop.shutdown_default_executor)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def flattened(thread: LoopThread, batches: AsyncIterator[list[_Item]]) -> Iterator[_Item]:
    """Yield the items of an asynchronous iterator of batches, a visit to the loop's thread for each batch."""
    steps = _Steps(batches)
    try:
        while (batch := thread.run(steps.following)) is not None:
            yield from batch
    finally:
        # After an interrupt this may run when the client is closed already; closing it ended the batches.
        if thread.is_running:
            thread.run(steps.close)


class _Steps(Generic[_Item]):
    """The batches of an asynchronous iterator, one after the other; belongs to the loop's thread.

    An interrupt may come anywhere in the calling thread, also when the next batch was asked for and nobody
    will wait for it; so the close does not rely on the caller to have cancelled that.
    """

    def __init__(self, batches: AsyncIterator[list[_Item]]) -> None:
        self._batches = batches
        self._running: asyncio.Task[Any] | None = None

    async def following(self) -> list[_Item] | None:
        """Return the next batch, None at the end."""
        self._running = asyncio.current_task()
        try:
            return await anext(self._batches)
        except StopAsyncIteration:
            return None
        finally:
            self._running = None

    async def close(self) -> None:
        """End the iterator, and what it does at the moment."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        close = getattr(self._batches, "aclose", None)
        if close is not None:
            await close()


async def _cancel_the_others() -> None:
    """End every task of the loop but this one."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
