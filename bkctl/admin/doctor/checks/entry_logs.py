"""Entry logs: headers, ledgers maps and tails, or every digest; and the number in ``lastId``."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join

from bkctl.admin.doctor.checks.journals import damaged_file
from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.unchecked import book_of, unchecked_finding
from bkctl.admin.logs import file_steps
from bkctl.admin.logs.unchecked import UncheckedEntries
from bkctl.admin.next_step import not_ended
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.codec.last_id import LAST_ID_NAME, decode_last_id
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.scan.damage import Damage, Tail, Verdict
from bkctl.scan.directory import LogFile, read_small
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.files.entrylogs import verify_logs


def check_entry_logs(exam: Examination) -> Iterator[Finding]:
    """Report the logs that are damaged.

    Without ``deep`` a log whose ledgers map accounts for every byte in front of it is taken for whole; one
    without a map is walked from record to record; every other one is verified with its digests. With ``deep``
    every log is, and entries whose digests could not be checked are reported.
    """
    logs = _logs(exam)
    suspects = logs if exam.deep else [log for log in logs if _is_suspect(exam, log)]
    paths = {log.path: log for log in suspects}
    book = book_of(exam)
    unchecked = UncheckedEntries()
    for verdict in verify_logs(exam.filesystem, suspects, book, exam.advance):
        unchecked.add(verdict)
        if verdict.verdict is Verdict.DAMAGED:
            following = file_steps.of_damaged_log(verdict.path)
            exam.damaged_logs.add(verdict.path)
            untold, log_id = verdict.damages - len(verdict.damage), paths[verdict.path].log_id
            yield damaged_file(
                "entry_logs", Kind.DAMAGED_LOG, verdict.path, verdict.damage, untold, following, log_id
            )
    if exam.deep:
        dirs = list(dict.fromkeys(log.directory for log in logs))
        yield from unchecked_finding(exam, "entry_logs", "entrylog", dirs, unchecked, book)


def _logs(exam: Examination) -> list[LogFile]:
    return [
        log
        for place in exam.subject.ledgers
        if place.found is not None
        for log in place.found.logs
        if not log.compaction
    ]


def _is_suspect(exam: Examination, log: LogFile) -> bool:
    try:
        scan = EntryLogScan(exam.filesystem, log.path)
    except NotFoundError:
        return False  # removed since it was listed
    with scan:
        head = scan.head
        if head.damage:
            return True
        if head.short:
            return False  # allocated and not written yet
        if head.ledgers_map is not None:
            exam.advance(log.size_bytes)
            return HEADER_BYTES + sum(head.ledgers_map.values()) != head.header.map_offset
        for item in scan:
            if isinstance(item, Damage):
                return True
            if isinstance(item, Tail) and item.kind not in ("end", "zeros", "torn"):
                return True
        exam.advance(log.size_bytes)
    return False


def check_last_id(exam: Examination) -> Iterator[Finding]:
    """Check ``lastId`` against the logs: the id from which the next log's is counted."""
    for place in exam.subject.ledgers:
        if place.found is None:
            continue
        path = join(place.path, LAST_ID_NAME)
        if exam.filesystem.status(path) is None:
            continue  # the DirectIO logger has none
        following = not_ended(
            "no command writes this file. The bookie writes it again when it begins the next log, whose id "
            "then follows that of the largest log",
            "entrylog",
            "list",
            place.path,
        )
        newest = max((log.log_id for log in place.found.logs), default=-1)
        try:
            last = decode_last_id(read_small(exam.filesystem, path))
        except CorruptionError as error:
            yield Finding(
                "last_id",
                Kind.UNREADABLE_LAST_ID,
                Severity.WARNING,
                f"{error}; the id of the largest log counts instead, so ids of deleted logs may be used "
                "again",
                f"{newest:x} or more, and a newline" if newest >= 0 else "a hexadecimal number and a newline",
                following,
                dir=place.path,
                path=path,
            )
            continue
        if last < newest:
            yield Finding(
                "last_id",
                Kind.LOW_LAST_ID,
                Severity.WARNING,
                f"{last:x} ({last}), but there is a log {newest:x} ({newest}): ids of deleted logs may be "
                "used again while rows of the index still name them",
                f"{newest:x} or more; it is written again with the next log",
                following,
                dir=place.path,
                path=path,
                log_id=newest,
            )
