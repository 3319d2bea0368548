"""A process's view of the metadata store: each request takes time, may be lost, or its answer.

The process learns of its session's end, and of changes that it watches, some time later. What it writes is
shown to ``wrote``, in the step in which it is written.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from bkctl.clock import Clock
from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.metadata.auditor_election import TreeAuditorElection
from bkctl.metadata.memory import MemoryCluster, MemoryTree
from bkctl.metadata.tree import ANY_VERSION, NO_SESSION, Node
from tests.sim.event_loop import SimLoop
from tests.sim.threads import Call, running_call
from tests.sim.world import METADATA_TIMEOUT_S, World

_Value = TypeVar("_Value")

#: When a listener is called again that wanted the store and did not get it.
_RETRY_S = 1.0

#: What a write is shown as: who wrote, and the path of the node.
Wrote = Callable[["SimTree", str], None]
#: The same for a read, with what was read.
HasRead = Callable[["SimTree", str, object], None]


class SimTree(MemoryTree):
    """One session after the other of one process, whose ``loop`` is its life."""

    def __init__(
        self,
        world: World,
        loop: SimLoop,
        cluster: MemoryCluster,
        clock: Clock,
        wrote: Wrote,
        has_read: HasRead,
    ) -> None:
        super().__init__(cluster, clock)
        self.world = world
        self.loop = loop
        self._wrote = wrote
        self._has_read = has_read
        self._notices: Any = _Notices(world, loop)
        self.sessions = {self._session}

    def restore_session(self) -> None:
        super().restore_session()
        self.sessions.add(self._session)

    @property
    def has_session(self) -> bool:
        return self._session != NO_SESSION

    # --- requests -------------------------------------------------------------------------------------------

    def _ask(self, carry_out: Callable[[], _Value]) -> _Value:
        call = running_call()
        world, random, faults = self.world, self.world.random, self.world.faults
        if call is None or faults.are_none:
            return carry_out()
        carry_out = partial(contextvars.copy_context().run, carry_out)
        latency_s = random.random() * faults.metadata_spread_s
        if random.random() < faults.slow / 4:
            latency_s += random.random() * METADATA_TIMEOUT_S
        lost = random.random() < faults.lose_metadata_request / 4
        answer_lost = random.random() < faults.lose_metadata_answer / 4
        if lost or answer_lost:
            world.after(METADATA_TIMEOUT_S, self._resume, (call, _no_answer))
            if answer_lost:
                world.after(latency_s, _carry_out_silently, carry_out)
        else:
            world.after(latency_s, self._resume, (call, carry_out))
        return call.wait()  # type: ignore[return-value]

    def _resume(self, asked: tuple[Call, Callable[[], object]]) -> None:
        """Carry it out now; the answer waits while the process is frozen."""
        call, carry_out = asked
        try:
            outcome: object = carry_out()
        except BkctlError as error:
            outcome = error
        self.loop.awake(partial(call.resume, outcome))

    def get(self, path: str) -> Node | None:
        def carry_out() -> Node | None:
            found = MemoryTree.get(self, path)
            self._has_read(self, path, found)
            return found

        return self._ask(carry_out)

    def children(self, path: str) -> list[str] | None:
        def carry_out() -> list[str] | None:
            names = MemoryTree.children(self, path)
            found = None if names is None else sorted(names)
            self._has_read(self, path, found)
            return found

        return self._ask(carry_out)

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> str:
        def carry_out() -> str:
            made = MemoryTree.create(self, path, data, ephemeral=ephemeral, sequence=sequence)
            self._wrote(self, made)
            return made

        return self._ask(carry_out)

    def create_all(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        self._ask(lambda: MemoryTree.create_all(self, nodes))

    def set(self, path: str, data: bytes, version: int) -> int:
        def carry_out() -> int:
            made = MemoryTree.set(self, path, data, version)
            self._wrote(self, path)
            return made

        return self._ask(carry_out)

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._ask(lambda: MemoryTree.delete(self, path, version))

    def write_beside(self, guard: str, path: str, data: bytes, version: int | None) -> None:
        # What it is made of is carried out in the world's own step, and shown there.
        self._ask(lambda: MemoryTree.write_beside(self, guard, path, data, version))


def _no_answer() -> object:
    raise ConnectionFailedError("the store did not answer")


def _carry_out_silently(carry_out: Callable[[], object]) -> None:
    try:
        carry_out()
    except BkctlError:
        return


class _Notices:
    """As :class:`bkctl.metadata.notices.NoticeThread`: one action after the other, each some time later."""

    def __init__(self, world: World, loop: SimLoop) -> None:
        self._world = world
        self._loop = loop
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._due: list[Hashable] = []
        self._told_s = 0.0
        self._busy = False
        self._closed = False

    def post(self, key: Hashable, action: Callable[[], None], *, delay_s: float = 0.0) -> None:
        if self._closed:
            return
        is_new = key not in self._waiting
        self._waiting[key] = action
        if not is_new:
            return
        world = self._world
        late_s = world.random.random() * world.faults.metadata_spread_s
        if world.random.random() < world.faults.slow:
            late_s += world.random.random() * 8.0
        at_s = world.now_s + delay_s + late_s
        if key in ("lost", "restored"):  # these two in their order
            at_s = self._told_s = max(self._told_s, at_s)
        world.after(at_s - world.now_s, self._is_due, key)

    def cancel(self, key: Hashable) -> None:
        self._waiting.pop(key, None)

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()

    def _is_due(self, key: Hashable) -> None:
        if key in self._waiting and key not in self._due:
            self._due.append(key)
        self._next()

    def _next(self) -> None:
        while self._due and not self._busy and not self._closed:
            key = self._due.pop(0)
            action = self._waiting.pop(key, None)
            if action is not None:
                self._busy = True
                self._loop.begin(action, partial(self._ended, key, action))

    def _ended(self, key: Hashable, action: Callable[[], None], result: object) -> None:
        self._busy = False
        if isinstance(result, ConnectionFailedError):
            self.post(key, action, delay_s=_RETRY_S)
        elif isinstance(result, BaseException):
            self._loop.call_exception_handler({"exception": result})
        self._next()


class _Condition(AbstractContextManager["_Condition", None]):
    """A condition of calls, of which one alone runs at any time."""

    def __init__(self, world: World, loop: SimLoop) -> None:
        self._world = world
        self._loop = loop
        self._waiting: dict[int, Call] = {}
        self._waits = 0

    def __exit__(self, *_: object) -> None:
        return None

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for call in waiting.values():
            self._world.after(0.0, self._loop.awake, partial(call.resume, True))

    def wait_for(self, predicate: Callable[[], bool], seconds: float) -> bool:
        call = running_call()
        assert call is not None
        until_s = self._world.now_s + seconds
        while not predicate() and self._world.now_s < until_s:
            self._waits += 1
            self._waiting[self._waits] = call
            self._world.after(until_s - self._world.now_s, self._wake, self._waits)
            call.wait()
        return predicate()

    def _wake(self, number: int) -> None:
        call = self._waiting.pop(number, None)
        if call is not None:
            self._loop.awake(partial(call.resume, False))


def sleep_in_the_world(election: TreeAuditorElection, world: World, loop: SimLoop) -> None:
    """Have a candidate wait for the world, where it would wait for another thread."""
    condition: object = _Condition(world, loop)
    assert isinstance(election._changed, type(threading.Condition()))
    election._changed = condition  # type: ignore[assignment]
