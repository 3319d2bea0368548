"""Samples without a screen: one that is worth printing, or one after another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from bkctl.admin.top.sample import ClusterSample
from bkctl.admin.top.source import Replay, SampleSource
from bkctl.errors import ConnectionFailedError


async def sample_once(source: SampleSource, interval_s: float) -> ClusterSample:
    """Sample what happens in the ``interval_s`` seconds that this takes; of a recording, its last sample.

    The source is closed. Raises ConnectionFailedError when the metadata store named no bookie.
    """
    try:
        if isinstance(source, Replay):
            return source.seek(source.count - 1)
        await _first(source)
        await asyncio.sleep(interval_s)
        return await source.sample()
    finally:
        await source.close()


async def samples(source: SampleSource, interval_s: float) -> AsyncGenerator[ClusterSample, None]:
    """Yield a sample every ``interval_s`` seconds, for ever; of a recording all samples at once, in order.

    An interval that was missed because a sample took longer is left out. Raises as :func:`sample_once`.
    """
    if isinstance(source, Replay):
        for number in range(source.count):
            yield source.seek(number)
        return
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    await _first(source)
    while True:
        due_s = max(due_s + interval_s, loop.time())
        await asyncio.sleep(due_s - loop.time())
        yield await source.sample()


async def _first(source: SampleSource) -> None:
    """Take the counters to compare with."""
    sample = await source.sample()
    if not sample.bookies:
        raise ConnectionFailedError(sample.discovery_error or "no bookie is registered")
