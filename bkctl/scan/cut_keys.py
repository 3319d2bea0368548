"""Master keys of a journal whose last bytes may be part of a hole behind them.

Nothing in a journal proves a master key: its record has a length, a ledger, and the bytes. When a range of
zeros begins within these bytes, the rest of the key would be taken for a whole one that no client ever
brings: the ledger would take no add, no fence and no copy any more on this bookie. So a key that ends with
zeros right in front of a range that cannot be read, or of the zeros at the end of the journal, counts as
none, and the next client's does. That is wrong of a whole key once in 256 times that such a range follows
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from bkctl.codec.journal import BLOB_AT, RecordKind
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.dialect import MarkedRecord

ItemT = TypeVar("ItemT")


def without_cut_keys(items: Iterable[ItemT]) -> Iterator[ItemT]:
    """Yield the items of a journal's scan; a master key that may have been cut has nothing but zeros.

    Zeros are a blank key, for Java's DbLedgerStorage as well: the first client that comes sets it.
    """
    doubtful: ItemT | None = None
    for item in items:
        if doubtful is not None:
            yield _blank(doubtful) if _cuts(item, doubtful) else doubtful
            doubtful = None
        if _ends_with_zeros(item):
            doubtful = item
        else:
            yield item
    if doubtful is not None:
        yield doubtful


def _ends_with_zeros(item: object) -> bool:
    return (
        isinstance(item, MarkedRecord)
        and item.kind is RecordKind.MASTER_KEY
        and item.body.endswith(b"\0", BLOB_AT)
    )


def _cuts(following: object, key: object) -> bool:
    """Return whether what follows a key may have begun within it."""
    assert isinstance(key, MarkedRecord)
    if isinstance(following, Damage):
        return following.offset == key.end
    return isinstance(following, Tail) and following.kind == "zeros"


def _blank(record: ItemT) -> ItemT:
    assert isinstance(record, MarkedRecord)
    return replace(record, body=record.body[:BLOB_AT] + bytes(len(record.body) - BLOB_AT))
