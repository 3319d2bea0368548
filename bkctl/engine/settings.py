"""All settings of an engine, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.held_adds import HeldAddsSettings
from bkctl.errors import UsageError
from bkctl.reporting import counted
from bkctl.storage_kinds import kind_of_class


@dataclass(frozen=True, slots=True)
class BookieSettings:
    """Directories as configured (files are in their ``current``), and the settings of each part.

    ``index_directories`` empty means that the ledger directories hold the indexes too. With DbLedgerStorage
    the order of ledger and index directories is part of the format: a ledger is found by its id modulo their
    number. The order of journals is so in any case.
    """

    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    index_directories: tuple[str, ...] = ()
    journal: JournalSettings = field(default_factory=JournalSettings)
    entry_log: EntryLogSettings = field(default_factory=EntryLogSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    writes: HeldAddsSettings = field(default_factory=HeldAddsSettings)
    disks: DiskSettings = field(default_factory=DiskSettings)
    gc: GcSettings = field(default_factory=GcSettings)
    descriptors_max: int = 200_000

    def __post_init__(self) -> None:
        if not self.journal_directories or not self.ledger_directories:
            raise UsageError("a bookie needs at least one journal and one ledger directory")
        in_pairs = not kind_of_class(self.storage.storage_class).shares_log_ids
        if (
            in_pairs
            and self.index_directories
            and len(self.index_directories) != len(self.ledger_directories)
        ):
            raise UsageError(
                f"{counted(len(self.index_directories), 'index directory', 'index directories')} for"
                f" {counted(len(self.ledger_directories), 'ledger directory', 'ledger directories')}: their"
                " number must be the same"
            )
        for rules in (self.journal, self.disks, self.gc):
            rules.check()

    @property
    def indexes(self) -> tuple[str, ...]:
        """The directory of each ledger directory's index."""
        return self.index_directories or self.ledger_directories
