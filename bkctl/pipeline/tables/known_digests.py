"""Digest types of many ledgers, small enough to go with every task: nine bytes a ledger.

Keys of MAC ledgers go along; they are not in the repr.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bkctl.codec.digest import Digester
from bkctl.types import DigestType

#: Their places are what files and messages name digest types by.
DIGEST_TYPES = tuple(DigestType)


@dataclass(frozen=True, slots=True)
class KnownDigests:
    """``ledgers`` are native i64, ascending; ``kinds`` one byte each; ``keys`` those of MAC ledgers."""

    ledgers: bytes = field(default=b"", repr=False)
    kinds: bytes = field(default=b"", repr=False)
    keys: Mapping[int, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, digesters: Mapping[int, Digester]) -> KnownDigests:
        """Pack a mapping."""
        ids = sorted(digesters)
        kinds = bytes(DIGEST_TYPES.index(digesters[ledger].type) for ledger in ids)
        keys = {ledger: digester.key for ledger, digester in digesters.items() if digester.key}
        return cls(array("q", ids).tobytes(), kinds, keys)

    def __len__(self) -> int:
        return len(self.kinds)

    def only(self, ledgers: Iterable[int]) -> KnownDigests:
        """Return those of ``ledgers`` that are known."""
        ids = array("q", self.ledgers)
        found: dict[int, Digester] = {}
        for ledger in ledgers:
            at = bisect_left(ids, ledger)
            if at < len(ids) and ids[at] == ledger:
                found[ledger] = Digester(DIGEST_TYPES[self.kinds[at]], self.keys.get(ledger, b""))
        return KnownDigests.of(found)

    def digesters(self) -> dict[int, Digester]:
        """Unpack the digesters; ledgers of one type share one digester unless they have keys."""
        shared = [Digester(kind) for kind in DIGEST_TYPES]
        unpacked = {
            ledger: shared[kind] for ledger, kind in zip(array("q", self.ledgers), self.kinds, strict=True)
        }
        for ledger, key in self.keys.items():
            unpacked[ledger] = Digester(unpacked[ledger].type, key)
        return unpacked
