"""Audits of bookies whose directories share one space of log ids: ``.idx`` files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from bkctl.pipeline.results import Outcome
from bkctl.pipeline.tables.options import TableOptions
from bkctl.storage_kinds import DB, IDX, StorageKind
from tests.support.convertible_bookie import ConvertibleBookie
from tests.support.idx_bookie import (
    DIRS,
    copied,
    flip_header,
    flip_slot,
    gather_indexes,
    index_file,
    locations_of,
    logs_of,
)
from tests.support.pipeline_tables import rows_of, same_results, write_tables
from tests.support.sets import collected, ran

#: How a job is given a bookie: its files, or a set.
Audit = Callable[..., Outcome]

LEDGER = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ConvertibleBookie.make(tmp_path_factory.mktemp("idx"), IDX, len(DIRS)).root


@pytest.fixture
def bookie(made: Path, tmp_path: Path) -> Path:
    return copied(made, tmp_path / "bookie")


@pytest.fixture(params=["files", "set"])
def audit(request: pytest.FixtureRequest, tmp_path: Path) -> Audit:
    def over(bookie: Path, **metadata: Path) -> Outcome:
        path: object = bookie
        if request.param == "set":
            collected(bookie, tmp_path / "sets", options=TableOptions(damage="rows"))
            path = tmp_path / "sets"
        read = {name: str(found) for name, found in metadata.items()} or {"metadata": None}
        return ran("index-audit", [path], tmp_path / "out", **{"metadata_after": None, **read})

    return over


def over_paths(paths: Iterable[Path], out: Path) -> Outcome:
    return ran("index-audit", list(paths), out, metadata=None)


@pytest.mark.parametrize("apart", [False, True], ids=["beside", "apart"])
@pytest.mark.parametrize("kind", [IDX, DB], ids=["idx", "db"])
def test_a_bookie_with_several_directories_is_well(kind: StorageKind, apart: bool, tmp_path: Path) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", kind, 3, apart=apart).root
    outcome = over_paths([bookie], tmp_path / "out")
    assert (outcome.verdict, outcome.found, outcome.counts["dirs_without_index"]) == ("clean", (), 0)
    assert outcome.counts["locations"] > 0
    collected(bookie, tmp_path / "sets", options=TableOptions(damage="rows"))
    same_results(outcome, over_paths([tmp_path / "sets"], tmp_path / "over"))


def test_a_bookie_is_well_whose_directories_are_named_one_by_one(bookie: Path, tmp_path: Path) -> None:
    outcome = over_paths([bookie / name for name in (*DIRS, "j")], tmp_path / "out")
    assert (outcome.verdict, outcome.found) == ("clean", ())


def test_index_directories_apart_may_be_empty(tmp_path: Path) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", IDX, 3, apart=True).root
    gather_indexes(bookie, "i1")
    outcome = over_paths([bookie], tmp_path / "out")
    assert (outcome.verdict, outcome.found, outcome.counts["dirs_without_index"]) == ("clean", (), 0)
    (bookie / "i2").rename(tmp_path / "i2")
    lacking = over_paths([bookie], tmp_path / "lacking")
    assert (lacking.verdict, lacking.found) == ("unexamined", ("dirs_without_index",))


def test_databases_apart_from_logs_of_unknown_directories_are_not_judged(tmp_path: Path) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2, apart=True).root
    outcome = over_paths(sorted(bookie.iterdir()), tmp_path / "out")
    assert (outcome.verdict, outcome.found) == ("unexamined", ("dirs_without_index",))
    told = [guard for guard in outcome.guards if "give the whole bookie" in guard]
    assert [str(bookie / name) in guard for name, guard in zip(("i0", "i1"), told, strict=True)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("given", [["l0"], ["l1", "l2"], ["l2", "l0"]], ids=" ".join)
def test_a_directory_that_was_not_given_is_no_finding_and_not_clean(
    bookie: Path, given: list[str], audit: Audit, tmp_path: Path
) -> None:
    for name in set(DIRS) - set(given):
        (bookie / name).rename(tmp_path / name)
    outcome = audit(bookie)
    assert (outcome.verdict, outcome.found) == ("unexamined", ("dirs_without_index",))
    assert (outcome.counts["dirs_without_index"], outcome.counts["share_not_judged"]) == (len(given), 1.0)
    assert rows_of(outcome, "ledger_findings") == []
    (told,) = [guard for guard in outcome.guards if "is left out" in guard]
    assert f"its cookie names {len(given)} were given" in told


def test_sets_of_single_directories_are_not_judged_together(bookie: Path, tmp_path: Path) -> None:
    """None of them has what the others' locations would have to be compared with."""
    next(path for path in bookie.glob("l1/current/*.log")).unlink()
    for name in DIRS:
        collected(bookie / name, tmp_path / name, options=TableOptions(damage="rows"))
    outcome = over_paths([tmp_path / name for name in DIRS], tmp_path / "out")
    assert (outcome.verdict, outcome.found) == ("unexamined", ("dirs_without_index",))
    mixed = over_paths([tmp_path / "l0", bookie / "l1", bookie / "l2"], tmp_path / "mixed")
    assert (mixed.verdict, mixed.found) == ("unexamined", ("dirs_without_index",))


def test_without_a_cookie_nothing_says_what_belongs_together(bookie: Path, tmp_path: Path) -> None:
    for cookie in bookie.rglob("VERSION"):
        cookie.unlink()
    outcome = over_paths([bookie], tmp_path / "out")
    assert (outcome.verdict, outcome.found) == ("unexamined", ("dirs_without_index",))


