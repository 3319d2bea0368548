"""The settings of a bookie: all sections, which ``bkctl.config.loader`` fills.

Each section is declared in ``bkctl.config.server_keys`` together with its keys. Sizes are bytes and times
milliseconds, whatever the key's unit is. None means "not set" and what that comes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.config.server_keys.identity import IdentitySettings
from bkctl.config.server_keys.journal import DirectorySettings, JournalSettings
from bkctl.config.server_keys.metadata import MetadataSettings
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.config.server_keys.security import BookieTlsSettings
from bkctl.config.server_keys.statistics import HttpSettings, StatisticsSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.config.values import GivenValues
from bkctl.storage_kinds import StorageKind, kind_of_class

#: Total of the caches unless ``--memory`` says otherwise; the stand-in for Java's direct memory.
DEFAULT_MEMORY_BYTES = 256 << 20

#: Shares of that total, as Java's of its direct memory.
WRITE_CACHE_SHARE = 0.25
READ_CACHE_SHARE = 0.25
BLOCK_CACHE_SHARE = 0.10
JOURNAL_SHARE = 0.05

#: A journal must be able to take several frames of the largest size.
JOURNAL_MEMORY_BYTES_MIN = 16 << 20


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """All settings of a bookie."""

    identity: IdentitySettings
    directories: DirectorySettings
    journal: JournalSettings
    entry_log: EntryLogSettings
    storage: StorageSettings
    disks: DiskSettings
    gc: GcSettings
    network: NetworkSettings
    tls: BookieTlsSettings | None
    metadata: MetadataSettings
    http: HttpSettings
    statistics: StatisticsSettings
    autorecovery: bool  # autoRecoveryDaemonEnabled
    #: The total that caches were sized by.
    memory_bytes: int
    #: Every key that was given, as a text; None for secrets.
    given: Mapping[str, str | None] = field(compare=False, repr=False)
    #: The same as they are read, for what has settings of its own: the client and autorecovery.
    values: GivenValues = field(compare=False, repr=False)

    @property
    def storage_kind(self) -> StorageKind:
        """The kind of ledger storage that the bookie has."""
        return kind_of_class(self.storage.storage_class)
