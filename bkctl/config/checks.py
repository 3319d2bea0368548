"""The rules between settings without which a bookie does not start: Java's, and those of its layout.

Source: ``ServerConfiguration.validate``, ``DiskChecker``, ``LedgerDirsMonitor``, ``DbLedgerStorage``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from bkctl.config.bookie import BookieConfig
from bkctl.config.server_keys.journal import JAVA_JOURNAL_DIRECTORY, JAVA_LEDGER_DIRECTORY
from bkctl.config.values import GivenValues, Notice
from bkctl.errors import UsageError
from bkctl.storage_kinds import kind_of_class

_ALIGNMENT_BYTES = 512
_FIRST_JOURNAL_WITH_FILE_INFO = 6


def check(config: BookieConfig, values: GivenValues, *, memory_given: bool) -> list[Notice]:
    """Check the settings against each other; return the notices that they deserve. Raises UsageError."""
    _check_directories(config, values)
    _check_journal(config, values)
    _check_disks(config, values)
    _check_network(config, values)
    _check_compaction(values)
    return [
        *_directory_notices(config, values),
        *_memory_notices(config, values, memory_given),
        *_journal_notices(config, values),
        *_java_notices(values),
    ]


def _check_directories(config: BookieConfig, values: GivenValues) -> None:
    directories = config.directories
    for name, paths in (
        ("journalDirectories", directories.journals),
        ("ledgerDirectories", directories.ledgers),
        ("indexDirectories", directories.indexes),
    ):
        where = values.where(name)
        twice = _first_twice(paths)
        if twice is not None:
            raise UsageError(f"{where}: {name}: {twice} is named twice")
        for path in paths:
            # A cookie separates directories by TABs, and journal directories by commas.
            if any(character < " " for character in path):
                raise UsageError(f"{where}: {name}: {path!r} holds a control character")
    in_pairs = not kind_of_class(values.text("ledgerStorageClass")).shares_log_ids
    if in_pairs and directories.indexes and len(directories.indexes) != len(directories.ledgers):
        raise UsageError(
            f"{values.where('indexDirectories')}: indexDirectories: expected as many as ledgerDirectories "
            f"({len(directories.ledgers)}), found {len(directories.indexes)}"
        )


def _first_twice(paths: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for path in paths:
        place = os.path.normpath(path)
        if place in seen:
            return path
        seen.add(place)
    return None


def _check_journal(config: BookieConfig, values: GivenValues) -> None:
    journal = config.journal
    where = values.where("journalAlignmentSize")
    if journal.alignment_bytes % _ALIGNMENT_BYTES:
        raise UsageError(
            f"{where}: journalAlignmentSize: expected a multiple of {_ALIGNMENT_BYTES}, found "
            f"{journal.alignment_bytes}"
        )
    if journal.alignment_bytes > journal.preallocation_bytes:
        raise UsageError(
            f"{where}: journalAlignmentSize: expected at most journalPreAllocSizeMB "
            f"({journal.preallocation_bytes} bytes), found {journal.alignment_bytes}"
        )
    file_info = values.integer("fileInfoFormatVersionToWrite")
    if (journal.format_version >= _FIRST_JOURNAL_WITH_FILE_INFO) != (file_info >= 1):
        where = _first_given(values, "journalFormatVersionToWrite", "fileInfoFormatVersionToWrite")
        raise UsageError(
            f"{where}: journalFormatVersionToWrite={journal.format_version} does not go with "
            f"fileInfoFormatVersionToWrite={file_info}: 6 goes with 1, and 5 or 4 with 0"
        )


def _check_disks(config: BookieConfig, values: GivenValues) -> None:
    disks = config.disks
    for name, number in (
        ("diskUsageWarnThreshold", disks.usage_warn),
        ("diskUsageLwmThreshold", disks.usage_low),
    ):
        if number > disks.usage_max + 1e-6:
            raise UsageError(
                f"{_first_given(values, name, 'diskUsageThreshold')}: {name} ({number:g}) must not be above "
                f"diskUsageThreshold ({disks.usage_max:g})"
            )


def _check_network(config: BookieConfig, values: GivenValues) -> None:
    network = config.network
    if network.write_buffer_low_bytes > network.write_buffer_high_bytes:
        raise UsageError(
            f"{_first_given(values, 'serverWriteBufferLowWaterMark', 'serverWriteBufferHighWaterMark')}: "
            f"serverWriteBufferLowWaterMark ({network.write_buffer_low_bytes}) must not be above "
            f"serverWriteBufferHighWaterMark ({network.write_buffer_high_bytes})"
        )
    if network.frame_bytes_max > config.journal.queue_bytes_max:
        raise UsageError(
            f"{values.where('nettyMaxFrameSizeBytes')}: nettyMaxFrameSizeBytes: a journal's memory "
            f"({config.journal.queue_bytes_max} bytes) must hold a frame of {network.frame_bytes_max}; raise "
            "journalMaxMemorySizeMb or --memory"
        )


def _check_compaction(values: GivenValues) -> None:
    wait_ms = values.integer("gcWaitTime")
    for name in ("minorCompactionInterval", "majorCompactionInterval", "entryLocationCompactionInterval"):
        interval_s = values.integer(name)
        if 0 < interval_s * 1000 < wait_ms:
            raise UsageError(
                f"{_first_given(values, name, 'gcWaitTime')}: {name} ({interval_s} s) must not be below "
                f"gcWaitTime ({wait_ms} ms)"
            )


def _first_given(values: GivenValues, *names: str) -> str:
    for name in names:
        if values.is_given(name):
            return values.where(name)
    return "default"


def _directory_notices(config: BookieConfig, values: GivenValues) -> Iterator[Notice]:
    directories = config.directories
    for name, paths in (
        ("journalDirectories", directories.journals),
        ("ledgerDirectories", directories.ledgers),
        ("indexDirectories", directories.indexes),
    ):
        for path in paths:
            if path in (JAVA_JOURNAL_DIRECTORY, JAVA_LEDGER_DIRECTORY):
                text = f"{name}: {path}, Java's default; systems empty such directories"
                yield Notice(True, values.where(name), text)
            elif not os.path.isabs(path):
                text = f"{name}: {path} is relative to where the bookie is started; name it from /"
                # One journal directory may come from the older key.
                yield Notice(True, _first_given(values, name, name.replace("ies", "y")), text)


def _memory_notices(config: BookieConfig, values: GivenValues, memory_given: bool) -> Iterator[Notice]:
    caches = config.storage.write_cache_bytes_max + config.storage.read_cache_bytes_max
    if memory_given and caches > config.memory_bytes:
        where = _first_given(values, "dbStorage_writeCacheMaxSizeMb", "dbStorage_readAheadCacheMaxSizeMb")
        text = f"the caches take {caches >> 20} MiB, more than --memory ({config.memory_bytes >> 20} MiB)"
        yield Notice(True, where, text)


def _journal_notices(config: BookieConfig, values: GivenValues) -> Iterator[Notice]:
    if config.journal.format_version < _FIRST_JOURNAL_WITH_FILE_INFO:
        text = (
            f"journalFormatVersionToWrite={config.journal.format_version} has no record for explicit LACs:"
            " they are acknowledged before they are durable; a crash takes those since the last flush back"
        )
        yield Notice(True, values.where("journalFormatVersionToWrite"), text)


def _java_notices(values: GivenValues) -> Iterator[Notice]:
    """Yield notices of combinations that a Java bookie refuses and that mean nothing here."""
    if values.integer("skipListArenaChunkSize") < values.integer("skipListArenaMaxAllocSize"):
        text = "Java refuses a skipListArenaChunkSize below skipListArenaMaxAllocSize"
        yield Notice(True, _first_given(values, "skipListArenaChunkSize", "skipListArenaMaxAllocSize"), text)
    if values.truth("entryLogPerLedgerEnabled") and values.truth("useTransactionalCompaction"):
        text = "Java refuses useTransactionalCompaction together with entryLogPerLedgerEnabled"
        yield Notice(True, values.where("entryLogPerLedgerEnabled"), text)
