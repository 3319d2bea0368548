"""What Java's autorecovery writes into its nodes of the metadata store, without the codec that is tested."""

from __future__ import annotations

from bkctl.codec.underreplication import UnderreplicatedMark


def mark_text(mark: UnderreplicatedMark) -> bytes:
    """A ledger's mark."""
    lines = [f'replica: "{replica}"\n' for replica in mark.replicas]
    if mark.marked_ms is not None:
        lines.append(f"ctime: {mark.marked_ms}\n")
    return "".join(lines).encode()


def holder_text(holder: str) -> bytes:
    """A lock or a vote."""
    return f'bookieId: "{holder}"\n'.encode()
