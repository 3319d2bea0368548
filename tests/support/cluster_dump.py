"""Dumps of a metadata store made by hand: whole, old, without their end, of another cluster."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from bkctl.codec.ledger_metadata import LedgerMetadata, Segment, encode_ledger_metadata
from bkctl.codec.ledger_path import ledger_path
from bkctl.types import DigestType, LedgerState

ROOT = "/ledgers"


def metadata_of(
    bookie: str, password: bytes | None = None, digest_type: DigestType = DigestType.CRC32C
) -> LedgerMetadata:
    """Metadata of an open ledger with one copy, on this bookie."""
    return LedgerMetadata(
        metadata_version=3,
        state=LedgerState.OPEN,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        length=0,
        last_entry=-1,
        digest_type=digest_type,
        password=password,
        segments=(Segment(0, (bookie,)),),
    )


def write_dump(
    path: Path,
    ledgers: Iterable[int],
    *,
    bookie: str,
    instance_id: str,
    next_ledger: int | None,
    is_whole: bool = True,
    password: bytes | None = None,
    digests: Mapping[int, DigestType] | None = None,
) -> None:
    """Write a dump; one that is not ``is_whole`` lacks its end marker, as an older tool leaves it."""
    nodes = {ROOT: b"", f"{ROOT}/LAYOUT": b"2\nhierarchical:1", f"{ROOT}/INSTANCEID": instance_id.encode()}
    for ledger in ledgers:
        digest_type = (digests or {}).get(ledger, DigestType.CRC32C)
        metadata = metadata_of(bookie, password, digest_type)
        nodes[f"{ROOT}{ledger_path(ledger)}"] = encode_ledger_metadata(metadata)
    tree: dict[str, object] = {
        node: {"data": base64.b64encode(data).decode(), "version": 0, "ephemeral": False}
        for node, data in nodes.items()
    }
    if is_whole:
        end = {"kind": "cluster", "complete": True, "time_ms": 1_700_000_000_000, "nodes": len(nodes)}
        tree["end"] = {**end, "next_ledger": next_ledger}
    path.write_text(json.dumps(tree))
