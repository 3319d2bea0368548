"""Disks: room and inodes against the thresholds at which a bookie turns read-only, and who shares one."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.admin.doctor.examination import DiskFacts, Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.subject import Place
from bkctl.admin.next_step import not_ended
from bkctl.config.server_keys.disks import USAGE_THRESHOLD, USAGE_WARN_THRESHOLD

CHECK = "disks"
_INODES_FREE_SHARE_MIN = 0.01


def check_disks(exam: Examination) -> Iterator[Finding]:
    """Report full and nearly full disks, disks without inodes, and directories that share a disk."""
    disks: dict[int, list[tuple[Place, DiskFacts]]] = {}
    for place in exam.subject.places:
        if place.found is not None:
            facts = exam.system.disk(place.path)
            disks.setdefault(facts.device, []).append((place, facts))
    for sharing in disks.values():
        place, facts = _first_with_ledgers(exam, sharing)
        yield from _room(exam, place, facts)
        yield from _inodes(place, facts)
        yield from _shared(exam, [one for one, _ in sharing])


def _first_with_ledgers(exam: Examination, sharing: list[tuple[Place, DiskFacts]]) -> tuple[Place, DiskFacts]:
    """Choose the directory that a finding about a shared disk names: one of ledgers, to make room there."""
    return next((one for one in sharing if one[0] in exam.subject.ledgers), sharing[0])


def _room(exam: Examination, place: Place, facts: DiskFacts) -> Iterator[Finding]:
    disks = exam.config.disks if exam.config is not None else None
    threshold = disks.usage_max if disks is not None else USAGE_THRESHOLD
    warn = disks.usage_warn if disks is not None else USAGE_WARN_THRESHOLD
    usage = 1 - facts.free_bytes / facts.total_bytes if facts.total_bytes else 1.0
    shown = f"{usage:.1%} of the disk are in use, {facts.free_bytes >> 20} MiB are free"
    following = not_ended(
        "the command shows how much 'bkctl gc run' and 'bkctl gc run --delete-ledgers' would free; live data "
        "needs a larger disk or more bookies",
        "gc",
        "plan",
        place.path,
    )
    if usage > threshold:
        yield Finding(
            CHECK,
            Kind.FULL_DISK,
            Severity.ERROR,
            f"{shown}: the disk is full, so the bookie becomes read-only",
            f"at most {threshold:.1%} (diskUsageThreshold)",
            following,
            dir=place.path,
        )
    elif usage > warn:
        expected = f"at most {warn:.1%} (diskUsageWarnThreshold)"
        yield Finding(CHECK, Kind.FULL_DISK, Severity.WARNING, shown, expected, following, dir=place.path)


def _inodes(place: Place, facts: DiskFacts) -> Iterator[Finding]:
    if facts.inodes_total and facts.inodes_free < facts.inodes_total * _INODES_FREE_SHARE_MIN:
        yield Finding(
            CHECK,
            Kind.NO_INODES,
            Severity.ERROR if not facts.inodes_free else Severity.WARNING,
            f"{facts.inodes_free} of {facts.inodes_total} inodes are free: each new file needs one, however "
            "much room there is",
            f"at least {_INODES_FREE_SHARE_MIN:.0%} of the inodes free",
            not_ended(
                "remove files that are not the bookie's from this file system, or make logs larger "
                "(logSizeLimit): a file takes one inode, whatever its size",
                "entrylog",
                "list",
                place.path,
            ),
            dir=place.path,
        )


def _shared(exam: Examination, sharing: list[Place]) -> Iterator[Finding]:
    subject = exam.subject
    journals = [place for place in sharing if place in subject.journals]
    ledgers = [place for place in sharing if place in subject.ledgers and place not in journals]
    if journals and ledgers:
        yield Finding(
            CHECK,
            Kind.SHARED_DISK,
            Severity.NOTE,
            f"the journal ({journals[0].path}) and ledgers ({ledgers[0].path}) are on one disk: every sync "
            "of the journal waits for their flushes",
            "a disk of its own for the journal",
            not_ended(
                "give the journal a disk of its own: stop the bookie, copy the journal directory there, and "
                "mount the disk where the directory was",
                "inspect",
                journals[0].path,
            ),
            dir=journals[0].path,
        )
    config = exam.config
    if config is None or config.directories.allow_same_partition:
        return
    for key, kind in (("journalDirectories", subject.journals), ("ledgerDirectories", subject.ledgers)):
        alike = [place for place in sharing if place in kind]
        if len(alike) > 1:
            yield Finding(
                CHECK,
                Kind.SHARED_PARTITION,
                Severity.ERROR,
                f"{key}: {', '.join(place.home for place in alike)} are on one file system, and "
                "allowMultipleDirsUnderSameDiskPartition=false",
                "a file system for each directory; the bookie does not start",
                not_ended(
                    "mount a file system of its own for each directory, or set "
                    "allowMultipleDirsUnderSameDiskPartition=true",
                    "doctor",
                    *exam.command_options,
                    "--only",
                    CHECK,
                ),
                dir=alike[1].path,
            )
