"""Bytes that a ledger takes on bookies, as far as its metadata show."""

from __future__ import annotations

from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.types import LedgerState


def replicated_bytes(metadata: LedgerMetadata, *, by_bookie: bool) -> dict[str, int | None]:
    """Return the payload bytes of all replicas, under an empty name, or those of each bookie.

    None of a ledger that is not closed: its length is not in its metadata. Entries count as equally long, and
    a segment's as evenly spread over its bookies.
    """
    closed = metadata.state is LedgerState.CLOSED
    if not by_bookie:
        return {"": metadata.length * metadata.write_quorum if closed else None}
    if not closed:
        return {bookie: None for segment in metadata.segments for bookie in segment.bookies}
    found: dict[str, int | None] = {}
    entries = metadata.last_entry + 1
    ends = [segment.first_entry for segment in metadata.segments[1:]] + [entries]
    for segment, end in zip(metadata.segments, ends, strict=True):
        count = max(0, end - segment.first_entry)
        size = metadata.length * count // entries if entries > 0 else 0
        for bookie in segment.bookies:
            part = size * metadata.write_quorum // max(1, len(segment.bookies))
            found[bookie] = (found.get(bookie) or 0) + part
    return found
