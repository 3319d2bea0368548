"""What each job calls a finding and what not, over tables written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bkctl.pipeline.tables.schemas import INDEX_RUNS, RUNS
from tests.support.pipeline_tables import rows_of, run_over, write_tables

A = {"bookie": "a", "dir": "/a"}


def log(log_id: int, size: int = 1000, *, rolled: bool = True, damaged: bool = False) -> dict[str, Any]:
    return {
        **A,
        "log_id": log_id,
        "path": f"/a/{log_id:x}.log",
        "bytes": size,
        "has_ledgers_map": rolled,
        "damaged": damaged,
        "mtime_ms": 100 + log_id,
    }


def part(log_id: int, ledger: int, size: int) -> dict[str, Any]:
    return {**A, "log_id": log_id, "ledger": ledger, "bytes": size, "source": "map"}


def ledgers(*ids: int) -> list[dict[str, Any]]:
    return [{"ledger": ledger, "state": "CLOSED"} for ledger in ids]


def test_garbage_is_planned_from_the_emptiest_on_within_the_budget(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t",
        ledgers=ledgers(1, 9),
        logs=[log(0), log(1), log(2), log(3), log(4, damaged=True), log(5, rolled=False)],
        log_ledgers=[
            part(0, 2, 900),
            part(1, 1, 300),
            part(1, 2, 600),
            part(2, 1, 100),
            part(2, 2, 800),
            part(3, 1, 900),
            part(4, 2, 900),
            part(5, 2, 900),
        ],
    )
    outcome = run_over(tables, "garbage", tmp_path / "o", threshold=0.5, budget_bytes=250)
    assert rows_of(
        outcome, "compaction_plan", "step", "action", "log_id", "copied_bytes", "within_budget"
    ) == [
        (1, "remove", 0, 0, True),
        (2, "compact", 2, 100, True),
        (3, "compact", 1, 300, False),
    ]
    actions = dict(rows_of(outcome, "log_garbage", "log_id", "action"))
    assert actions == {0: "remove", 1: "compact", 2: "compact", 3: "keep", 4: "set_aside", 5: "keep"}
    assert (outcome.verdict, outcome.found) == ("found", ("damaged_logs",))
    assert (outcome.counts["removable_bytes"], outcome.counts["compactable_bytes"]) == (1000, 1600)


def test_one_snapshot_leaves_younger_ledgers_alone(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t",
        ledgers=ledgers(1, 9, 2**40),
        logs=[log(0)],
        log_ledgers=[part(0, 5, 10), part(0, 12, 10), part(0, 2**35, 10), part(0, 2**41, 10)],
        index_ledgers=[{**A, "ledger": ledger} for ledger in (1, 5, 12, 2**35, 2**41)],
    )
    outcome = run_over(tables, "orphans", tmp_path / "o")
    assert set(rows_of(outcome, "orphans", "ledger")) == {(5,), (2**35,)}
    assert set(rows_of(outcome, "undecided", "ledger")) == {(12,), (2**41,)}
    assert outcome.counts["share_not_judged"] == 2 / 5
    proved = run_over(tables, "orphans", tmp_path / "p", metadata_after=tables)
    assert set(rows_of(proved, "orphans", "ledger")) == {(5,), (12,), (2**35,), (2**41,)}
    assert proved.counts["share_not_judged"] == 0.0
    kept = run_over(tables, "garbage", tmp_path / "g")
    assert (kept.counts["dead_bytes"], kept.counts["unknown_bytes"]) == (20, 20)
    assert kept.counts["share_not_judged"] == pytest.approx(20 / kept.counts["bytes"])


def test_what_a_bookie_deleted_too_is_left_over_and_no_orphan(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t",
        ledgers=ledgers(1, 9),
        logs=[log(0)],
        log_ledgers=[part(0, 5, 10), {**part(0, 5, 7), "bookie": "b", "dir": "/b"}],
        index_ledgers=[{**A, "ledger": 1}],
    )
    outcome = run_over(tables, "orphans", tmp_path / "o")
    assert rows_of(outcome, "leftovers", "bookie", "ledger", "bytes") == [("a", 5, 10)]
    # Nothing is known of b's index, so it cannot be said that it deleted the ledger.
    assert rows_of(outcome, "orphans", "bookie", "place") == [("b", "no_index")]


def test_a_bookie_whose_index_was_not_given_as_a_whole_deleted_nothing(tmp_path: Path) -> None:
    """The ledger row may be in a directory that was not given."""
    place = {"holds_ledgers": True, "ledger_dirs": 2, "index_space": "a"}
    tables = write_tables(
        tmp_path / "t",
        bookies=[{**A, **place, "index_whole": False}],
        ledgers=ledgers(1, 9),
        logs=[log(0)],
        log_ledgers=[part(0, 5, 10)],
        index_ledgers=[{**A, "ledger": 1}],
    )
    outcome = run_over(tables, "orphans", tmp_path / "o")
    assert rows_of(outcome, "orphans", "bookie", "ledger", "place") == [("a", 5, "no_index")]
    assert rows_of(outcome, "leftovers") == []


@pytest.mark.parametrize(("dirs", "verdict"), [(1, "found"), (2, "unexamined")])
def test_of_tables_that_say_nothing_of_spaces_the_only_directory_is_judged(
    tmp_path: Path, dirs: int, verdict: str
) -> None:
    tables = write_tables(
        tmp_path / "t",
        bookies=[{**A, "holds_ledgers": True, "ledger_dirs": dirs}],
        logs=[log(0)],
        runs=[run_row(0, 1, 1)],
        index_runs=[run_row(0, 2, 3)],
        index_ledgers=[{**A, "ledger": 1}],
        suspect_entries=[entry(0, 100, 0)],
        suspect_locations=[entry(0, 100, 0), entry(0, 200, 1)],
    )
    file = tables / "bookies" / "part-00000.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["index_space", "index_whole"]), file)
    outcome = run_over(tables, "index-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.counts["dangling"]) == (verdict, 2 - dirs)


def entry(log_id: int, offset: int, number: int, ledger: int = 1) -> dict[str, Any]:
    return {**A, "log_id": log_id, "offset": offset, "ledger": ledger, "entry": number}


def run_row(log_id: int, count: int, ids_hash: int, ledger: int = 1) -> dict[str, Any]:
    return {**A, "log_id": log_id, "ledger": ledger, "entries": count, "ids_hash": ids_hash}


def test_the_index_audit_tells_kinds_apart(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t",
        logs=[log(0), log(1)],
        runs=[run_row(0, 4, 1), run_row(1, 2, 2), run_row(0, 1, 5, ledger=3)],
        index_runs=[run_row(0, 5, 3)],
        index_ledgers=[{**A, "ledger": 1}],
        unflushed=[{"bookie": "a", "ledger": 1, "entry": 4}],
        # 0 is well; 1 leads to the older of two; 2 elsewhere; 3 is not indexed; 4 will be, by the replay.
        suspect_entries=[
            entry(0, 100, 0),
            entry(0, 200, 1),
            entry(1, 200, 1),
            entry(0, 300, 2),
            entry(0, 400, 3),
            entry(1, 500, 4),
            entry(0, 900, 7, ledger=3),
        ],
        suspect_locations=[entry(0, 100, 0), entry(0, 200, 1), entry(0, 310, 2), entry(0, 600, 9)],
    )
    outcome = run_over(tables, "index-audit", tmp_path / "o")
    assert rows_of(outcome, "index_findings", "kind", "entry", "index_offset", "log_id", "log_offset") == [
        ("dangling", 9, 600, None, None),
        ("mismatch", 2, 310, 0, 300),
        ("missing", 3, None, 0, 400),
    ]
    assert rows_of(outcome, "stale_locations", "entry", "index_log_id", "log_id") == [(1, 0, 1)]
    assert (outcome.counts["to_replay"], outcome.counts["older_copies"]) == (1, 1)
    assert outcome.counts["ledgers_expanded"] == 1, "ledger 3 has no row: the bookie deleted it"
    assert outcome.exit_code == 1


def test_equal_hashes_are_not_expanded(tmp_path: Path) -> None:
    tables = write_tables(
        tmp_path / "t",
        logs=[log(0)],
        runs=[run_row(0, 2, 2**44 - 1), run_row(0, 3, 2)],
        index_runs=[run_row(0, 5, 1)],
        index_ledgers=[{**A, "ledger": 1}],
    )
    outcome = run_over(tables, "index-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.counts["ledgers_expanded"]) == ("clean", 0)


def test_hashes_of_very_many_stretches_are_summed_up(tmp_path: Path) -> None:
    """With striping a ledger has a stretch for every few entries: a sum of more than 2^19 hashes may exceed
    64 bits."""
    tables = write_tables(tmp_path / "t", logs=[log(0)], index_ledgers=[{**A, "ledger": 1}])
    stretches = (1 << 19) + 2
    columns = {
        "entries": 1,
        "bytes": 9,
        "ledger": 1,
        "log_id": 0,
        "ids_hash": (1 << 44) - 1,
        "first": 0,
        "last": 0,
    }
    for name, schema in (("runs", RUNS), ("index_runs", INDEX_RUNS)):
        values = {**A, **columns}
        made = [pa.repeat(pa.scalar(values.get(field.name), field.type), stretches) for field in schema]
        pq.write_table(pa.table(made, schema=schema), tables / name / "part-00000.parquet")
    outcome = run_over(tables, "index-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.counts["ledgers_expanded"]) == ("clean", 0)
    assert outcome.counts["records"] == stretches


def test_a_directory_without_index_is_not_judged(tmp_path: Path) -> None:
    tables = write_tables(tmp_path / "t", logs=[log(0)], runs=[run_row(0, 2, 1)])
    outcome = run_over(tables, "index-audit", tmp_path / "o")
    assert (outcome.verdict, outcome.exit_code) == ("unexamined", 3)
    assert (outcome.counts["dirs_without_index"], outcome.counts["share_not_judged"]) == (1, 1.0)


def test_of_two_directories_one_without_an_index_is_half_of_the_share(tmp_path: Path) -> None:
    other = {**log(0), "bookie": "b", "dir": "/b"}
    tables = write_tables(
        tmp_path / "t",
        logs=[log(0), log(1), other],
        runs=[run_row(0, 2, 1)],
        index_runs=[run_row(0, 2, 1)],
        index_ledgers=[{**A, "ledger": 1}],
    )
    counts = run_over(tables, "index-audit", tmp_path / "o").counts
    assert (counts["dirs_without_index"], counts["share_not_judged"]) == (1, 0.5)


def replica(bookie: str, *, crc: int | None = 5, lac: int = 0, log_id: int = 0) -> dict[str, Any]:
    return {
        "bookie": bookie,
        "dir": f"/{bookie}",
        "log_id": log_id,
        "offset": 100,
        "ledger": 1,
        "entry": 0,
        "lac": lac,
        "ledger_length": 3,
        "payload_bytes": 3,
        "payload_crc": crc,
    }


@pytest.mark.parametrize(
    ("replicas", "payload", "header", "uncompared"),
    [
        ([replica("a"), replica("b")], 0, 0, 0),
        ([replica("a"), replica("b", crc=6)], 1, 0, 0),
        ([replica("a"), replica("b", lac=-1)], 0, 1, 0),
        ([replica("a"), replica("b", crc=6), replica("b", log_id=1)], 0, 0, 0),
        ([replica("a"), replica("b", crc=6, log_id=1), replica("b")], 1, 0, 0),
        ([replica("a"), replica("b", crc=None)], 0, 0, 1),
    ],
    ids=["equal", "payload", "header", "older copy differs", "newer copy differs", "digest not known"],
)
def test_replicas_are_compared_by_their_newest_records(
    tmp_path: Path, replicas: list[dict[str, Any]], payload: int, header: int, uncompared: int
) -> None:
    tables = write_tables(tmp_path / "t", replicas=replicas)
    outcome = run_over(tables, "replica-compare", tmp_path / "o")
    counts = outcome.counts
    assert (counts["payload_differs"], counts["header_differs"], counts["uncompared"]) == (
        payload,
        header,
        uncompared,
    )
    assert counts["share_not_judged"] == uncompared / counts["records"]
    assert outcome.exit_code == (1 if payload else 0)
    assert len(rows_of(outcome, "divergent")) == 2 * payload


def record(number: int, ledger: int = 1, *, after: bool = False, bookie: str = "a") -> dict[str, Any]:
    place = {"bookie": bookie, "journal_id": 1, "path": "/j/1.txn", "offset": 512 + number}
    return {**place, "ledger": ledger, "entry": number, "after_mark": after}


def test_journal_records_are_told_apart(tmp_path: Path) -> None:
    stretch = {**A, "log_id": 0, "ledger": 1}
    tables = write_tables(
        tmp_path / "t",
        journal_entries=[
            *(record(number) for number in range(5)),
            record(6, after=True),
            record(0, ledger=2),
            record(0, bookie="b"),
        ],
        runs=[{**stretch, "first": 0, "last": 3}],
        index_runs=[{**stretch, "first": 0, "last": 2}],
        index_ledgers=[{**A, "ledger": 1}],
    )
    outcome = run_over(tables, "journal-forensics", tmp_path / "o")
    assert rows_of(outcome, "lost_records", "status", "entry", "in_logs") == [
        ("lost", 4, False),
        ("unindexed", 3, True),
    ]
    assert rows_of(outcome, "unflushed_records", "entry") == [(6,)]
    counts = {name: outcome.counts[name] for name in ("flushed", "deleted", "undecided")}
    assert counts == {"flushed": 3, "deleted": 1, "undecided": 1}
    assert outcome.counts["share_not_judged"] == 1 / 8
    assert (outcome.verdict, outcome.found) == ("unexamined", ("unindexed", "lost", "undecided"))


@pytest.mark.parametrize("whole", [True, False])
def test_a_record_is_not_lost_while_a_directory_was_not_given(tmp_path: Path, whole: bool) -> None:
    stretch = {**A, "log_id": 0, "ledger": 1}
    place = {
        "holds_ledgers": True,
        "ledger_dirs": 1 if whole else 2,
        "index_space": "/a",
        "index_whole": True,
    }
    tables = write_tables(
        tmp_path / "t",
        bookies=[{**A, **place}],
        journal_entries=[record(0), record(1), record(2), record(0, ledger=2), record(3, after=True)],
        runs=[{**stretch, "first": 0, "last": 1}],
        index_runs=[{**stretch, "first": 0, "last": 0}],
        index_ledgers=[{**A, "ledger": 1}],
    )
    counts = run_over(tables, "journal-forensics", tmp_path / "o").counts
    names = ("flushed", "unindexed", "lost", "deleted", "undecided", "to_replay")
    assert tuple(counts[name] for name in names) == ((1, 1, 1, 1, 0, 1) if whole else (1, 1, 0, 0, 2, 1))


def test_statistics_count_every_ledger_once(tmp_path: Path) -> None:
    day_ms = 86_400_000
    rows = [
        {"ledger": 1, "state": "CLOSED", "digest": "crc32c", "length": 0, "ctime_ms": 10 * day_ms},
        {"ledger": 2, "state": "CLOSED", "digest": "crc32c", "length": 1024, "ctime_ms": 39 * day_ms},
        {"ledger": 3, "state": "OPEN", "digest": "crc32", "length": 0, "ctime_ms": None},
    ]
    tables = write_tables(
        tmp_path / "t",
        ledgers=rows,
        fragments=[{"ledger": 1, "bookie": "a"}, {"ledger": 1, "bookie": "b"}],
        logs=[log(0, 3000)],
        log_ledgers=[part(0, 2, 2000), part(0, 77, 100)],
    )
    outcome = run_over(tables, "stats", tmp_path / "o", now_ms=40 * day_ms, top=2)
    sizes = {label: count for label, count in rows_of(outcome, "size_histogram", "label", "ledgers") if count}
    assert sizes == {"empty": 1, "to 4 KiB": 1}
    ages = {label: count for label, count in rows_of(outcome, "age_histogram", "label", "ledgers") if count}
    assert ages == {"to 7 days": 1, "to 90 days": 1}
    assert rows_of(outcome, "largest_ledgers", "rank", "ledger", "disk_bytes") == [(1, 2, 2000), (2, 1, 0)]
    assert rows_of(outcome, "bookie_skew", "bookie", "logs", "ledgers_in_metadata", "of_mean") == [
        ("a", 1, 1, 1.0),
        ("b", 0, 1, None),
    ]
    assert (outcome.counts["ledgers"], outcome.counts["ledgers_not_closed"]) == (3, 1)


def test_statistics_sum_up_ledgers_by_topic(tmp_path: Path) -> None:
    topic = {"application": "pulsar", "topic": "persistent://tenant/space/orders"}
    closed = {"state": "CLOSED", "digest": "crc32c"}
    tables = write_tables(
        tmp_path / "t",
        ledgers=[
            {"ledger": 1, "length": 10, **closed, **topic},
            {"ledger": 2, "length": 20, **closed, **topic, "state": "OPEN"},
            {"ledger": 3, "length": 5, **closed, "application": "other"},
            {"ledger": 4, "length": 1, **closed},
        ],
        fragments=[],
        logs=[log(0, 3000)],
        log_ledgers=[part(0, 1, 200), part(0, 4, 100)],
    )
    outcome = run_over(tables, "stats", tmp_path / "o", top=1)
    columns = ("application", "topic", "ledgers", "ledgers_not_closed", "disk_bytes")
    assert rows_of(outcome, "ledger_owners", *columns) == [
        ("other", None, 1, 0, 0),
        ("pulsar", topic["topic"], 2, 1, 200),
        (None, None, 1, 0, 100),
    ]
    assert rows_of(outcome, "largest_ledgers", "ledger", "topic") == [(1, topic["topic"])]
