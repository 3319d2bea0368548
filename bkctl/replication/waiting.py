"""Waiting for an event or a time, passed in so that a test can move the time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol


class Wait(Protocol):
    """A way to wait."""

    async def __call__(self, event: asyncio.Event, seconds: float | None) -> None:
        """Return when ``event`` is set or ``seconds`` have passed; None waits for the event alone."""


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> None:
    """Wait by the event loop's own time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if seconds is None else max(seconds, 0.0)):
            await event.wait()
