"""The portions in which the bytes of a journal's group are joined and written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from bkctl.engine.journal.batch import JournalBatch


def portions(batches: list[JournalBatch], bytes_max: int, padding: bytes = b"") -> Iterator[list[bytes]]:
    """Yield the pieces of all batches, then ``padding``, in lists of about ``bytes_max``; no piece is cut."""
    size_bytes = sum([batch.size_bytes for batch in batches])
    if size_bytes <= bytes_max:
        yield [*chain.from_iterable([batch.pieces for batch in batches]), padding]
        return
    held: list[JournalBatch] = []
    size_bytes = 0
    for batch in batches:
        if held and size_bytes + batch.size_bytes > bytes_max:
            yield from _cut(held, size_bytes, bytes_max)
            held, size_bytes = [], 0
        held.append(batch)
        size_bytes += batch.size_bytes
    parts = list(_cut(held, size_bytes, bytes_max))
    yield from parts[:-1]
    yield [*parts[-1], padding]


def _cut(batches: list[JournalBatch], size_bytes: int, bytes_max: int) -> Iterator[list[bytes]]:
    """Yield the pieces as one list; those of a batch that is too large by itself in lists of equal length."""
    pieces = list(chain.from_iterable([batch.pieces for batch in batches]))
    parts = max(-(-size_bytes // bytes_max), 1)
    per_part = max(-(-len(pieces) // parts), 1)
    yield pieces[:per_part]
    for at in range(per_part, len(pieces), per_part):
        yield pieces[at : at + per_part]
