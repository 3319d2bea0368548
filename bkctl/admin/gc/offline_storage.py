"""Open the storage of a stopped bookie for its collection: its index and its logs, without a flush thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from posixpath import join

from bkctl.clock import Clock
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.directories.index_spaces import IndexSpace
from bkctl.engine.db_storage.db_ledger_storage import DbLedgerStorage
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.spread_entry_logger import SpreadEntryLogger
from bkctl.engine.interleaved_storage.index_files import IndexFiles, IndexFileSettings
from bkctl.engine.interleaved_storage.index_headers import HeaderIndex
from bkctl.engine.interleaved_storage.index_slots import SlotIndex
from bkctl.engine.interleaved_storage.interleaved_ledger_storage import InterleavedLedgerStorage
from bkctl.errors import BkctlError
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.vfs import WritableFileSystem

_STORAGE = StorageSettings(write_cache_bytes_max=1 << 20, read_cache_bytes_max=0)


@contextmanager
def opened_storage(
    filesystem: WritableFileSystem, space: IndexSpace, clock: Clock
) -> Iterator[DbLedgerStorage]:
    """Open a space; nothing is ever put into the storage.

    Raises CorruptionError, StorageError.
    """
    with ExitStack() as stack:
        opening = _over_databases if space.kind.has_databases else _over_index_files
        storage, logs = opening(filesystem, space, clock, stack)
        stack.callback(storage.stop)
        logs.open()
        yield storage


def _over_databases(
    filesystem: WritableFileSystem, space: IndexSpace, clock: Clock, stack: ExitStack
) -> tuple[DbLedgerStorage, EntryLogger]:
    from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
    from bkctl.kvstore.rocksdb_store import open_store

    index = space.index_dirs[0]
    locations = open_store(join(index, LOCATIONS), LOCATIONS_PROFILE, create=False)
    stack.callback(locations.close)
    rows = open_store(join(index, LEDGERS), LEDGERS_PROFILE, create=False)
    stack.callback(rows.close)
    logs = EntryLogger(space.log_dirs[0], filesystem, EntryLogSettings())
    failures: list[BkctlError] = []
    storage = DbLedgerStorage(
        space.log_dirs[0],
        lock=threading.Lock(),
        entry_logger=logs,
        locations=EntryLocationIndex(locations),
        ledgers=LedgerIndex(rows),
        clock=clock,
        settings=_STORAGE,
        on_failure=failures.append,
    )
    return storage, logs


def _logger(filesystem: WritableFileSystem, space: IndexSpace, clock: Clock) -> EntryLogger:
    if len(space.log_dirs) > 1:
        return SpreadEntryLogger(space.log_dirs, filesystem, EntryLogSettings(), clock)
    return EntryLogger(space.log_dirs[0], filesystem, EntryLogSettings())


def _over_index_files(
    filesystem: WritableFileSystem, space: IndexSpace, clock: Clock, stack: ExitStack
) -> tuple[DbLedgerStorage, EntryLogger]:
    # Slots that are there are set again and none is added, so that the site's size of a page does not matter.
    files = IndexFiles(filesystem, list(space.index_dirs), IndexFileSettings())
    stack.callback(files.close)
    rows = HeaderIndex(files)
    logs = _logger(filesystem, space, clock)
    failures: list[BkctlError] = []
    storage = InterleavedLedgerStorage(
        list(space.log_dirs),
        list(space.index_dirs),
        lock=threading.Lock(),
        entry_logger=logs,
        locations=SlotIndex(files, rows),
        ledgers=rows,
        clock=clock,
        settings=_STORAGE,
        on_failure=failures.append,
    )
    return storage, logs
