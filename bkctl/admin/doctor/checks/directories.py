"""Directories: whether they are there, whose they are, who uses them, and what was left behind in them."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from posixpath import join

from bkctl.admin.doctor.checks.conversions import conversions
from bkctl.admin.doctor.checks.repairs import cut_off, quarantined
from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.subject import Place
from bkctl.admin.index.rebuild.swap import BACKUP
from bkctl.admin.next_step import NextStep, ended_by, not_ended
from bkctl.directories.bookie_directories import refuse_old_layout
from bkctl.directories.holders import DATABASES
from bkctl.errors import NotFoundError, RefusedError, StorageError
from bkctl.reporting import listed
from bkctl.scan.directory import CONVERSION_NAME, DIRTY_NAME, REBUILD_SUFFIX
from bkctl.storage_kinds import kind_in, short_names

#: Half-written small files: ``VERSION.<random>.tmp``, ``lastMark.<random>.tmp``.
_HALF_FILE = re.compile(r".+\.[0-9a-f]+\.tmp")
_FOREIGN_FILES_NAMED = 3
_DIRECTORY_INSTEAD = (
    "mount the disk, or move the directory back. Do not make an empty one in its place: it would hide the "
    "loss. Then run the check again"
)
_PERMISSIONS_INSTEAD = (
    "no command of bkctl changes owners and modes: run chown and chmod as root (chown -R USER DIR, chmod "
    "u+rwx,o-w DIR), then run the check again"
)


def again(exam: Examination, check: str, instead: str) -> NextStep:
    """Return the step of what is mended outside of this program; then this check is run again."""
    paths: list[str] = []
    if exam.config is None:
        paths = [place.path for place in exam.subject.places if place.found is not None]
        paths = paths or [place.home for place in exam.subject.places]
    return not_ended(instead, "doctor", *paths, *exam.command_options, "--only", check)


def vanished_directory(path: str) -> Finding:
    """Return the finding about a folder that was removed between the listing and its own."""
    return Finding(
        "directories",
        Kind.VANISHED_DIRECTORY,
        Severity.WARNING,
        "it was there when the folder above it was listed, and was gone a moment later; the other "
        "directories were examined",
        "directories that stay while they are looked at",
        not_ended(
            "nothing to do where somebody has removed it; where a bookie's disk was unmounted, mount it "
            "again",
            "doctor",
            path.rpartition("/")[0] or ".",
        ),
        dir=path,
    )


def check_directories(exam: Examination) -> Iterator[Finding]:
    """Report directories that are missing, are none, have an old layout, or hold another storage's index."""
    subject = exam.subject
    following = again(exam, "directories", _DIRECTORY_INSTEAD)
    known = any(place.found is not None for place in subject.places)
    for place in subject.places:
        if place.error is not None:
            expected = "a directory that can be listed"
            yield Finding(
                "directories",
                Kind.UNLISTABLE_DIRECTORY,
                Severity.ERROR,
                place.error,
                expected,
                following,
                dir=place.path,
            )
            continue
        if place.found is not None:
            continue
        try:
            refuse_old_layout(exam.filesystem, place.home)
        except RefusedError as error:
            step = again(
                exam, "directories", "upgrade it with BookKeeper's own `bookkeeper upgrade --upgrade`"
            )
            yield Finding(
                "directories",
                Kind.OLD_LAYOUT,
                Severity.ERROR,
                str(error),
                "a directory current",
                step,
                dir=place.home,
            )
            continue
        source = "the configuration" if subject.configured else "the cookie"
        yield Finding(
            "directories",
            Kind.MISSING_DIRECTORY,
            Severity.ERROR if known or exam.is_stored else Severity.WARNING,
            f"{source} names it, but it is missing: its disk is not mounted, or it was moved or removed",
            "every directory of the bookie in its place",
            following if known else _made(exam),
            dir=place.path,
        )
    if subject.configured:
        yield from _other_storage(exam)


