"""Reading one entry log with damage in view: once for the verdict, once for the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from bkctl.admin.index.rebuild.doubted_records import DoubtedRecords
from bkctl.admin.index.rebuild.log_task import FoundInLog, LogTask
from bkctl.admin.index.rows.framing import misframed
from bkctl.admin.index.rows.location_runs import Rows, RunWriter
from bkctl.codec.entry import EntryBatch
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.reporting import Advance, counted
from bkctl.scan.checked import CheckedBatch, checked
from bkctl.scan.damage import Damage, MissingEntries, Verdict
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan, read_head
from bkctl.scan.files.digest_survey import survey_log
from bkctl.scan.files.entrylogs import judge_logs
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.proof import Evidence
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import PosixFileSystem

_DAMAGES_NAMED = 20
_MISSING_NAMED = 10


def read_slowly(task: LogTask, writer: RunWriter, advance: Advance) -> FoundInLog:
    """Read with damage in view. Raises StorageError."""
    filesystem = PosixFileSystem()
    found = FoundInLog()
    book = task.book()
    unreadable: list[MissingEntries] = []
    with ExitStack() as opened:
        places = None
        if task.places is not None:
            places = opened.enter_context(task.places.of(task.log.log_id))
        doubted = DoubtedRecords(places)
        is_indexed = places is not None and places.is_whole
        survey_log(filesystem, task.log, book, doubted.is_located, is_indexed=is_indexed)
        end = _take_entries(task, book, doubted, unreadable, writer, found)
    known = ((ledger, book.digester(ledger)) for ledger in found.ledgers)
    found.digesters = {ledger: digester for ledger, digester in known if digester is not None}
    book.restart_trials()
    for verdict in judge_logs(filesystem, [task.log], book):
        found.unchecked = verdict.unchecked
        found.cut = verdict.tail is not Verdict.CLEAN or _ends_in_zeros(task.log, end)
        if verdict.verdict is Verdict.DAMAGED:
            _judge(task.log, verdict, unreadable, doubted, found)
    advance(task.log.size_bytes)
    return found


def _take_entries(
    task: LogTask,
    book: DigestBook,
    doubted: DoubtedRecords,
    unreadable: list[MissingEntries],
    writer: RunWriter,
    found: FoundInLog,
) -> int:
    """Write the rows of the entries of a log; return where its last record ends."""
    end, log_id = HEADER_BYTES, task.log.log_id
    evidence = Evidence(digesters=book.digesters, located=doubted.is_located, named=doubted.is_named)
    with EntryLogScan(PosixFileSystem(), task.log.path, evidence) as scan:
        for item in checked(scan, scan.records, book):
            if isinstance(item, CheckedBatch):
                batch = item.batch
                if len(batch):
                    end = batch.offset(len(batch) - 1) + 4 + batch.sizes[-1]
                good = _good_entries(item, doubted.no_entries(item, scan.records), unreadable)
                found.entries += len(good)
                found.ledgers.update(good.ledgers)
                starts = np.array(good.starts, np.int64) + (log_id << 32 | good.base + 4)
                writer.add(Rows(np.array(good.ledgers, np.int64), np.array(good.entries, np.int64), starts))
            elif isinstance(item, Damage):
                doubted.damaged(item)
    return end


def _ends_in_zeros(log: LogFile, end: int) -> bool:
    """Return whether zeros stand behind the last record of a log, where a map would."""
    file = SteadyFile(PosixFileSystem().open(log.path))
    try:
        return HEADER_BYTES < end < file.size_bytes and file.is_zero(end, file.size_bytes)
    finally:
        file.close()


def _good_entries(item: CheckedBatch, others: set[int], unreadable: list[MissingEntries]) -> EntryBatch:
    """Return the entries that an index may name; whole ones that no bookie can read go to ``unreadable``.

    ``others`` are no entries.
    """
    batch, check = item.batch, item.check
    wrong = check.failing | check.strangers.keys() | others
    framed_wrongly = misframed(batch) - wrong
    for index in sorted(framed_wrongly):
        entry = batch.entries[index]
        unreadable.append(MissingEntries(batch.ledgers[index], entry, entry, None, "header"))
    wrong |= framed_wrongly
    if not wrong:
        return batch
    return batch.select([index for index in range(len(batch)) if index not in wrong])


def _judge(
    log: LogFile,
    verdict: FileVerdict,
    unreadable: list[MissingEntries],
    doubted: DoubtedRecords,
    found: FoundInLog,
) -> None:
    """Say what is damaged, what is missing, and which ledgers may have lost entries."""
    found.damage = tuple(_damage_lines(verdict))
    named = [*unreadable, *(missing for damage in verdict.damage for missing in damage.missing)]
    found.missing = tuple(_limited((_missing_text(missing) for missing in named), _MISSING_NAMED))
    if doubted.left_out:
        found.missing += (f"perhaps never here: {doubted.left_out}",)
    found.doubts = doubted.lines(log.path)
    file = SteadyFile(PosixFileSystem().open(log.path))
    try:
        totals = read_head(file).ledgers_map
    finally:
        file.close()
    if totals is None:
        found.lost = None  # whatever lay in the damage may have been any ledger's
    else:
        # The map counts every ledger's bytes, so what it does not miss is there, but where records in doubt
        # have been counted.
        found.lost = tuple(sorted({missing.ledger for missing in named} | doubted.ledgers))


def _damage_lines(verdict: FileVerdict) -> Iterator[str]:
    yield from _limited((_damage_text(damage) for damage in verdict.damage), _DAMAGES_NAMED)
    if verdict.damages > len(verdict.damage):
        yield f"{verdict.path}: {counted(verdict.damages, 'damaged range')} in all"


def _limited(lines: Iterator[str], count: int) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == count:
            yield "and more"
            return
        yield line


def _damage_text(damage: Damage) -> str:
    text = f"{damage.path}: {counted(damage.size_bytes, 'byte')} at {damage.offset}: {damage.reason}"
    return f"{text}, expected {damage.expected}, found {damage.found}" if damage.expected else text


def _missing_text(missing: MissingEntries) -> str:
    if missing.bytes is not None:
        return f"ledger {missing.ledger}: {counted(missing.bytes, 'byte')}"
    return f"ledger {missing.ledger}: entries {missing.first_entry} to {missing.last_entry}"
