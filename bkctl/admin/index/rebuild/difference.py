"""The differences of rebuilt ledger rows: what is not as it was, or not known any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bkctl.admin.index.rows.lost_entries import LostEntries


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one ledger. ``kind``:

    ===================== =======================================================================
    kind                  meaning
    ===================== =======================================================================
    ledger_added          there was no readable row; it has one now
    ledger_not_in_metadata it is proven to be deleted, so it gets no row, and loses what it had here
    ledger_not_here       its metadata name other bookies only, so it gets no row
    fenced                it is fenced now; the old row was not, or could not be read
    master_key_from_metadata the one that was known had been changed, or stood in a journal alone
    master_key_damaged    no client can bring the one of its row, and no metadata have another
    master_key_unknown    no source has it; the first client that comes sets it
    explicit_lac_lost     the old row could not be read, and no journal has an explicit LAC
    explicit_lac_from_journal it was taken from a journal
    limbo_set             entries may be lost: a missing one is answered "unknown"
    locations_lost        the old index knew entries that stand in no log
    not_in_logs           the metadata place entries on the bookie that stand in no log
    not_proved            logs may be missing, and nothing says which entries they had; no ledger
    only_in_journal       a journal in front of the last mark has entries that stand in no log
    entries_lost          entries may be lost, and a Java bookie has no way to say so
    rebuilt_key_collapsed Java's 16-byte row is gone; the 8-byte one stands
    note                  about the directory; no ledger
    ===================== =======================================================================
    """

    kind: str
    ledger: int | None
    detail: str

    @property
    def is_alarming(self) -> bool:
        """Whether something is not as it was, or not known any more, so that the exit code says so."""
        return self.kind not in _HARMLESS


def kept_differences(rows: Iterable[Mapping[str, Any]]) -> list[Difference]:
    """Return the differences that a run has kept in its marker."""
    return [Difference(**row) for row in rows]


def told_first(told: list[Difference], differences: Iterable[Difference]) -> list[Difference]:
    """Return the differences that an earlier run has reported, then those of ``differences`` that are new."""
    return [*told, *(each for each in differences if each not in told)]


def locations_lost(gone: Mapping[int, LostEntries]) -> list[Difference]:
    """Return a difference for each ledger of which the old index located entries that are in no log."""
    return [
        Difference("locations_lost", ledger, f"{lost}: located by the old index, and in no log")
        for ledger, lost in sorted(gone.items())
    ]


def only_in_journal(kept: Mapping[int, LostEntries], *, rehearsed: bool) -> list[Difference]:
    """Return the differences of ledgers that journals in front of the last mark have entries of and no log.

    A rehearsal (a dry run) has not looked for them in the logs, so it only notes them.
    """
    where = "only in a journal in front of the last mark, which no start replays, and in no log"
    if rehearsed:
        where = (
            "in a journal in front of the last mark, without a location in a log that is there; the rebuild "
            "itself looks for it in the logs"
        )
    kind = "note" if rehearsed else "only_in_journal"
    return [Difference(kind, ledger, f"{lost}: {where}") for ledger, lost in sorted(kept.items())]


#: A difference that is no finding: nothing proves that there is none.
NOT_PROVED = "not_proved"
_HARMLESS = frozenset({NOT_PROVED, "rebuilt_key_collapsed", "explicit_lac_from_journal", "note"})
