"""``ledger doctor`` on a ledger of very many segments of which nothing can be read: it comes to an end."""

from __future__ import annotations

import asyncio
from typing import cast

from bkctl.admin.ledgers.ledger_doctor import READS_AT_ONCE, UNREADABLE_MAX, _unreadable
from bkctl.client.ledger_handle import ReadOnlyLedgerHandle
from bkctl.codec.ledger_metadata import Segment
from bkctl.errors import ConnectionFailedError
from bkctl.types import LedgerState
from tests.support.machine_rig import metadata

SEGMENTS = 10_000


class Reader:
    """A ledger whose entries from ``lost_from`` on no bookie has."""

    def __init__(self, lost_from: int) -> None:
        self.lost_from = lost_from
        self.asked: list[int] = []

    async def read(self, first: int, last: int) -> None:
        self.asked.append(first)
        if first >= self.lost_from:
            raise ConnectionFailedError("nobody answers")


def examined(reader: Reader) -> list[str]:
    segments = tuple(Segment(first, ("a", "b", "c")) for first in range(SEGMENTS))
    stored = metadata(segments=segments, state=LedgerState.CLOSED, last_entry=SEGMENTS - 1)
    return asyncio.run(_unreadable(cast("ReadOnlyLedgerHandle", reader), stored))


def test_every_segment_is_tried() -> None:
    reader = Reader(SEGMENTS - 1)
    assert examined(reader) == [f"entry {SEGMENTS - 1} cannot be read: nobody answers"]
    assert reader.asked == list(range(SEGMENTS))


def test_enough_is_enough() -> None:
    reader = Reader(100)
    found = examined(reader)
    assert len(reader.asked) <= 100 + UNREADABLE_MAX + READS_AT_ONCE
    assert found[0] == "entry 100 cannot be read: nobody answers"
    assert found[-1] == f"entries behind {reader.asked[-1]} were not tried any more"
    assert len(found) - 1 == len(reader.asked) - 100
