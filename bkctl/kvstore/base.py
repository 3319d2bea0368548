"""Protocol of the key-value seam: byte keys in bytewise order. Only reading so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

#: Rows in one batch of :meth:`KeyValueReader.batches` unless asked otherwise.
BATCH_ROWS = 8192

Row = tuple[bytes, bytes]


class KeyValueReader(Protocol):
    """One consistent view of a store.

    Every method but ``close`` raises CorruptionError when the store's own checks fail, and StorageError when
    the system cannot read it or the reader was closed. Neither is ever reported as "no such key" or as the
    end of an iteration.
    """

    @property
    def path(self) -> str:
        """Where the store is, for messages."""

    @property
    def damage(self) -> str | None:
        """Why rows may be missing although the store could be opened, or None."""

    def get(self, key: bytes) -> bytes | None:
        """The key's value, or None when there is no such key."""

    def batches(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        rows_max: int = BATCH_ROWS,
    ) -> Iterator[list[Row]]:
        """Rows with ``start <= key < stop`` whose key begins with ``prefix``, in key order.

        Lists of 1 to ``rows_max`` rows; this is the fast way.
        """

    def iterate(
        self, start: bytes | None = None, stop: bytes | None = None, *, prefix: bytes | None = None
    ) -> Iterator[Row]:
        """The same rows one by one."""

    def floor(self, key: bytes) -> Row | None:
        """The row with the largest key that is at most ``key``."""

    def below(self, key: bytes) -> Row | None:
        """The row with the largest key that is less than ``key``."""

    def count_estimate(self) -> int:
        """About how many rows there are; exact only by chance."""

    def close(self) -> None:
        """Give everything back; a second call does nothing."""


def key_range(
    start: bytes | None, stop: bytes | None, prefix: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """``start`` and ``stop`` narrowed to the keys that begin with ``prefix``."""
    if not prefix:
        return start, stop
    start = prefix if start is None else max(start, prefix)
    head = prefix.rstrip(b"\xff")
    if head:
        after = head[:-1] + bytes([head[-1] + 1])
        stop = after if stop is None else min(stop, after)
    return start, stop
