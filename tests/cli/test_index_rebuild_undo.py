"""``repair undo`` behind ``index rebuild``: the directory as it was, byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild import db_rebuild, way_back
from bkctl.admin.index.rebuild.way_back import WayBack
from bkctl.errors import NoSpaceError
from bkctl.vfs import PosixFileSystem
from tests.support.rows import from_ndjson

Run = Callable[..., Any]

DEMO = Path(__file__).parents[1] / "data" / "demo"


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    shutil.copytree(DEMO / "bookie1", tmp_path / "bookie")
    return tmp_path / "bookie"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rebuilt(run_cli: Run, bookie: Path, *more: str) -> Any:
    words = ("index", "rebuild", bookie / "ledgers", "--metadata", DEMO / "zk.json", "--yes", *more)
    done = run_cli(*words)
    assert done.exit_code in (0, 1), done.stderr
    return done


@pytest.mark.parametrize("lost", [(), ("locations",), ("ledgers", "locations")], ids=["whole", "one", "both"])
def test_an_undo_puts_the_old_databases_back(run_cli: Run, bookie: Path, lost: tuple[str, ...]) -> None:
    for name in lost:
        shutil.rmtree(bookie / "ledgers/current" / name)
    before = content(bookie)
    more = ("--storage", "db") if len(lost) == 2 else ()
    rebuilt(run_cli, bookie, *more)
    assert content(bookie) != before
    (row,) = from_ndjson(run_cli("repair", "log", bookie, "-o", "ndjson").stdout)
    assert (row["made_by"], row["state"], row["why_not"]) == ("index rebuild", "done", None)
    done = run_cli("repair", "undo", bookie, "--yes")
    assert done.exit_code == 0, done.stderr
    assert content(bookie) == before


def test_repairs_are_taken_back_one_after_the_other(run_cli: Run, bookie: Path) -> None:
    """A salvage, then a rebuild of the index that it moved rows of."""
    log = bookie / "ledgers/current/0.log"
    with log.open("r+b") as stream:
        stream.seek(15259)
        stream.write(b"\x7f\xff\xff\xff")
    before = content(bookie)
    words = (log, "--metadata", DEMO / "zk.json", "--yes")
    assert run_cli("entrylog", "salvage", *words).exit_code in (0, 1)
    between = content(bookie)
    rebuilt(run_cli, bookie)
    assert run_cli("repair", "undo", bookie, "--yes").exit_code == 0
    assert content(bookie) == between
    assert run_cli("repair", "undo", bookie, "--yes").exit_code == 0
    assert content(bookie) == before


def test_without_its_old_index_a_rebuild_is_not_taken_back(run_cli: Run, bookie: Path) -> None:
    rebuilt(run_cli, bookie)
    assert list((bookie / "ledgers/current").glob("bkctl-repairs/*/*/CURRENT")), "the undo has the old files"
    assert run_cli("index", "rebuild", bookie / "ledgers", "--drop-old", "--yes").exit_code == 0
    assert not list((bookie / "ledgers/current").glob("bkctl-repairs")), "they would stay on the disk"
    done = run_cli("repair", "undo", bookie, "--yes")
    assert done.exit_code == 6, done.stderr


def full(*_: object) -> None:
    raise NoSpaceError("no space left on device")


def second_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Find the disk full behind the second call."""
    calls = []

    def counted(*given: Any) -> Any:
        calls.append(given)
        done = call(*given)
        return full() if len(calls) == 2 else done

    return counted


