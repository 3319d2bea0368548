"""Recovering many ledgers: so many at a time, and none is left running when the caller goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NoReturn, cast

from bkctl.admin.ledgers.ledger_recovery import recover_ledgers
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.ops.recovery import RecoverySettings
from bkctl.errors import ConnectionFailedError

AT_ONCE = 3


class Client:
    """Counts the ledgers that are being recovered; none of them can be."""

    def __init__(self) -> None:
        self.running = self.most = self.ended = 0

    async def read_metadata(self, ledger: int) -> NoReturn:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(1 + 50 * (ledger % 7)):
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        self.ended += 1
        raise ConnectionFailedError(f"ledger {ledger}: nobody answers")


def recovering(client: Client, ledgers: Iterator[int]) -> Any:
    return recover_ledgers(cast("BookKeeper", client), ledgers, RecoverySettings(), at_once=AT_ONCE)


def test_so_many_at_a_time_and_every_one_is_told() -> None:
    client = Client()

    async def check() -> list[int]:
        told = []
        async for batch in recovering(client, iter(range(40))):
            assert all(isinstance(facts.error, ConnectionFailedError) for facts in batch)
            told += [facts.ledger for facts in batch]
        return told

    assert sorted(asyncio.run(check())) == list(range(40))
    assert (client.most, client.running) == (AT_ONCE, 0)


def test_ids_are_taken_as_there_is_room_and_a_caller_that_leaves_ends_what_runs() -> None:
    client = Client()
    taken: list[int] = []

    def ids() -> Iterator[int]:
        for ledger in range(1_000):
            taken.append(ledger)
            yield ledger

    async def check() -> None:
        found = recovering(client, ids())
        await anext(found)
        await found.aclose()

    asyncio.run(check())
    assert len(taken) == AT_ONCE
    assert client.running == 0
    assert client.ended < AT_ONCE
