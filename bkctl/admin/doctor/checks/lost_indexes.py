"""Databases that are gone or empty while entry logs hold records: no start (``engine.lost_index``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from bkctl.admin.doctor.checks.journals import journal_places
from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.subject import Place
from bkctl.admin.next_step import ended_by
from bkctl.engine.ledger_storage import IndexPlace
from bkctl.engine.lost_index import find_lost_indexes
from bkctl.storage_kinds import DEFAULT


def check_lost_indexes(exam: Examination, empty: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    """Report ledger directories whose index is lost.

    ``empty`` are databases that nothing was ever written to.
    """
    journals = journal_places(exam)
    if not journals:
        return  # whether they have what the logs hold cannot be told
    pairs = [pair for pair in _pairs(exam) if pair[1].path not in exam.unreadable]

    def lost_parts(number: int) -> dict[str, str]:
        place = pairs[number][1]
        assert place.found is not None, "only such are paired"
        states: dict[str, str] = {}
        for name in DEFAULT.indexes:
            if name not in place.found.indexes:
                states[name] = "gone"
            elif name in empty.get(place.path, ()):
                states[name] = "empty"
        return states

    places = [IndexPlace((logs.path,), index.path) for logs, index in pairs]
    for lost in find_lost_indexes(exam.filesystem, places, lambda: journals, lost_parts):
        exam.unreadable |= {*lost.place.logs, lost.place.databases}
        yield Finding(
            "databases",
            Kind.LOST_INDEX,
            Severity.ERROR,
            f"{lost.found}, and a start is refused",
            "an index of what the logs hold",
            ended_by((*lost.rebuild(exam.filesystem), "--yes")),
            dir=lost.place.databases,
            path=lost.log,
            ledger=lost.ledger,
        )


def _pairs(exam: Examination) -> list[tuple[Place, Place]]:
    """Pair ledger directories and those of their indexes, as far as it is known which belong together."""
    ledgers, indexes = exam.subject.ledgers, exam.subject.indexes
    if len(ledgers) == len(indexes):
        pairs = list(zip(ledgers, indexes, strict=True))
    elif {place.path for place in indexes} <= {place.path for place in ledgers}:
        pairs = [(place, place) for place in ledgers]
    else:
        return []
    # A bookie of another storage has no databases.
    return [
        (logs, index)
        for logs, index in pairs
        if logs.found is not None
        and index.found is not None
        and not DEFAULT.has_others_in(index.found.indexes)
    ]
