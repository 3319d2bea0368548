"""Traces of conversions to another ledger storage: one that was cut off, and the indexes that were kept."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join

from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.next_step import NextStep, ended_by, not_ended
from bkctl.directories.half_converted import is_half_converted, planned_storages
from bkctl.scan.directory import CONVERSION_NAME, OLD_INDEX_PREFIX


def conversions(exam: Examination, directory: str) -> Iterator[Finding]:
    """Report what conversions have left in a directory of files."""
    for name in exam.filesystem.names(directory):
        if name == CONVERSION_NAME:
            yield _cut_off(exam, directory)
        elif name.startswith(OLD_INDEX_PREFIX):
            yield Finding(
                "leftovers",
                Kind.OLD_INDEX,
                Severity.NOTE,
                "the index of before a conversion; it takes room and is not used",
                "no index that is not needed any more",
                _by_configuration(exam, directory, "--drop-old"),
                dir=directory,
                path=join(directory, name),
            )


def _cut_off(exam: Examination, directory: str) -> Finding:
    is_half = is_half_converted(exam.filesystem, directory)
    planned = planned_storages(exam.filesystem, directory)
    found = "a conversion to another ledger storage that was cut off"
    if is_half:
        found += " between the old names and the new ones: no bookie starts here"
    step = not_ended(
        "convert again, which starts over, or remove the folder: nothing else was changed",
        "inspect",
        directory,
    )
    if is_half and planned is not None:
        step = _by_configuration(exam, directory, "--to", planned[1])
    return Finding(
        "leftovers",
        Kind.UNFINISHED_CONVERSION,
        Severity.ERROR if is_half else Severity.WARNING,
        found,
        "no unfinished conversion",
        step,
        dir=directory,
        path=join(directory, CONVERSION_NAME),
    )


def _by_configuration(exam: Examination, directory: str, *words: str) -> NextStep:
    """Return the step of a command that takes the bookie's configuration."""
    if exam.config is not None:
        return ended_by(("bookie", "convert", *exam.command_options, *words, "--yes"))
    line = " ".join(("bkctl", "bookie", "convert", *words))
    return not_ended(f"run '{line}' with the bookie's configuration", "inspect", directory)
