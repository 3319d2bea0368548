"""Entry logs: list, show, scan, verify."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bkctl.codec.entry import EntryBatch
from bkctl.errors import NotFoundError, StorageError
from bkctl.reporting import Advance, Failed, fail, listed, nobody
from bkctl.scan.checked import ALL, CheckedBatch, Wanted, checked
from bkctl.scan.damage import Damage, MissingEntries, Tail, Verdict
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan, read_head
from bkctl.scan.files.digest_survey import survey_logs
from bkctl.scan.files.loss import LossTracker
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.log_anchors import LogAnchors
from bkctl.scan.proof import Evidence
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

#: Ledgers that a message names.
_LEDGERS_NAMED = 5


@dataclass(frozen=True, slots=True)
class EntryLogSummary:
    """One row of ``entrylog list``. ``ledgers`` is the header's count, None without a map."""

    dir: str
    log_id: int
    path: str
    bytes: int
    version: int | None
    has_ledgers_map: bool
    ledgers: int | None


@dataclass(frozen=True, slots=True)
class LedgerShare:
    """The share of one ledger in a log: bytes with the size words, entries unless only the map was read."""

    ledger: int
    bytes: int
    entries: int | None


@dataclass(frozen=True, slots=True)
class EntryLogContents:
    """Answer of ``entrylog show``. ``source`` is ``map`` or ``walk``."""

    dir: str
    log_id: int
    path: str
    bytes: int
    entries: int | None
    ledgers: tuple[LedgerShare, ...]
    source: str
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class LogEntries:
    """Entries of one log with their digests."""

    log: LogFile
    entries: CheckedBatch


def list_logs(filesystem: FileSystem, logs: Iterable[LogFile]) -> Iterator[EntryLogSummary]:
    """Yield one summary per log; only headers and ledgers maps are read.

    A header that cannot be read has version None.
    """
    for log in logs:
        file = SteadyFile(filesystem.open(log.path))
        try:
            head = read_head(file)
        finally:
            file.close()
        known = not head.short and not any(damage.offset < 8 for damage in head.damage)
        header = head.header
        yield EntryLogSummary(
            log.directory,
            log.log_id,
            log.path,
            file.size_bytes,
            header.version if known else None,
            header.has_map,
            header.ledgers if header.has_map else None,
        )


def show_log(
    filesystem: FileSystem, log: LogFile, *, walk: bool = False, advance: Advance = nobody
) -> EntryLogContents:
    """Return the ledgers of a log, from its map when there is a good one, unless ``walk``."""
    with EntryLogScan(filesystem, log.path) as scan:
        if scan.head.ledgers_map is not None and not walk:
            shares = tuple(
                LedgerShare(ledger, size, None) for ledger, size in sorted(scan.head.ledgers_map.items())
            )
            return _contents(log, scan, None, shares, "map", tuple(scan.head.damage))
        counts: Counter[int] = Counter()
        sizes: dict[int, int] = {}
        damage = list(scan.head.damage)
        for item in scan:
            if isinstance(item, EntryBatch):
                counts.update(item.ledgers)
                add_sizes(sizes, item)
                advance(item.base + item.starts[-1])
            elif isinstance(item, Damage):
                damage.append(item)
        shares = tuple(LedgerShare(ledger, sizes[ledger], counts[ledger]) for ledger in sorted(counts))
        return _contents(log, scan, counts.total(), shares, "walk", tuple(damage))


def _contents(
    log: LogFile,
    scan: EntryLogScan,
    entries: int | None,
    shares: tuple[LedgerShare, ...],
    source: str,
    damage: tuple[Damage, ...],
) -> EntryLogContents:
    return EntryLogContents(
        log.directory, log.log_id, log.path, scan.file.size_bytes, entries, shares, source, damage
    )


def add_sizes(sizes: dict[int, int], batch: EntryBatch) -> None:
    """Add the framed bytes of the batch's entries to their ledgers, as a ledgers map counts them."""
    present = set(batch.ledgers)
    if len(present) == 1:
        (ledger,) = present
        sizes[ledger] = sizes.get(ledger, 0) + sum(batch.sizes) + 4 * len(batch)
        return
    smallest = min(batch.sizes)
    if smallest == max(batch.sizes):
        for ledger, count in Counter(batch.ledgers).items():
            sizes[ledger] = sizes.get(ledger, 0) + count * (smallest + 4)
        return
    get = sizes.get
    for ledger, size in zip(batch.ledgers, batch.sizes, strict=True):
        sizes[ledger] = get(ledger, 0) + size + 4


def scan_logs(
    filesystem: FileSystem,
    logs: list[LogFile],
    book: DigestBook,
    wanted: Wanted = ALL,
    advance: Advance = nobody,
    failed: Failed = fail,
) -> Iterator[LogEntries | Damage]:
    """Yield the entries of the logs, and their damage, in file order.

    A log whose good ledgers map does not name the wanted ledger is passed over. ``failed`` is called for logs
    that cannot be opened.
    """
    survey_logs(filesystem, logs, book, wanted)
    for log in logs:
        with LogAnchors(filesystem, log) as anchors:
            try:
                scan = EntryLogScan(filesystem, log.path, _evidence(book, anchors))
            except NotFoundError:
                continue  # a running bookie's GC removed it since it was listed
            except StorageError as error:
                failed(error)
                continue
            with scan:
                yield from _scan_one(scan, log, book, wanted)
        advance(log.size_bytes)


