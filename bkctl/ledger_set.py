"""Sets of very many ledger ids, and sums for very many ledgers, of which no call takes long.

A Python set or dict of a million ids is made, joined, grown and freed within one call each: 30 to 300 ms in
which no other thread runs. These have their ids in parts, by a remainder that the usual strides of ids (a
directory has every n-th ledger) share nothing with; a million make parts of some thousands. Parts are gone
through by loops of the interpreter, which let other threads run in between: ``map`` over C functions would
not. So are they when one is freed, by whatever lets go of it.

Parts are dicts, of a set without values. Python's cyclic collector knows that a dict of numbers cannot be in
a cycle; through a set it goes, member by member, 60 ms for a million.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge

PARTS = 251

#: Ids of one part, without values.
Part = dict[int, None]


class LedgerSet(Collection[int]):
    """Ids, each once; iterated part by part, ascending within each. Not for two threads at a time."""

    __slots__ = ("_parts",)

    def __init__(self, ledgers: Iterable[int] = ()) -> None:
        self._parts: list[Part] = [{} for _ in range(PARTS)]
        self.update(ledgers)

    @classmethod
    def of_parts(cls, parts: Iterable[Part]) -> LedgerSet:
        """Return a set of parts that hold the ids by their remainder, all of them in its order."""
        listed = list(parts)
        made = cls.__new__(cls)
        made._parts = listed
        return made

    def __del__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __contains__(self, ledger: object) -> bool:
        return isinstance(ledger, int) and ledger in self._parts[ledger % PARTS]

    def __iter__(self) -> Iterator[int]:
        for part in self._parts:
            yield from sorted(part)

    def in_order(self) -> Iterator[int]:
        """Yield all ids, ascending."""
        # An iterator gives up its list when it is through with it, so that the lists do not go all at once.
        return merge(*[iter(sorted(part)) for part in self._parts])

    def add(self, ledger: int) -> None:
        """Add one ledger."""
        self._parts[ledger % PARTS][ledger] = None

    def update(self, ledgers: Iterable[int]) -> None:
        """Add many ledgers."""
        parts = self._parts
        for ledger in ledgers:
            parts[ledger % PARTS][ledger] = None

    def discard(self, ledger: int) -> None:
        """Remove one ledger, if it is there."""
        self._parts[ledger % PARTS].pop(ledger, None)

    def discard_all(self, ledgers: Iterable[int]) -> None:
        """Remove many ledgers, as far as they are there."""
        parts = self._parts
        for ledger in ledgers:
            parts[ledger % PARTS].pop(ledger, None)

    def copy(self) -> LedgerSet:
        """Return another one with the same ids."""
        return self.of_parts([part.copy() for part in self._parts])

    def clear(self) -> None:
        """Remove all, part by part."""
        for part in self._parts:
            part.clear()

    def issuperset(self, other: LedgerSet) -> bool:
        """Return whether all ids of ``other`` are here."""
        return all(its.keys() <= part.keys() for part, its in self._with(other))

    def __or__(self, other: LedgerSet) -> LedgerSet:
        return self.of_parts([part | its for part, its in self._with(other)])

    def __and__(self, other: LedgerSet) -> LedgerSet:
        return self.of_parts([dict.fromkeys(part.keys() & its.keys()) for part, its in self._with(other)])

    def __sub__(self, other: LedgerSet) -> LedgerSet:
        return self.of_parts([dict.fromkeys(part.keys() - its.keys()) for part, its in self._with(other)])

    def _with(self, other: LedgerSet) -> Iterator[tuple[Part, Part]]:
        return zip(self._parts, other._parts, strict=True)


class LedgerTotals(Mapping[int, int]):
    """A number for each ledger, a sum; iterated part by part. Not for two threads at a time."""

    __slots__ = ("_parts",)

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._parts: list[dict[int, int]] = [{} for _ in range(PARTS)]
        self.add_all(pairs)

    def __del__(self) -> None:
        for part in self._parts:
            part.clear()

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __getitem__(self, ledger: int) -> int:
        return self._parts[ledger % PARTS][ledger]

    def __iter__(self) -> Iterator[int]:
        for part in self._parts:
            yield from part

    def add_all(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Add numbers to those of their ledgers."""
        parts = self._parts
        for ledger, number in pairs:
            part = parts[ledger % PARTS]
            part[ledger] = part.get(ledger, 0) + number
