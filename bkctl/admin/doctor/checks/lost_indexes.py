"""Indexes that are gone or empty while entry logs hold records: no start (``engine.lost_index``).

Where nothing is left that would show it, the metadata store is asked, as a start does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property

from bkctl.admin.doctor.checks.journals import journal_places
from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.subject import Place
from bkctl.admin.logs.digests import FindMetadata, is_placed, placed_ledgers
from bkctl.admin.next_step import NextStep, ended_by, not_ended
from bkctl.engine.interleaved_storage.index_places import was_written
from bkctl.engine.ledger_storage import IndexPlace
from bkctl.engine.lost_index import LostIndex, find_lost_indexes
from bkctl.reporting import counted
from bkctl.storage_kinds import StorageKind, kind_in

_LOGS_INSTEAD = (
    "no command brings logs back. Move them and the index back, or mount the disk that has them. Only if "
    "they are lost for good, 'bkctl bookie start --accept-loss' starts without them, and puts ledgers into "
    "limbo"
)


def check_lost_indexes(exam: Examination, empty: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    """Report ledger directories whose index is lost, for a storage over all of them all at once.

    ``empty`` are databases that nothing was ever written to.
    """
    journals = journal_places(exam)
    if not journals:
        return  # without journals it cannot be decided whether they have the entries of the logs
    kind = _kind(exam)
    pairs = [pair for pair in _pairs(exam, kind) if pair[1].path not in exam.unreadable]
    if not pairs:
        return

    def lost_parts(number: int) -> dict[str, str]:
        place = pairs[number][1]
        assert place.found is not None, "only such are paired"
        states: dict[str, str] = {}
        for name in kind.indexes:
            if name not in place.found.indexes:
                states[name] = "gone"
            elif name in empty.get(place.path, ()):
                states[name] = "empty"
        return states

    def lost_files(_: int) -> dict[str, str]:
        indexes = [index.path for _, index in pairs]
        return {} if was_written(exam.filesystem, indexes) else dict.fromkeys(kind.indexes, "gone")

    parts: Callable[[int], Mapping[str, str]] = lost_parts
    if kind.shares_log_ids:
        # All directories are one storage, and a file may be in any of them.
        first, *others = (index.path for _, index in pairs)
        places = [IndexPlace(tuple(logs.path for logs, _ in pairs), first, kind, tuple(others))]
        parts = lost_files
    else:
        places = [IndexPlace((logs.path,), index.path, kind) for logs, index in pairs]
    placed = _placed(exam)
    for lost in find_lost_indexes(exam.filesystem, places, lambda: journals, parts, placed):
        exam.unreadable |= {*lost.place.logs, lost.place.databases}
        yield Finding(
            "databases",
            Kind.LOST_INDEX,
            Severity.ERROR,
            f"{lost.found}{_extent(lost, placed, len(places))}, and a start is refused",
            "an index of what the logs hold",
            _way_out(exam, lost),
            dir=lost.place.databases,
            path=lost.log,
            ledger=lost.ledger,
        )


class _PlacedByStore:
    """The ledgers that a metadata store places on a bookie, those whose metadata do not decode among them."""

    def __init__(self, find: FindMetadata, bookie: str) -> None:
        self._find = find
        self._bookie = bookie

    def is_kept(self, ledger: int) -> bool:
        return is_placed(self._find, ledger, self._bookie)

    def all_kept(self) -> Iterator[int]:
        return iter(self._kept)

    @cached_property
    def _kept(self) -> list[int]:
        # Once, however many directories have lost their index.
        return list(placed_ledgers(self._find, self._bookie))


def _placed(exam: Examination) -> _PlacedByStore | None:
    """Return what the metadata store places on the bookie; None where it is not asked."""
    cookie = exam.subject.cookie
    if exam.find is None or cookie is None or not cookie.has_fields or cookie.bookie_host is None:
        return None
    return _PlacedByStore(exam.find, cookie.bookie_host)


def _extent(lost: LostIndex, placed: _PlacedByStore | None, count: int) -> str:
    """Say how many ledgers of the cluster are lost with index and logs."""
    if placed is None or not lost.logs_lost:
        return ""
    ledgers = [ledger for ledger in placed.all_kept() if ledger % count == lost.number]
    if not ledgers:
        return ""
    return (
        f" (with what it had of {counted(len(ledgers), 'ledger')} of the cluster, the first: {min(ledgers)})"
    )


def _way_out(exam: Examination, lost: LostIndex) -> NextStep:
    """Return the step of a finding; without logs nothing can be rebuilt, and a loss a person accepts."""
    if not lost.logs_lost:
        return ended_by((*lost.rebuild(exam.filesystem), "--yes"))
    if exam.config is None:
        return not_ended(_LOGS_INSTEAD, "index", "check", lost.place.databases)
    return not_ended(_LOGS_INSTEAD, "bookie", "start", *exam.command_options, "--accept-loss")


def _kind(exam: Examination) -> StorageKind:
    """Return the kind of the bookie's storage: by its configuration, else by what is there."""
    if exam.config is not None:
        return exam.kind
    found = [name for place in exam.subject.indexes if place.found for name in place.found.indexes]
    return kind_in(found) or exam.kind


def _pairs(exam: Examination, kind: StorageKind) -> list[tuple[Place, Place]]:
    """Pair ledger directories and those of their indexes, as far as it is known which belong together."""
    ledgers, indexes = exam.subject.ledgers, exam.subject.indexes
    if len(ledgers) == len(indexes):
        pairs = list(zip(ledgers, indexes, strict=True))
    elif {place.path for place in indexes} <= {place.path for place in ledgers}:
        pairs = [(place, place) for place in ledgers]
    else:
        return []
    # Of another storage's index it is said that it is one.
    return [
        (logs, index)
        for logs, index in pairs
        if logs.found is not None and index.found is not None and not kind.has_others_in(index.found.indexes)
    ]
