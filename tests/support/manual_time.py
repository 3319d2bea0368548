"""A clock that a test moves, and waits that it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.support.manual_clock import ManualClock


class ManualTime(ManualClock):
    """A clock whose :meth:`wait` ends when the event is set or :meth:`pass_by` has moved far enough."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = asyncio.Event()
        self._dues_s: list[float] = []

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        due_s = float("inf") if seconds is None else self.monotonic() + seconds
        self._dues_s.append(due_s)
        try:
            while not event.is_set() and self.monotonic() < due_s:
                await self._until_moved(event)
        finally:
            self._dues_s.remove(due_s)

    async def _until_moved(self, event: asyncio.Event) -> None:
        ends = [asyncio.ensure_future(each.wait()) for each in (event, self._moved)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def until_somebody_waits(self, seconds: float) -> None:
        """Wait, in real time, until somebody waits who still has so long to go."""
        await eventually(
            lambda: any(abs(due_s - self.monotonic() - seconds) < 1e-6 for due_s in self._dues_s)
        )

    async def pass_by(self, seconds: float) -> None:
        """Move the clock, and let everybody who waited for that go on."""
        self.advance(seconds)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        await asyncio.sleep(0)


async def eventually(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait, in real time, until calling ``what`` gives something true."""
    async with asyncio.timeout(seconds):
        while not what():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