def test_two_copies_of_a_bookie_are_not_taken_for_one(bookie: Path, made: Path, tmp_path: Path) -> None:
    next(path for path in bookie.glob("l1/current/*.log")).unlink()
    outcome = over_paths([bookie, made], tmp_path / "out")
    assert outcome.found == ("dirs_without_index", "twin_directories")


def test_a_directory_without_index_files_is_judged_with_the_others(bookie: Path, audit: Audit) -> None:
    gather_indexes(bookie, "l0")
    outcome = audit(bookie)
    assert (outcome.verdict, outcome.counts["dirs_without_index"]) == ("clean", 0)
    assert outcome.counts["locations"] > 0


def test_what_a_collector_keeps_of_logs_is_no_index(bookie: Path, audit: Audit) -> None:
    gather_indexes(bookie, "l0")
    cache = bookie / "l2/current/metadata-cache"
    cache.mkdir()
    (cache / "CURRENT").write_text("MANIFEST-000001\n")
    outcome = audit(bookie)
    assert (outcome.verdict, outcome.found) == ("clean", ())


def test_records_of_journals_are_not_lost_in_a_directory_that_was_not_given(
    bookie: Path, tmp_path: Path
) -> None:
    whole = ran("journal-forensics", [bookie], tmp_path / "whole", metadata=None)
    assert (whole.verdict, whole.counts["deleted"] > 0) == ("clean", True)
    partly = ran("journal-forensics", [bookie / "l0", bookie / "j"], tmp_path / "partly", metadata=None)
    assert (partly.verdict, partly.found) == ("unexamined", ("undecided",))
    assert partly.counts["lost"] == partly.counts["unindexed"] == 0
    assert partly.counts["records"] == whole.counts["records"]


def test_a_young_bookie_has_no_index_to_judge(tmp_path: Path) -> None:
    bookie = ConvertibleBookie.young(tmp_path / "young", 3).root
    outcome = over_paths([bookie], tmp_path / "out")
    assert (outcome.verdict, outcome.found) == ("unexamined", ("dirs_without_index",))


def test_locations_into_a_log_that_is_gone_are_dangling(bookie: Path, audit: Audit) -> None:
    log_id = next(log_id for log_id, path in logs_of(bookie).items() if path.parts[-3] == "l1")
    lost = sorted(row for row in locations_of(bookie) if row[2] == log_id)
    logs_of(bookie)[log_id].unlink()
    outcome = audit(bookie)
    columns = ("ledger", "entry", "index_log_id", "index_offset")
    assert rows_of(outcome, "index_findings", *columns) == sorted(lost, key=repr)
    assert (outcome.verdict, outcome.counts["dangling"]) == ("found", len(lost))
    assert {kind for (kind,) in rows_of(outcome, "index_findings", "kind")} == {"dangling"}
    in_files = {str(index_file(bookie, row[0]).parents[2]) for row in lost}
    assert {name for (name,) in rows_of(outcome, "index_findings", "dir")} == in_files


def test_a_changed_location_is_a_mismatch(bookie: Path, audit: Audit) -> None:
    ledger, entry, log_id, offset = locations_of(bookie, LEDGER)[0]
    flip_slot(index_file(bookie, ledger), entry, bit=3)
    outcome = audit(bookie)
    columns = ("kind", "ledger", "entry", "index_log_id", "index_offset", "log_id", "log_offset")
    assert rows_of(outcome, "index_findings", *columns) == [
        ("mismatch", ledger, entry, log_id, offset ^ 8, log_id, offset)
    ]


def test_a_location_that_is_none_leaves_its_entry_missing(bookie: Path, audit: Audit) -> None:
    ledger, entry, log_id, offset = locations_of(bookie, LEDGER)[0]
    flip_slot(index_file(bookie, ledger), entry, bit=63)
    outcome = audit(bookie)
    columns = ("kind", "ledger", "entry", "index_log_id", "log_id", "log_offset", "dir")
    assert rows_of(outcome, "index_findings", *columns) == [
        ("missing", ledger, entry, None, log_id, offset, str(logs_of(bookie)[log_id].parent))
    ]


def test_a_ledger_whose_index_file_cannot_be_read_was_not_deleted(bookie: Path, audit: Audit) -> None:
    entries = sorted(row[1] for row in locations_of(bookie, LEDGER))
    flip_header(index_file(bookie, LEDGER))
    outcome = audit(bookie)
    assert (outcome.verdict, outcome.counts["garbage"]) == ("found", 0)
    assert rows_of(outcome, "index_findings", "kind", "ledger", "entry") == sorted(
        (("missing", LEDGER, entry) for entry in entries), key=repr
    )


@pytest.mark.parametrize(
    ("holder", "twice", "found"),
    [("bookie:3181", True, ("lost_ledgers",)), ("bookie:3181", False, ()), ("other:3181", True, ())],
    ids=["placed here", "metadata of once", "placed elsewhere"],
)
def test_a_ledger_without_its_index_file_is_lost_when_metadata_place_it_there(
    bookie: Path, audit: Audit, tmp_path: Path, holder: str, twice: bool, found: tuple[str, ...]
) -> None:
    fragments = [{"ledger": ledger, "bookie": holder} for ledger in (LEDGER, LEDGER, 5, 77)]
    tables = write_tables(tmp_path / "zk", fragments=fragments)
    entries = len(locations_of(bookie, LEDGER))
    index_file(bookie, LEDGER).unlink()
    outcome = audit(bookie, metadata=tables, **({"metadata_after": tables} if twice else {}))
    assert (outcome.found, outcome.verdict) == (found, "found" if found else "clean")
    lost = [
        row for row in rows_of(outcome, "ledger_findings", "kind", "ledger", "entries") if row[0] == "lost"
    ]
    assert lost == ([("lost", LEDGER, entries)] if found else [])
    assert outcome.counts["lost_ledgers"] == len(lost)
