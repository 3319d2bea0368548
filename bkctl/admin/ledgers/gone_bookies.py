"""Entries of a ledger that have fewer copies than their write quorum, because a bookie is gone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bkctl.client.distribution import Distribution, segment_entries
from bkctl.codec.ledger_metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class GoneBookie:
    """A bookie of a ledger's ensembles that is gone, why that is known, and how many entries it held."""

    bookie: str
    why: str
    entries: int


def gone_bookies(
    metadata: LedgerMetadata, end: int, registered: Collection[str], with_cookie: Collection[str]
) -> list[GoneBookie]:
    """Return the gone bookies that hold entries below ``end``, ascending by id."""
    distribution = Distribution.of(metadata)
    held: dict[str, int] = {}
    for segment, entries in segment_entries(metadata, end):
        for index, bookie in enumerate(segment.bookies):
            held[bookie] = held.get(bookie, 0) + _held(distribution, index, entries)
    found = []
    for bookie, count in sorted(held.items()):
        lacks = [
            lack
            for lack, names in (("is not registered", registered), ("has no cookie", with_cookie))
            if bookie not in names
        ]
        if count and lacks:
            found.append(GoneBookie(bookie, " and ".join(lacks), count))
    return found


def _held(distribution: Distribution, index: int, entries: range) -> int:
    """Return how many of the entries go to an index of the ensemble."""
    whole, rest = divmod(len(entries), distribution.ensemble_size)
    last = entries[len(entries) - rest :]
    return whole * distribution.write_quorum + sum(distribution.holds(index, entry) for entry in last)
