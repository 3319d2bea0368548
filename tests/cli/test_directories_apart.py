"""Commands that are given one directory of a bookie whose ledgers, indexes and journals lie apart."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
from bkctl.commands.repair.log_salvages import in_order
from bkctl.vfs import PosixFileSystem
from tests.support.bookie_apart import NAME, take_apart
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import TruthfulBookie

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", "db", 2)


def rows_of(run_cli: Run, current: Path) -> list[dict[str, Any]]:
    done = run_cli("index", "scan", current)
    assert done.exit_code == 0, done.stderr
    return from_ndjson(done.stdout)


@pytest.mark.parametrize("given", ["i1", "l1"])
@pytest.mark.parametrize("named", [None, ""], ids=["from the root", "from where one stands"])
def test_a_lost_index_is_rebuilt_in_its_own_directory(
    run_cli: Run,
    made: TruthfulBookie,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    named: str | None,
) -> None:
    disks = tmp_path / "some disks"
    take_apart(made.copy(tmp_path / "bookie"), disks, named)
    monkeypatch.chdir(disks)
    index = disks / "i1" / NAME / "current"
    before = rows_of(run_cli, index)
    shutil.rmtree(index / "locations")
    path = Path(given, NAME, "current") if named == "" else disks / given / NAME
    done = run_cli(
        "index", "rebuild", path, "--locations", "--yes", *(("--storage", "db") if given == "l1" else ())
    )
    assert done.exit_code in (0, 1, 3), done.stderr
    assert {(row["ledger"], row["entry"]) for row in before} <= {
        (row["ledger"], row["entry"]) for row in rows_of(run_cli, index)
    }
    assert not (disks / "l1" / NAME / "current" / "locations").exists()


def test_a_copy_is_not_rebuilt_with_the_directories_of_the_original(
    run_cli: Run, made: TruthfulBookie, tmp_path: Path
) -> None:
    """The index of the original was replaced by one of the copy's logs, which may be fewer."""
    disks = tmp_path / "disks"
    take_apart(made.copy(tmp_path / "bookie"), disks, name="")
    kept = tmp_path / "kept" / "l1"
    shutil.copytree(disks / "l1", kept)
    (kept / "current" / "0.log").unlink()
    before = rows_of(run_cli, disks / "i1" / "current")
    done = run_cli(
        "index", "rebuild", kept, "--ledgers", "--locations", "--storage", "db", "--accept-loss", "--yes"
    )
    assert done.exit_code == 2, done.stderr
    assert rows_of(run_cli, disks / "i1" / "current") == before
    # Copied as a whole it is one bookie.
    whole = tmp_path / "whole"
    shutil.copytree(disks, whole)
    shutil.rmtree(whole / "i1" / "current" / "locations")
    done = run_cli("index", "check", whole / "l1")
    assert done.exit_code == 1, done.stdout
    assert {row["dir"].split("/")[-3] for row in from_ndjson(done.stdout) if row["dir"]} == {"whole"}


def test_journal_directories_of_one_last_name_are_known_by_their_paths(
    made: TruthfulBookie, tmp_path: Path
) -> None:
    disks = tmp_path / "disks"
    take_apart(made.copy(tmp_path / "bookie"), disks)
    paths = sorted(map(str, disks.glob("*/*/current")))
    for given in (paths, paths[::-1]):
        bookie = find_stopped_bookie(PosixFileSystem(), given)
        places = [(place.directory.path, place.mark_name) for place in bookie.journals]
        assert places == [(f"{disks}/j{number}/{NAME}/current", f"lastMark.{number}") for number in (0, 1)]


@pytest.mark.parametrize("lost", [("locations",), ("locations", "ledgers")], ids=" and ".join)
def test_a_plan_knows_that_an_index_apart_is_that_of_a_damaged_log(
    run_cli: Run, made: TruthfulBookie, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """The rebuild was planned without --accept-loss, and refused over the log in every plan that followed."""
    disks, plan = tmp_path / "disks", tmp_path / "plan.json"
    take_apart(made.copy(tmp_path / "bookie"), disks, name="")
    log = sorted((disks / "l1" / "current").glob("*.log"))[0]
    with log.open("r+b") as stream:
        stream.seek(log.stat().st_size // 2)
        stream.write(b"\xff" * 100)
    for database in lost:
        shutil.rmtree(disks / "i1" / "current" / database)
    for verb in (["index", "rebuild"], ["entrylog", "salvage"]):
        planned = run_cli("repair", "plan", disks, "--deep", "--out", plan)
        rows = [row for row in from_ndjson(planned.stdout) if row["number"] is not None]
        assert [row["command"][1:3] for row in rows] == [verb], planned.stdout
        assert run_cli("repair", "run", plan, "--yes").exit_code in (1, 3)
        for file in (plan, Path(f"{plan}.log")):
            file.unlink()
    assert not [
        row for row in from_ndjson(run_cli("repair", "plan", disks, "--deep").stdout) if row["number"]
    ]


def test_a_damaged_log_is_salvaged_once_and_with_the_metadata() -> None:
    """Where the index is apart its own finding named no log that is there, and had a salvage of its own."""
    salvage = ["bkctl", "entrylog", "salvage", "/l/current/1.log"]
    asking = [*salvage, "--metadata", "zk://host/ledgers", "--yes"]
    log = {"kind": "damaged_log", "dir": "/l/current", "path": "/l/current/1.log", "commands": [asking]}
    row = {"kind": "dangling_location", "dir": "/i/current", "path": "/i/current/1.log"}
    rows = in_order([log, {**row, "commands": [[*salvage, "--yes"]]}])
    assert [row["commands"] for row in rows] == [[asking], [asking]]


def test_a_copy_whose_directories_lie_apart_is_one_bookie(
    run_cli: Run, made: TruthfulBookie, tmp_path: Path
) -> None:
    """Each folder of it was examined alone: an index was lost that is there, and no journal that is not."""
    disks = tmp_path / "disks"
    take_apart(made.copy(tmp_path / "bookie"), disks, "/data/elsewhere/")
    done = run_cli("doctor", disks)
    assert {row["kind"] for row in from_ndjson(done.stdout)}.isdisjoint({"lost_index", "index_without_place"})
    index = disks / "i1" / NAME / "current"
    before = rows_of(run_cli, index)
    shutil.rmtree(index / "locations")
    assert run_cli("index", "rebuild", index, "--locations", "--yes").exit_code in (0, 1, 3)
    assert len(rows_of(run_cli, index)) >= len(before)
    for journal in disks.glob("j0/*/current/*.txn"):
        journal.unlink()
    done = run_cli("doctor", disks, "--only", "journals,marks")
    assert (done.exit_code, "missing_journal" in done.stdout) == (1, True), done.stdout
