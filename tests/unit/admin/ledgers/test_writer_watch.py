"""A writer that is at work is seen also where not all of its bookies tell what they have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from bkctl.admin.ledgers.writer_watch import written_ledgers
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import NoAnswerError, TooFewAnswersError
from bkctl.client.ops.read_lac import LacResult, ReplicaLac
from bkctl.metadata.api import StoredLedger
from tests.support.machine_rig import metadata

LEDGER = 7
STRIPED = metadata(4, 2, 2)


@dataclass
class Client:
    """Bookies of a ledger that grows by one entry with each reading; who answers first is the test's."""

    answering: Sequence[set[int]]
    silent: set[int] = field(default_factory=set)
    is_written: bool = True
    readings: int = 0

    async def ask_replicas(
        self, ledger: int, *, fence: bool = False, password: bytes | None = None, wait_all: bool = False
    ) -> tuple[StoredLedger, LacResult]:
        assert not fence
        told = set(range(4)) if wait_all else self.answering[min(self.readings, 1)]
        told = told - self.silent
        if not wait_all and len(told) < 2:
            raise TooFewAnswersError("too few")
        self.readings += self.is_written
        # Every entry is on two of the four; the last four are everywhere.
        replicas = [
            ReplicaLac(index, "abcd"[index], True, 10 * self.readings, 10 * self.readings + 1)
            if index in told
            else ReplicaLac(index, "abcd"[index], False, error=NoAnswerError("too many requests"))
            for index in range(4)
        ]
        return StoredLedger(ledger, STRIPED, 0, 0), LacResult(10 * self.readings, 0, tuple(replicas))


def watched(client: Client) -> dict[int, str]:
    return asyncio.run(written_ledgers(cast("BookKeeper", client), [LEDGER], 0.0))


@pytest.mark.parametrize(
    "client",
    [
        Client([{0, 2}, {0, 2}]),
        # Nobody is among the first to answer both times.
        Client([{0, 2}, {1, 3}]),
        # Too few answer at all.
        Client([{0, 2}, {0, 2}], silent={1, 2, 3}),
    ],
)
def test_a_writer_at_work_is_seen(client: Client) -> None:
    assert LEDGER in watched(client)


@pytest.mark.parametrize("answering", [[{0, 2}, {0, 2}], [{0, 2}, {1, 3}]])
def test_a_ledger_on_which_nothing_moves_is_not_taken_for_written(answering: list[set[int]]) -> None:
    assert watched(Client(answering, is_written=False)) == {}


def test_a_ledger_of_which_nobody_tells_anything_is_left_to_who_works_on_it() -> None:
    assert watched(Client([{0, 2}, {0, 2}], silent={0, 1, 2, 3})) == {}
