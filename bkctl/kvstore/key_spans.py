"""Stretches of keys: where in a database something may be."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from bkctl.kvstore.base import Span, TableFile


class KeySpans:
    """Stretches of keys, each from its first to its last key, both included."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._firsts: list[bytes] = []
        self._lasts: list[bytes] = []
        for first, last in sorted(spans):
            if self._lasts and first <= self._lasts[-1]:
                self._lasts[-1] = max(self._lasts[-1], last)
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __iter__(self) -> Iterator[Span]:
        return zip(self._firsts, self._lasts, strict=True)

    def touch(self, first: bytes, last: bytes) -> bool:
        """Return whether a key from ``first`` to ``last`` is in one of the stretches."""
        at = bisect_left(self._lasts, first)
        return at < len(self._lasts) and self._firsts[at] <= last


def tables_alone(tables: Sequence[TableFile], unsettled: KeySpans) -> list[TableFile]:
    """Return in order those tables between whose first and last key no other has one, and nothing is
    ``unsettled``: what is in such a table is what the database has there."""
    ordered = sorted(tables, key=lambda table: (table.start, table.last))
    alone = []
    reached: bytes | None = None
    for number, table in enumerate(ordered, 1):
        behind = reached is None or reached < table.start
        before = number == len(ordered) or table.last < ordered[number].start
        reached = table.last if reached is None else max(reached, table.last)
        if behind and before and not unsettled.touch(table.start, table.last):
            alone.append(table)
    return alone
