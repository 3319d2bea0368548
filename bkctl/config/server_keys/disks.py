"""Full disks and read-only mode."""

from __future__ import annotations

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

_DISK = Declare(Area.DISKS)

#: Defaults, and what is taken for them where a bookie's configuration is not known.
USAGE_THRESHOLD = 0.95
USAGE_WARN_THRESHOLD = 0.90

KEYS: tuple[ConfigKey, ...] = (
    _DISK.honoured(
        "diskUsageThreshold",
        Kind.FLOAT,
        USAGE_THRESHOLD,
        "A directory whose disk is used above this takes no entries.",
        lower=0.001,
        upper=0.999,
    ),
    _DISK.honoured(
        "diskUsageWarnThreshold",
        Kind.FLOAT,
        USAGE_WARN_THRESHOLD,
        "Above this the log says so.",
        lower=0.001,
        upper=0.999,
    ),
    _DISK.honoured(
        "diskUsageLwmThreshold",
        Kind.FLOAT,
        None,
        "A full directory takes entries again below this.",
        lower=0.001,
        upper=0.999,
        default_text="diskUsageThreshold",
    ),
    _DISK.honoured(
        "diskCheckInterval", Kind.INT, 10000, "Time between two looks at the disks.", unit="ms", lower=1
    ),
    _DISK.planned(
        "minUsableSizeForIndexFileCreation",
        Kind.LONG,
        100 << 20,
        "Room that a full disk must still have for the index.",
        unit="bytes",
        lower=0,
    ),
    _DISK.honoured(
        "minUsableSizeForEntryLogCreation",
        Kind.LONG,
        None,
        "What minUsableSizeForHighPriorityWrites is unless it is set.",
        unit="bytes",
        lower=0,
        default_text="logSizeLimit",
    ),
    _DISK.honoured(
        "minUsableSizeForHighPriorityWrites",
        Kind.LONG,
        None,
        "A read-only bookie takes writes of recovery while a disk has this room.",
        unit="bytes",
        lower=0,
        default_text="minUsableSizeForEntryLogCreation",
    ),
    _DISK.honoured("readOnlyModeEnabled", Kind.BOOL, True, "false: shut down when all disks are full."),
    _DISK.honoured(
        "readOnlyModeOnAnyDiskFullEnabled", Kind.BOOL, False, "One full disk makes the bookie read-only."
    ),
    _DISK.honoured("forceReadOnlyBookie", Kind.BOOL, False, "Start read-only and stay so."),
    _DISK.honoured("persistBookieStatusEnabled", Kind.BOOL, False, "Remember read-only mode over restarts."),
)
