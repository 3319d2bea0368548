"""The screens of ``bkctl top`` without a terminal: keys in, text out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from bkctl.tui.app import TopApp
from bkctl.tui.glyphs import UNICODE, Glyphs
from bkctl.tui.orders import Orders
from bkctl.tui.themes import TERMINAL
from bkctl.tui.watch import Watch
from tests.support.top_samples import FakeReplay, FakeSource

_TURNS_MAX = 2_000


class Operator:
    """Someone at the keyboard of one ``bkctl top``."""

    def __init__(self, app: TopApp, pilot: Pilot[None], source: FakeSource | FakeReplay) -> None:
        self.app = app
        self.source = source
        self.pilot = pilot

    @property
    def text(self) -> str:
        """What is on the terminal: rows without blanks at their ends."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    @property
    def rows(self) -> list[str]:
        return self.text.split("\n")

    def row_with(self, word: str) -> str:
        """The first row that has this word."""
        return next(row for row in self.rows if word in row)

    async def press(self, *keys: str) -> None:
        """One key after another, and whatever they cause."""
        for key in keys:
            await self.pilot.press(key)
        await self.pilot.pause(0)

    async def sample(self, times: int = 1) -> None:
        """Have the next samples taken and drawn."""
        for _ in range(times):
            wanted = self.app.watched.samples_taken + 1
            self.source.allow()
            self.app.action_update()
            await self._come_to(lambda wanted=wanted: self.app.watched.samples_taken >= wanted)
        await self.pilot.pause(0)

    async def until(self, true: Callable[[], bool]) -> None:
        """Let the event loop run until something is so, and drawn; fails when it never is."""
        await self._come_to(true)
        await self.pilot.pause(0)

    async def _come_to(self, true: Callable[[], bool]) -> None:
        for turn in range(_TURNS_MAX):
            if true():
                return
            await asyncio.sleep(0 if turn < 100 else 0.005)
        raise AssertionError(f"it never came to that; on the screen:\n{self.text}")


@asynccontextmanager
async def operating(
    source: FakeSource | FakeReplay,
    *,
    size: tuple[int, int] = (80, 24),
    glyphs: Glyphs = UNICODE,
    no_color: bool = False,
    interval_s: float = 1.0,
    first: bool = True,
    orders: Orders | None = None,
    theme: str = TERMINAL,
) -> AsyncIterator[Operator]:
    """An application with its ``first`` sample on the screen, or as it is without one."""
    app = TopApp(Watch(source, interval_s), glyphs, no_color=no_color, orders=orders, theme=theme)
    async with app.run_test(size=size) as pilot:
        operator = Operator(app, pilot, source)
        if first:
            await operator.until(lambda: app.watched.samples_taken > 0)
        await pilot.pause(0)
        yield operator


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run one test's coroutine."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())
