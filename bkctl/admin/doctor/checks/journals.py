"""Last marks against journals, and the journals themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from posixpath import join

from bkctl.admin.cookies.in_directories import FoundMark, find_marks
from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.subject import Place
from bkctl.admin.doctor.unchecked import book_of, unchecked_finding
from bkctl.admin.journals.mark_fit import record_around
from bkctl.admin.journals.skipped_records import boundary_before
from bkctl.admin.logs import file_steps
from bkctl.admin.logs.unchecked import UncheckedEntries
from bkctl.admin.next_step import NextStep, ended_by, not_ended
from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import ZERO_MARK, LastMark, last_mark_name
from bkctl.engine.journal_replay import missing_journals
from bkctl.engine.journaled_entries import JournalPlace
from bkctl.reporting import counted, listed
from bkctl.scan.damage import Damage, Verdict
from bkctl.scan.files.journals import verify_journals
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.lost_marks import ALL_GONE, marks_are_lost
from bkctl.scan.marked_end import end_before

#: Damaged ranges of one file that a finding names.
_RANGES_NAMED = 5
_MARK_KNOW = (
    "it writes the mark that counts now into every ledger directory, as the next clean stop of the bookie "
    "does. This is the highest readable mark, or without any the beginning, so that all journals are replayed"
)
_MARK_INSTEAD = (
    "name all directories of the bookie: 'bkctl lastmark set' then writes a mark, and so does the next clean "
    "stop of the bookie. Until then, the highest of the other marks counts; without any, a start replays "
    "every journal"
)
_SALVAGE_KNOW = (
    "if there is an undamaged copy of the file, bring it back instead. The entries in the damage are lost on "
    "this bookie; they are listed, and their ledgers are put into limbo"
)
_JOURNAL_INSTEAD = (
    "no command brings a journal back. Move it back, or restore it from a copy. Only if it is lost for good, "
    "'bkctl bookie start --accept-loss' starts without it, and puts ledgers into limbo"
)


def check_marks(exam: Examination) -> Iterator[Finding]:
    """Report marks that cannot be read, and marks that do not fit the journals that are there."""
    marks = _marks(exam)
    for place_marks in marks.values():
        yield from (_unreadable(exam, marks, mark) for mark in place_marks if mark.error is not None)
    yield from _without_marks(exam, marks)
    journals = [place for place in exam.subject.journals if place.found is not None]
    for number, place in enumerate(exam.subject.journals):
        if place.found is None:
            continue
        mark = _counting(marks, number, place, alone=len(exam.subject.journals) == 1)
        if mark is None and not place.found.journals:
            yield from _all_gone(exam, place)
        if mark is not None:
            yield from _against_journals(exam, place, mark, journals)
        yield from _gaps(place, mark or ZERO_MARK)


def journal_places(exam: Examination) -> list[JournalPlace]:
    """List the journal directories that are there, with the marks that count for them."""
    marks, alone = _marks(exam), len(exam.subject.journals) == 1
    return [
        JournalPlace(place.path, _counting(marks, number, place, alone=alone) or ZERO_MARK)
        for number, place in enumerate(exam.subject.journals)
        if place.found is not None
    ]


def _gaps(place: Place, mark: LastMark) -> Iterator[Finding]:
    """Report journals that are missing between others, at the mark or behind it: what refuses a start."""
    assert place.found is not None, "only directories that are there have journals"
    ids = [each.journal_id for each in place.found.journals if each.journal_id >= mark.journal_id]
    for behind, found in missing_journals(ids):
        yield Finding(
            "marks",
            Kind.MISSING_JOURNAL,
            Severity.ERROR,
            f"{found}: entries acknowledged in between may be lost, so a start is refused",
            "journals whose ids follow each other, from the last mark on",
            not_ended(_JOURNAL_INSTEAD, "journal", "list", place.path),
            dir=place.path,
            path=join(place.path, journal_name(behind)),
            journal_id=behind,
        )


def _all_gone(exam: Examination, place: Place) -> Iterator[Finding]:
    """Report a directory without journals where no mark says whether it had any, and logs do."""
    ledgers = [each.path for each in exam.subject.ledgers if each.found is not None]
    if not marks_are_lost(exam.filesystem, ledgers):
        return
    start = ("bookie", "start", *exam.command_options, "--accept-loss")
    look = ("lastmark", "show", *ledgers) if exam.config is None else start
    yield Finding(
        "marks",
        Kind.MISSING_JOURNAL,
        Severity.ERROR,
        f"{ALL_GONE}: acknowledged entries may be lost, so a start is refused",
        "the journals from the last mark on",
        not_ended(_JOURNAL_INSTEAD, *look),
        dir=place.path,
        journal_id=ZERO_MARK.journal_id,
    )


def _marks(exam: Examination) -> dict[str, list[FoundMark]]:
    """Find the marks of each ledger directory."""
    found: dict[str, list[FoundMark]] = {}
    for place in exam.subject.ledgers:
        if place.found is not None:
            paths = [join(place.path, name) for name in place.found.last_marks]
            found[place.path] = find_marks(exam.filesystem, paths) if paths else []
    return found


def _mark_again(exam: Examination, marks: dict[str, list[FoundMark]]) -> NextStep:
    """Return the command that writes the mark that counts into every directory.

    Several journal directories have a mark each, and a mark that names a journal which is gone, or a place
    behind the journal's end, cannot be written: these are for a person.
    """
    ledgers = [place.path for place in exam.subject.ledgers if place.found is not None]
    show = ("lastmark", "show", *ledgers)
    if len(exam.subject.journals) != 1 or len(ledgers) != len(exam.subject.ledgers):
        return not_ended(_MARK_INSTEAD, *show)
    (place,) = exam.subject.journals
    if place.found is None or not place.found.journals:
        return not_ended(_MARK_INSTEAD, *show)
    mark = _counting(marks, 0, place, alone=True) or ZERO_MARK
    journal = next((one for one in place.found.journals if one.journal_id == mark.journal_id), None)
    if mark.journal_id and (journal is None or end_before(exam.filesystem, journal, mark) is not None):
        return not_ended(_MARK_INSTEAD, *show)
    # A mark within a record goes back to where that begins: a replay starts between records.
    offset = 0 if journal is None else boundary_before(exam.filesystem, journal.path, mark.offset)
    numbers = ("--journal", hex(mark.journal_id), "--offset", str(offset))
    return ended_by(("lastmark", "set", place.path, *ledgers, *numbers, "--yes"), instead=_MARK_KNOW)


def _unreadable(exam: Examination, marks: dict[str, list[FoundMark]], mark: FoundMark) -> Finding:
    return Finding(
        "marks",
        Kind.UNREADABLE_MARK,
        Severity.WARNING,
        f"{mark.error}; it does not count",
        "16 bytes: journal id and offset",
        _mark_again(exam, marks),
        dir=mark.path.rpartition("/")[0],
        path=mark.path,
    )


def _without_marks(exam: Examination, marks: dict[str, list[FoundMark]]) -> Iterator[Finding]:
    """Report directories with entries and no mark.

    Replay starts further back there, as far as journals are kept.
    """
    for place in exam.subject.ledgers:
        if place.found is None or marks.get(place.path) or not place.found.logs:
            continue
        others = any(marks.values())
        yield Finding(
            "marks",
            Kind.NO_MARK,
            Severity.NOTE if others else Severity.WARNING,
            "no lastMark in a directory that has entry logs; "
            + ("another directory's counts" if others else "the next start replays every journal"),
            "a lastMark in every ledger directory",
            _mark_again(exam, marks),
            dir=place.path,
        )


def _counting(
    marks: dict[str, list[FoundMark]], number: int, place: Place, *, alone: bool
) -> LastMark | None:
    """Find the mark from which a journal directory is replayed: the highest over all ledger directories."""
    name = last_mark_name(number, 1 if alone else 2)
    every = [mark for found in marks.values() for mark in found if mark.error is None]
    named = [mark for mark in every if mark.path.rpartition("/")[2] == name]
    if not named and alone:
        # One journal directory out of several: the mark is the one that names a file of it.
        assert place.found is not None, "only directories that are there have marks"
        ids = {journal.journal_id for journal in place.found.journals}
        named = [mark for mark in every if mark.journal_id in ids]
    best = max(named, key=lambda mark: mark.place, default=None)
    return None if best is None else LastMark(*best.place)


def _against_journals(
    exam: Examination, place: Place, mark: LastMark, journals: list[Place]
) -> Iterator[Finding]:
    assert place.found is not None, "only directories that are there have marks"
    by_id = {journal.journal_id: journal for journal in place.found.journals}
    if mark.journal_id <= 0:
        return
    journal = by_id.get(mark.journal_id)
    if journal is None:
        yield _missing_journal(exam, place, mark, sorted(by_id), journals)
        return
    end = end_before(exam.filesystem, journal, mark)
    if end is not None:
        yield Finding(
            "marks",
            Kind.MARK_BEYOND_JOURNAL,
            Severity.ERROR,
            f"the last mark is at {mark.offset}, but the journal's records end at {end}: the journal was "
            "cut or replaced, or the mark is another bookie's",
            "a mark at or before the end of the journal's records",
            not_ended(
                "no command brings back the records that were cut off. Restore the journal from a copy; "
                "without a copy, the records after its end are lost",
                "journal",
                "verify",
                journal.path,
            ),
            dir=place.path,
            path=journal.path,
            journal_id=mark.journal_id,
            offset=mark.offset,
        )
        return
    within = record_around(exam.filesystem, journal, mark)
    if within is not None:
        show = ("lastmark", "show", *(one.path for one in exam.subject.ledgers if one.found is not None))
        yield Finding(
            "marks",
            Kind.MARK_WITHIN_RECORD,
            Severity.ERROR,
            f"the last mark is at {mark.offset}, within the record or padding at {within}: a start is "
            "refused, because no record begins there. The mark is another bookie's, or bytes of the "
            "journal are gone",
            "a mark between two records",
            _salvage(exam, place.path, mark.journal_id) or not_ended(_MARK_INSTEAD, *show),
            dir=place.path,
            path=journal.path,
            journal_id=mark.journal_id,
            offset=mark.offset,
        )


def _missing_journal(
    exam: Examination, place: Place, mark: LastMark, ids: list[int], journals: list[Place]
) -> Finding:
    newer = [journal for journal in ids if journal > mark.journal_id]
    elsewhere = [
        one.path
        for one in journals
        if one.found is not None
        and any(journal.journal_id == mark.journal_id for journal in one.found.journals)
    ]
    name = journal_name(mark.journal_id)
    if elsewhere:
        found = f"{name}, which the last mark names, is in {elsewhere[0]}: journal directories were swapped"
    elif newer:
        found = (
            f"{name}, which the last mark names, is gone, but there {_are(len(newer))}: entries "
            "acknowledged in between may be lost"
        )
    elif ids:
        found = (
            f"{name}, which the last mark names, is gone, and {_older(len(ids))}: the mark is wrong, "
            "or the newest journals were removed"
        )
    else:
        found = f"{name}, which the last mark names, is gone, and there is no other journal"
    if exam.config is not None and not elsewhere:
        following = not_ended(_JOURNAL_INSTEAD, "bookie", "start", *exam.command_options, "--accept-loss")
        expected = "that journal: bring it back. Only if it is lost for good: start with --accept-loss"
    else:
        marks = [one.path for one in exam.subject.ledgers if one.found is not None]
        following = not_ended(_JOURNAL_INSTEAD, "lastmark", "show", *marks)
        expected = "the journal that the mark names, with the entries behind the mark"
    return Finding(
        "marks",
        Kind.MISSING_JOURNAL,
        Severity.ERROR,
        found,
        expected,
        following,
        dir=place.path,
        path=join(place.path, name),
        journal_id=mark.journal_id,
        offset=mark.offset,
    )


def _are(newer: int) -> str:
    return f"{'is' if newer == 1 else 'are'} {counted(newer, 'newer journal')}"


def _older(count: int) -> str:
    return "the only journal is older" if count == 1 else f"all {count} journals are older"


def check_journals(exam: Examination) -> Iterator[Finding]:
    """Check every record of every journal, with the digests that can be checked, and report the other ones.

    Damage in front of the last mark is a warning: nothing there is replayed.
    """
    marks = _marks(exam)
    for number, place in enumerate(exam.subject.journals):
        if place.found is None:
            continue
        mark = _counting(marks, number, place, alone=len(exam.subject.journals) == 1) or ZERO_MARK
        ids = {journal.path: journal.journal_id for journal in place.found.journals}
        journals = list(place.found.journals)
        # A book of its own: what one directory's entries teach of digest types is settled before the next.
        book = book_of(exam)
        unchecked = UncheckedEntries()
        for verdict in verify_journals(exam.filesystem, journals, book, advance=exam.advance):
            unchecked.add(verdict)
            yield from _judged(
                verdict, ids[verdict.path], mark, _salvage(exam, place.path, ids[verdict.path])
            )
        yield from unchecked_finding(exam, "journals", "journal", [place.path], unchecked, book)


def _salvage(exam: Examination, directory: str, journal_id: int) -> NextStep | None:
    """Return the command that replaces a damaged journal by its copy; None when a directory is missing."""
    places = exam.subject.places
    if any(place.found is None for place in places):
        return None
    metadata = () if exam.metadata_file is None else ("--metadata", exam.metadata_file)
    paths = [place.path for place in places]
    several = len(exam.subject.journals) > 1
    chosen = ("--journal-dir", directory) if several else ("--journal", hex(journal_id))
    words = ("journal", "salvage", *paths, "--in-place", *chosen, *metadata, "--yes")
    return ended_by(words, instead=_SALVAGE_KNOW)


def _judged(
    verdict: FileVerdict, journal_id: int, mark: LastMark, salvage: NextStep | None
) -> Iterator[Finding]:
    """Report the damage of a journal; ``salvage`` ends damage that a start would stop at."""
    following = replace(
        file_steps.of_journal(verdict) or NextStep(), look=("journal", "verify", verdict.path)
    )
    if salvage is not None and any(
        LastMark(journal_id, damage.end) > mark and not damage.unsynced and not damage.readable
        for damage in verdict.damage
    ):
        following = replace(salvage, look=following.look)
    if verdict.tail is Verdict.UNSYNCED_TAIL and verdict.verdict is not Verdict.DAMAGED:
        yield Finding(
            "journals",
            Kind.UNSYNCED_TAIL,
            Severity.NOTE,
            "holes after the last mark and before good records, as a power cut leaves them. The records in "
            "them were never acknowledged; the next start replays the others",
            "records up to the end",
            following,
            dir=verdict.path.rpartition("/")[0],
            path=verdict.path,
            journal_id=journal_id,
            offset=verdict.first_bad_offset,
            count=max(1, verdict.damages),
        )
    if verdict.verdict is not Verdict.DAMAGED:
        return
    real = [damage for damage in verdict.damage if not damage.unsynced]
    front = [damage for damage in real if LastMark(journal_id, damage.end) <= mark]
    behind = [damage for damage in real if LastMark(journal_id, damage.end) > mark]
    for damage, untold in ((front, 0), (behind, verdict.damages - len(verdict.damage))):
        if damage or untold:
            finding = damaged_file("journals", Kind.DAMAGED_JOURNAL, verdict.path, damage, untold, following)
            numbered = replace(finding, journal_id=journal_id)
            if damage is front:
                text = "it is in front of the last mark: what was there is in the entry logs already"
                numbered = replace(numbered, severity=Severity.WARNING, found=f"{finding.found}; {text}")
            yield numbered


def damaged_file(
    check: str,
    kind: Kind,
    path: str,
    damage: Sequence[Damage],
    untold: int,
    following: NextStep,
    log_id: int | None = None,
) -> Finding:
    """Return the finding about the damage of a file; ``untold`` are ranges that nobody has listed."""
    count = len(damage) + untold
    lost = {gap.ledger for each in damage for gap in each.missing}
    entries = (
        f"entries of {len(lost)} ledgers" if len(lost) > 1 else f"entries of ledger {min(lost, default=0)}"
    )
    if count == 1 and damage:
        told = f", found {damage[0].found}" if damage[0].found else ""
        size = counted(damage[0].size_bytes, "byte")
        found = f"{size} that cannot be read as records: {damage[0].reason}{told}"
    else:
        ranges = [f"{counted(each.size_bytes, 'byte')} at {each.offset} ({each.reason})" for each in damage]
        found = f"{counted(count, 'range')} that cannot be read as records: "
        found += listed(ranges, _RANGES_NAMED, count)
    return Finding(
        check,
        kind,
        Severity.ERROR,
        found + (f"; {entries} are lost" if lost else ""),
        (damage[0].expected if count == 1 and damage else None) or "records one behind the other",
        following,
        dir=path.rpartition("/")[0],
        path=path,
        ledger=next(iter(lost)) if len(lost) == 1 else None,
        log_id=log_id,
        offset=damage[0].offset if damage else None,
        count=count,
    )
