"""Dumps of clusters, made in memory: complete ones, parts, and such as older tools wrote."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from bkctl.codec.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from bkctl.codec.ledger_path import LedgerLayout, ledger_path
from bkctl.scan.metadata_dump import DumpEnd, DumpKind, MetadataDump, decode_metadata_dump

#: The instance id in the cookies of ``CheckedBookie``.
INSTANCE = "instance"


def dump_bytes(
    ledgers: Mapping[int, LedgerMetadata],
    *,
    instance_id: str | None = INSTANCE,
    next_ledger: int | None = None,
    marked: bool = True,
    kind: DumpKind = DumpKind.CLUSTER,
    root: bool = True,
    time_ms: int = 1 << 50,
) -> bytes:
    """The bytes of a dump; ``next_ledger`` None is the id behind the newest ledger."""
    nodes = {"/ledgers": b""} if root else {}
    if instance_id is not None:
        nodes["/ledgers/INSTANCEID"] = instance_id.encode()
    for ledger, metadata in ledgers.items():
        path = "/ledgers" + ledger_path(ledger, LedgerLayout.HIERARCHICAL)
        nodes[path] = encode_ledger_metadata(metadata)
    tree: dict[str, object] = {
        path: {"data": base64.b64encode(data).decode(), "version": 0, "ephemeral": False}
        for path, data in nodes.items()
    }
    if marked:
        newest = max(ledgers, default=-1) + 1
        end = DumpEnd(kind, time_ms, len(nodes), newest if next_ledger is None else next_ledger)
        tree["end"] = end.as_json()
    return json.dumps(tree).encode()


def dump_file(path: Path, ledgers: Mapping[int, LedgerMetadata], **options: object) -> Path:
    """The same in a file."""
    path.write_bytes(dump_bytes(ledgers, **options))  # type: ignore[arg-type]
    return path


def dump_of(ledgers: Mapping[int, LedgerMetadata], **options: object) -> MetadataDump:
    """The same, decoded."""
    return decode_metadata_dump(dump_bytes(ledgers, **options))  # type: ignore[arg-type]


def marked_copy(source: Path, target: Path) -> Path:
    """A copy of an older tool's dump with the end marker that it would have today."""
    tree = json.loads(source.read_text())
    newest = max(decode_metadata_dump(source.read_bytes()).ledgers)
    tree["end"] = DumpEnd(DumpKind.CLUSTER, 1 << 50, len(tree), newest + 1).as_json()
    target.write_text(json.dumps(tree))
    return target
