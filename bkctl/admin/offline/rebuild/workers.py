"""Worker processes for work that is one log or one range of keys at a time.

Started by spawn, so that nothing of the parent's threads, locks or databases is inherited. A worker ends
with its parent, whatever ends that: the system kills it when the parent is gone.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, TypeVar

from bkctl.admin.offline.reporting import Advance, nobody
from bkctl.errors import BkctlError, StorageError

Task = TypeVar("Task")
Result = TypeVar("Result")

_PR_SET_PDEATHSIG = 1
_JOIN_S = 10


class Workers:
    """``jobs`` processes, started when first needed; with 1 the work is done in this process.

    A context manager: on the way out the processes are ended, without waiting for work that was abandoned.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = max(1, jobs)
        self._pipes: list[Connection[Any, Any]] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []

    def results(
        self, call: Callable[[Task, Advance], Result], tasks: Iterable[Task], advance: Advance = nobody
    ) -> Iterator[Result]:
        """``call(task, advance)`` of every task, in the order in which they are done.

        Tasks are taken from the iterable as processes become free. Raises what ``call`` raises, and
        StorageError when a process dies.
        """
        if self.jobs == 1:
            for task in tasks:
                yield _uncollected(call, task, advance)
            return
        self._start()
        queue = iter(tasks)
        busy = [pipe for pipe in self._pipes if _send_next(pipe, call, queue)]
        while busy:
            for pipe in wait(busy):
                assert isinstance(pipe, Connection)
                kind, value = _receive(pipe)
                if kind == "advance":
                    advance(value)
                    continue
                if kind == "error":
                    raise value
                if kind == "bug":
                    raise RuntimeError(f"in a worker process:\n{value}")
                yield value
                if not _send_next(pipe, call, queue):
                    busy.remove(pipe)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        while len(self._processes) < self.jobs:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()  # an idle worker takes that for its end
        for process in self._processes:
            if kind is not None:
                process.terminate()
            process.join(_JOIN_S)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._pipes.clear()
        self._processes.clear()


def _uncollected(call: Callable[[Task, Advance], Result], task: Task, advance: Advance) -> Result:
    """Run a task without the cycle collector: millions of rows as tuples make it walk them again and again,
    and none of them is part of a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return call(task, advance)
    finally:
        if was_on:
            gc.enable()


def _send_next(pipe: Connection[Any, Any], call: Callable[..., Any], queue: Iterator[Any]) -> bool:
    for task in queue:
        pipe.send((call, task))
        return True
    return False


def _receive(pipe: Connection[Any, Any]) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = pipe.recv()
        return message
    except (EOFError, ConnectionError):
        raise StorageError(
            "a worker process ended before its work was done (killed, or out of memory); "
            "run the command again: it goes on from where it was, with --jobs 1 in one process"
        ) from None


def _serve(pipe: Connection[Any, Any], parent: int) -> None:
    """What a worker process runs."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # the parent was gone before we asked
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends us

    def advance(count: int) -> None:
        pipe.send(("advance", count))

    while True:
        try:
            call, task = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[str, Any] = ("result", _uncollected(call, task, advance))
        except BkctlError as error:
            answer = ("error", error)
        except Exception:  # noqa: BLE001 - handed on whole, raised again by the parent
            answer = ("bug", traceback.format_exc())
        pipe.send(answer)
