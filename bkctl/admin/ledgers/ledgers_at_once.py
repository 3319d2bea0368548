"""Work on many ledgers, some of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

_Outcome = TypeVar("_Outcome")


async def ledgers_at_once(
    ledgers: Iterable[int], work: Callable[[int], Coroutine[Any, Any, _Outcome]], at_once: int
) -> AsyncGenerator[list[_Outcome]]:
    """Do the work on each ledger, ``at_once`` at a time; yield the outcomes as they come.

    The work that still runs is cancelled when the iteration ends early.
    """
    waiting = iter(ledgers)
    running: set[asyncio.Task[_Outcome]] = set()
    try:
        while True:
            while len(running) < at_once and (ledger := next(waiting, None)) is not None:
                running.add(asyncio.create_task(work(ledger)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            yield [task.result() for task in done]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
