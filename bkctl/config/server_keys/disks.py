"""Full disks and read-only mode."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind
from bkctl.errors import UsageError

KEYS: list[ConfigKey] = []
_DISK = Declare(Area.DISKS, KEYS)

#: Defaults, and what is taken for them where a bookie's configuration is not known.
USAGE_THRESHOLD = 0.95
USAGE_WARN_THRESHOLD = 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings:
    """When a disk counts as full, and what follows. Thresholds are fractions of a disk in use."""

    usage_max: float = _DISK.setting(
        "diskUsageThreshold",
        Kind.FLOAT,
        USAGE_THRESHOLD,
        "A directory whose disk is used above this takes no entries.",
        lower=0.001,
        upper=0.999,
    )
    usage_warn: float = _DISK.setting(
        "diskUsageWarnThreshold",
        Kind.FLOAT,
        USAGE_WARN_THRESHOLD,
        "Above this the log says so.",
        lower=0.001,
        upper=0.999,
    )
    usage_low: float = _DISK.setting(
        "diskUsageLwmThreshold",
        Kind.FLOAT,
        None,
        "A full directory takes entries again below this.",
        lower=0.001,
        upper=0.999,
        default_text="diskUsageThreshold",
        unset=USAGE_THRESHOLD,
    )
    check_interval_ms: int = _DISK.setting(
        "diskCheckInterval", Kind.INT, 10000, "Time between two checks of the disks.", unit="ms", lower=1
    )
    _DISK.planned(
        "minUsableSizeForIndexFileCreation",
        Kind.LONG,
        100 << 20,
        "Room that a full disk must still have for the index.",
        unit="bytes",
        lower=0,
    )
    _DISK.honoured(
        "minUsableSizeForEntryLogCreation",
        Kind.LONG,
        None,
        "What minUsableSizeForHighPriorityWrites is unless it is set.",
        unit="bytes",
        lower=0,
        default_text="logSizeLimit",
    )
    free_bytes_min: int = _DISK.setting(
        "minUsableSizeForHighPriorityWrites",
        Kind.LONG,
        None,
        "A read-only bookie takes writes of recovery while a disk has this room.",
        unit="bytes",
        lower=0,
        default_text="minUsableSizeForEntryLogCreation",
        unset=1 << 30,
    )
    read_only_allowed: bool = _DISK.setting(
        "readOnlyModeEnabled", Kind.BOOL, True, "false: shut down when all disks are full."
    )
    read_only_on_any_full: bool = _DISK.setting(
        "readOnlyModeOnAnyDiskFullEnabled", Kind.BOOL, False, "One full disk makes the bookie read-only."
    )
    force_read_only: bool = _DISK.setting(
        "forceReadOnlyBookie", Kind.BOOL, False, "Start read-only and stay so."
    )
    persist_status: bool = _DISK.setting(
        "persistBookieStatusEnabled", Kind.BOOL, False, "Remember read-only mode over restarts."
    )

    def __post_init__(self) -> None:
        if self.check_interval_ms < 1:
            raise UsageError(f"diskCheckInterval {self.check_interval_ms}: at least 1 ms")

    def check(self) -> None:
        """Refuse values that do not go together. Raises UsageError."""
        if not 0 < self.usage_low <= self.usage_max < 1:
            raise UsageError(
                f"diskUsageThreshold {self.usage_max} and diskUsageLwmThreshold {self.usage_low}:"
                " the second is not above the first, both lie between 0 and 1"
            )
