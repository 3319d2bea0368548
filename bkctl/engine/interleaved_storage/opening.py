"""Opening the storage over ``.idx`` files: one for all directories; and the refusal of a damaged file."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.spread_entry_logger import SpreadEntryLogger
from bkctl.engine.interleaved_storage.index_files import FILES_OPEN_MAX, IndexFiles, IndexFileSettings
from bkctl.engine.interleaved_storage.index_headers import HeaderIndex
from bkctl.engine.interleaved_storage.index_slots import SlotIndex
from bkctl.engine.interleaved_storage.interleaved_ledger_storage import InterleavedLedgerStorage
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import PlacedLedgers, StorageChoice, StorageParts
from bkctl.errors import BkctlError, CorruptionError, RefusedError
from bkctl.scan.directory import current
from bkctl.vfs import WritableFileSystem


def open_interleaved_storage(parts: StorageParts) -> list[LedgerStorage]:
    """Open the one storage of a bookie. Raises CorruptionError, RefusedError, StorageError."""
    settings = parts.settings
    directories = [current(path) for path in settings.ledger_directories]
    places = [current(path) for path in settings.indexes]
    logger: EntryLogger
    if len(directories) == 1:
        logger = EntryLogger(directories[0], parts.filesystem, settings.entry_log, parts.clock)
    else:
        logger = SpreadEntryLogger(directories, parts.filesystem, settings.entry_log, parts.clock)
    with contextlib.ExitStack() as opened:
        files = IndexFiles(parts.filesystem, places, _file_settings(settings))
        opened.callback(files.close)
        # All headers are read here, and one may be damaged.
        ledgers = HeaderIndex(files)
        opened.pop_all()
    return [
        InterleavedLedgerStorage(
            directories,
            places,
            lock=parts.lock,
            entry_logger=logger,
            locations=SlotIndex(files, ledgers),
            ledgers=ledgers,
            clock=parts.clock,
            settings=_caches(settings.storage),
            on_failure=parts.on_failure,
        )
    ]


def refuse_nothing(
    filesystem: WritableFileSystem, settings: BookieSettings, cluster: PlacedLedgers, *, accept_loss: bool
) -> None:
    """Refuse nothing before the files are opened: opening them makes none that could hide a loss."""


def damaged_index_file(settings: BookieSettings, error: CorruptionError) -> BkctlError:
    """Return the refusal of a start over a damaged file header; ``error`` itself for anything else."""
    if any(f"{error.path}".startswith(f"{current(place)}/") for place in settings.indexes):
        return RefusedError(
            f"{error}: the index file is damaged, and whether its ledger is fenced is unknown. Bring it back"
            " from a copy, or rebuild the index with 'bkctl index rebuild"
            f" {settings.ledger_directories[0]}'"
        )
    return error


def _file_settings(settings: BookieSettings) -> IndexFileSettings:
    storage = settings.storage
    return IndexFileSettings(
        files_open_max=storage.index_files_open_max or FILES_OPEN_MAX,
        pages_max=storage.index_pages_max or _pages_of(storage),
        page_bytes=storage.index_page_bytes,
        version=storage.index_file_version,
        sync_threads=settings.entry_log.force_threads,
    )


def _caches(settings: StorageSettings) -> StorageSettings:
    memtable_bytes = settings.memtable_bytes_max
    if memtable_bytes is None:
        return settings
    # One half fills while the other one is flushed.
    return replace(settings, write_cache_bytes_max=2 * memtable_bytes)


def _pages_of(storage: StorageSettings) -> int:
    """Return the number of pages for the memory that is meant for the index; at least a few."""
    return max(storage.index_block_cache_bytes // storage.index_page_bytes, 64)


#: The storage whose index is a file for each ledger.
CHOICE = StorageChoice(open_interleaved_storage, refuse_nothing, damaged_index_file)
