"""The rows of what autorecovery has written down, as ``bkctl metadata show`` shows it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from bkctl.codec.underreplication import LOCKS, MARKS, decode_holder, decode_mark, ledger_of_mark

if TYPE_CHECKING:
    from bkctl.admin.metadata_dump import DumpedNode
    from bkctl.codec.underreplication import UnderreplicatedMark
    from bkctl.metadata.api import MetadataStore

#: The node below the ledgers root; it is not there before an auditor has run.
NODE = "underreplication"
#: Marked ledgers that are shown one by one; the others are counted.
LEDGERS_MAX = 1000


def is_underreplication(root: str, path: str) -> bool:
    """Return whether a path, whole or below the ledgers root, is the node of autorecovery."""
    return path.rstrip("/") in (NODE, f"{root}/{NODE}")


def underreplication_row(store: MetadataStore) -> dict[str, Any]:
    """Return the row of the node: switches, auditor and the marked ledgers, ascending.

    A cluster in which no auditor has ever run has nothing marked. Raises NoClusterError and the store's
    errors.
    """
    known = store.underreplication
    marks = known.marked_ledgers()
    ledgers = [
        {**_mark(ledger, mark), "replicator": known.replicator_of(ledger)}
        for ledger, mark in islice(marks, LEDGERS_MAX)
    ]
    value = {
        "enabled": known.enabled(),
        "auditor": known.auditor(),
        "lost_bookie_recovery_delay_s": known.lost_bookie_recovery_delay_s(),
        "marked": len(ledgers) + sum(1 for _ in marks),
        "ledgers": ledgers,
    }
    return {"path": f"{store.root}/{NODE}", "kind": NODE, "value": value}


def decoded_underreplication(root: str, node: DumpedNode) -> tuple[str, Any] | None:
    """Return what a node of autorecovery is, and its value; None for any other node. Raises
    CorruptionError."""
    folder, _, name = node.path[len(root) + 1 :].rpartition("/")
    ledger = ledger_of_mark(name)
    if ledger is not None and folder.startswith(f"{MARKS}/"):
        return "underreplicated_ledger", _mark(ledger, decode_mark(node.data))
    if ledger is not None and folder == LOCKS:
        return "replicator", {"ledger": ledger, "replicator": decode_holder(node.data)}
    return None


def _mark(ledger: int, mark: UnderreplicatedMark) -> dict[str, Any]:
    return {"ledger": ledger, "missing_on": list(mark.replicas), "marked_ms": mark.marked_ms}