def _made(exam: Examination) -> NextStep:
    """Name the next step for a bookie of which nothing is there."""
    if exam.config is None:
        return again(exam, "directories", _DIRECTORY_INSTEAD)
    instead = "only where this is to be a new bookie: of one that has served, mount its disks"
    return ended_by(("bookie", "init", *exam.command_options), instead=instead)


def _other_storage(exam: Examination) -> Iterator[Finding]:
    for place in exam.subject.indexes:
        found = place.found
        if found is not None and exam.kind.finds_nothing_in(found.indexes):
            there = kind_in(found.indexes) or exam.kind
            explicit = "ledgerStorageClass" in exam.given
            yield Finding(
                "directories",
                Kind.OTHER_STORAGE,
                Severity.ERROR if explicit else Severity.NOTE,
                f"an index of {short_names(there.classes)}; a bookie with {short_names(exam.kind.classes)} "
                "finds none of its ledgers",
                f"the index of {short_names(exam.kind.classes)}, or the right ledgerStorageClass",
                not_ended(
                    f"set ledgerStorageClass={there.classes[0]} in the configuration",
                    "inspect",
                    place.path,
                ),
                dir=place.path,
            )


def check_permissions(exam: Examination) -> Iterator[Finding]:
    """Report owners and permission bits that a bookie stumbles over."""
    following = again(exam, "permissions", _PERMISSIONS_INSTEAD)
    owners: dict[int, Place] = {}
    for place in exam.subject.places:
        if place.found is None:
            continue
        own = exam.system.owner(place.path)
        owners.setdefault(own.user, place)
        if own.mode & stat.S_IRWXU != stat.S_IRWXU:
            yield Finding(
                "permissions",
                Kind.CLOSED_DIRECTORY,
                Severity.ERROR,
                f"mode {own.mode & 0o7777:04o}: its owner (user {own.user}) may not read, write or enter it",
                "rwx for the bookie's user",
                following,
                dir=place.path,
            )
        if own.mode & stat.S_IWOTH:
            yield Finding(
                "permissions",
                Kind.WRITABLE_BY_ALL,
                Severity.NOTE,
                f"mode {own.mode & 0o7777:04o}: every user may write here",
                "no write permission for others",
                following,
                dir=place.path,
            )
        yield from _foreign_files(exam, place, own.user, following)
    if len(owners) > 1:
        listed = ", ".join(f"{place.path}: user {user}" for user, place in owners.items())
        yield Finding(
            "permissions",
            Kind.DIFFERENT_OWNERS,
            Severity.ERROR,
            f"the directories have different owners ({listed})",
            "one user, the bookie's",
            following,
        )


def _foreign_files(exam: Examination, place: Place, user: int, following: NextStep) -> Iterator[Finding]:
    """Report files that the directory's owner cannot write, those of databases included.

    A command that was run as another user left them.
    """
    foreign: list[str] = []
    for name in _names_of(exam, place):
        try:
            own = exam.system.owner(join(place.path, name))
        except NotFoundError:
            continue
        if own.user != user or not own.mode & stat.S_IRUSR or not own.mode & stat.S_IWUSR:
            foreign.append(name)
    if foreign:
        yield Finding(
            "permissions",
            Kind.FOREIGN_FILES,
            Severity.ERROR,
            f"{listed(foreign, _FOREIGN_FILES_NAMED)}: not the directory's owner's (user {user}), "
            "or not readable and writable for it",
            "files that the bookie's user can read and write",
            following,
            dir=place.path,
            path=join(place.path, foreign[0]),
            count=len(foreign),
        )


def _names_of(exam: Examination, place: Place) -> Iterator[str]:
    """Yield the names of what stands in a directory and in its databases."""
    for name in exam.filesystem.names(place.path):
        yield name
        if name in DATABASES:
            try:
                below = exam.filesystem.names(join(place.path, name))
            except (NotFoundError, StorageError):
                continue  # what is no directory, or cannot be listed, is reported where it is read
            yield from (join(name, each) for each in below)


