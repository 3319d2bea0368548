"""Connections to bookies while the metadata store is away."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from bkctl.client.addresses import AddressBook
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.settings import ClientSettings
from bkctl.codec.bookie_service_info import (
    BOOKIE_RPC,
    BookieServiceInfo,
    Endpoint,
    encode_bookie_service_info,
)
from bkctl.errors import ConnectionFailedError, NotFoundError
from bkctl.metadata.api import Registration, RegistrationManager, RegistrationMode
from bkctl.server.life.embedded import LocalCluster

#: Far above what a look-up takes that is answered, also on a machine that is busy.
PATIENCE_S = 0.5


class StoreThatMayBeAway:
    """A registration whose look-ups wait, as those of ZooKeeper do, while the store is away."""

    def __init__(self, real: RegistrationManager | None = None) -> None:
        self._real = real
        self.registered: dict[str, tuple[str, int]] = {}
        self.is_there = threading.Event()
        self.is_there.set()
        self.looked_up: list[str] = []

    def registration(self, bookie: str) -> Registration | None:
        self.looked_up.append(bookie)
        if not self.is_there.wait(30):
            raise ConnectionFailedError("the store was away for 30 s")
        if self._real is not None:
            return self._real.registration(bookie)
        address = self.registered.get(bookie)
        if address is None:
            return None
        endpoint = Endpoint("bookie", address[1], address[0], BOOKIE_RPC)
        info = encode_bookie_service_info(BookieServiceInfo((endpoint,)))
        return Registration(bookie, RegistrationMode.WRITABLE, info, 0)


@contextlib.contextmanager
def an_address_book() -> Iterator[tuple[AddressBook, StoreThatMayBeAway]]:
    store = StoreThatMayBeAway()
    book = AddressBook(cast("RegistrationManager", store), PATIENCE_S)
    try:
        yield book, store
    finally:
        store.is_there.set()
        book.close()


def test_the_last_known_address_counts_while_the_store_is_away() -> None:
    async def check() -> None:
        with an_address_book() as (book, store):
            store.registered = {"one": ("10.0.0.1", 3181)}
            assert await book.resolve("one") == ("10.0.0.1", 3181)
            store.registered = {"one": ("10.0.0.2", 3181)}
            store.is_there.clear()
            assert await book.resolve("one") == ("10.0.0.1", 3181)
            store.is_there.set()
            assert await book.resolve("one") == ("10.0.0.2", 3181)

    asyncio.run(check())


def test_an_id_of_host_and_port_counts_where_nothing_is_known() -> None:
    async def check() -> None:
        with an_address_book() as (book, store):
            store.is_there.clear()
            assert await book.resolve("bookie-3:3181") == ("bookie-3", 3181)
            with pytest.raises(NotFoundError, match=r"no answer within 0.5 s, and its id is no host:port"):
                await book.resolve("three")

    asyncio.run(check())


def test_a_store_that_says_that_nobody_is_there_is_believed() -> None:
    """Another bookie may have the address by now: it would say that it has no entry."""

    async def check() -> None:
        with an_address_book() as (book, store):
            store.registered = {"one": ("10.0.0.1", 3181)}
            await book.resolve("one")
            store.registered = {}
            with pytest.raises(NotFoundError, match="is not registered"):
                await book.resolve("one")

    asyncio.run(check())


def test_look_ups_that_wait_are_bounded_and_one_a_bookie() -> None:
    async def check() -> None:
        with an_address_book() as (book, store):
            store.is_there.clear()
            many = [book.resolve(f"bookie-{number % 10}:3181") for number in range(50)]
            assert len(await asyncio.gather(*many)) == 50
            assert len(store.looked_up) <= 4
            assert len(book._asked) == 10
            store.is_there.set()
            assert await book.resolve("bookie-0:3181") == ("bookie-0", 3181)

    asyncio.run(check())


def test_a_closed_ledger_is_read_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is open, and has no connection to any bookie yet; metadata has its threads to itself."""

    async def check(cluster: LocalCluster) -> None:
        async with (
            await BookKeeper.connect(cluster.metadata_uri) as client,
            await client.create(3, 2, 2) as ledger,
        ):
            for number in range(5):
                await ledger.append(b"%d" % number)
        settings = ClientSettings(metadata_threads=1)
        async with await BookKeeper.connect(cluster.metadata_uri, settings) as client:
            store = StoreThatMayBeAway(client.store.registration)
            monkeypatch.setattr(client.store.registration, "registration", store.registration)
            reader = await client.open(ledger.ledger)
            store.is_there.clear()
            try:
                found = await reader.read(0, 4)
                assert [entry.payload for entry in found] == [b"0", b"1", b"2", b"3", b"4"]
                assert (await client.read_metadata(ledger.ledger)).metadata == reader.metadata
            finally:
                store.is_there.set()

    with LocalCluster(3, tmp_path) as cluster:
        asyncio.run(check(cluster))
