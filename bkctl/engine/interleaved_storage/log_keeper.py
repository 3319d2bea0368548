"""The keeper of one of several ledger directories with a common index, for a collector to work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.ledger_storage import EntryLocations, IndexPlace, LedgerRows

_Result = TypeVar("_Result")


class SharedIndex(Protocol):
    """The storage that several keepers stand on."""

    @property
    def index_place(self) -> IndexPlace: ...

    @property
    def locations(self) -> EntryLocations: ...

    @property
    def ledgers(self) -> LedgerRows: ...

    def flush(self) -> None: ...

    def note_synced(self) -> None: ...

    def while_quiet(self, work: Callable[[], _Result]) -> _Result: ...

    def is_lost(self, key: bytes) -> bool: ...


class DirectoryLogKeeper:
    """Implements :class:`~bkctl.engine.ledger_storage.LogKeeper` for the directory of ``entry_logger``."""

    def __init__(self, storage: SharedIndex, entry_logger: EntryLogger) -> None:
        self.entry_logger = entry_logger
        self._storage = storage

    @property
    def directory(self) -> str:
        """The ``current`` directory of the logs."""
        return self.entry_logger.directory

    @property
    def index_place(self) -> IndexPlace:
        """The place of the index of all directories."""
        return self._storage.index_place

    @property
    def locations(self) -> EntryLocations:
        """The locations of all entries, those in the logs of other directories included."""
        return self._storage.locations

    @property
    def ledgers(self) -> LedgerRows:
        """The rows of all ledgers."""
        return self._storage.ledgers

    def flush(self) -> None:
        """Flush the storage."""
        self._storage.flush()

    def note_synced(self) -> None:
        """Note durably what of the index is synced."""
        self._storage.note_synced()

    def while_quiet(self, work: Callable[[], _Result]) -> _Result:
        """Return what ``work`` returns, which runs while no flush does."""
        return self._storage.while_quiet(work)

    def is_lost(self, key: bytes) -> bool:
        """Return whether the index lacks an entry that it ought to have, after it was asked for the entry."""
        return self._storage.is_lost(key)
