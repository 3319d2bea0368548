"""Deleting ledgers with a way back, and going that way.

The command deletes the metadata of a ledger. Bookies drop its entries when their garbage collection next
finds it gone, so a restore brings entries back only until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bkctl.admin.metadata_dump import Dump, DumpedNode, write_dump_file
from bkctl.codec.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from bkctl.codec.ledger_path import ledger_path
from bkctl.errors import NotFoundError, RefusedError
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.scan.metadata_dump import DumpKind, MetadataDump


@dataclass(frozen=True, slots=True)
class Restored:
    """A ledger that has metadata again, or would have: then without a version."""

    ledger: int
    metadata: LedgerMetadata
    version: int | None


def write_undo_file(path: str, store: MetadataStore, ledgers: Sequence[StoredLedger], time_ms: int) -> None:
    """Write the metadata of these ledgers to a file that only its owner can read; on disk when this returns.

    It has the form of a metadata dump and a kind of its own, so that it is not taken for all of a cluster.

    Raises RefusedError when there is such a file, StorageError.
    """
    layout = store.layout.layout()
    nodes = (
        DumpedNode(
            store.root + ledger_path(found.ledger, layout),
            encode_ledger_metadata(found.metadata),
            found.version,
            ephemeral=False,
            created_ms=found.created_ms,
        )
        for found in ledgers
    )
    write_dump_file(path, Dump(DumpKind.UNDO, nodes, time_ms))


def restore_ledgers(
    store: MetadataStore, dump: MetadataDump, wanted: Iterable[int] | None, *, dry_run: bool = False
) -> list[Restored]:
    """Store the metadata of a dump's ledgers (None: of all) again, byte for byte.

    With ``dry_run`` nothing is written. Raises NotFoundError for a ledger that is not in the dump, and
    RefusedError when one is in the store, both before anything is written.
    """
    ids = list(dump.ledgers) if wanted is None else list(wanted)
    for ledger in ids:
        if ledger not in dump.ledgers:
            raise NotFoundError(f"ledger {ledger} is not in the file")
        if store.ledgers.ledger_exists(ledger):
            raise RefusedError(f"ledger {ledger} exists; nothing was restored")
    done = []
    for ledger in ids:
        metadata = dump.ledgers[ledger]
        version = None if dry_run else store.ledgers.create_ledger(ledger, metadata)
        done.append(Restored(ledger, metadata, version))
    return done
