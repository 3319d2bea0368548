"""The storages over ``.idx`` files: InterleavedLedgerStorage and SortedLedgerStorage.

::

    put_many -> active memtable --swap--> flushing memtable --flush--> logs, slots of .idx files, headers
    read     -> active, flushing, read cache, then slots and entry log, which fill the read cache

It is one storage over all ledger directories and all index directories. Caches, flush and reading are those
of DbLedgerStorage, over another index: its write cache is what Java calls a memtable (by ledger and entry,
two halves, a thread that flushes the full one, adds that wait when both are full), and its flush has the
order that durability needs. So both classes do the same; their files are the same in Java too (ADR 0019).

Source: ``org.apache.bookkeeper.bookie.InterleavedLedgerStorage``, ``SortedLedgerStorage`` and
``EntryMemTable``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence

from bkctl.clock import Clock
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.record_batch import has_entry_from
from bkctl.engine.db_storage.db_ledger_storage import DbLedgerStorage
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.spread_entry_logger import SpreadEntryLogger
from bkctl.engine.interleaved_storage.index_headers import HeaderIndex
from bkctl.engine.interleaved_storage.index_slots import SlotIndex
from bkctl.engine.interleaved_storage.log_keeper import DirectoryLogKeeper
from bkctl.engine.ledger_storage import IndexPlace, LogKeeper
from bkctl.errors import BadRequestError, BkctlError
from bkctl.storage_kinds import IDX

#: The largest entry id that is taken: its slot is within the 1 TiB that a sparse file can be everywhere.
ENTRY_ID_MAX = (1 << 37) - 1
_ENTRY_ID_BITS = 37

_ENTRY_AT = 8
_LARGEST = ENTRY_ID_MAX.to_bytes(8, "big")


class InterleavedLedgerStorage(DbLedgerStorage):
    """Entries and ledger rows of all ledger directories of a bookie; see the module's docstring.

    ``index_directories`` are the ``current`` of the directories that ``locations`` and ``ledgers`` are in.
    """

    def __init__(
        self,
        directories: Sequence[str],
        index_directories: Sequence[str],
        *,
        lock: threading.Lock,
        entry_logger: EntryLogger,
        locations: SlotIndex,
        ledgers: HeaderIndex,
        clock: Clock,
        settings: StorageSettings,
        on_failure: Callable[[BkctlError], None],
    ) -> None:
        super().__init__(
            directories[0],
            lock=lock,
            entry_logger=entry_logger,
            locations=locations,
            ledgers=ledgers,
            clock=clock,
            settings=settings,
            on_failure=on_failure,
        )
        self._slots = locations
        self.directories = tuple(directories)
        self.index_place = IndexPlace(
            self.directories, index_directories[0], IDX, tuple(index_directories[1:])
        )
        loggers = entry_logger.parts if isinstance(entry_logger, SpreadEntryLogger) else [entry_logger]
        self._keepers = [DirectoryLogKeeper(self, logger) for logger in loggers]

    @property
    def collected(self) -> Sequence[LogKeeper]:
        """One for each ledger directory; they have the index in common."""
        return self._keepers

    def put_many(
        self,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        size_bytes: int,
        ledgers: Collection[bytes] | None = None,
    ) -> None:
        """Add entries; of two with the same key the later one counts.

        Raises BadRequestError for an entry id above ``ENTRY_ID_MAX``, which no index file has a slot for;
        StorageError after a failure.
        """
        if max([key[_ENTRY_AT:] for key in keys], default=b"") > _LARGEST:
            raise _beyond()
        super().put_many(keys, bodies, size_bytes, ledgers)

    def put_records(self, records: bytes, count: int, size_bytes: int, ledgers: Iterable[bytes]) -> None:
        """Add ``count`` entries that come as whole records. Raises as :meth:`put_many`."""
        if has_entry_from(records, count, _ENTRY_ID_BITS):
            raise _beyond()
        super().put_records(records, count, size_bytes, ledgers)

    def lost_parts(self) -> dict[str, str]:
        """Return the index, as "empty", where it never had a file; else the directories that had none."""
        if self.locations.never_written:
            return dict.fromkeys(IDX.indexes, "empty")
        return dict.fromkeys(self._slots.never_written_directories, "empty")

    def note_written(self) -> None:
        """Make the index directories durably ones that were written to. Raises StorageError."""
        self.ledgers.note_written()


def _beyond() -> BadRequestError:
    return BadRequestError(f"an entry id above {ENTRY_ID_MAX}: an index file has no slot for it")
