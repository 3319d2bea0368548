"""Everything that an engine can be told, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.engine.disks import DiskSettings
from bkctl.engine.entrylog.settings import EntryLogSettings
from bkctl.engine.gc.settings import GcSettings
from bkctl.engine.journal.settings import JournalSettings
from bkctl.engine.storage_settings import StorageSettings
from bkctl.engine.write_stage import WriteStageSettings
from bkctl.errors import UsageError
from bkctl.storage_kinds import DB_LEDGER_STORAGE


@dataclass(frozen=True, slots=True)
class BookieSettings:
    """Directories as configured (files are in their ``current``), and the settings of each part.

    ``index_directories`` empty means that the ledger directories hold the indexes too. The order of ledger
    and index directories, and of journals, is part of the format: a ledger is found by its id modulo their
    number.
    """

    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    index_directories: tuple[str, ...] = ()
    journal: JournalSettings = field(default_factory=JournalSettings)
    entry_log: EntryLogSettings = field(default_factory=EntryLogSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    writes: WriteStageSettings = field(default_factory=WriteStageSettings)
    disks: DiskSettings = field(default_factory=DiskSettings)
    gc: GcSettings = field(default_factory=GcSettings)
    flush_interval_ms: int = 10_000
    descriptors_max: int = 200_000
    #: Value of ``ledgerStorageClass``; ``storages.STORAGES`` has those that there are.
    storage_class: str = DB_LEDGER_STORAGE
    #: Cache of each location index's blocks and filters; None is the profile's own.
    index_block_cache_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.journal_directories or not self.ledger_directories:
            raise UsageError("a bookie needs at least one journal and one ledger directory")
        if self.index_directories and len(self.index_directories) != len(self.ledger_directories):
            raise UsageError(
                f"{len(self.index_directories)} index directories for {len(self.ledger_directories)} ledger"
                " directories: their number must be the same"
            )
        if self.flush_interval_ms < 1:
            raise UsageError(f"flushInterval {self.flush_interval_ms}: at least 1 ms")

    @property
    def indexes(self) -> tuple[str, ...]:
        """The directory of each ledger directory's index."""
        return self.index_directories or self.ledger_directories
