"""Deleting ledgers with a way back, and going that way.

What is deleted is a ledger's metadata. Bookies drop its entries when their garbage collection next finds it
gone, so a restore brings entries back only until then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bkctl.codec.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from bkctl.codec.ledger_path import ledger_path
from bkctl.errors import NotFoundError, RefusedError, StorageError
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.scan.metadata_dump import MetadataDump
from bkctl.vfs import PosixFileSystem


@dataclass(frozen=True, slots=True)
class Restored:
    """A ledger that has metadata again."""

    ledger: int
    metadata: LedgerMetadata
    version: int


def write_undo_file(path: str, store: MetadataStore, ledgers: Sequence[StoredLedger]) -> None:
    """Make a metadata dump of these ledgers that only its owner can read; on disk when this returns.

    Raises RefusedError when there is such a file, StorageError.
    """
    from base64 import b64encode

    layout = store.layout.layout()
    nodes = {
        store.root + ledger_path(found.ledger, layout): {
            "data": b64encode(encode_ledger_metadata(found.metadata)).decode("ascii"),
            "version": found.version,
            "ephemeral": False,
        }
        for found in ledgers
    }
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise RefusedError(f"{path}: is there already; choose another name") from None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", path=path) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(nodes, stream)
            stream.flush()
            # The way back is on disk before anything is deleted.
            os.fsync(stream.fileno())
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", path=path) from error
    PosixFileSystem().sync_directory(os.path.dirname(path) or ".")


def restore_ledgers(store: MetadataStore, dump: MetadataDump, wanted: Iterable[int] | None) -> list[Restored]:
    """Store the metadata of a dump's ledgers (None: of all) anew, byte for byte.

    Raises NotFoundError for a ledger that is not in the dump, and RefusedError when one is in the store,
    both before anything is written.
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
        done.append(Restored(ledger, metadata, store.ledgers.create_ledger(ledger, metadata)))
    return done
