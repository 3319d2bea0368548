"""The replication audit over tables written by hand: each guard, each kind of loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.pipeline_tables import given, rows_of, run_over, write_tables

LEDGER = {"ledger": 7, "state": "CLOSED"}


def fragment(
    bookies: str = "abc", last: int | None = 9, *, first: int = 0, quorum: int = 2, ledger: int = 7
) -> list[dict[str, Any]]:
    return [
        {
            "ledger": ledger,
            "first_entry": first,
            "last_entry": last,
            "slot": slot,
            "bookie": bookie,
            "ensemble_size": len(bookies),
            "write_quorum": quorum,
            "ack_quorum": quorum,
            "state": "OPEN" if last is None else "CLOSED",
        }
        for slot, bookie in enumerate(bookies)
    ]


def holding(bookie: str, *entries: int, ledger: int = 7) -> list[dict[str, Any]]:
    return [{"bookie": bookie, "ledger": ledger, "first": entry, "last": entry} for entry in entries]


def striped(slot: int, last: int = 9, e: int = 3, w: int = 2) -> list[int]:
    return [entry for entry in range(last + 1) if (slot - entry) % e < w]


def full(bookies: str = "abc", last: int = 9) -> list[dict[str, Any]]:
    return [row for slot, name in enumerate(bookies) for row in holding(name, *striped(slot, last))]


def test_a_striped_ledger_that_is_whole_is_clean(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t", ledgers=[LEDGER], fragments=fragment(), runs=full(), bookies=given("a", "b", "c")
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.exit_code) == ("clean", 0)
    assert outcome.counts["slots_ok"] == outcome.counts["slots"] == 3
    assert rows_of(outcome, "missing") == []


def test_a_missing_entry_is_named_exactly_with_the_copies_left(tmp_path: Path) -> None:
    runs = [row for row in full() if (row["bookie"], row["first"]) not in {("b", 4), ("b", 6), ("b", 7)}]
    tables = write_tables(
        tmp_path / "t", ledgers=[LEDGER], fragments=fragment(), runs=runs, bookies=given("a", "b", "c")
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.exit_code, outcome.found) == ("found", 1, ("slots_missing",))
    # b is slot 1: 0 1 3 4 6 7 9; between 3 and 9 it lacks 4, 6 and 7, and 5 is none of its entries.
    assert rows_of(outcome, "missing", "bookie", "first_missing", "last_missing", "missing") == [
        ("b", 4, 7, 3)
    ]
    assert rows_of(outcome, "short_entries", "entries", "copies", "missing") == [(3, 1, 1)]
    assert outcome.counts["entries_below_ack_quorum"] == 3
    assert outcome.counts["entries_lost"] == 0


def test_an_entry_that_both_its_bookies_lack_is_lost(tmp_path: Path) -> None:
    runs = [row for row in full() if row["first"] != 4]
    tables = write_tables(
        tmp_path / "t", ledgers=[LEDGER], fragments=fragment(), runs=runs, bookies=given("a", "b", "c")
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert outcome.counts["entries_lost"] == 1
    assert rows_of(outcome, "short_entries", "first_entry", "last_entry", "entries", "copies") == [
        (4, 4, 1, 0)
    ]


def test_what_is_short_is_summed_up_by_topic(tmp_path: Path) -> None:
    topic = "persistent://tenant/space/orders"
    ledgers = [
        {**LEDGER, "application": "pulsar", "topic": topic},
        {"ledger": 8, "state": "CLOSED", "application": "pulsar", "topic": topic},
        {"ledger": 9, "state": "CLOSED"},
    ]
    runs = [
        *(row for row in full() if row["first"] != 4),
        *holding("a", 0, 1, ledger=8),
        *holding("b", 0, ledger=8),
        *holding("a", 0, ledger=9),
    ]
    tables = write_tables(
        tmp_path / "t",
        ledgers=ledgers,
        fragments=[*fragment(), *fragment("ab", 1, ledger=8), *fragment("ab", 0, ledger=9)],
        runs=runs,
        bookies=given("a", "b", "c"),
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert rows_of(outcome, "missing", "ledger", "bookie", "topic") == [
        (7, "b", topic),
        (7, "c", topic),
        (8, "b", topic),
        (9, "b", None),
    ]
    assert rows_of(outcome, "short_entries", "ledger", "entries", "application", "topic") == [
        (7, 1, "pulsar", topic),
        (8, 1, "pulsar", topic),
        (9, 1, None, None),
    ]
    columns = ("application", "topic", "ledgers", "entries", "entries_lost", "fewest_copies")
    assert rows_of(outcome, "owners_short", *columns) == [
        ("pulsar", topic, 2, 2, 1, 0),
        (None, None, 1, 1, 0, 1),
    ]


def test_duplicates_of_one_entry_do_not_stand_in_for_another(tmp_path: Path) -> None:
    runs = [*(row for row in full() if (row["bookie"], row["first"]) != ("a", 3)), *holding("a", 2, 2, 2)]
    tables = write_tables(
        tmp_path / "t", ledgers=[LEDGER], fragments=fragment(), runs=runs, bookies=given("a", "b", "c")
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert rows_of(outcome, "missing", "bookie", "first_missing", "missing") == [("a", 3, 1)]


def test_a_bookie_that_was_not_given_is_not_examined(tmp_path: Path) -> None:
    runs = [row for row in full() if row["bookie"] != "c"]
    tables = write_tables(
        tmp_path / "t", ledgers=[LEDGER], fragments=fragment(), runs=runs, bookies=given("a", "b")
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.exit_code) == ("unexamined", 3)
    assert (outcome.counts["slots_missing"], outcome.counts["bookies_not_examined"]) == (0, 1)


@pytest.mark.parametrize("parameters", [{"complete": True}, {"bookies_gone": ("c",)}])
def test_a_bookie_that_is_gone_lacks_all_it_should_hold(tmp_path: Path, parameters: dict[str, Any]) -> None:
    runs = [row for row in full() if row["bookie"] != "c"]
    tables = write_tables(
        tmp_path / "t", ledgers=[LEDGER], fragments=fragment(), runs=runs, bookies=given("a", "b")
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o", **parameters)
    assert (outcome.verdict, outcome.exit_code) == ("found", 1)
    expected = striped(2)
    assert rows_of(outcome, "missing", "bookie", "first_missing", "last_missing", "missing", "why") == [
        ("c", expected[0], expected[-1], len(expected), "the bookie is gone")
    ]


def test_what_if_takes_a_bookie_away_although_it_was_given(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t", ledgers=[LEDGER], fragments=fragment(), runs=full(), bookies=given("a", "b", "c")
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o", bookies_gone=("a", "b"))
    lost = [entry for entry in range(10) if {entry % 3, (entry + 1) % 3} == {0, 1}]
    assert outcome.counts["entries_lost"] == len(lost)
    assert outcome.counts["entries_short"] == 10


def confirmed(bookie: str, *entries: int, lac: int, ledger: int = 7) -> list[dict[str, Any]]:
    """Entries of which the last carries a last add confirmed."""
    rows = holding(bookie, *entries, ledger=ledger)
    rows[-1]["max_lac"] = lac
    return rows


def open_ledger(folder: Path, runs: list[dict[str, Any]], bookies: str = "abc") -> Path:
    return write_tables(
        folder,
        ledgers=[{"ledger": 7, "state": "OPEN"}],
        fragments=fragment("abc", None, quorum=3),
        runs=runs,
        bookies=given(*bookies),
    )


def test_an_open_ledger_is_judged_up_to_its_last_add_confirmed(tmp_path: Path) -> None:
    """Entry 6 is nowhere confirmed: only one bookie has it, and that says nothing of the others."""
    runs = holding("a", *range(6)) + holding("b", *range(6)) + confirmed("c", *range(7), lac=5)
    outcome = run_over(open_ledger(tmp_path / "t", runs), "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.counts["slots_ok"], outcome.counts["slots_not_judged"]) == (
        "clean",
        3,
        0,
    )
    assert outcome.counts["share_not_judged"] == 0.0
    # Whoever holds a later entry was sent this one, too.
    without = [row for row in runs if (row["bookie"], row["first"]) != ("b", 3)]
    outcome = run_over(open_ledger(tmp_path / "u", without), "replication-audit", tmp_path / "p")
    assert (outcome.verdict, outcome.exit_code) == ("found", 1)
    assert rows_of(outcome, "missing", "bookie", "first_missing", "last_missing", "missing") == [
        ("b", 3, 3, 1)
    ]
    assert rows_of(outcome, "short_entries", "copies", "missing", "unknown_copies") == [(2, 1, 0)]


def test_the_share_that_could_not_be_judged_is_stated_and_not_clean(tmp_path: Path) -> None:
    """Confirmed entries that a bookie lacks behind its last one may be on their way to it."""
    runs = holding("a", *range(3)) + confirmed("c", *range(7), lac=5)
    outcome = run_over(open_ledger(tmp_path / "t", runs), "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.exit_code) == ("unexamined", 3)
    assert outcome.found == ("slots_not_judged",)
    assert (outcome.counts["slots_not_judged"], outcome.counts["slots"]) == (2, 3)
    assert outcome.counts["share_not_judged"] == pytest.approx(2 / 3)
    columns = ("bookie", "status", "why", "expected", "held", "not_judged")
    assert sorted(rows_of(outcome, "audit", *columns)) == [
        ("a", "unknown", "open tail", 3, 3, 3),
        ("b", "unknown", "open tail", 0, 0, 6),
        ("c", "ok", None, 6, 6, 0),
    ]
    # A bookie that is gone for good has nothing on its way.
    outcome = run_over(tmp_path / "t", "replication-audit", tmp_path / "p", bookies_gone=("b",))
    assert rows_of(outcome, "missing", "bookie", "first_missing", "last_missing", "missing") == [
        ("b", 0, 5, 6)
    ]
    assert outcome.verdict == "unexamined"


def test_a_last_add_confirmed_beyond_every_entry_is_not_believed(tmp_path: Path) -> None:
    """No digest covers a header under DUMMY: what a damaged one claims is cut at the last entry."""
    runs = [row for name in "abc" for row in confirmed(name, *range(4), lac=1 << 60)]
    outcome = run_over(open_ledger(tmp_path / "t", runs), "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.counts["slots_ok"]) == ("clean", 3)


def test_nothing_is_expected_of_an_open_ledger_without_a_confirmed_entry(tmp_path: Path) -> None:
    ended = fragment("abc", 4, quorum=3)
    tail = fragment("abd", None, first=5, quorum=3)
    runs = [row for name in "abc" for row in holding(name, *range(5))] + confirmed("a", 5, 6, lac=4)
    tables = write_tables(
        tmp_path / "t",
        ledgers=[{"ledger": 7, "state": "OPEN"}],
        fragments=ended + tail,
        runs=runs,
        bookies=given("a", "b", "c", "d"),
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.counts["slots_ok"], outcome.counts["slots_unknown"]) == ("clean", 6, 0)


def test_an_open_ledger_whose_ensemble_changed_meanwhile_is_judged_up_to_the_change(tmp_path: Path) -> None:
    runs = [row for name in "ab" for row in confirmed(name, *range(8), lac=7)]
    runs += holding("c", *range(5)) + holding("d", *range(5, 8))
    before = write_tables(
        tmp_path / "b",
        ledgers=[{"ledger": 7, "state": "OPEN"}],
        fragments=fragment("abc", None, quorum=3),
        runs=runs,
        bookies=given("a", "b", "c", "d"),
    )
    after = write_tables(
        tmp_path / "a",
        ledgers=[{"ledger": 7, "state": "OPEN"}],
        fragments=fragment("abc", 4, quorum=3) + fragment("abd", None, first=5, quorum=3),
    )
    outcome = run_over(before, "replication-audit", tmp_path / "o", metadata_after=after)
    assert (outcome.verdict, outcome.counts["slots_ok"]) == ("clean", 3)


def test_an_ended_fragment_of_an_open_ledger_is_judged(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t",
        ledgers=[{"ledger": 7, "state": "OPEN"}],
        fragments=fragment("ab", 4) + fragment("ab", None, first=5),
        runs=holding("a", *range(5)) + holding("b", *range(4)),
        bookies=given("a", "b"),
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert rows_of(outcome, "missing", "bookie", "first_missing", "last_missing") == [("b", 4, 4)]


def test_what_is_only_in_a_journal_after_the_mark_counts_as_held(tmp_path: Path) -> None:
    runs = [row for row in full() if (row["bookie"], row["first"]) != ("a", 9)]
    tables = write_tables(
        tmp_path / "t",
        ledgers=[LEDGER],
        fragments=fragment(),
        runs=runs,
        unflushed=[{"bookie": "a", "ledger": 7, "entry": 9}],
        bookies=given("a", "b", "c"),
    )
    assert run_over(tables, "replication-audit", tmp_path / "o").verdict == "clean"


def test_a_bookie_with_a_directory_lacking_is_not_judged_for_what_is_missing(tmp_path: Path) -> None:
    runs = [row for row in full() if (row["bookie"], row["first"]) != ("a", 9)]
    bookies = given("b", "c") + given("a", ledger_dirs=2)
    tables = write_tables(tmp_path / "t", ledgers=[LEDGER], fragments=fragment(), runs=runs, bookies=bookies)
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.counts["slots_not_examined"]) == ("unexamined", 1)
    whole = run_over(tables, "replication-audit", tmp_path / "p", complete=True)
    assert rows_of(whole, "missing", "bookie", "first_missing") == [("a", 9)]


def test_a_ledger_deleted_and_a_replica_moved_meanwhile_are_unknown(tmp_path: Path) -> None:
    before = write_tables(
        tmp_path / "b",
        ledgers=[LEDGER, {"ledger": 8, "state": "CLOSED"}],
        fragments=fragment("ab") + fragment("ab", ledger=8),
        runs=holding("a", *range(10)),
        bookies=given("a", "b", "c"),
    )
    after = write_tables(tmp_path / "a", ledgers=[LEDGER], fragments=fragment("ac"))
    outcome = run_over(before, "replication-audit", tmp_path / "o", metadata_after=after)
    # Nothing is to be judged of the ledger that is gone, but of the replica that moved.
    assert (outcome.verdict, outcome.counts["slots_not_judged"]) == ("unexamined", 1)
    assert rows_of(outcome, "audit", "ledger", "bookie", "status", "why") == [
        (7, "a", "ok", None),
        (7, "b", "unknown", "replica moved meanwhile"),
        (8, "a", "unknown", "ledger deleted meanwhile"),
        (8, "b", "unknown", "ledger deleted meanwhile"),
    ]
    assert run_over(before, "replication-audit", tmp_path / "p").counts["slots_missing"] == 3


def test_an_empty_closed_ledger_expects_nothing(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t", ledgers=[LEDGER], fragments=fragment(last=-1), runs=[], bookies=given("a", "b")
    )
    outcome = run_over(tables, "replication-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.counts["slots_ok"]) == ("clean", 3)
