"""Metadata of very many ledgers, a group of which is in memory at a time."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import CorruptionError

#: Ledgers of a group; some 600 bytes each.
LEDGERS_AT_ONCE = 4096

#: A function that returns the metadata of those of some ledgers that have any.
ReadMetadata = Callable[[Collection[int]], Mapping[int, LedgerMetadata | CorruptionError]]


class GroupedMetadata(Mapping[int, LedgerMetadata]):
    """The metadata of those of ``ledgers`` that have any that decode, ascending.

    ``read`` is asked for a group of neighbours when one of them is looked up, so whoever asks in ascending
    order has each ledger read once. Raises what ``read`` does.
    """

    def __init__(self, read: ReadMetadata, ledgers: Iterable[int]) -> None:
        self._read = read
        self._ids = array("q", sorted(set(ledgers)))
        self._first = -1
        self._held: dict[int, LedgerMetadata] = {}

    def __getitem__(self, ledger: int) -> LedgerMetadata:
        at = bisect_left(self._ids, ledger)
        if at == len(self._ids) or self._ids[at] != ledger:
            raise KeyError(ledger)
        first = at - at % LEDGERS_AT_ONCE
        if first != self._first:
            found = self._read(self._ids[first : first + LEDGERS_AT_ONCE])
            self._held = {each: told for each, told in found.items() if not isinstance(told, CorruptionError)}
            self._first = first
        return self._held[ledger]

    def __iter__(self) -> Iterator[int]:
        return (ledger for ledger in self._ids if ledger in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
