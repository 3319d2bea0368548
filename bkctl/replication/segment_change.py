"""New bookies in one segment of a ledger's metadata, and whether it is still the segment that was copied.

Other clients may write the metadata while a fragment is copied: they close the ledger, put other bookies into
other segments, or delete the ledger and make one of the same id. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bkctl.client.ops.metadata_update import rewritten
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.replication.fragments import Fragment
from bkctl.types import LedgerState


def same_segment(before: LedgerMetadata, now: LedgerMetadata, fragment: Fragment) -> Segment | None:
    """Return the fragment's segment as it is now; None when it is not the same entries any more."""
    if fragment.position >= len(now.segments) or _made(now) != _made(before):
        return None
    if before.state is LedgerState.CLOSED and _end(now) != _end(before):
        return None
    segment = now.segments[fragment.position]
    follows = now.segments[fragment.position + 1].first_entry if _follows(now, fragment) else None
    followed = before.segments[fragment.position + 1].first_entry if _follows(before, fragment) else None
    same = segment.first_entry == fragment.first_entry and follows == followed
    return segment if same and len(segment.bookies) == len(fragment.bookies) else None


def _made(metadata: LedgerMetadata) -> tuple[object, ...]:
    """Return what no client changes of a ledger as long as it lives."""
    sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    return (*sizes, metadata.digest_type, metadata.password, metadata.ctime_ms)


def _end(metadata: LedgerMetadata) -> tuple[LedgerState, int, int]:
    return metadata.state, metadata.last_entry, metadata.length


def _follows(metadata: LedgerMetadata, fragment: Fragment) -> bool:
    return fragment.position + 1 < len(metadata.segments)


def replaced_in_segment(
    metadata: LedgerMetadata, position: int, bookies: Mapping[int, str]
) -> LedgerMetadata:
    """Return ``metadata`` with ``bookies`` at their indices of one segment; the others stay as they are."""
    segments = list(metadata.segments)
    members = list(segments[position].bookies)
    for index, bookie in bookies.items():
        members[index] = bookie
    segments[position] = replace(segments[position], bookies=tuple(members))
    return replace(rewritten(metadata), segments=tuple(segments))
