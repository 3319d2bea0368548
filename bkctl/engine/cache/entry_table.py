"""The tables of entries that the caches are built of, small enough that no single call takes long.

A dict grows by moving all of its entries within one call, and frees them within one call: 10 to 30 ms for
some hundred thousand, in which no other thread runs. A table is therefore closed while it is small, and
emptied piece by piece.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from operator import itemgetter
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

#: The largest step in the growth of a dict with up to 87,381 entries is the one at 43,690, about 2 ms; the
#: last batch that goes into a table may bring some thousands more than this.
TABLE_ENTRIES_MAX = 80_000

#: Keys that one C call sorts, copies or frees: well under a millisecond.
PIECE_ENTRIES = 2048

#: Bytes that Python adds to an entry's body: the header of its bytes object (33, rounded up with it to 16),
#: the key as an object of its own (49, in 64), its place in a dict (30 when the dict is full, 60 just after
#: it has grown) and in a list of keys (9): 152 as measured. A flush holds its sorted key and its location (16
#: to 24), and each ledger of a cache costs some 100 to 300 on top, which the rest is for when there are
#: several entries of it.
ENTRY_OVERHEAD_BYTES = 192

LEDGER_BYTES = 8

#: The ledger id in a key, as its 8 bytes.
ledger_of = itemgetter(slice(0, LEDGER_BYTES))


def empty_in_pieces(entries: dict[_Key, _Value]) -> None:
    """Free the entries; no thread may add entries during the call."""
    while entries:
        popped = islice(iter(entries.popitem, None), min(PIECE_ENTRIES, len(entries)))
        deque(popped, maxlen=0)


class BoundedEntries:
    """The bound of a write cache, which both kinds keep in the same way."""

    size_bytes_max: int
    size_bytes: int
    count: int

    def room(self, size_bytes: int, entries: int) -> bool:
        """Return whether a batch with bodies of ``size_bytes`` together fits.

        An empty cache takes any batch: one that is larger than a whole cache would otherwise never be taken.
        Its size is then bounded by that of a frame, and with it of a batch.
        """
        if not self.count:
            return True
        return self.size_bytes + size_bytes + entries * ENTRY_OVERHEAD_BYTES <= self.size_bytes_max
