"""The questions that the repair of a ledger asks of the world, so that a simulation can be that world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.machine import Machine
from bkctl.metadata.api import RegisteredBookies, StoredLedger

_Value = TypeVar("_Value")


class Steps(Protocol):
    """The steps of a work on a ledger. An error of a machine or of the store is raised as it is."""

    async def run(self, machine: Machine) -> object:
        """Run a machine of the client to its end and return its value."""

    async def pause(self, seconds: float) -> None:
        """Wait for so many seconds."""

    async def stored(self, ledger: int) -> StoredLedger:
        """Read a ledger's metadata. Raises NoSuchLedgerError, CorruptionError."""

    async def registered(self) -> RegisteredBookies:
        """Return the bookies that are up."""

    async def call(self, blocking: Callable[[], _Value]) -> _Value:
        """Return what a blocking call of the metadata store gives."""

    def slow_bookies(self) -> frozenset[str]:
        """Return the bookies that keep this client waiting now."""


class ClientSteps:
    """The steps of a client on its event loop."""

    def __init__(self, client: BookKeeper) -> None:
        self._client = client

    async def run(self, machine: Machine) -> object:
        return await self._client.run(machine)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def stored(self, ledger: int) -> StoredLedger:
        return await self._client.read_metadata(ledger)

    async def registered(self) -> RegisteredBookies:
        return await self.call(self._client.store.registration.bookies)

    async def call(self, blocking: Callable[[], _Value]) -> _Value:
        return await self._client.in_thread(blocking)

    def slow_bookies(self) -> frozenset[str]:
        return self._client.slow_bookies()
