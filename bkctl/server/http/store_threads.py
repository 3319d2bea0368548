"""Threads in which requests wait for the metadata store, and for nothing else.

A store that is away keeps each of them for the whole time of an operation. The threads of the event loop are
others, so that disks are asked, a mode is changed and the bookie is stopped all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Calls of the store at a time; further ones wait for their turn.
CALLS_MAX = 8


class StoreThreads:
    """The threads of one HTTP server; they begin with the first call."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="http-metadata")

    async def call(self, function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
        """Return what ``function`` returns; a caller that is cancelled gives its turn back."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments, **options))

    def close(self) -> None:
        """Begin no call any more; those that are under way end with the store, and are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
