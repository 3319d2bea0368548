"""The contents of an entry log, from its ledgers map, or by a scan where the map is missing or wrong.

A map counts only if it accounts for every byte: its sizes must add up to the bytes between header and map. A
header whose map fields are left over from another log, a map that was cut or grown, and one with a size
flipped all fail that, and the log is scanned. The DirectIO logger fills up to multiples of 4096, so nothing
adds up and its logs are scanned always.

Java believes a map whose number of ledgers is that of the header; a log with stale header fields then seems
empty, and is deleted with everything in it.

Source: ``DefaultEntryLogger.extractEntryLogMetadataFromIndex`` and ``extractEntryLogMetadataByScanning``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bkctl.codec.entry import EntryBatch
from bkctl.codec.entrylog import HEADER_BYTES, EntryLogHeader, decode_header
from bkctl.engine.gc.log_usage import LogUsage
from bkctl.engine.gc.rows_into_logs import rows_pointing
from bkctl.engine.ledger_storage import EntryLocations
from bkctl.errors import CorruptionError
from bkctl.ledger_set import LedgerTotals
from bkctl.reporting import counted
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.entrylog import EntryLogHead, EntryLogScan
from bkctl.scan.lost_sectors import SECTOR_BYTES
from bkctl.vfs import FileSystem

_SIZE_BYTES = 4

#: Called with the bytes just read; raises to end the scan.
Pace = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LogReading:
    """All ledgers of a log, none judged yet, and the ranges in which no record could be read.

    The bytes of such a range are not in ``usage``. A power cut leaves ranges behind the last record that was
    forced, where no index row points; the index shows whether that is so, or the disk has lost records.
    """

    usage: LogUsage
    damage: tuple[Damage, ...] = ()


def read_log(
    filesystem: FileSystem, path: str, log_id: int, pace: Pace | None = None, *, trust_map: bool = True
) -> LogReading:
    """Read the ledgers of a log, and the bytes of each: from its map, or record by record.

    Raises CorruptionError for a file that is no log, NotFoundError, StorageError.
    """
    with EntryLogScan(filesystem, path) as scan:
        ledgers = trusted_map(scan.head) if trust_map else None
        if ledgers is not None:
            return LogReading(LogUsage(log_id, ledgers, file_bytes=scan.file.size_bytes))
        totals = LedgerTotals()
        damage: list[Damage] = []
        for item in scan:
            if isinstance(item, EntryBatch):
                window: dict[int, int] = {}
                count_bytes(item, window)
                totals.add_all(window.items())
                if pace is not None:
                    pace(sum(item.sizes))
            elif isinstance(item, Damage):
                damage.append(item)
            elif isinstance(item, Tail) and item.kind == "torn":
                rest_bytes = scan.file.size_bytes - item.offset
                damage.append(Damage(path, item.offset, rest_bytes, "torn record", "a whole one", item.found))
        header_damage = header_damage_of(scan.head)
        size_bytes = scan.file.size_bytes
        if header_damage is not None and not totals and size_bytes:
            if not scan.file.is_zero(0, min(size_bytes, SECTOR_BYTES)):
                # No part of the file can be read as a record, and the header does not say that it is a log.
                raise corruption_of(header_damage)
            # A power cut leaves such a file of a log that was never forced; the index shows whether it did.
            damage = [replace(header_damage, offset=0, size_bytes=size_bytes)]
        holes = tuple((each.offset, each.end) for each in damage)
        usage = LogUsage(log_id, totals, file_bytes=size_bytes, source="scan", holes=holes)
        return LogReading(usage, tuple(damage))


def records_bytes(filesystem: FileSystem, path: str) -> int:
    """Return the bytes of a log's records by its header, -1 where the header does not give them.

    Raises NotFoundError, StorageError.
    """
    file = filesystem.open(path)
    try:
        header = decode_header(file.read_at(0, HEADER_BYTES))
    except CorruptionError:
        return -1
    finally:
        file.close()
    return records_bytes_of(header, file.size_bytes)


def records_bytes_of(header: EntryLogHeader, file_bytes: int) -> int:
    """Return the bytes that the records of a log with this header take."""
    return (header.map_offset if header.has_map else file_bytes) - HEADER_BYTES


def trusted_map(head: EntryLogHead) -> Mapping[int, int] | None:
    """Return the ledgers map, if it accounts for every byte of the log's records."""
    found = head.ledgers_map
    if not found or head.damage or head.header.direct:
        return None
    total_bytes = 0
    for ledger, size in found.items():
        if ledger < 0 or size <= _SIZE_BYTES:
            return None
        total_bytes += size
    return found if total_bytes == head.header.map_offset - HEADER_BYTES else None


def corruption_of(damage: Damage) -> CorruptionError:
    """Return the error that names a damage."""
    return CorruptionError(
        damage.reason,
        offset=damage.offset,
        expected=damage.expected,
        found=damage.found or counted(damage.size_bytes, "byte"),
        path=damage.path,
    )


def header_damage_of(head: EntryLogHead) -> Damage | None:
    """Return the damage of a log's header that makes the file no log."""
    return next((damage for damage in head.damage if damage.offset < HEADER_BYTES), None)


def count_bytes(batch: EntryBatch, totals: dict[int, int]) -> None:
    """Add the bytes of each record, size word included, to its ledger's."""
    for ledger, size in zip(batch.ledgers, batch.sizes, strict=True):
        totals[ledger] = totals.get(ledger, 0) + size + _SIZE_BYTES


def pointed_at(
    locations: EntryLocations,
    damaged: Mapping[int, Sequence[Damage]],
    going_on: Callable[[], None],
) -> dict[int, Damage]:
    """Find for each of the logs the first damage in which an entry of the index begins.

    Logs without such a damage are left out.

    Reads the whole index once. Raises StorageError, CorruptionError, and what ``going_on`` raises.
    """
    found: dict[int, Damage] = {}
    for _, location in rows_pointing(locations, damaged, going_on):
        log_id = location >> 32
        if log_id not in found:
            # A row points behind the size word.
            start = (location & 0xFFFF_FFFF) - _SIZE_BYTES
            hit = next((each for each in damaged[log_id] if each.offset <= start < each.end), None)
            if hit is not None:
                found[log_id] = hit
    return found