def fails(run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A rebuild that finds the disk full behind its first exchange."""
    words = ("index", "rebuild", bookie / "ledgers", "--metadata", DEMO / "zk.json", "--yes")
    with monkeypatch.context() as patch:
        if where == "build":
            patch.setattr(db_rebuild.DbRebuild, "_build_locations", full)
        elif where == "exchange":
            patch.setattr(db_rebuild, "exchange", second_call(db_rebuild.exchange))
        elif where == "drop":
            patch.setattr(db_rebuild.WorkDirectory, "drop", second_call(db_rebuild.WorkDirectory.drop))
        else:
            patch.setattr(db_rebuild.DbRebuild, "finish", full)
        assert run_cli(*words).exit_code == 7


FAILURES = ("build", "exchange", "finish", "drop")


@pytest.mark.parametrize("where", FAILURES)
def test_what_a_rebuild_that_failed_has_exchanged_is_undone(
    run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = content(bookie)
    fails(run_cli, bookie, monkeypatch, where)
    (row,) = from_ndjson(run_cli("repair", "log", bookie, "-o", "ndjson").stdout)
    assert (row["made_by"], row["state"], row["why_not"]) == ("index rebuild", "begun", None)
    done = run_cli("repair", "undo", bookie, "--yes")
    assert done.exit_code == 0, done.stderr
    assert content(bookie) == before


@pytest.mark.parametrize("where", FAILURES)
def test_a_rebuild_that_goes_on_is_undone_as_a_whole(
    run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = content(bookie)
    for _ in range(2):
        fails(run_cli, bookie, monkeypatch, where)
    rebuilt(run_cli, bookie)
    (row,) = from_ndjson(run_cli("repair", "log", bookie, "-o", "ndjson").stdout)
    assert (row["state"], row["detail"], row["why_not"]) == ("done", "ledgers, locations", None)
    assert run_cli("repair", "undo", bookie, "--yes").exit_code == 0
    assert content(bookie) == before


def test_behind_something_else_a_rebuild_begins_a_record_of_its_own(
    run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(run_cli, bookie, monkeypatch, "build")
    assert run_cli("index", "compact", bookie, "--yes").exit_code == 0
    (bookie / "ledgers/current/lastMark").write_bytes(bytes(16))
    changed = content(bookie)
    rebuilt(run_cli, bookie)
    rows = from_ndjson(run_cli("repair", "log", bookie, "-o", "ndjson").stdout)
    assert [row["state"] for row in rows] == ["begun", "done"]
    assert run_cli("repair", "undo", bookie, "--yes").exit_code == 0
    left = {name: data for name, data in content(bookie).items() if "bkctl-rebuild" not in name}
    assert left == {name: data for name, data in changed.items() if "bkctl-rebuild" not in name}


@pytest.mark.parametrize("where", ["whole", "without what it kept", "empty", "around it"])
def test_a_rebuild_cut_off_where_its_record_goes_leaves_nothing_behind_a_rerun(
    run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    words = ("index", "rebuild", bookie / "ledgers", "--all", "--drop-old", "--yes")
    called = "remove" if where == "without what it kept" else "remove_directory"
    call = getattr(PosixFileSystem, called)

    def remove_or_fail(files: PosixFileSystem, path: str) -> None:
        last = {"without what it kept": "repair.json", "around it": "bkctl-repairs"}.get(where, "Z")
        if path.endswith(last):
            full()
        call(files, path)

    with monkeypatch.context() as patch:
        if where == "whole":
            patch.setattr(way_back, "forget", full)
        else:
            patch.setattr(PosixFileSystem, called, remove_or_fail)
        assert run_cli(*words).exit_code == 7
    left = [path.name for path in bookie.rglob("bkctl-repairs/*/*")]
    assert (len(left) > 1, "repair.json" in left) == {
        "whole": (True, True),
        "without what it kept": (False, True),
    }.get(where, (False, False))
    assert run_cli(*words).exit_code == 0
    assert not list(bookie.rglob("bkctl-repairs"))


def test_a_refused_rebuild_does_not_stand_in_the_way_of_an_undo(run_cli: Run, bookie: Path) -> None:
    """Nothing was changed, so no work folder stays: an undo would find the directory changed."""
    before = content(bookie)
    rebuilt(run_cli, bookie)
    log = bookie / "ledgers/current/0.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:15259] + b"\x7f\xff\xff\xff" + whole[15263:])
    changed = content(bookie)
    refused = run_cli("index", "rebuild", bookie / "ledgers", "--metadata", DEMO / "zk.json", "--yes")
    assert refused.exit_code == 4, refused.stderr
    assert content(bookie) == changed
    assert not list(bookie.rglob("*bkctl-rebuild*"))
    log.write_bytes(whole)
    done = run_cli("repair", "undo", bookie, "--yes")
    assert done.exit_code == 0, done.stderr
    assert content(bookie) == before


def test_an_index_that_waits_to_be_put_in_place_is_kept(
    run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(WayBack, "announce", full)
        assert run_cli("index", "rebuild", bookie / "ledgers", "--yes").exit_code == 7
    assert list(bookie.rglob("*.bkctl-rebuild/swap.json"))
    rebuilt(run_cli, bookie)
    assert not list(bookie.rglob("*.bkctl-rebuild"))
