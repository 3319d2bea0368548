"""The ledgers of a dump in a metadata store."""

from __future__ import annotations

from pathlib import Path

from bkctl.metadata.api import MetadataStore
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.scan.metadata_dump import load_metadata_dump
from bkctl.vfs import PosixFileSystem


def create_ledgers(store: MetadataStore, dump: Path) -> None:
    """Create every ledger of a dump in a store that has a cluster."""
    for ledger, metadata in load_metadata_dump(PosixFileSystem(), str(dump)).ledgers.items():
        store.ledgers.create_ledger(ledger, metadata)


def embedded_metadata(dump: Path, folder: Path) -> str:
    """Make an embedded store of a dump's cluster, with its ledgers, in ``folder``; return its URI."""
    uri = f"embedded://{folder}/metadata.db"
    theirs = load_metadata_dump(PosixFileSystem(), str(dump)).instance_id
    with open_metadata_store(uri) as store:
        assert isinstance(store, TreeMetadataStore)
        store.layout.initialise_cluster()
        path = f"{store.root}/INSTANCEID"
        made = store._tree.get(path)
        if theirs is not None and made is not None:
            store._tree.set(path, theirs.encode(), made.version)
        create_ledgers(store, dump)
    return uri
