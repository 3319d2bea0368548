"""Databases that cannot be opened, and the index against the logs in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from posixpath import join

from bkctl.admin.doctor.checks.lost_indexes import check_lost_indexes
from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Severity
from bkctl.admin.doctor.finding import Kind as DoctorKind
from bkctl.admin.doctor.unchecked import book_of
from bkctl.admin.index.check.check import CheckOptions, check_spaces
from bkctl.admin.index.check.finding import Finding as IndexFinding
from bkctl.admin.index.check.finding import Kind
from bkctl.admin.index.check.finding import Severity as IndexSeverity
from bkctl.admin.index.check.next_steps import next_step
from bkctl.admin.index.rebuild.options import MEMORY_BYTES_DEFAULT
from bkctl.admin.next_step import NextStep, ended_by, not_ended
from bkctl.codec.entrylog import log_name
from bkctl.directories.index_spaces import emptied_spaces, index_spaces
from bkctl.errors import BkctlError, CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.reporting import counted
from bkctl.scan.index_databases import LEDGERS, LOCATIONS, open_store

#: Different groups of findings (kind, directory, log or ledger) that are kept; more are counted together.
GROUPS_MAX = 500

_BY_LOG = frozenset(
    {
        Kind.DANGLING_LOCATION, Kind.FOREIGN_ENTRY, Kind.DAMAGED_LOG, Kind.MISSING_LOCATION,
        Kind.QUARANTINED_LOCATION, Kind.SALVAGED_LOCATION,
    }
)  # fmt: skip
_BY_DIRECTORY = frozenset(
    {
        Kind.WRONG_DIRECTORY, Kind.WRONG_LOG_ID_SPACE, Kind.PENDING_REPLAY, Kind.LIMBO, Kind.WIDE_KEY,
        Kind.UNDECODABLE_ROW, Kind.LOCATIONS_WITHOUT_LEDGER, Kind.MISSING_LEDGER, Kind.ONLY_IN_JOURNAL,
        Kind.MISSING_ENTRIES, Kind.DAMAGED_MASTER_KEY, Kind.OTHER_MASTER_KEY, Kind.DAMAGED_JOURNAL_KEY,
        Kind.DOUBTFUL_MASTER_KEY, Kind.CUT_JOURNAL,
    }
)  # fmt: skip
#: Findings that matter only when the metadata place their ledger on the bookie.
_OF_REPLICAS = frozenset({Kind.LIMBO, Kind.SALVAGED_LOCATION})
#: Notes of ``index check`` that somebody should see to.
_WARNINGS = frozenset({Kind.LIMBO, Kind.INTEGRITY_FLAG, Kind.NOT_PROVED})
#: Natural, and of no use without the rest of ``index check``.
_UNTOLD = frozenset({Kind.LEDGER_WITHOUT_ENTRIES, Kind.BOOKIE_UNKNOWN})

_EXPECTED = {
    Kind.DANGLING_LOCATION: "the entry at the place where its row in the index says",
    Kind.QUARANTINED_LOCATION: "every log that the index names in its place",
    Kind.SALVAGED_LOCATION: "the entry in another log, or its ledger whole on the other replicas",
    Kind.FOREIGN_ENTRY: "the entry at the place where its row in the index says",
    Kind.WRONG_LOG_ID_SPACE: "an index beside the logs that it was made for",
    Kind.WRONG_DIRECTORY: "the ledgers whose id modulo the number of directories is this directory's place",
    Kind.MISSING_LOCATION: "a row in the index for every entry of a living ledger",
    Kind.DAMAGED_LOG: "records one behind the other",
    Kind.ONLY_IN_JOURNAL: "the entries of every journal in front of the last mark in some log",
    Kind.CUT_JOURNAL: "journals that are as long as they were",
    Kind.LOCATIONS_WITHOUT_LEDGER: "a ledger row for every ledger with locations",
    Kind.MISSING_LEDGER: "a ledger row for every ledger that the metadata places here",
    Kind.MISSING_ENTRIES: "every entry that the metadata of closed ledgers place here",
    Kind.DAMAGED_MASTER_KEY: "the master keys of the passwords in the metadata",
    Kind.OTHER_MASTER_KEY: "the master keys of the passwords in the metadata",
    Kind.DAMAGED_JOURNAL_KEY: "key records in the journals with the master keys of the passwords",
    Kind.DOUBTFUL_MASTER_KEY: "the same master key of a ledger in the index and in the journals",
    Kind.WIDE_KEY: "ledger rows with keys of 8 bytes",
    Kind.UNDECODABLE_ROW: "rows that decode",
    Kind.DAMAGED_IDX_HEADER: "an .idx file that begins with BKLE",
    Kind.DUPLICATE_IDX: "one .idx file for each ledger",
    Kind.UNREADABLE_INDEX: "an index that can be read to its end",
    Kind.LOST_INDEX: "an index of what is in the logs",
    Kind.EMPTIED_DIRECTORY: "logs and an index in every ledger directory of a bookie that has served",
    Kind.PENDING_REPLAY: "an index that is complete; the next start completes it",
    Kind.LIMBO: "no ledger in limbo: what was lost is back, or known to be nowhere",
    Kind.INTEGRITY_FLAG: "no data integrity check that is due",
    Kind.LEAKED_LOCATION: "no rows of deleted ledgers",
    Kind.POSITION_UNKNOWN: "a cookie that fits the directories' paths",
    Kind.NO_JOURNAL: "the bookie's journal directory, too",
    Kind.NO_INDEX: "an index, after the first flush",
    Kind.NOT_PROVED: "an index of which metadata prove that the logs have every entry",
}


def check_databases(exam: Examination) -> Iterator[Finding]:
    """Check whether RocksDB opens ``locations`` and ``ledgers``, and both are there and are no empty ones."""
    empty: dict[str, set[str]] = {}
    for place in exam.subject.indexes:
        present = set(place.found.indexes) if place.found is not None else set()
        if not present & {LOCATIONS, LEDGERS}:
            continue
        for name in (LOCATIONS, LEDGERS):
            path = join(place.path, name)
            problem: str | None = "is not there, while the other database is"
            never_written = False
            if name in present:
                problem, never_written = _opened(path)
            if never_written:
                empty.setdefault(place.path, set()).add(name)
            if problem is None:
                continue
            exam.unreadable.add(place.path)
            yield Finding(
                "databases",
                DoctorKind.UNREADABLE_DATABASE,
                Severity.ERROR,
                f"{name}: {problem}",
                "a RocksDB database that opens",
                ended_by(("index", "rebuild", place.path, f"--{name}", "--yes")),
                dir=place.path,
                path=path,
            )
    yield from check_lost_indexes(exam, empty)


def _opened(path: str) -> tuple[str | None, bool]:
    """Return the fault of a database, None when it has none; and whether it was never written to."""
    try:
        store = open_store(path)
    except (CorruptionError, NotFoundError, StorageError) as error:
        return _fault(error, path), False
    try:
        if store.damage is not None:
            return store.damage, False
        for _ in store.batches(rows_max=1):
            return None, False
        return None, store.never_written
    except (CorruptionError, StorageError) as error:
        return _fault(error, path), False
    finally:
        store.close()


def _fault(error: BkctlError, path: str) -> str:
    """Return what an error says without the path of the database, which the finding has a field for."""
    return str(error).removeprefix(f"{path}: ")


def check_index(exam: Examination) -> Iterator[Finding]:
    """Run ``index check``; findings that have one cause are reported as one."""
    found = [
        place.found
        for place in exam.subject.places
        if place.found is not None and place.path not in exam.unreadable
    ]
    placed = exam.placed_then if exam.placed is None else exam.placed
    has_any = any(one.indexes or one.holds_logs for one in found)
    if not has_any and not placed:
        return
    try:
        # Where nothing is left but cookies only the metadata say what there was.
        spaces = (
            index_spaces(exam.filesystem, found, emptied=True)
            if has_any
            else emptied_spaces(exam.filesystem, found)
        )
    except UsageError as error:
        yield Finding(
            "index",
            DoctorKind.INDEX_WITHOUT_PLACE,
            Severity.WARNING,
            str(error),
            "an index for every ledger directory",
            not_ended("name the directories of one bookie, all of them", "index", "check", found[0].path),
        )
        return
    spaces = [space for space in spaces if not exam.unreadable & {*space.index_dirs, *space.log_dirs}]
    options = CheckOptions(book_of(exam), exam.ledgers, MEMORY_BYTES_DEFAULT, placed=placed)
    groups = _Groups(exam)
    for finding in check_spaces(exam.filesystem, spaces, options, exam.advance):
        groups.add(finding)
    yield from groups.findings()


@dataclass(slots=True)
class _Group:
    first: IndexFinding
    count: int


class _Groups:
    """Groups rows of ``index check`` into findings, because one cause mostly shows in many rows.

    There is one finding for each kind and log, ledger or directory: for a directory where one command mends
    all of its ledgers.
    """

    def __init__(self, exam: Examination) -> None:
        self._exam = exam
        self._groups: dict[tuple[Kind, str, int | None], _Group] = {}
        self._strangers: dict[str, set[int]] = {}

    def add(self, finding: IndexFinding) -> None:
        kind = finding.kind
        if kind in _UNTOLD or self._is_told(finding):
            return
        if kind in _OF_REPLICAS and self._is_stranger(finding):
            self._strangers.setdefault(finding.dir, set()).add(finding.ledger or 0)
            return
        which = finding.log_id if kind in _BY_LOG else None if kind in _BY_DIRECTORY else finding.ledger
        key = (kind, finding.dir, which)
        if key not in self._groups and len(self._groups) >= GROUPS_MAX:
            key = (kind, finding.dir, None)
        group = self._groups.setdefault(key, _Group(finding, 0))
        group.count += 1

    def _is_told(self, finding: IndexFinding) -> bool:
        if finding.kind is not Kind.DAMAGED_LOG or finding.log_id is None:
            return False
        return join(finding.dir, log_name(finding.log_id)) in self._exam.damaged_logs

    def _is_stranger(self, finding: IndexFinding) -> bool:
        """Return whether the metadata place neither the ledger nor the entry of a finding on this bookie.

        A replay may have added an entry whose id in the journal was damaged; no replica brings that back.
        """
        placed = self._exam.placed
        if placed is None or finding.ledger is None:
            return False
        stripes = placed.get(finding.ledger)
        if stripes is None:
            return True
        entry = finding.entry
        return bool(stripes) and entry is not None and not any(stripe.holds(entry) for stripe in stripes)

    def findings(self) -> Iterator[Finding]:
        for group in self._groups.values():
            yield _told(self._exam, group.first, group.count)
        for directory, ledgers in sorted(self._strangers.items()):
            yield Finding(
                "index",
                DoctorKind.MISPLACED_LEDGER,
                Severity.NOTE,
                f"{counted(len(ledgers), 'ledger')} in limbo or without entries, the first: {min(ledgers)}. "
                "The metadata do not place the ledger, or these entries of it, on this bookie",
                "only ledgers and entries that the metadata place here",
                not_ended("nothing to do: garbage collection removes them", "index", "ledgers", directory),
                dir=directory,
                count=len(ledgers),
            )


def _told(exam: Examination, first: IndexFinding, count: int) -> Finding:
    kind = first.kind
    expected, found = _EXPECTED[kind], first.detail
    path = _log_path(exam, first)
    if kind is Kind.MISSING_ENTRIES and exam.placed is None:
        return _missing_by_dump(first, count)
    if kind is Kind.DANGLING_LOCATION and path is not None and not _is_there(exam, first):
        rows = counted(count, "row")
        found = f"log {first.log_id} ({log_name(first.log_id or 0)}) is gone, and the index has {rows} of it"
        expected = "every log that the index names: bring it back, or let the entries be replicated again"
    elif count > 1:
        found = f"{count} times, the first: {_entry(first)}{found}"
    else:
        found = f"{_entry(first)}{found}"
    finding = Finding(
        "index",
        kind.value,
        _severity(first),
        f"{kind.value}: {found}",
        expected,
        _next(exam, first),
        dir=first.dir,
        path=path,
        ledger=first.ledger,
        log_id=first.log_id,
        journal_id=first.journal_id,
        offset=first.offset,
        count=count,
    )
    return replace(finding, ledger=None) if count > 1 and kind in _BY_DIRECTORY | _BY_LOG else finding


def _entry(first: IndexFinding) -> str:
    if first.ledger is None:
        return ""
    entry = "" if first.entry is None else f" entry {first.entry}"
    return f"ledger {first.ledger}{entry}: "


def _log_path(exam: Examination, first: IndexFinding) -> str | None:
    """Return the path of a finding's log: beside its index, else where the only log of this id is."""
    if first.log_id is None:
        return None
    beside, there = join(first.dir, log_name(first.log_id)), _logs_of(exam, first)
    return there[0] if len(there) == 1 and beside not in there else beside


