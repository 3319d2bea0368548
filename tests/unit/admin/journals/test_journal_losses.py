"""Which ids of a record whose digest fails are believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.admin.journals.journal_losses import JournalLosses, owner_of, record_offset
from bkctl.admin.journals.skipped_records import LedgerRecords
from bkctl.scan.damage import Damage, MissingEntries


def failing(ledger: int, entry: int, reason: str = "digest", evidence: str = "header") -> Damage:
    missing = (MissingEntries(ledger, entry, entry, None, evidence),)
    return Damage("1.txn", 516, 100, reason, "a digest", "another", missing)


def records(*ranges: tuple[int, int]) -> dict[int, LedgerRecords]:
    return {5: LedgerRecords(ranges=list(ranges))}


@pytest.mark.parametrize(
    ("ranges", "is_certain"),
    [
        ([(0, 9), (11, 11)], True),
        ([(9, 9), (11, 18)], True),
        ([(3, 9), (11, 17)], False),  # an ensemble of eight could leave one out
        ([(0, 9)], False),  # the last one: a flipped id of another ledger's newest entry looks like it
        ([(0, 9), (12, 30)], False),
        ([(0, 30)], False),  # it is there: the ids are another's
        ([], False),
    ],
)
def test_ids_are_believed_where_one_entry_is_missing_between_many(
    ranges: list[tuple[int, int]], is_certain: bool
) -> None:
    losses = JournalLosses()
    losses.add(failing(5, 10))
    losses.compare(records(*ranges))
    assert (losses.ranges, losses.is_certain) == ({5: [(10, 10)]}, is_certain)


@pytest.mark.parametrize(("reason", "at"), [("ledger id", 4), ("entry id", 12)])
def test_a_record_whose_ids_are_proved_is_no_loss(reason: str, at: int) -> None:
    losses = JournalLosses()
    damage = replace(failing(7, 10, reason, "digest"), offset=512 + at)
    losses.add(damage)
    losses.compare({})
    assert (losses.ranges, losses.is_certain) == ({}, True)
    assert (owner_of(damage), record_offset(damage)) == ((7, 10), 512)


def test_bytes_that_are_no_record_may_have_been_any() -> None:
    losses = JournalLosses()
    losses.add(failing(7, 10, "zeros"))
    losses.add(failing(7, 11, "ledger id"))
    losses.compare({})
    assert (losses.ranges, losses.is_certain) == ({7: [(10, 10), (11, 11)]}, False)
