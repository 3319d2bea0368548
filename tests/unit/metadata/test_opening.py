"""A store that a cancelled task has opened is closed, and its connect is given up."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from bkctl.metadata.api import MetadataStore
from bkctl.metadata.opening import open_on_thread


class Store:
    uri = "memory://x"

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.close = self.closed.set


def test_a_store_that_comes_behind_the_cancellation_is_closed() -> None:
    store, begun = Store(), threading.Event()

    def opens(given_up: threading.Event) -> MetadataStore:
        begun.set()
        assert given_up.wait(20), "the connect was not given up"
        return cast("MetadataStore", store)

    async def check() -> None:
        opening = asyncio.create_task(open_on_thread(opens))
        await asyncio.to_thread(begun.wait, 20)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(check())
    assert store.closed.is_set()


def test_a_store_that_came_in_front_of_the_cancellation_is_closed() -> None:
    store, opened = Store(), threading.Event()

    def opens(_: threading.Event) -> MetadataStore:
        opened.set()
        return cast("MetadataStore", store)

    async def check() -> None:
        opening = asyncio.create_task(open_on_thread(opens))
        await asyncio.sleep(0)
        # The loop does not come to the answer in between.
        assert opened.wait(20)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(check())
    assert store.closed.is_set()


def test_a_store_that_is_waited_for_stays_open() -> None:
    store = Store()
    assert asyncio.run(open_on_thread(lambda _: cast("MetadataStore", store))) is cast("MetadataStore", store)
    assert not store.closed.is_set()
