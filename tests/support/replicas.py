"""Reading each replica of a ledger alone: which copies there are, proved by their digests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.distribution import Distribution, segment_of
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError
from bkctl.protocol.messages import ReadRequest, ReadResponse
from bkctl.types import ResultCode
from tests.support.waiting import WAIT_S


@dataclass(frozen=True, slots=True)
class Replica:
    """What one bookie that metadata name says of one entry; ``payload`` None without a good copy."""

    entry: int
    index: int
    bookie: str
    payload: bytes | None


async def read_replica(client: BookKeeper, access: LedgerAccess, entry: int, bookie: str) -> bytes | None:
    """The payload of an entry at one bookie; None without a good copy."""
    try:
        answer = await client.pool.request(bookie, ReadRequest(access.ledger, entry), 30)
    except BkctlError:
        return None
    assert isinstance(answer, ReadResponse)
    if answer.code is not ResultCode.OK:
        return None
    found = access.checked(answer.body, entry, bookie)
    return found.payload if isinstance(found, LedgerEntry) else None


async def replicas_of(client: BookKeeper, ledger: int, last_entry: int | None = None) -> list[Replica]:
    """Every replica that metadata name of every entry, up to ``last_entry`` of a ledger that is open."""
    metadata = (await client.read_metadata(ledger)).metadata
    access = LedgerAccess.of(ledger, metadata)
    distribution = Distribution.of(metadata)
    last = metadata.last_entry if last_entry is None else last_entry
    places = [
        (entry, index, segment_of(metadata, entry).bookies[index])
        for entry in range(last + 1)
        for index in distribution.write_set(entry)
    ]
    found: list[Replica] = []
    for at in range(0, len(places), 64):
        part = places[at : at + 64]
        payloads = await asyncio.gather(*[read_replica(client, access, e, bookie) for e, _, bookie in part])
        found += [Replica(*place, payload) for place, payload in zip(part, payloads, strict=True)]
    return found


async def assert_whole(client: BookKeeper, ledger: int, payloads: list[bytes]) -> LedgerMetadata:
    """Every entry is on every bookie of its write set, with the writer's bytes; the metadata."""
    stored = (await client.read_metadata(ledger)).metadata
    assert stored.last_entry == len(payloads) - 1, f"ledger {ledger}: {stored}"
    bad = [one for one in await replicas_of(client, ledger) if one.payload != payloads[one.entry]]
    assert not bad, f"ledger {ledger}: {bad[:5]} of {stored}"
    for segment in stored.segments:
        assert len(set(segment.bookies)) == len(segment.bookies), stored
    return stored


async def wait_for(what: object, saying: str) -> None:
    """Until ``what()`` is true, while the event loop goes on."""
    assert callable(what)
    for _ in range(int(WAIT_S / 0.02) + 1):
        if what():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(saying)
