"""Processes for work that is one log or one range of keys at a time.

This process is one of them: between two steps of its own task it hands out the others' next ones. The others
are fresh interpreters, so that nothing of this one's threads, locks or databases is inherited;
``multiprocessing`` would start another process for its bookkeeping and import the command line into each. A
process that was started ends with this one, whatever ends that: the system kills it when its parent is gone.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as ready
from types import TracebackType
from typing import Any, TypeVar

from bkctl.allocator import keep_freed_memory
from bkctl.errors import BkctlError, StorageError
from bkctl.reporting import Advance, nobody

Task = TypeVar("Task")
Result = TypeVar("Result")

_PR_SET_PDEATHSIG = 1
#: The program of a process that is started: it finds the modules where this process finds them.
_PROGRAM = """
import json, sys
path, modules, descriptor, parent = json.loads(sys.argv[1])
sys.path[:] = path
from bkctl.workers import serve
serve(descriptor, parent, modules)
"""


@dataclass(eq=False, slots=True)
class _Worker:
    """A process that was started; ``free`` once it is up and has no task. ``call`` is the number of the call
    whose task it has, 0 for none."""

    process: subprocess.Popen[bytes]
    pipe: Connection[Any, Any]
    free: bool = False
    call: int = 0


class Workers:
    """``jobs`` processes, this one included. The others are started at once and get tasks when they are up,
    with ``modules`` imported.

    A context manager: on the way out the processes are ended, without waiting for work that was abandoned.
    """

    def __init__(self, jobs: int, modules: Sequence[str] = ()) -> None:
        self.jobs = max(1, jobs)
        self._modules = modules
        self._calls = 0
        self._workers: list[_Worker] = []

    def results(
        self, call: Callable[[Task, Advance], Result], tasks: Iterable[Task], advance: Advance = nobody
    ) -> Iterator[Result]:
        """Yield ``call(task, advance)`` of every task, in the order in which they are done.

        Tasks are taken from the iterable as processes become free; ``call`` reports progress often, because
        this process looks for the others whenever its own task does. Raises what ``call`` raises, and
        StorageError when a process dies.
        """
        self._calls += 1
        share = _Share(self._workers, self._calls, call, tasks, advance)
        while share.go_on():
            if share.failure is not None:
                raise share.failure
            while share.done:
                yield share.done.popleft()

    def __enter__(self) -> Workers:
        keep_freed_memory()
        for _ in range(self.jobs - 1):
            ours, theirs = socket.socketpair()
            with theirs:
                facts = json.dumps(
                    [[path for path in sys.path if path], self._modules, theirs.fileno(), os.getpid()]
                )
                process = subprocess.Popen(  # noqa: S603 - this interpreter, with a program of our own
                    # -P: a worker must not import from the current directory, which may be anybody's.
                    [sys.executable, "-P", "-c", _PROGRAM, facts],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                )
            self._workers.append(_Worker(process, Connection(ours.detach())))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.process.kill()  # a worker leaves no more behind than a crash at any other moment
            worker.process.wait()
            worker.pipe.close()
        self._workers.clear()


class _Share:
    """The tasks of one call, shared out; ``done`` are results that nobody has taken yet.

    A process may still have a task of an earlier call that was abandoned: what it says of that is not heard.
    """

    def __init__(
        self,
        workers: list[_Worker],
        number: int,
        call: Callable[..., Any],
        tasks: Iterable[Any],
        advance: Advance,
    ) -> None:
        self._workers = workers
        self._number = number
        self._call = call
        self._tasks = iter(tasks)
        self._advance = advance
        self.done: deque[Any] = deque()
        self.failure: BaseException | None = None

    def go_on(self) -> bool:
        """Do a task here, or wait for one elsewhere; return whether anything was left to do."""
        self._hand_out()
        for task in self._tasks:
            self.done.append(_uncollected(self._call, task, self._step))
            return True
        if any(worker.call == self._number for worker in self._workers):
            self._hear(wait=True)
            return True
        return False

    def _step(self, count: int) -> None:
        """Report that the task of this process has come a step further."""
        self._advance(count)
        self._hear(wait=False)
        if self.failure is None:
            self._hand_out()

    def _hand_out(self) -> None:
        """Give every free process a task."""
        for worker in self._workers:
            if not worker.free:
                continue
            for task in self._tasks:
                worker.free, worker.call = False, self._number
                try:
                    worker.pipe.send((self._call, task))
                except ConnectionError:
                    self._died()
                break

    def _hear(self, *, wait: bool) -> None:
        """Take in what the others say; with ``wait`` there is something to come."""
        pipes = {worker.pipe: worker for worker in self._workers if not worker.free}
        for pipe in ready(list(pipes), None if wait else 0) if pipes else ():
            assert isinstance(pipe, Connection)
            self._take_in(pipes[pipe])

    def _take_in(self, worker: _Worker) -> None:
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, ConnectionError):
            self._died()
            return
        ours = worker.call == self._number
        if kind == "advance":
            if ours:
                self._advance(value)
            return
        worker.free, worker.call = True, 0
        if not ours:
            return
        if kind == "result":
            self.done.append(value)
        elif kind == "error":
            self.failure = self.failure or value
        elif kind == "bug":
            self.failure = self.failure or RuntimeError(f"in a worker process:\n{value}")

    def _died(self) -> None:
        self.failure = self.failure or StorageError(
            "a worker process ended before its work was done (killed, or out of memory); "
            "run the command again: it goes on from where it was, with --jobs 1 in one process"
        )


def _uncollected(call: Callable[[Task, Advance], Result], task: Task, advance: Advance) -> Result:
    """Run a task without the cycle collector: millions of rows as objects make it walk them again and again,
    and none of them is part of a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return call(task, advance)
    finally:
        if was_on:
            gc.enable()


def serve(descriptor: int, parent: int, modules: Sequence[str]) -> None:
    """Do the work of a process that was started, over the socket ``descriptor``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # the parent was gone before we asked
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends us
    keep_freed_memory()
    for module in modules:
        importlib.import_module(module)
    pipe: Connection[Any, Any] = Connection(descriptor)
    with suppress(EOFError, ConnectionError):  # the parent wants no more
        pipe.send(("up", None))
        while True:
            call, task = pipe.recv()
            pipe.send(_answer(call, task, lambda count: pipe.send(("advance", count))))


def _answer(call: Callable[..., Any], task: Any, advance: Advance) -> tuple[str, Any]:
    try:
        return "result", _uncollected(call, task, advance)
    except BkctlError as error:
        return "error", error
    except Exception:  # noqa: BLE001 - handed on whole, raised again by the parent
        return "bug", traceback.format_exc()