def _scan_one(
    scan: EntryLogScan, log: LogFile, book: DigestBook, wanted: Wanted
) -> Iterator[LogEntries | Damage]:
    totals = scan.head.ledgers_map
    yield from scan.head.damage
    if totals is not None and wanted.ledger is not None and wanted.ledger not in totals:
        return
    for item in checked(scan, scan.records, book, wanted):
        if isinstance(item, CheckedBatch):
            yield LogEntries(log, item)
        elif isinstance(item, Damage):
            yield item


def _evidence(book: DigestBook, anchors: LogAnchors) -> Evidence:
    return Evidence(digesters=book.digesters, located=anchors.located)


def verify_logs(
    filesystem: FileSystem,
    logs: list[LogFile],
    book: DigestBook,
    advance: Advance = nobody,
    failed: Failed = fail,
) -> Iterator[FileVerdict]:
    """Yield one verdict per log: header, map against log, every record and every digest that can be checked.

    ``failed`` is called for logs that cannot be opened.
    """
    survey_logs(filesystem, logs, book)
    yield from judge_logs(filesystem, logs, book, advance, failed)


def judge_logs(
    filesystem: FileSystem,
    logs: list[LogFile],
    book: DigestBook,
    advance: Advance = nobody,
    failed: Failed = fail,
) -> Iterator[FileVerdict]:
    """Yield the verdicts of :func:`verify_logs`; the book has learnt the digest types already."""
    for log in logs:
        with LogAnchors(filesystem, log) as anchors:
            try:
                scan = EntryLogScan(filesystem, log.path, _evidence(book, anchors))
            except NotFoundError:
                continue  # as in scan_logs
            except StorageError as error:
                failed(error)
                continue
            with scan:
                yield _verify(scan, book, anchors)
        advance(log.size_bytes)


def _verify(scan: EntryLogScan, book: DigestBook, anchors: LogAnchors) -> FileVerdict:
    sizes: dict[int, int] = {}
    tracker = LossTracker(scan.file.path, anchors.entries_in, anchors.located)
    for damage in scan.head.damage:
        tracker.damaged(damage)
    totals = scan.head.ledgers_map
    for item in checked(scan, scan.records, book):
        if isinstance(item, CheckedBatch):
            tracker.entries(item)
            if totals is not None:
                add_sizes(sizes, item.batch)
        elif isinstance(item, MarkedRecord):
            tracker.salvaged(item.framed_bytes if item.body else 0)
        elif isinstance(item, Damage):
            tracker.damaged(item)
        elif isinstance(item, Tail):
            _judge_tail(scan, tracker, item)
    if totals is not None:
        _compare_map(scan, tracker, totals, sizes)
    return tracker.verdict()


def _judge_tail(scan: EntryLogScan, tracker: LossTracker, tail: Tail) -> None:
    """Check that a log that was rolled ends with its map: nothing may be torn behind that."""
    if tail.kind != "torn":
        return
    if scan.head.header.has_map and not tracker.damages:
        tracker.damaged(
            Damage(
                scan.file.path,
                tail.offset,
                scan.file.size_bytes - tail.offset,
                "rolled log is cut",
                "whole records up to the end",
                tail.found,
            )
        )
    else:
        tracker.tail(Verdict.TORN_TAIL)


def _compare_map(
    scan: EntryLogScan, tracker: LossTracker, totals: Mapping[int, int], sizes: dict[int, int]
) -> None:
    """Compare the map's bytes per ledger with what the log holds; a gap is what damage took."""
    missing = []
    for ledger in sorted(totals.keys() | sizes.keys()):
        lacking = totals.get(ledger, 0) - sizes.get(ledger, 0)
        if lacking:
            missing.append(MissingEntries(ledger, None, None, lacking, "map"))
    if not missing:
        return
    if tracker.damages:
        tracker.attribute(tuple(gap for gap in missing if gap.bytes is not None and gap.bytes > 0))
        return
    named = [f"ledger {gap.ledger}: {totals.get(gap.ledger, 0)}" for gap in missing]
    found = [f"ledger {gap.ledger}: {sizes.get(gap.ledger, 0)}" for gap in missing[:_LEDGERS_NAMED]]
    tracker.damaged(
        Damage(
            scan.file.path,
            scan.head.header.map_offset,
            scan.file.size_bytes - scan.head.header.map_offset,
            "ledgers map disagrees with the log",
            f"bytes of {listed(named, _LEDGERS_NAMED)}",
            ", ".join(found),
            tuple(gap for gap in missing if gap.bytes is not None and gap.bytes > 0),
        )
    )
