"""Writes a small ledger to one bookie, reads it back and deletes it (Java: ``BookieSanityService``)."""

from __future__ import annotations

import logging

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.machine import ChooseBookies
from bkctl.clock import SystemClock
from bkctl.errors import BkctlError

_log = logging.getLogger(__name__)
_ENTRIES = 10


class OneBookie:
    """Chooses one bookie and no other."""

    def __init__(self, bookie: str) -> None:
        self._bookie = bookie

    def choose(self, request: ChooseBookies) -> tuple[str, ...]:
        """Choose bookies as :class:`bkctl.client.driver.BookieChoice` says."""
        return () if self._bookie in request.exclude else (self._bookie,)


async def is_sane(client: BookKeeper, bookie: str) -> bool:
    """Return whether the entries come back as they were written; why not is logged."""
    choosing = BookKeeper(client.store, client.settings, choice=OneBookie(bookie))
    try:
        return await _write_and_read(choosing)
    except BkctlError as error:
        _log.warning("the sanity test failed: %s", error)
        return False
    finally:
        await choosing.close()


async def _write_and_read(client: BookKeeper) -> bool:
    stamp = SystemClock().time_ms()
    wanted = [f"{stamp} {number}".encode() for number in range(_ENTRIES)]
    ledger = await client.create(1, 1, 1)
    try:
        for payload in wanted:
            await ledger.append(payload)
        await ledger.close()
        reader = await client.open(ledger.ledger)
        found = [entry.payload for entry in await reader.read(0, _ENTRIES - 1)]
    finally:
        ledger.abandon()
        await client.delete(ledger.ledger)
    if found != wanted:
        _log.error("ledger %d came back otherwise than it was written", ledger.ledger)
    return found == wanted
