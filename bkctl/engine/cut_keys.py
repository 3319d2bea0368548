"""Master keys of a journal whose last bytes may be part of a hole behind them.

Nothing in a journal proves a master key: its record has a length, a ledger, and the bytes. Where a range
of zeros begins within these bytes, what is left of the key is taken for one, and no client would ever bring
it: the ledger would take no add, no fence and no copy any more on this bookie. So a key that ends with zeros
right in front of a range that cannot be read, or of the zeros at the end of the journal, counts as no key,
and the next client's does. That is wrong of a whole key once in 256 times that such a range follows one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from bkctl.codec.journal import RecordKind
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.dialect import MarkedRecord

ItemT = TypeVar("ItemT")


def with_cut_keys(items: Iterable[ItemT]) -> Iterator[tuple[ItemT, bool]]:
    """Yield the items of a journal's scan, each with whether it is a master key that may have been cut."""
    doubtful: ItemT | None = None
    for item in items:
        if doubtful is not None:
            yield doubtful, _cuts(item, doubtful)
            doubtful = None
        if _ends_with_zeros(item):
            doubtful = item
        else:
            yield item, False
    if doubtful is not None:
        yield doubtful, False


def _ends_with_zeros(item: object) -> bool:
    return isinstance(item, MarkedRecord) and item.kind is RecordKind.MASTER_KEY and item.body.endswith(b"\0")


def _cuts(following: object, key: object) -> bool:
    """Whether what follows a key may have begun within it."""
    assert isinstance(key, MarkedRecord)
    if isinstance(following, Damage):
        return following.offset == key.end
    return isinstance(following, Tail) and following.kind == "zeros"
