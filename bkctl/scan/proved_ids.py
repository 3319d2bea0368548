"""Prove which entry a record is whose ledger id or entry id is damaged.

The digest of an entry covers its ids. When it fails, and checks with other ids in their place, the record is
the entry that has those ids: for a checksum of 32 bits the chance of an error is 2^-32 for each pair of ids
that is tried. Tried are ids with one bit changed, and other ledgers' ids as a whole. Only checksums that need
no key are computed (CRC-32C, CRC-32).

Source: ``org.apache.bookkeeper.proto.checksum.DigestManager`` for the bytes that a digest covers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bkctl.codec.digest import Digester
from bkctl.types import DigestType

#: The digests that can be checked without a password.
KEYLESS_DIGESTERS = (Digester(DigestType.CRC32C), Digester(DigestType.CRC32))

_IDS = struct.Struct(">qq")
#: The highest bit of an id is its sign, and no id is negative.
_ID_BITS = 63


class EntryIds(NamedTuple):
    """The ids of one entry."""

    ledger: int
    entry: int


def proves_itself(body: bytes) -> bool:
    """Return whether the digest of an entry is a CRC-32C or a CRC-32 that checks."""
    return any(digester.checks(body) for digester in KEYLESS_DIGESTERS)


def proved_ids(body: bytes, ledgers: Iterable[int] = ()) -> EntryIds | None:
    """Return the ids under which the digest of an entry checks, None where no pair that is tried does.

    ``body`` is a whole entry whose digest fails; ``ledgers`` are other ids that its ledger may have.
    """
    if len(body) < _IDS.size:
        return None
    return first_proved(body, ((ids, KEYLESS_DIGESTERS) for ids in _candidates(ids_of(body), ledgers)))


def first_proved(body: bytes, trials: Iterable[tuple[EntryIds, Iterable[Digester]]]) -> EntryIds | None:
    """Return the first ids of which one of the digests beside them checks, in the place of an entry's own."""
    for ids, digesters in trials:
        changed = with_ids(body, ids)
        if any(digester.checks(changed) for digester in digesters):
            return ids
    return None


def trials_max(ledgers: int) -> int:
    """Return how many checksums :func:`proved_ids` computes at most, for a number of other ledgers."""
    return (2 * _ID_BITS + ledgers) * len(KEYLESS_DIGESTERS)


def with_ids(body: bytes, ids: EntryIds) -> bytes:
    """Return an entry with these ids in the place of its own."""
    return _IDS.pack(*ids) + body[_IDS.size :]


def ids_of(body: bytes) -> EntryIds:
    """Return the ids that an entry says it has."""
    return EntryIds(*_IDS.unpack_from(body))


def near_ids(own: int) -> Iterator[int]:
    """Yield the ids that differ from one in a single bit. Of a negative id there are none."""
    if own >= 0:
        yield from (own ^ 1 << bit for bit in range(_ID_BITS))


def _candidates(own: EntryIds, ledgers: Iterable[int]) -> Iterator[EntryIds]:
    """Yield pairs of ids that differ from an entry's own, none of them negative."""
    if own.entry >= 0:
        yield from (EntryIds(ledger, own.entry) for ledger in near_ids(own.ledger))
    if own.ledger >= 0:
        yield from (EntryIds(own.ledger, entry) for entry in near_ids(own.entry))
    if own.entry >= 0:
        yield from (EntryIds(ledger, own.entry) for ledger in ledgers if ledger != own.ledger)
