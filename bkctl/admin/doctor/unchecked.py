"""Entries whose digests the doctor could not check."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.logs.digests import digest_book
from bkctl.admin.logs.unchecked import UncheckedEntries
from bkctl.admin.next_step import not_ended
from bkctl.scan.digest_book import DigestBook

_URI = "--metadata"


def book_of(exam: Examination) -> DigestBook:
    """Return a new book with what is known of the cluster's ledgers. Raises what reading a dump raises."""
    return digest_book(exam.filesystem, metadata_file=exam.metadata_file, find=exam.find)


def unchecked_finding(
    exam: Examination, check: str, noun: str, dirs: list[str], unchecked: UncheckedEntries, book: DigestBook
) -> Iterator[Finding]:
    """Say how many entries of a check could not be checked; nothing when all of them were.

    ``noun`` is the noun whose ``verify`` says the same of ``dirs``.
    """
    if not unchecked.unchecked:
        return
    if exam.metadata_file is None and exam.find is not None and unchecked.is_of_nobody(book):
        yield Finding(
            check,
            Kind.UNCHECKED_ENTRIES,
            Severity.NOTE,
            unchecked.sentence() + ": the metadata store has no such ledger",
            "entries of ledgers that there are",
            not_ended(
                "nothing to do: they are of deleted ledgers, or their ids are damaged; garbage collection "
                "removes them",
                noun,
                "verify",
                *dirs,
            ),
            dir=dirs[0] if len(dirs) == 1 else None,
            count=unchecked.unchecked,
        )
        return
    words = [] if exam.metadata_file is None else ["--metadata", exam.metadata_file]
    given = exam.command_options
    if _URI in given:
        words += [_URI, given[given.index(_URI) + 1]]
    yield Finding(
        check,
        Kind.UNCHECKED_ENTRIES,
        Severity.UNCHECKED,
        unchecked.sentence(),
        "entries whose digests can be checked",
        not_ended(unchecked.remedy(book), noun, "verify", *dirs, *words),
        dir=dirs[0] if len(dirs) == 1 else None,
        ledger=unchecked.ledgers[0] if len(unchecked.ledgers) == 1 else None,
        count=unchecked.unchecked,
    )
