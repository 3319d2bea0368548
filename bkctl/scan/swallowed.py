"""Records that a wrong size word swallowed.

A size word that is too large by exactly the length of the following records leaves the chain whole. The
digest of the record does not check then, and it does check over the bytes up to the first record inside:
that proves the size wrong and the records inside real.
"""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.codec.entry import EntryBatch
from bkctl.scan.records import Item, RecordScan


def unswallow(scan: RecordScan, batch: EntryBatch, failing: frozenset[int]) -> Iterator[Item]:
    """Yield the batch with every failing record that swallowed others taken apart; see the module."""
    start = 0
    for index in sorted(failing):
        parts = _take_apart(scan, batch, index)
        if parts is None:
            continue
        if index > start:
            yield batch.select(list(range(start, index)))
        yield from parts
        start = index + 1
    if start == 0:
        yield batch
    elif start < len(batch):
        yield batch.select(list(range(start, len(batch))))


def _take_apart(scan: RecordScan, batch: EntryBatch, index: int) -> list[Item] | None:
    offset, size, ledger = batch.offset(index), batch.sizes[index], batch.ledgers[index]
    end = offset + 4 + size
    _, right = scan.sizes.next_record(offset, offset + 20, end)
    if right is None:
        right = scan.sizes.first_size(offset, end, ledger)  # it swallowed nothing but filler
    if right is None or right >= size:
        return None
    return [
        scan.faults.wrong_size(offset, right, size),
        EntryBatch(
            batch.buffer, batch.base, [batch.starts[index]], [right], [ledger], [batch.entries[index]]
        ),
        *scan.inside(batch.buffer, batch.base, offset + 4 + right, end),
    ]