def _is_there(exam: Examination, first: IndexFinding) -> bool:
    return bool(_logs_of(exam, first))


def _logs_of(exam: Examination, first: IndexFinding) -> list[str]:
    return [
        log.path
        for place in exam.subject.places
        if place.found is not None and place in exam.subject.ledgers
        for log in place.found.logs
        if log.log_id == first.log_id
    ]


def _severity(first: IndexFinding) -> Severity:
    if first.severity is IndexSeverity.DAMAGE:
        return Severity.ERROR
    return Severity.WARNING if first.kind in _WARNINGS else Severity.NOTE


def _missing_by_dump(first: IndexFinding, count: int) -> Finding:
    """Report ledgers that lack entries which a dump places here: it may be older than their deletion."""
    lacking = counted(count, "closed ledger lacks", "closed ledgers lack")
    return Finding(
        "index",
        Kind.MISSING_ENTRIES.value,
        Severity.UNCHECKED,
        f"{lacking} entries that the dump places here, the first: ledger {first.ledger}. Neither index nor "
        "logs nor journals have them; the ledger may have been deleted or moved since the dump",
        _EXPECTED[Kind.MISSING_ENTRIES],
        not_ended(
            "ask the metadata store itself (--metadata URI), or give a new dump: entries that it places here "
            "and that are not here are lost",
            *("index", "ledgers", first.dir),
        ),
        dir=first.dir,
        ledger=first.ledger if count == 1 else None,
        count=count,
    )


def _next(exam: Examination, first: IndexFinding) -> NextStep:
    """Give the next step of ``index check``, with what the doctor can show besides."""
    metadata = () if exam.metadata_file is None else ("--metadata", exam.metadata_file)
    step = next_step(first, metadata, [place.path for place in exam.subject.places])
    if first.kind is Kind.LOST_INDEX and exam.config is not None:
        return ended_by(("index", "rebuild", first.dir, "--storage", exam.kind.name, "--yes"))
    if first.kind in (Kind.WRONG_DIRECTORY, Kind.WRONG_LOG_ID_SPACE, Kind.POSITION_UNKNOWN):
        places = [place.path for place in exam.subject.places if place.found]
        look = ("cookie", "diff", *exam.command_options) if exam.config else ("cookie", "get", *places)
        return replace(step, look=look)
    return step if step.line is not None else replace(step, look=("index", "check", first.dir))
