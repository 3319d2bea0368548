"""The storages that a bookie can be started with, by the values of ``ledgerStorageClass``.

Only the storage that is chosen is imported: a bookie keeps in memory what it has imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import OpenStorages
from bkctl.errors import BkctlError, CorruptionError
from bkctl.storage_kinds import DB_LEDGER_STORAGE, INTERLEAVED_LEDGER_STORAGE, SORTED_LEDGER_STORAGE
from bkctl.vfs import WritableFileSystem


@dataclass(frozen=True, slots=True)
class StorageChoice:
    """How a bookie is started with one class of storage.

    ``refuse_gone`` raises RefusedError where an index is gone that logs hold records of; it is asked before
    ``open``, which makes what is missing. ``refusal`` gives the refusal of a start over an index that
    ``open`` could not read, or the error itself for anything else.
    """

    open: OpenStorages
    refuse_gone: Callable[[WritableFileSystem, BookieSettings], None]
    refusal: Callable[[BookieSettings, CorruptionError], BkctlError]


def _over_databases() -> StorageChoice:
    """Return the storage whose index is two RocksDB databases."""
    from bkctl.engine.db_storage.opening import open_db_storages
    from bkctl.engine.lost_index import damaged_index, refuse_gone_indexes

    return StorageChoice(open_db_storages, refuse_gone_indexes, damaged_index)


def _over_index_files() -> StorageChoice:
    """Return the storage whose index is a file for each ledger."""
    from bkctl.engine.interleaved_storage.opening import (
        damaged_index_file,
        open_interleaved_storage,
        refuse_nothing,
    )

    return StorageChoice(open_interleaved_storage, refuse_nothing, damaged_index_file)


STORAGES: Mapping[str, Callable[[], StorageChoice]] = {
    DB_LEDGER_STORAGE: _over_databases,
    # Two names of one storage: what they leave is the same, and so is what they do (ADR 0019).
    INTERLEAVED_LEDGER_STORAGE: _over_index_files,
    SORTED_LEDGER_STORAGE: _over_index_files,
}


def storage_of(settings: BookieSettings) -> StorageChoice:
    """Return the storage that the settings choose."""
    return STORAGES[settings.storage.storage_class]()
