"""Entries that were asked for together and found in several places, each place's in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bkctl.engine.cache.record_batch import bodies_of

_SIZE_BYTES = 4


class ScatteredRecords(NamedTuple):
    """Entries of one place: a log, or the caches.

    ``indices`` says which of the entries that were asked for these are, ascending. ``records`` are their
    length words and bodies in this order, and ``sizes`` are the bytes of the bodies.
    """

    indices: Sequence[int]
    records: bytes
    sizes: Sequence[int]


def bodies_found(asked: int, parts: Sequence[ScatteredRecords]) -> list[bytes | None]:
    """Return the bodies of the ``asked`` entries, in the order in which they were asked for.

    None stands for an entry that no part has.
    """
    bodies: list[bytes | None] = [None] * asked
    for part in parts:
        for index, body in zip(part.indices, bodies_of(part.records), strict=True):
            bodies[index] = body
    return bodies


def records_of(bodies: Sequence[bytes]) -> bytes:
    """Return bodies as records, each behind its length."""
    return b"".join([len(body).to_bytes(_SIZE_BYTES, "big") + body for body in bodies])


def records_in_order(asked: int, parts: Sequence[ScatteredRecords]) -> tuple[bytes, int]:
    """Return the records in the order in which the entries were asked for, and their number.

    They end in front of the first entry that none of the parts has.
    """
    if len(parts) == 1 and len(parts[0].indices) == asked:
        # A part keeps the order in which its entries were asked for.
        return parts[0].records, asked
    pieces: list[bytes | None] = [None] * asked
    for indices, records, sizes in parts:
        position = 0
        for index, size in zip(indices, sizes, strict=True):
            end = position + _SIZE_BYTES + size
            pieces[index] = records[position:end]
            position = end
    there = pieces.index(None) if None in pieces else asked
    return b"".join([piece for piece in pieces[:there] if piece is not None]), there
