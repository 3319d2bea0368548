"""The directories that a configuration names, before a bookie starts on them: what it would meet there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from bkctl.admin.doctor.doctor import run_checks
from bkctl.admin.doctor.examination import DiskFacts, Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.subject import Place
from bkctl.errors import StorageError
from bkctl.storage_kinds import kind_in, short_names

#: The doctor's checks of the directories themselves, which read no journal, log or index.
CHECKS = frozenset({"directories", "permissions", "cookies", "holders", "disks"})
_STORE_CHECK = "metadata"
_NO_SUCH_NOTES = (Kind.SHARED_DISK,)


@dataclass(frozen=True, slots=True)
class DirectoryFate:
    """One directory as the configuration names it, or (``directory`` None) all of them together.

    ``fate``: ``ok``, ``new`` (the first start makes it), ``not_writable``, or the kind of the doctor's
    finding that weighs most. ``writable``: for the user of this process. ``storage`` is the class whose
    index lies there, ``bookie`` the id in its cookie, ``held_by`` the process that uses it.
    """

    directory: str | None
    holds: tuple[str, ...]
    fate: str
    severity: Severity | None
    says: str
    exists: bool | None = None
    writable: bool | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    bookie: str | None = None
    storage: str | None = None
    held_by: str | None = None


def may_write(path: str) -> bool:
    """Return whether the user of this process may make and change files in a directory; nothing is tried."""
    return os.access(path, os.R_OK | os.W_OK | os.X_OK)


def directory_fates(
    exam: Examination, *, asked: bool, writable: Callable[[str], bool] = may_write
) -> Iterator[DirectoryFate]:
    """Yield what a start would find in each directory of the configuration; write nothing.

    ``exam`` has the configuration, and the bookie's id in ``cluster``. ``asked``: the metadata store was, and
    what it knows, or that it does not answer, counts.
    """
    names = CHECKS | {_STORE_CHECK} if asked else CHECKS
    findings = [one for one in run_checks(exam, names) if one.kind not in _NO_SUCH_NOTES]
    told: set[int] = set()
    for place in exam.subject.places:
        own = [one for one in findings if one.dir in (place.path, place.home)]
        told |= set(map(id, own))
        yield _fate(exam, place, own, writable)
    for one in findings:
        if id(one) not in told:
            yield DirectoryFate(None, (), one.kind, one.severity, f"{one.found} (expected: {one.expected})")


def _fate(
    exam: Examination, place: Place, findings: list[Finding], writable: Callable[[str], bool]
) -> DirectoryFate:
    fate = _facts(exam, place, writable)
    is_new = place.found is None and place.error is None
    if is_new and all(one.severity is not Severity.ERROR for one in findings):
        if not fate.writable:
            says = f"is not there, and this user may not make it below {_above(exam, place.home)}"
            return replace(fate, fate="not_writable", severity=Severity.ERROR, says=says)
        return replace(fate, fate="new", severity=Severity.NOTE, says="is not there: a new bookie makes it")
    if place.found is not None and not fate.writable:
        says = "this user may not read and write it; a bookie runs as a user who may"
        return replace(fate, fate="not_writable", severity=Severity.ERROR, says=says)
    if not findings:
        return fate
    weights = list(Severity)
    findings = sorted(findings, key=lambda one: weights.index(one.severity))
    says = "; ".join(f"{one.found} (expected: {one.expected})" for one in findings)
    return replace(fate, fate=findings[0].kind, severity=findings[0].severity, says=says)


def _facts(exam: Examination, place: Place, writable: Callable[[str], bool]) -> DirectoryFate:
    found = place.found
    at = place.path if found is not None else _above(exam, place.home)
    disk: DiskFacts | None = None
    with suppress(StorageError):
        disk = exam.system.disk(at)
    subject = exam.subject
    kinds = (("journal", subject.journals), ("ledgers", subject.ledgers), ("index", subject.indexes))
    there = None if found is None else kind_in(found.indexes)
    users = [] if found is None else exam.users_of(place)
    return DirectoryFate(
        place.home,
        tuple(name for name, places in kinds if place in places),
        "ok",
        None,
        "a bookie can start here as far as the directory goes",
        exists=found is not None,
        writable=writable(at),
        free_bytes=None if disk is None else disk.free_bytes,
        total_bytes=None if disk is None else disk.total_bytes,
        bookie=None if place.cookie is None else place.cookie.bookie_host or None,
        storage=None if there is None else short_names(there.classes),
        held_by=str(users[0]) if users else None,
    )


def _above(exam: Examination, home: str) -> str:
    """Return the nearest directory above a missing one that is there."""
    path = os.path.abspath(home)
    while exam.filesystem.status(path) is None and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path
