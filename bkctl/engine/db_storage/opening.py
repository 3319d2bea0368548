"""Opening DbLedgerStorage: one storage for each ledger directory, in the order of the configuration."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from bkctl.engine.db_storage.db_ledger_storage import DbLedgerStorage
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.engine.db_storage.exchanged_directories import refuse_exchanged_directories
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.lost_index_refusal import damaged_index, refuse_gone_indexes
from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import StorageChoice, StorageParts
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE, StoreProfile
from bkctl.scan.directory import current, is_key_value_store
from bkctl.storage_kinds import DB


def open_db_storages(parts: StorageParts) -> list[LedgerStorage]:
    """Open the storage of every ledger directory.

    Raises RefusedError where directories hold each other's ledgers, CorruptionError, StorageError.
    """
    storages: list[DbLedgerStorage] = []
    with contextlib.ExitStack() as opened:
        for number in range(len(parts.settings.ledger_directories)):
            storages.append(_open(parts, number))
            opened.callback(storages[-1].stop)
        indexes = [storage.ledgers for storage in storages]
        refuse_exchanged_directories(parts.settings, indexes, parts.filesystem)
        opened.pop_all()
    return list(storages)


def _open(parts: StorageParts, number: int) -> DbLedgerStorage:
    settings = parts.settings
    directories = len(settings.ledger_directories)
    directory = current(settings.ledger_directories[number])
    index = current(settings.indexes[number])
    entry_logger = EntryLogger(directory, parts.filesystem, settings.entry_log, parts.clock)
    made = {name for name in DB.indexes if not is_key_value_store(parts.filesystem, f"{index}/{name}")}
    with contextlib.ExitStack() as opened:
        locations = parts.open_store(f"{index}/locations", _locations_profile(settings))
        opened.callback(locations.close)
        rows = parts.open_store(f"{index}/ledgers", LEDGERS_PROFILE)
        opened.callback(rows.close)
        # All rows are read here, and one may be damaged.
        ledgers = LedgerIndex(rows, directories)
        opened.pop_all()
    return DbLedgerStorage(
        directory,
        lock=parts.lock,
        entry_logger=entry_logger,
        locations=EntryLocationIndex(locations),
        ledgers=ledgers,
        clock=parts.clock,
        # Caches are given for the whole bookie and split over its directories, as Java does.
        settings=replace(
            settings.storage,
            write_cache_bytes_max=settings.storage.write_cache_bytes_max // directories,
            read_cache_bytes_max=settings.storage.read_cache_bytes_max // directories,
        ),
        on_failure=parts.on_failure,
        index_directory=index,
        made=made,
    )


def _locations_profile(settings: BookieSettings) -> StoreProfile:
    cache_bytes = settings.storage.index_block_cache_bytes
    if not cache_bytes:
        return LOCATIONS_PROFILE
    return replace(LOCATIONS_PROFILE, block_cache_bytes=cache_bytes)


#: The storage whose index is two RocksDB databases.
CHOICE = StorageChoice(open_db_storages, refuse_gone_indexes, damaged_index)
