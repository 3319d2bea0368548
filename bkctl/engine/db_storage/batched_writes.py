"""Many operations on a store of which no call may take long."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from bkctl.kvstore.base import BatchWrites, Operation


def write_in_batches(store: BatchWrites, operations: Iterable[Operation], operations_max: int) -> None:
    """Apply operations in their order, in batches; all of them are durable when this returns.

    The last batch is synced and with it those before, which stand in front of it in the write-ahead log. A
    failure may leave some of the batches in the store.
    """
    remaining = iter(operations)
    batch = list(islice(remaining, operations_max))
    while batch:
        following = list(islice(remaining, operations_max))
        store.write(batch, sync=not following)
        batch = following
