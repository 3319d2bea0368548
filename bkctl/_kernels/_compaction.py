"""Records that live, copied to where they go next, and columns that go with them: the reference in Python."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Container
from itertools import accumulate, chain, compress, count, islice, pairwise
from operator import ne

from bkctl._kernels._columns import column_of, numbers_of

_I64 = struct.Struct(">q")
_KEY_BYTES = 16
_LOCATION_MAX = (1 << 63) - 1
_SWAP = sys.byteorder == "little"


def records_but(
    starts: bytes, sizes: bytes, ledgers: bytes, entries: bytes, dead: Container[int]
) -> tuple[bytes, bytes, bytes]:
    """Return starts, sizes and joined keys of the records whose ledgers are not among ``dead``."""
    if len(starts) % _I64.size or not len(starts) == len(sizes) == len(ledgers) == len(entries):
        raise ValueError("columns of different lengths")
    ids = numbers_of(ledgers)
    gone = {ledger for ledger in set(ids) if ledger in dead}
    alive = [ledger not in gone for ledger in ids]
    keys = chain.from_iterable(compress(zip(ids, numbers_of(entries), strict=True), alive))
    return (
        column_of(list(compress(numbers_of(starts), alive))),
        column_of(list(compress(numbers_of(sizes), alive))),
        struct.pack(f">{2 * sum(alive)}q", *keys),
    )


def gather_at(
    buffer: bytes, starts: bytes, sizes: bytes, found: bytes, first: int
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return keys, records, ends and places of the records that are where ``found`` says."""
    if len(starts) % _I64.size or not len(starts) == len(sizes) == len(found):
        raise ValueError("columns of different lengths")
    if not 0 <= first <= _LOCATION_MAX - len(buffer):
        raise ValueError("no location of a log")
    records: list[bytes] = []
    places: list[int] = []
    for start, size, place in zip(numbers_of(starts), numbers_of(sizes), numbers_of(found), strict=True):
        if start < 0 or size < _KEY_BYTES or start + 4 + size > len(buffer):
            raise ValueError("a record outside of the buffer, or shorter than its key")
        if place == first + start:
            records.append(buffer[start : start + 4 + size])
            places.append(place)
    keys = b"".join([record[4 : 4 + _KEY_BYTES] for record in records])
    return keys, b"".join(records), column_of(list(accumulate(map(len, records)))), column_of(places)


def shifted(column: bytes, number: int) -> bytes:
    """Return the column with ``number`` added to each of its numbers."""
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError("the number has no place in a column")
    try:
        return column_of([each + number for each in numbers_of(column)])
    except OverflowError:
        raise ValueError("a sum has no place in a column") from None


def pieces_of(joined: bytes, size_bytes: int) -> list[bytes]:
    """Return the pieces of so many bytes each that are joined."""
    if size_bytes < 1 or len(joined) % size_bytes:
        raise ValueError("not a whole number of pieces")
    return list(chain.from_iterable(struct.Struct(f"{size_bytes}s").iter_unpack(joined)))


def size_bounds(ends: bytes) -> tuple[int, int]:
    """Return the smallest and the largest size of pieces that end at ``ends``."""
    sizes = [end - start for start, end in pairwise([0, *numbers_of(ends)])]
    if min(sizes, default=0) < 0:
        raise ValueError("ends do not ascend")
    return min(sizes, default=0), max(sizes, default=0)


def ledger_sums(keys: bytes, bounds: bytes) -> tuple[bytes, bytes]:
    """Return ledgers and the bytes of their records, for each run of records of one ledger."""
    places = array("q", bounds)
    if len(keys) % _KEY_BYTES or len(places) != len(keys) // _KEY_BYTES + 1:
        raise ValueError("columns of different lengths")
    ledgers = array("q", keys)[::2]
    if _SWAP:
        ledgers.byteswap()
    starts = [0, *compress(count(1), map(ne, ledgers, islice(ledgers, 1, None)))] if ledgers else []
    sums = [places[stop] - places[start] for start, stop in pairwise([*starts, len(ledgers)])]
    try:
        return column_of([ledgers[start] for start in starts]), column_of(sums)
    except OverflowError:
        raise ValueError("a sum has no place in a column") from None
