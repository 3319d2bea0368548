"""Find whole copies of lost entries in the logs of a bookie.

An entry has several copies where a replay or a compaction was interrupted and repeated. The index names the
newest, and the others are garbage until a log is collected. When the copy that the index names is damaged,
one of the others is as good, in the same log or in another. Logs in quarantine are read as well, also those
whose records were salvaged: a copy that was garbage at that time may be the last one now.

A copy is whole when its digest checks. Where the digest type of its ledger is not known, it is whole when the
chain of sizes and ids around it is, as for every record of a salvage. Records behind damage of another log,
up to the next one that the index names there, may be the inside of an entry whose payload is a log
(``scan.sure_records``), and are no copies.

Of several copies those that a CRC proves come first, then those that only their place proves, then those
whose end nothing proves; among equals the newest counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from posixpath import basename

from bkctl.admin.entrylogs.log_place import LogPlace, logs_with_quarantine
from bkctl.admin.entrylogs.open_ends import Neighbours, OpenEnd, is_proved, why_open
from bkctl.admin.entrylogs.salvaged_records import KeptRecords, LogReading, SecondCopy, places
from bkctl.codec.entrylog import parse_log_name
from bkctl.codec.location import encode_key
from bkctl.codec.losses import Range
from bkctl.errors import NotFoundError, StorageError
from bkctl.reporting import Advance, nobody
from bkctl.scan.checked import CheckedBatch, checked
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.proof import Evidence
from bkctl.scan.proved_ids import EntryIds, proves_itself
from bkctl.scan.sure_records import SureRecords
from bkctl.vfs.base import FileSystem

_SIZE_BYTES = 4


def find_second_copies(
    fs: FileSystem,
    place: LogPlace,
    lost: Mapping[int, tuple[Range, ...]],
    book: DigestBook,
    own: LogReading,
    advance: Advance = nobody,
) -> dict[EntryIds, SecondCopy]:
    """Return the newest whole copy of each lost entry in the logs that share ids with a log, itself included.

    ``lost`` has ranges in order by ledger. A log whose ledgers map names none of the ledgers is not read; one
    that cannot be opened has no copy. ``own`` has read the log itself.
    """
    if not lost:
        return {}
    found: dict[EntryIds, SecondCopy] = {}
    for log in _logs(fs, place):
        advance(log.size_bytes)
        if not _may_hold(fs, log, lost):
            continue
        for kept in _copies_in(fs, place, log.path, lost, book, own):
            note_copies(found, kept, log.path, book)
    return found


def note_copies(found: dict[EntryIds, SecondCopy], kept: KeptRecords, path: str, book: DigestBook) -> None:
    """Add the records of a batch to the copies that were found, where they are as good, and newer."""
    batch, check = kept.entries.batch, kept.entries.check
    for index, ids in zip(kept.indices, kept.ids(), strict=True):
        proved = is_proved(check, index, ids.ledger) or proves_itself(bytes(batch.body(index)))
        offset, open_end = batch.offset(index), None
        if index in kept.open_ends and not proved:
            why = why_open(book, ids.ledger)
            open_end = OpenEnd(ids, path, offset, batch.sizes[index], why)
        copy = SecondCopy(path, offset, proved, index in kept.renamed, open_end)
        if ids not in found or _rank(copy) >= _rank(found[ids]):
            found[ids] = copy


def _rank(copy: SecondCopy) -> tuple[bool, bool]:
    return copy.is_proved, copy.open_end is None


def read_second_copies(
    fs: FileSystem,
    place: LogPlace,
    copies: Mapping[EntryIds, SecondCopy],
    book: DigestBook,
    own: LogReading,
) -> Iterator[tuple[KeptRecords, list[SecondCopy]]]:
    """Yield the copies that were found, log by log, with their records, which are checked once more."""
    by_path: dict[str, list[EntryIds]] = {}
    for ids, copy in sorted(copies.items()):
        by_path.setdefault(copy.path, []).append(ids)
    for path, entries in by_path.items():
        wanted: dict[int, list[Range]] = {}
        for ids in entries:
            wanted.setdefault(ids.ledger, []).append((ids.entry, ids.entry))
        ranges = {ledger: tuple(each) for ledger, each in wanted.items()}
        for kept in _copies_in(fs, place, path, ranges, book, own):
            chosen = {
                index: copies[ids]
                for index, ids in zip(kept.indices, kept.ids(), strict=True)
                if copies[ids].path == path and copies[ids].offset == kept.entries.batch.offset(index)
            }
            if chosen:
                renamed = {index: kept.renamed[index] for index in chosen if index in kept.renamed}
                yield KeptRecords(kept.entries, list(chosen), renamed), list(chosen.values())


def _logs(fs: FileSystem, place: LogPlace) -> list[LogFile]:
    """Return the logs that share ids with a log, itself and those in quarantine among them, by their ids."""
    logs = [log for directory in place.log_dirs for log in logs_with_quarantine(fs, directory)]
    return sorted(logs, key=lambda log: (log.log_id, log.path))


def _may_hold(fs: FileSystem, log: LogFile, lost: Mapping[int, tuple[Range, ...]]) -> bool:
    """Return whether a log can be opened, and has no map that speaks against it."""
    try:
        scan = EntryLogScan(fs, log.path)
    except (NotFoundError, StorageError):
        return False
    with scan:
        ledgers = scan.head.ledgers_map
        return ledgers is None or any(ledger in ledgers for ledger in lost)


def _copies_in(
    fs: FileSystem,
    place: LogPlace,
    path: str,
    lost: Mapping[int, tuple[Range, ...]],
    book: DigestBook,
    own: LogReading,
) -> Iterator[KeptRecords]:
    """Yield the whole records of lost entries in one log, of the log itself those that its rows let stand."""
    if path != place.log.path:
        yield from _whole_copies(fs, path, lost, book, own)
        return
    for item, open_ends in own.again(fs, place):
        kept = whole_records(item, open_ends, lost)
        if kept is not None:
            yield replace(kept, indices=[index for index in kept.indices if own.is_entry(item, index)])


def _whole_copies(
    fs: FileSystem, path: str, lost: Mapping[int, tuple[Range, ...]], book: DigestBook, own: LogReading
) -> Iterator[KeptRecords]:
    """Yield the whole records of lost entries in another log, but for what may be the inside of a record."""
    book.restart_trials()
    log_id = parse_log_name(basename(path))

    def located(offset: int, ledger: int, entry: int) -> bool:
        (there,) = places(own.locations, [encode_key(ledger, entry)])
        return there is not None and (there.log_id, there.offset) == (log_id, offset + _SIZE_BYTES)

    records = SureRecords(located)
    with EntryLogScan(fs, path, Evidence(digesters=book.digesters)) as scan:
        neighbours = Neighbours(lambda _: False, scan.records.known_ledgers, scan.file.size_bytes)
        for item in neighbours.watched(checked(scan, scan.records, book)):
            if isinstance(item, Damage):
                records.damaged(item)
            elif isinstance(item, CheckedBatch):
                sure = records.sure(item.batch)
                kept = whole_records(item, neighbours.open_ends, lost)
                if kept is not None:
                    yield replace(kept, indices=[index for index in kept.indices if index in sure])


def whole_records(
    item: CheckedBatch, open_ends: frozenset[int], lost: Mapping[int, tuple[Range, ...]]
) -> KeptRecords | None:
    """Return the whole records of lost entries in a batch, None without any."""
    batch, check = item.batch, item.check
    indices, renamed = [], {}
    for index, said in enumerate(map(EntryIds, batch.ledgers, batch.entries)):
        ids = check.strangers.get(index, said)
        is_whole = index not in check.failing or index in check.strangers
        if is_whole and _is_among(ids, lost):
            indices.append(index)
            if ids != said:
                renamed[index] = ids
    return KeptRecords(item, indices, renamed, open_ends & set(indices)) if indices else None


def _is_among(ids: EntryIds, lost: Mapping[int, tuple[Range, ...]]) -> bool:
    ranges = lost.get(ids.ledger, ())
    at = bisect_right(ranges, ids.entry, key=lambda each: each[0]) - 1
    return at >= 0 and ids.entry <= ranges[at][1]
