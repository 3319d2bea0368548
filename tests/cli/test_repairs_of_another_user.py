"""Repairs that root runs leave a bookie that its own user can start."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import PosixFileSystem
from tests.support.grades import one_kept
from tests.support.rows import from_ndjson

Run = Callable[..., Any]

DEMO = Path(__file__).parents[1] / "data" / "demo"
BOOKIE = 12345
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root repairs another user's files")


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    path = tmp_path / "bookie"
    shutil.copytree(DEMO / "bookie1", path)
    for each in (path, *path.rglob("*")):
        os.chown(each, BOOKIE, BOOKIE)
    return path


def of_root(bookie: Path) -> list[Path]:
    return [path for path in (bookie, *bookie.rglob("*")) if path.lstat().st_uid != BOOKIE]


def modes(bookie: Path) -> dict[Path, int]:
    return {path: stat.S_IMODE(path.lstat().st_mode) for path in (bookie, *bookie.rglob("*"))}


def a_ledger() -> str:
    with EntryLogScan(PosixFileSystem(), str(DEMO / "bookie1" / "ledgers" / "current" / "0.log")) as scan:
        return str(next(iter(scan.batches())).ledgers[0])


@pytest.mark.parametrize(
    "words",
    [
        ("lastmark", "set", "{bookie}", "--journal", "0", "--offset", "0"),
        ("index", "rebuild", "{bookie}"),
        ("index", "limbo", "{ledger}", "{bookie}"),
        ("entrylog", "salvage", "{bookie}/ledgers/current/0.log"),
        ("gc", "run", "{bookie}", "--metadata", f"{DEMO}/zk.json"),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_what_root_repairs_and_undoes_stays_its_owners(
    run_cli: Run, bookie: Path, words: tuple[str, ...]
) -> None:
    if words[0] == "entrylog":
        with (bookie / "ledgers" / "current" / "0.log").open("r+b") as stream:
            stream.seek(15259)
            stream.write(b"\x7f\xff\xff\xff")
    line = [word.format(bookie=bookie, ledger=a_ledger()) for word in words]
    done = run_cli(*line, "--yes")
    assert done.exit_code in (0, 1, 3), done.stderr
    assert of_root(bookie) == []
    if any(bookie.rglob("bkctl-repairs")):
        undone = run_cli("repair", "undo", bookie, "--yes")
        assert undone.exit_code == 0, undone.stderr
        assert of_root(bookie) == []
    else:
        assert words[0] == "gc" or words[1] == "limbo", "it has no record"


@pytest.mark.parametrize(
    ("file_mode", "folder_mode"),
    one_kept("as other permissions", (0o660, 0o2770), (0o644, 0o755), (0o600, 0o700)),
)
def test_what_root_repairs_has_the_permissions_of_its_neighbours(
    run_cli: Run, bookie: Path, file_mode: int, folder_mode: int
) -> None:
    for path in (bookie, *bookie.rglob("*")):
        path.chmod(folder_mode if path.is_dir() else file_mode)
    old = modes(bookie)
    with (bookie / "ledgers" / "current" / "0.log").open("r+b") as stream:
        stream.seek(15259)
        stream.write(b"\x7f\xff\xff\xff")
    for words in (
        ("entrylog", "salvage", bookie / "ledgers" / "current" / "0.log"),
        ("index", "rebuild", bookie),
        ("lastmark", "set", bookie, "--journal", "0", "--offset", "0"),
    ):
        done = run_cli(*words, "--yes")
        assert done.exit_code in (0, 1), done.stderr
    made = {path: mode for path, mode in modes(bookie).items() if "bkctl-repairs" not in path.parts}
    assert made.keys() - old.keys()
    wrong = {
        path: oct(mode)
        for path, mode in made.items()
        if mode & 0o777 != (folder_mode if path.is_dir() else file_mode) & 0o777
    }
    assert wrong == {}
    for _ in range(3):
        done = run_cli("repair", "undo", bookie, "--yes")
        assert done.exit_code == 0, done.stderr
    assert modes(bookie) == old
    assert of_root(bookie) == []


def test_the_doctor_looks_for_other_users_files_in_databases(run_cli: Run, bookie: Path) -> None:
    os.chown(bookie / "ledgers" / "current" / "ledgers" / "CURRENT", 0, 0)
    found = from_ndjson(run_cli("doctor", bookie, "--only", "permissions", "-o", "ndjson").stdout)
    assert [(row["kind"], row["path"]) for row in found] == [
        ("foreign_files", str(bookie / "ledgers" / "current" / "ledgers" / "CURRENT"))
    ]
