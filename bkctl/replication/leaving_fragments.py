"""The fragments of a ledger that name bookies which leave, and how much these hold of them."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.client.distribution import Distribution
from bkctl.codec.digest import DIGEST_BYTES
from bkctl.codec.entry import HEADER_BYTES
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.replication.fragment_check import BadFragment, BadIndex, Defect
from bkctl.replication.fragments import StoredEntries, fragments


def named_fragments(metadata: LedgerMetadata, lac: int, leaving: frozenset[str]) -> Iterator[BadFragment]:
    """Yield the fragments that name bookies which leave, with their indices."""
    for fragment in fragments(metadata, lac):
        bad = tuple(
            [
                BadIndex(index, bookie, Defect.LEAVING)
                for index, bookie in enumerate(fragment.bookies)
                if bookie in leaving
            ]
        )
        if bad:
            yield BadFragment(fragment, bad)


def replica_size(metadata: LedgerMetadata, bad: BadFragment) -> tuple[int, int]:
    """Return how many entries the indices of a fragment hold, and of about how many bytes, heads included."""
    distribution = Distribution.of(metadata)
    count = sum(StoredEntries(distribution, bad.fragment, one.index).count for one in bad.bad)
    entries = metadata.last_entry + 1
    payload = metadata.length * count // entries if entries > 0 else 0
    digest_bytes = 0 if metadata.digest_type is None else DIGEST_BYTES[metadata.digest_type]
    return count, payload + count * (HEADER_BYTES + digest_bytes)
