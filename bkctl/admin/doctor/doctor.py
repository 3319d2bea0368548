"""The table of checks, and running them one after the other: the quick ones first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from bkctl.admin.doctor.check import CONFIGURATION, FILES, METADATA, Check
from bkctl.admin.doctor.checks.configuration import ReadConfiguration
from bkctl.admin.doctor.checks.cookies import check_cookies
from bkctl.admin.doctor.checks.directories import (
    again,
    check_directories,
    check_holders,
    check_leftovers,
    check_permissions,
)
from bkctl.admin.doctor.checks.disks import check_disks
from bkctl.admin.doctor.checks.entry_logs import check_entry_logs, check_last_id
from bkctl.admin.doctor.checks.indexes import check_databases, check_index
from bkctl.admin.doctor.checks.journals import check_journals, check_marks
from bkctl.admin.doctor.checks.memory import check_memory
from bkctl.admin.doctor.checks.metadata import check_metadata
from bkctl.admin.doctor.examination import DiskFacts, Examination, Ownership, Run, System
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.subject import refreshed
from bkctl.errors import ConnectionFailedError, CorruptionError, NotFoundError, StorageError

_BROKEN_OFF = (
    "make the file or directory readable (permissions, mounts, the disk itself), then run the check again"
)
#: File with the memory that a container may use, or "max" (cgroups, version 2).
_CONTAINER_MEMORY = "/sys/fs/cgroup/memory.max"


CHECKS: tuple[Check[Examination], ...] = (
    Check(CONFIGURATION, CONFIGURATION, "unknown, wrong and contradictory keys", None),
    Check("memory", CONFIGURATION, "caches against memory and index filters", check_memory),
    Check("metadata", METADATA, "the metadata store and the registration", check_metadata),
    Check("directories", FILES, "every directory is there and of this layout", check_directories),
    Check("permissions", FILES, "owners and permission bits", check_permissions),
    Check("cookies", FILES, "cookies, configuration and metadata agree", check_cookies),
    Check("holders", FILES, "processes that use the directories", check_holders),
    Check("disks", FILES, "room, inodes, shared disks", check_disks),
    Check("leftovers", FILES, "DIRTY, unfinished compactions, backups", check_leftovers),
    Check("last_id", FILES, "lastId against the entry logs", check_last_id),
    Check("marks", FILES, "last marks against the journals", check_marks),
    Check("databases", FILES, "RocksDB opens the index", check_databases),
    Check("journals", FILES, "every record of the journals", check_journals, long=True),
    Check(
        "entry_logs", FILES, "headers, maps and tails of logs; --deep: digests", check_entry_logs, long=True
    ),
    Check("index", FILES, "the index against the logs, both ways", check_index, long=True),
)

#: Checks of what a running bookie changes all the time.
MOVING = frozenset({"last_id", "marks", "journals", "entry_logs", "index"})


def applicable(exam: Examination, names: frozenset[str]) -> list[Check[Examination]]:
    """Return the named checks that can say something of this bookie, given the facts known of it."""
    known = {FILES: True, CONFIGURATION: exam.config is not None, METADATA: exam.cluster is not None}
    return [check for check in CHECKS if check.name in names and check.run is not None and known[check.needs]]


def run_checks(exam: Examination, names: frozenset[str]) -> Iterator[Finding]:
    """Yield the findings of the named checks about one bookie's directories.

    A file that cannot be read at all is a finding, too, and ends only its check.
    """
    for check in applicable(exam, names):
        assert check.run is not None, "only such are applicable"
        try:
            yield from _findings(exam, check.name, check.run)
        except (StorageError, CorruptionError, NotFoundError, ConnectionFailedError) as error:
            yield Finding(
                check.name,
                Kind.BROKEN_OFF,
                Severity.ERROR,
                f"{error}; the rest of this check was not done",
                "files that can be read",
                again(exam, check.name, _BROKEN_OFF),
                dir=None,
                path=getattr(error, "path", None),
            )


def _findings(exam: Examination, name: str, run: Run) -> Iterator[Finding]:
    """Yield the findings of a check; for a directory in use only those that a second check has, too.

    A bookie moves its mark while it is compared, rolls logs, and has entries in a log before the index.
    """
    if name not in MOVING or not exam.in_use:
        yield from run(exam)
        return
    exam.subject = refreshed(exam.filesystem, exam.subject)
    first = list(run(exam))
    if not first:
        return
    exam.subject = refreshed(exam.filesystem, exam.subject)
    places = {_place(finding) for finding in first}
    yield from (finding for finding in run(exam) if _place(finding) in places)


def _place(finding: Finding) -> tuple[object, ...]:
    return (
        finding.check,
        finding.severity,
        finding.dir,
        finding.path,
        finding.ledger,
        finding.log_id,
        finding.journal_id,
        finding.offset,
    )


def bytes_to_read(exam: Examination, names: frozenset[str]) -> int:
    """Count the bytes of journals and logs that the named checks read, for their progress."""
    passes = sum(name in names for name in ("entry_logs", "index"))
    journals = exam.subject.journal_bytes if "journals" in names else 0
    return journals + passes * exam.subject.log_bytes


def configuration_findings(read: ReadConfiguration | None, names: frozenset[str]) -> Sequence[Finding]:
    """Give what reading the configuration has found."""
    return read.findings if read is not None and CONFIGURATION in names else ()


def this_system() -> System:
    """Describe the machine that this process runs on."""
    return System(_disk, _owner, _memory_bytes())


def _disk(path: str) -> DiskFacts:
    try:
        facts = os.statvfs(path)
        device = os.stat(path).st_dev
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", path=path) from error
    return DiskFacts(
        device,
        facts.f_blocks * facts.f_frsize,
        facts.f_bavail * facts.f_frsize,
        facts.f_files,
        facts.f_favail,
    )


def _owner(path: str) -> Ownership:
    try:
        facts = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file or directory") from None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", path=path) from error
    return Ownership(facts.st_uid, facts.st_mode)


def _memory_bytes() -> int | None:
    """Find the memory that this machine, or the container, has."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    try:
        with open(_CONTAINER_MEMORY, encoding="ascii") as file:
            limit = file.read(32).strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine
