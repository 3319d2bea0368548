"""``repair undo`` behind ``index rebuild`` of ``.idx`` files: the directories as they were, byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild.idx_swap import IdxSwap
from bkctl.codec.file_info import KEY_AT
from bkctl.errors import NoSpaceError
from bkctl.storage_kinds import IDX
from tests.support.convertible_bookie import ConvertibleBookie
from tests.support.rows import from_ndjson

Run = Callable[..., Any]
Content = dict[str, bytes | None]


@pytest.fixture(scope="module", params=[1, 3], ids=["one", "three"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bookie = ConvertibleBookie.make(tmp_path_factory.mktemp("made") / "bookie", IDX, request.param)
    with bookie.started(IDX):
        pass
    return bookie.root


@pytest.fixture
def bookie(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "bookie"))


def content(root: Path) -> Content:
    """Files and, with None, folders."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


def homes(bookie: Path) -> list[Path]:
    return sorted(bookie.glob("l*"))


def rebuild(run_cli: Run, bookie: Path, *more: object) -> Any:
    return run_cli("index", "rebuild", bookie, "--all", "--yes", "--storage", "idx", *more)


def rebuilt(run_cli: Run, bookie: Path, *more: object) -> None:
    done = rebuild(run_cli, bookie, *more)
    assert done.exit_code in (0, 1), done.stderr


def undone(run_cli: Run, bookie: Path) -> None:
    done = run_cli("repair", "undo", bookie, "--yes")
    assert done.exit_code == 0, done.stderr


def lose_all(bookie: Path) -> None:
    for folder in bookie.glob("l*/current/[0-9a-f]*/"):
        if folder.is_dir():
            shutil.rmtree(folder)


def damage_a_header(bookie: Path) -> None:
    path = sorted(bookie.rglob("*.idx"))[0]
    data = bytearray(path.read_bytes())
    data[KEY_AT - 4] ^= 0x80
    path.write_bytes(data)


def double_one(bookie: Path) -> None:
    """A second file of a ledger, in the last directory, and what is no index file beside it."""
    path = sorted(bookie.rglob("*.idx"))[0]
    there = homes(bookie)[-1] / "current" / path.relative_to(path.parents[2])
    there.parent.mkdir(parents=True, exist_ok=True)
    there.with_suffix(".idx.rloc").write_bytes(path.read_bytes())
    (there.parent / "notes").write_bytes(b"mine")


@pytest.mark.parametrize("change", [None, lose_all, damage_a_header, double_one])
def test_an_undo_puts_the_old_files_back(
    run_cli: Run, bookie: Path, change: Callable[[Path], None] | None
) -> None:
    if change is not None:
        change(bookie)
    before = content(bookie)
    rebuilt(run_cli, bookie, "--accept-loss")
    assert content(bookie) != before
    (row,) = from_ndjson(run_cli("repair", "log", bookie, "-o", "ndjson").stdout)
    assert (row["made_by"], row["detail"].split(", ")[0], row["state"], row["why_not"]) == (
        "index rebuild",
        "idx",
        "done",
        None,
    )
    undone(run_cli, bookie)
    assert content(bookie) == before


def full(*_: object) -> None:
    raise NoSpaceError("no space left on device")


def fails(run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A rebuild that finds the disk full when the last of its directories comes to a step."""
    step, last = getattr(IdxSwap, where), str(homes(bookie)[-1] / "current")

    def reaching(swap: IdxSwap, *given: Any) -> None:
        if swap.current == last and where != "remove_files":
            full()
        step(swap, *given)
        if swap.current == last:
            full()

    with monkeypatch.context() as patch:
        patch.setattr(IdxSwap, where, reaching)
        assert rebuild(run_cli, bookie).exit_code == 7


STEPS = ("keep_old", "put_in_place", "remove_files")


@pytest.mark.parametrize("where", STEPS)
def test_what_a_rebuild_that_failed_has_replaced_is_undone(
    run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = content(bookie)
    fails(run_cli, bookie, monkeypatch, where)
    rows = from_ndjson(run_cli("repair", "log", bookie, "-o", "ndjson").stdout)
    if where == "keep_old":
        assert not rows, "nothing was replaced yet"
        return
    assert [(row["state"], row["why_not"]) for row in rows] == [("begun", None)]
    undone(run_cli, bookie)
    assert content(bookie) == before


@pytest.mark.parametrize("where", STEPS)
def test_a_rebuild_that_goes_on_is_undone_as_a_whole(
    run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = content(bookie)
    for _ in range(2):
        fails(run_cli, bookie, monkeypatch, where)
    rebuilt(run_cli, bookie)
    (row,) = from_ndjson(run_cli("repair", "log", bookie, "-o", "ndjson").stdout)
    assert (row["state"], row["why_not"]) == ("done", None)
    undone(run_cli, bookie)
    assert content(bookie) == before


def test_a_run_behind_which_others_have_worked_is_not_gone_on_with(
    run_cli: Run, bookie: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its backup says nothing any more of what stood there before the next run."""
    fails(run_cli, bookie, monkeypatch, "remove_files")
    (homes(bookie)[0] / "current/lastMark").write_bytes(bytes(16))
    between = content(bookie)
    rebuilt(run_cli, bookie)
    rows = from_ndjson(run_cli("repair", "log", bookie, "-o", "ndjson").stdout)
    assert [row["state"] for row in rows] == ["begun", "done"]
    undone(run_cli, bookie)
    assert work_left_out(content(bookie)) == work_left_out(between)


def work_left_out(found: Content) -> Content:
    return {name: data for name, data in found.items() if "idx.bkctl-rebuild" not in name}


def test_a_backup_that_is_not_whole_any_more_is_not_put_back(run_cli: Run, bookie: Path) -> None:
    rebuilt(run_cli, bookie)
    kept = sorted(bookie.glob("l*/current/idx.BACKUP-*/*/*/*.idx"))[0]
    kept.unlink()
    after = content(bookie)
    done = run_cli("repair", "undo", bookie, "--yes")
    assert done.exit_code == 4, done.stdout
    assert "has changed" in done.stderr
    assert content(bookie) == after


def test_without_its_old_files_a_rebuild_is_not_taken_back(run_cli: Run, bookie: Path) -> None:
    rebuilt(run_cli, bookie)
    assert run_cli("index", "rebuild", bookie, "--drop-old", "--yes").exit_code == 0
    assert not list(bookie.rglob("bkctl-repairs"))
    assert run_cli("repair", "undo", bookie, "--yes").exit_code == 6


def test_a_refused_rebuild_leaves_nothing_behind(run_cli: Run, bookie: Path) -> None:
    log = max(bookie.glob("l*/current/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[1024:1028] = b"\x7f\xff\xff\xff"
    log.write_bytes(data)
    before = content(bookie)
    refused = rebuild(run_cli, bookie)
    assert refused.exit_code == 4, refused.stderr
    assert content(bookie) == before
