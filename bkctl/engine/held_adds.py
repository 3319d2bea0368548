"""The adds that found no room in a write cache or in a journal's queue, in the order of their arrival.

The write stage has one of these and calls it under the engine lock; this module has neither a lock nor a
thread. It is bounded by entries and bytes, and an add that finds it full is refused.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bkctl.engine.engine_thread import Actions, logged_failure
from bkctl.errors import BkctlError
from bkctl.metrics.stage import StageMeter

_RETRYING = "adding entries that waited for room"


@dataclass(frozen=True, slots=True)
class HeldAddsSettings:
    """Bounds of the adds that are held."""

    held_entries_max: int = 10_000
    held_bytes_max: int = 64 << 20


class Outcome(enum.Enum):
    """The result of an attempt to append an add, or a run of adds."""

    ADDED = enum.auto()
    NO_ROOM = enum.auto()
    #: The run must be taken apart, the single add was refused.
    NOT_AS_IS = enum.auto()


@dataclass(slots=True)
class HeldAdd:
    """An add, or a run of adds, that waits since ``since_s``.

    ``attempt`` is called under the lock, ``again`` and ``fail`` without.
    """

    attempt: Callable[[Actions], Outcome]
    again: Callable[[], None]
    fail: Callable[[BkctlError], None]
    entries: int
    size_bytes: int
    since_s: float


class HeldAdds:
    """A queue of adds that wait; ``meter`` shows its length in entries."""

    def __init__(self, settings: HeldAddsSettings, meter: StageMeter) -> None:
        self._settings = settings
        self._meter = meter
        self._adds: deque[HeldAdd] = deque()
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._adds)

    @property
    def oldest_since_s(self) -> float | None:
        """The time at which the first add began to wait, None when none does."""
        return self._adds[0].since_s if self._adds else None

    def hold(self, add: HeldAdd) -> bool:
        """Queue an add that found no room; False when the queue is full, too."""
        entries, size_bytes = self._meter.length + add.entries, self.size_bytes + add.size_bytes
        # A run that is larger than the bounds by itself may wait alone.
        full = entries > self._settings.held_entries_max or size_bytes > self._settings.held_bytes_max
        if self._adds and full:
            self._meter.rejected += add.entries
            return False
        self._adds.append(add)
        self._meter.length, self.size_bytes = entries, size_bytes
        return True

    def retry(self, actions: Actions, now_s: float) -> None:
        """Try the adds again, one after the other, until one finds no room.

        An attempt that raises has appended nothing, whatever the error is: it fails its own add, as it does
        that of a caller who finds room at once, and the others go on.
        """
        while self._adds:
            add = self._adds[0]
            try:
                outcome = add.attempt(actions)
            except Exception as error:  # noqa: BLE001
                # The journal has failed, mostly: nothing can be written any more.
                actions.append(partial(add.fail, logged_failure(_RETRYING, error)))
                self._drop_first()
                continue
            if outcome is Outcome.NO_ROOM:
                return
            if outcome is Outcome.NOT_AS_IS:
                actions.append(add.again)
            self._drop_first()
            self._meter.waited.add(now_s - add.since_s, add.entries)

    def reject(self, actions: Actions, error: BkctlError, now_s: float, *, wait_ms: int) -> None:
        """Reject the adds that have waited for ``wait_ms`` or longer."""
        while self._adds and (now_s - self._adds[0].since_s) * 1000 >= wait_ms:
            add = self._adds[0]
            actions.append(partial(add.fail, error))
            self._drop_first()
            self._meter.rejected += add.entries

    def fail_all(self, actions: Actions, error: BkctlError) -> None:
        """Fail every add for an error that ended the write stage."""
        while self._adds:
            actions.append(partial(self._adds[0].fail, error))
            self._drop_first()

    def _drop_first(self) -> None:
        """Drop the first add, which was appended or whose answer is among the actions."""
        add = self._adds.popleft()
        self._meter.length -= add.entries
        self.size_bytes -= add.size_bytes
