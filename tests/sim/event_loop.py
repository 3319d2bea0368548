"""An event loop of asyncio whose time, and whose threads, are those of a simulated world."""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from bkctl.errors import ConnectionFailedError
from bkctl.metadata.auditor_election import TreeAuditorElection
from tests.sim.processes import require
from tests.sim.threads import Call
from tests.sim.world import World

#: What is put off until then is behind that, whatever floating point makes of it.
_TICK_S = 1e-6

#: So often the tasks of a process that is killed are cancelled, each waiting for the next one's end.
_LAST_ROUNDS = 30


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where in memory it is."""

    _made = 0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        SimTask._made += 1
        self._number = SimTask._made
        super().__init__(*arguments, **more)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one process, which may be frozen for a while (SIGSTOP), and killed.

    ``failed`` gets the errors that nobody else does.
    """

    def __init__(self, world: World, failed: Callable[[BaseException | str], None]) -> None:
        super().__init__()
        self._world = world
        self._failed = failed
        self._soon: deque[asyncio.Handle] = deque()
        self._is_due = False
        self._calls: dict[Call, None] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._frozen_until_s = 0.0
        self.alive = True

    # --- what asyncio wants ---------------------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now_s

    def get_debug(self) -> bool:
        return False

    def create_task(self, coro: Coroutine[Any, Any, Any], **_: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = SimTask(coro, loop=self)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        self._drain_soon()
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.after(max(0.0, when - self.time()), self._time_has_come, handle)
        return handle

    def _timer_handle_cancelled(self, handle: object) -> None:
        """Do nothing: it is still in the world's heap, and does nothing there."""

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        if not self.alive:
            future.set_exception(ConnectionFailedError("killed"))
            return future
        context = contextvars.copy_context()

        def ended(result: object) -> None:
            def tell() -> None:
                if future.done():
                    return
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)

            self.call_soon(tell)

        # A candidate stands still until the world wakes it; other calls, in calm, go through at once.
        may_wait = isinstance(getattr(func, "__self__", None), TreeAuditorElection)
        self.begin(partial(context.run, func, *args), ended, may_wait=may_wait)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # What a task that was dropped has ended with is nobody's business.
        if error is not None and "never retrieved" not in str(context.get("message")):
            self._failed(error)

    # --- the world ------------------------------------------------------------------------------------------

    def begin(
        self, work: Callable[[], object], ended: Callable[[object], None], *, may_wait: bool = False
    ) -> None:
        """Carry out a blocking call of the process."""

        def over(result: object) -> None:
            del self._calls[call]
            ended(result)

        call = Call(work, over)
        self._calls[call] = None
        is_inline = self._world.faults.are_none and not may_wait
        self._world.after(0.0, self.awake, call.run_inline if is_inline else call.start)

    def awake(self, do: Callable[[], None]) -> None:
        """Do something of the process, as soon as it is not frozen; never once it was killed."""
        if not self.alive:
            return
        if self._world.now_s < self._frozen_until_s:
            self._world.after(self._frozen_until_s - self._world.now_s + _TICK_S, self.awake, do)
        else:
            do()

    def freeze(self, seconds: float) -> None:
        """Let nothing of the process happen for a while."""
        self._frozen_until_s = max(self._frozen_until_s, self._world.now_s + seconds)

    def kill(self) -> None:
        """End the process, without a last word: what its coroutines do at their end reaches nobody."""
        self.alive = False
        for call in list(self._calls):
            call.kill()
        self._calls.clear()
        for _ in range(_LAST_ROUNDS):
            for task in list(self._tasks):
                task.cancel()
            self._drain()
        require(not self._tasks, f"{self._tasks} do not end")
        self.close()

    def _drain_soon(self) -> None:
        if not self._is_due and self.alive:
            self._is_due = True
            self._world.after(0.0, self.awake, self._drain)

    def _time_has_come(self, handle: asyncio.TimerHandle) -> None:
        if self.alive and not handle.cancelled():
            self._soon.append(handle)
            self._drain_soon()

    def _drain(self) -> None:
        self._is_due = False
        events._set_running_loop(self)
        try:
            while self._soon:
                handle = self._soon.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(None)
