"""Marking the ledgers of lost bookies.

Every ledger's metadata are read; the ledgers of lost bookies are marked with these bookies. Only one group of
ledgers is held at a time, because a lost bookie is recognized without the other groups: ledgers name it, it
is not up, and the auditor's watch over bookies does not spare it. A bookie that comes up during the check is
not lost. A bookie that goes during the check, when the watch has not seen it yet, is left to the next check.

Source: ``org.apache.bookkeeper.replication.AuditorBookieCheckTask``, ``BookieLedgerIndexer``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import CorruptionError
from bkctl.replication.auditor_office import LedgerRow, Office
from bkctl.replication.auditor_status import Measure


@dataclass(frozen=True, slots=True)
class BookieCheck:
    """The result of a check: the ledgers it read, those of them that name lost bookies, and these bookies."""

    ledgers: int
    under_replicated: int
    lost: frozenset[str]


async def check_bookies(office: Office) -> BookieCheck:
    """Mark the ledgers of all bookies that are lost.

    Raises NotElectedError and the store's errors; what was marked by then stays.
    """
    began_s = office.clock.monotonic()
    up = set(office.spared)
    lost: set[str] = set()
    ledgers = under_replicated = total_bytes = 0
    async for group in office.ledgers():
        ledgers += len(group)
        missing = _missing(office, group, up)
        if not missing:
            continue
        await office.until_enabled()
        up |= await office.up() | office.spared
        found = [(ledger, tuple(sorted(bookies - up)), size) for ledger, bookies, size in missing]
        found = [one for one in found if one[1]]
        await office.mark([(ledger, bookies) for ledger, bookies, _ in found])
        under_replicated += len(found)
        total_bytes += sum(size for _, _, size in found)
        lost.update(*(bookies for _, bookies, _ in found))
    took_ms = (office.clock.monotonic() - began_s) * 1000
    counts = office.counts
    counts.measure(Measure.METADATA_TIME, took_ms)
    if lost:
        counts.measure(Measure.UNDER_REPLICATED_LEDGERS, under_replicated)
        counts.measure(Measure.UNDER_REPLICATED_BYTES, total_bytes)
        counts.measure(Measure.PUBLISH_TIME, took_ms)
    return BookieCheck(ledgers, under_replicated, frozenset(lost))


def _missing(
    office: Office, group: list[LedgerRow], up: Collection[str]
) -> list[tuple[int, frozenset[str], int]]:
    """Return the ledgers that name bookies which are not up, with these and the ledger's length."""
    found = []
    for ledger, stored in group:
        if isinstance(stored, CorruptionError):
            office.note_undecodable(ledger, stored)
        elif stored is not None:
            bookies = named_bookies(stored.metadata).difference(up)
            if bookies:
                found.append((ledger, bookies, stored.metadata.length))
    return found


def named_bookies(metadata: LedgerMetadata) -> frozenset[str]:
    """Return every bookie that a ledger's metadata name."""
    return frozenset(bookie for segment in metadata.segments for bookie in segment.bookies)
