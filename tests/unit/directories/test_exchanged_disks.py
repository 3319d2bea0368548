"""Repairs over ledger directories in each other's place write nothing: it would be on the wrong disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import RefusedError
from bkctl.storage_kinds import DB, IDX
from tests.support.cluster_dump import write_dump
from tests.support.convertible_bookie import LIMBO, ConvertibleBookie
from tests.support.readable import readable

Run = Callable[..., Any]


def exchange(bookie: ConvertibleBookie) -> None:
    """Mount the disks of two ledger directories in each other's place, or back."""
    (bookie.root / "l0").rename(bookie.root / "aside")
    (bookie.root / "l1").rename(bookie.root / "l0")
    (bookie.root / "aside").rename(bookie.root / "l1")


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def lose_indexes(bookie: ConvertibleBookie) -> None:
    for number in range(2):
        for name in ("ledgers", "locations"):
            shutil.rmtree(bookie.current(number) / name)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("place", [".", "l0", "l1"])
def test_no_index_is_rebuilt(run_cli: Run, tmp_path: Path, lost: bool, place: str) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2)
    exchange(bookie)
    if lost:
        lose_indexes(bookie)
    before = files(bookie.root)
    done = run_cli("index", "rebuild", bookie.root / place, "--storage", "db", "--accept-loss", "--yes")
    assert done.exit_code == 4
    assert "mounted in each other's place" in done.stderr
    assert files(bookie.root) == before
    exchange(bookie)
    done = run_cli("index", "rebuild", bookie.root, "--storage", "db", "--yes")
    assert done.exit_code in (0, 1, 3)
    assert {key for key in bookie.bodies if key[1] < 30} <= readable(bookie.root).keys()


def test_a_lost_index_is_no_reason_to_start(tmp_path: Path) -> None:
    """An accepted loss would put ledgers into limbo that are whole on the other disk."""
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2)
    exchange(bookie)
    lose_indexes(bookie)
    with pytest.raises(RefusedError, match="mounted in each other's place"):
        bookie.bookie(DB)


@pytest.mark.parametrize("verb", ["journal salvage", "lastmark set"])
def test_no_limbo_goes_to_the_wrong_disk(run_cli: Run, tmp_path: Path, verb: str) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2)
    exchange(bookie)
    journal = max((bookie.root / "j/current").glob("*.txn"))
    words = ("--in-place",)
    if verb == "lastmark set":
        words = ("--journal", journal.name, "--offset", journal.stat().st_size, "--accept-loss")
    else:
        content = journal.read_bytes()
        body = bookie.bodies[7, 33]
        journal.write_bytes(content.replace(body, b"\xff" * len(body)))
    before = files(bookie.root)
    done = run_cli(*verb.split(), bookie.root, *words, "--yes")
    assert done.exit_code == 4
    assert "mounted in each other's place" in done.stderr
    assert files(bookie.root) == before
    exchange(bookie)
    assert run_cli(*verb.split(), bookie.root, *words, "--yes").exit_code == 1


def test_no_log_is_salvaged(run_cli: Run, tmp_path: Path) -> None:
    """It would say that ledgers are in limbo which are not, because they are not in their place."""
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2)
    exchange(bookie)
    log = min(bookie.current(0).glob("*.log"))
    body = bookie.bodies[1, 5]
    log.write_bytes(log.read_bytes().replace(body, body[:16] + b"\xff" * (len(body) - 16)))
    before = files(bookie.root)
    done = run_cli("entrylog", "salvage", log, "--yes")
    assert done.exit_code == 4
    assert "mounted in each other's place" in done.stderr
    assert files(bookie.root) == before
    exchange(bookie)
    log = bookie.current(1) / log.name
    assert run_cli("entrylog", "salvage", log, "--yes").exit_code == 1


def test_a_check_names_the_disks_and_advises_no_rebuild(run_cli: Run, tmp_path: Path) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2)
    dump = tmp_path / "dump.json"
    ledgers = {ledger for ledger, _ in bookie.bodies}
    write_dump(dump, ledgers - {LIMBO}, bookie="bookie:3181", instance_id="one", next_ledger=20)
    exchange(bookie)
    plan = run_cli("repair", "plan", bookie.root, "--metadata", dump, "--deep", "-o", "ndjson")
    assert plan.exit_code == 1
    assert "wrong_directory" in plan.stdout
    assert "index rebuild" not in plan.stdout


def test_index_files_have_no_places(run_cli: Run, tmp_path: Path) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", IDX, 2)
    exchange(bookie)
    assert run_cli("index", "rebuild", bookie.root, "--yes").exit_code in (0, 1)


@pytest.mark.parametrize("apart", [False, True])
def test_a_log_of_another_directory_is_no_disk_out_of_place(
    run_cli: Run, tmp_path: Path, apart: bool
) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2, apart=apart)
    for log in bookie.current(0).glob("*.log"):
        shutil.copy(min(bookie.current(1).glob("*.log")), log)
    done = run_cli("index", "rebuild", bookie.root / "l0", "--dry-run")
    assert "each other's place" not in done.stderr