def check_holders(exam: Examination) -> Iterator[Finding]:
    """Report who uses the directories; what a running bookie is just writing may look unfinished."""
    for place in exam.subject.places:
        if place.found is None:
            continue
        using = exam.users_of(place)
        if using:
            first = using[0]
            yield Finding(
                "holders",
                Kind.IN_USE,
                Severity.NOTE,
                f"in use by {first} ({first.how} {first.path}); files that it is writing may look unfinished",
                "a stopped bookie, for a picture at rest",
                not_ended(
                    "nothing to do while the bookie is to run; what is found of it now may be work in "
                    "progress",
                    "bookie",
                    "status",
                    *exam.command_options,
                ),
                dir=place.path,
                count=len({holder.pid for holder in using}),
            )


def check_leftovers(exam: Examination) -> Iterator[Finding]:
    """Report the mark DIRTY, unfinished compactions, half-written files, and indexes that a rebuild kept."""
    if exam.in_use:
        return  # a running bookie's own
    for place in exam.subject.places:
        if place.found is None:
            continue
        if place.found.dirty:
            yield _dirty(exam, place)
        for log in place.found.logs:
            if log.compaction:
                yield _compaction(place, log.path, log.log_id)
        yield from quarantined(exam, place.path)
        yield from cut_off(exam, place.path)
        yield from conversions(exam, place.path)
        for name in exam.filesystem.names(place.path):
            if _HALF_FILE.fullmatch(name):
                yield Finding(
                    "leftovers",
                    Kind.HALF_WRITTEN_FILE,
                    Severity.NOTE,
                    "a small file that was being written when its process stopped; nothing reads it",
                    "no such file",
                    not_ended("remove it; no command does, and it does no harm", "inspect", place.path),
                    dir=place.path,
                    path=join(place.path, name),
                )
            elif name.endswith(REBUILD_SUFFIX) and name != CONVERSION_NAME:
                yield Finding(
                    "leftovers",
                    Kind.UNFINISHED_REBUILD,
                    Severity.WARNING,
                    "an index rebuild that was interrupted; when it is run again, it continues",
                    "no unfinished rebuild",
                    ended_by(("index", "rebuild", place.path, "--yes")),
                    dir=place.path,
                    path=join(place.path, name),
                )
            elif BACKUP in name:
                yield Finding(
                    "leftovers",
                    Kind.OLD_INDEX,
                    Severity.NOTE,
                    "the old index, from before a rebuild; it takes room and is not used",
                    "no backup that is not needed any more",
                    ended_by(("index", "rebuild", place.path, "--drop-old", "--yes")),
                    dir=place.path,
                    path=join(place.path, name),
                )


def _dirty(exam: Examination, place: Place) -> Finding:
    journals = [one.path for one in exam.subject.journals if one.found is not None]
    unjournaled = exam.config is not None and not exam.config.journal.write_data
    found = "the last bookie here did not shut down cleanly"
    if unjournaled:
        found += ", and with journalWriteData=false what was not flushed is in no journal: it is lost"
    else:
        found += "; the next start replays its journals"
    look = ("journal", "verify", *journals) if journals else ("inspect", place.path)
    instead = (
        "no command removes the mark: the next start of the bookie replays, and its clean stop removes it"
    )
    return Finding(
        "leftovers",
        Kind.DIRTY,
        Severity.ERROR if unjournaled else Severity.NOTE,
        found,
        "no DIRTY in the directory of a stopped bookie",
        not_ended(instead, *look),
        dir=place.path,
        path=join(place.path, DIRTY_NAME),
    )


def _compaction(place: Place, path: str, log_id: int) -> Finding:
    finished = path.endswith(".compacted")
    return Finding(
        "leftovers",
        Kind.UNFINISHED_COMPACTION,
        Severity.WARNING,
        "a compacted log whose entries the index does not know yet; the next collection finishes it"
        if finished
        else "the target of an interrupted compaction; the next collection removes it",
        "no unfinished compaction in the directory of a stopped bookie",
        ended_by(("gc", "run", place.path, "--yes")),
        dir=place.path,
        path=path,
        log_id=log_id,
    )
