"""Naming what damage took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.codec.digest import Digester
from bkctl.codec.entry import frame, walk
from bkctl.scan.checked import CheckedBatch
from bkctl.scan.damage import Damage, MissingEntries, Verdict
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files import loss as loss_module
from bkctl.scan.files.loss import LossTracker
from bkctl.types import DigestType
from tests.support.log_builder import CRC32C, MAC, entry_body

BOOK = DigestBook({5: CRC32C, 6: CRC32C, 7: Digester(DigestType.MAC)})


def batch(*ids: tuple[int, int], base: int = 0, bad: int | None = None) -> CheckedBatch:
    bodies = [entry_body(ledger, entry, b"text", MAC if ledger == 7 else CRC32C) for ledger, entry in ids]
    if bad is not None:
        bodies[bad] = bodies[bad][:-1] + b"?"
    found, _ = walk(b"".join(map(frame, bodies)), base=base)
    return CheckedBatch(found, BOOK.check(found))


def hole(offset: int, size: int, *missing: MissingEntries) -> Damage:
    return Damage("/f", offset, size, "zeros", "a record", "zeros", missing)


def gap(ledger: int, first: int, last: int, evidence: str = "gap") -> MissingEntries:
    return MissingEntries(ledger, first, last, None, evidence)


def test_nothing_wrong() -> None:
    tracker = LossTracker("/f")
    tracker.entries(batch((5, 0), (5, 1)))
    verdict = tracker.verdict()
    assert (verdict.verdict, verdict.records, verdict.bytes_salvageable) == (Verdict.CLEAN, 2, 88)
    assert (verdict.first_bad_offset, verdict.damages, verdict.unchecked) == (None, 0, 0)


def test_a_gap_between_before_and_after() -> None:
    tracker = LossTracker("/f")
    tracker.entries(batch((5, 0), (6, 0), (5, 1)))
    tracker.damaged(hole(200, 100))
    tracker.entries(batch((5, 4), (6, 1)))
    assert tracker.verdict().damage[0].missing == (gap(5, 2, 3),)


def test_what_was_read_in_several_batches_counts() -> None:
    tracker = LossTracker("/f")
    tracker.entries(batch((6, 3)))
    tracker.entries(batch((5, 0)))
    tracker.damaged(hole(200, 100))
    tracker.entries(batch((6, 5), (5, 1)))
    assert tracker.verdict().damage[0].missing == (gap(6, 4, 4),)


def test_a_gap_that_does_not_fit_the_hole_is_not_its_work() -> None:
    tracker = LossTracker("/f")
    tracker.entries(batch((5, 0)))
    tracker.damaged(hole(200, 100))
    tracker.entries(batch((5, 1000)))
    assert tracker.verdict().damage[0].missing == ()


def test_a_gap_in_front_of_an_earlier_hole_is_not_counted_again() -> None:
    tracker = LossTracker("/f")
    tracker.entries(batch((5, 0), (6, 0)))
    tracker.damaged(hole(200, 100))
    tracker.entries(batch((6, 1)))
    tracker.damaged(hole(400, 100))
    tracker.entries(batch((5, 2), (6, 3)))
    first, second = tracker.verdict().damage
    assert first.missing == ()
    assert second.missing == (gap(6, 2, 2),)


def test_entries_that_the_header_names_are_not_named_as_a_gap_too() -> None:
    tracker = LossTracker("/f")
    tracker.entries(batch((5, 0)))
    tracker.damaged(hole(200, 100, gap(5, 1, 1, "header")))
    tracker.entries(batch((5, 2)))
    assert tracker.verdict().damage[0].missing == (gap(5, 1, 1, "header"),)


def test_the_index_replaces_what_it_covers() -> None:
    asked: list[list[tuple[int, int]]] = []

    def located(ranges: list[tuple[int, int]]) -> list[tuple[MissingEntries, ...]]:
        asked.append(ranges)
        return [(gap(5, 1, 3, "index"),), ()]

    tracker = LossTracker("/f", located)
    tracker.entries(batch((5, 0), (6, 0)))
    tracker.damaged(hole(300, 100))
    tracker.entries(batch((5, 4), (6, 2)))
    tracker.damaged(hole(200, 50, gap(6, 9, 9, "header")))
    verdict = tracker.verdict()
    assert asked == [[(200, 250), (300, 400)]]
    assert verdict.damage[0].missing == (gap(5, 1, 3, "index"), gap(6, 9, 9, "header"))
    assert set(verdict.damage[1].missing) == {gap(5, 1, 3), gap(6, 1, 1)}
    assert verdict.first_bad_offset == 200


def test_ids_of_a_record_whose_digest_fails_give_way_to_those_of_the_index() -> None:
    def located(ranges: list[tuple[int, int]]) -> list[tuple[MissingEntries, ...]]:
        assert ranges == [(0, 44), (176, 220)]
        return [(gap(5, 0, 0, "index"),), ()]

    tracker = LossTracker("/f", located, lambda *place: place == (88, 5, 2))
    tracker.entries(batch((5, 8), (5, 1), base=0, bad=0))
    tracker.entries(batch((5, 2), (5, 3), base=88, bad=0))
    tracker.entries(batch((5, 4), base=176, bad=0))
    renamed, changed, unnamed = tracker.verdict().damage
    assert renamed.missing == (gap(5, 0, 0, "index"),), "8 is the damaged id of 0"
    assert changed.missing == (gap(5, 2, 2, "header"),)
    assert unnamed.missing == (gap(5, 4, 4, "header"),), "the index has nothing there"


def test_the_index_is_not_asked_without_holes() -> None:
    def located(_: list[tuple[int, int]]) -> list[tuple[MissingEntries, ...]]:
        raise AssertionError

    tracker = LossTracker("/f", located)
    tracker.entries(batch((5, 0), (5, 1), bad=1))
    assert tracker.verdict().verdict is Verdict.DAMAGED


def test_a_failing_digest_is_damage_of_its_record() -> None:
    tracker = LossTracker("/f")
    tracker.entries(batch((5, 0), (5, 1), (5, 2), base=1000, bad=1))
    verdict = tracker.verdict()
    (damage,) = verdict.damage
    assert (damage.offset, damage.size_bytes, damage.reason) == (1044, 44, "digest")
    assert damage.missing == (gap(5, 1, 1, "header"),)
    assert (verdict.records, verdict.bytes_salvageable) == (2, 88)


def excused(item: CheckedBatch, verdict: Verdict) -> CheckedBatch:
    return CheckedBatch(item.batch, replace(item.check, excused=dict.fromkeys(item.check.failing, verdict)))


def test_a_failing_digest_that_a_power_cut_explains() -> None:
    tracker = LossTracker("/f")
    tracker.entries(excused(batch((5, 0), (5, 1), bad=1), Verdict.UNSYNCED_TAIL))
    verdict = tracker.verdict()
    assert verdict.verdict is Verdict.UNSYNCED_TAIL
    assert verdict.damage[0].unsynced


def test_an_entry_that_was_being_written_is_not_damage() -> None:
    tracker = LossTracker("/f")
    tracker.entries(excused(batch((5, 0), (5, 1), bad=1), Verdict.TORN_TAIL))
    verdict = tracker.verdict()
    assert (verdict.verdict, verdict.records, verdict.damages) == (Verdict.TORN_TAIL, 1, 0)


def test_ledgers_without_a_known_digest_are_unchecked() -> None:
    tracker = LossTracker("/f")
    tracker.entries(batch((5, 0), (7, 0), (7, 1), (8, 0)))
    assert tracker.verdict().unchecked == 3


def test_the_worst_verdict_wins() -> None:
    tracker = LossTracker("/f")
    tracker.tail(Verdict.UNSYNCED_TAIL)
    tracker.tail(Verdict.TORN_TAIL)
    assert tracker.verdict().verdict is Verdict.UNSYNCED_TAIL
    tracker.damaged(hole(1, 1))
    tracker.tail(Verdict.CLEAN)
    assert tracker.verdict().verdict is Verdict.DAMAGED


def test_damage_is_counted_beyond_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "DAMAGES_MAX", 3)
    tracker = LossTracker("/f")
    for number in range(10):
        tracker.damaged(hole(1000 - number, 1))
    verdict = tracker.verdict()
    assert (verdict.damages, len(verdict.damage), verdict.first_bad_offset) == (10, 3, 991)


def test_what_the_whole_file_lacks_goes_to_the_first_damage() -> None:
    tracker = LossTracker("/f")
    tracker.attribute((gap(5, 1, 1),))
    tracker.damaged(hole(1, 1))
    tracker.attribute((MissingEntries(5, None, None, 44, "map"),))
    assert tracker.verdict().damage[0].missing == (MissingEntries(5, None, None, 44, "map"),)
