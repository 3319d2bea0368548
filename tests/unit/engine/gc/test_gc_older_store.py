"""Passes beside a metadata store that was brought back from an older copy, or is silent about its age."""

from __future__ import annotations

import pytest

from bkctl.codec.ledger_data import encode_ledger_key
from bkctl.errors import ConnectionFailedError
from bkctl.kvstore.base import Delete
from tests.unit.engine.gc.gc_rig import MAJOR, GcRig, opened


def test_a_store_that_was_brought_back_from_an_older_copy_deletes_nothing() -> None:
    """Its generator would give the id of a ledger that is here, and that it does not have."""
    rig = opened()
    rig.fill([1, 2, 3, 4])
    rig.cluster.live -= {1, 3, 4}
    rig.cluster.upcoming = 3
    report = rig.collect(MAJOR)
    assert (report.deleted_ledgers, report.deleted_logs, report.held_deletions) == (0, 0, 3)
    assert report.listing_failed is not None
    assert "ledger 3 is here" in report.listing_failed
    assert rig.collector.meters.held_deletions == 3
    for ledger in (1, 2, 3, 4):
        rig.check(ledger)
    # The store has generated these ids once more: that does not make its word any better.
    rig.cluster.upcoming = 100
    assert rig.collect(MAJOR).held_deletions == 3
    for ledger in (1, 2, 3, 4):
        rig.check(ledger)
    rig.cluster.live |= {1, 3, 4}
    report = rig.collect(MAJOR)
    assert (report.held_deletions, report.listing_failed, report.deleted_ledgers) == (0, None, 0)


def test_deletions_of_ids_that_clients_chose_are_confirmed_once() -> None:
    rig = opened()
    rig.fill([1, 50])
    rig.cluster.upcoming = 2
    assert rig.collect().held_deletions == 0, "what the store has is no riddle"
    rig.cluster.live.remove(50)
    assert rig.collect().held_deletions == 1
    assert rig.collector.confirm_deletions() == 1
    report = rig.collect()
    assert (report.deleted_ledgers, report.held_deletions) == (1, 0)
    assert rig.collect().held_deletions == 0
    rig.check(1)


@pytest.mark.parametrize("alone", [False, True])
def test_a_store_that_does_not_say_its_next_id_deletes_nothing(alone: bool) -> None:
    def down() -> int:
        raise ConnectionFailedError("down")

    rig = opened()
    rig.fill([1, 2])
    rig.cluster.live.remove(2)
    if alone:
        rig.cluster.next_ledger = down  # type: ignore[method-assign]
    else:
        rig.cluster.read_error = ConnectionFailedError("down")
    report = rig.collect(MAJOR)
    assert (report.deleted_ledgers, report.deleted_logs, report.listing_failed) == (0, 0, "down")
    rig.check(1)
    rig.check(2)


def test_a_ledger_that_has_a_row_alone_shows_an_older_store_too() -> None:
    rig = opened()
    rig.fill([1])
    rig.write(7, ())
    rig.storage.flush()
    rig.cluster.live.remove(7)
    rig.cluster.upcoming = 7
    assert rig.collect(MAJOR).held_deletions == 1
    assert 7 in rig.storage.ledgers


def without_row(ledger: int) -> GcRig:
    """Ledger 1, and another one whose row is lost; its locations are there."""
    rig = opened()
    rig.fill([1, ledger])
    rig.ledger_rows.write([Delete(encode_ledger_key(ledger))], sync=True)
    rig = rig.after_crash()
    assert ledger not in rig.storage.ledgers
    return rig


def test_a_ledger_that_lost_its_row_shows_an_older_store_too() -> None:
    rig = without_row(7)
    rig.cluster.live.remove(7)
    rig.cluster.upcoming = 7
    report = rig.collect(MAJOR)
    assert (report.held_deletions, report.deleted_logs) == (1, 0)
    rig.check(7)


def no_answer(ledger: int) -> bool:
    raise ConnectionFailedError(f"down at {ledger}")


def test_a_ledger_whose_own_read_has_no_answer_is_not_gone() -> None:
    """It was listed well, without the ledger."""
    rig = opened()
    rig.fill([1, 2])
    rig.cluster.live.remove(2)
    rig.cluster.exists = no_answer  # type: ignore[method-assign]
    report = rig.collect(MAJOR)
    assert (report.deleted_ledgers, report.deleted_logs, report.listing_failed) == (0, 0, "down at 2")
    rig.check(2)


@pytest.mark.parametrize("listed", [False, True])
def test_bytes_of_a_ledger_that_lost_its_row_stay_while_its_read_has_no_answer(listed: bool) -> None:
    rig = without_row(7)
    if listed:
        rig.cluster.is_kept_here = no_answer  # type: ignore[method-assign]
    else:
        rig.cluster.live.remove(7)
        rig.cluster.exists = no_answer  # type: ignore[method-assign]
    for _ in range(2):
        report = rig.collect(MAJOR)
        assert (report.deleted_logs, report.compacted_logs, report.listing_failed) == (0, 0, "down at 7")
        rig.check(7)
