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

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        due_s = None if seconds is None else self.monotonic() + seconds
        while not event.is_set() and (due_s is None or self.monotonic() < due_s):
            ends = [asyncio.ensure_future(each.wait()) for each in (event, self._moved)]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()

    async def pass_by(self, seconds: float) -> None:
        """Move the clock, and let everybody who waited for that go on."""
        self.advance(seconds)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        await asyncio.sleep(0)


async def eventually(what: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait, in real time, until calling ``what`` gives something true."""
    async with asyncio.timeout(seconds):
        while not what():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
