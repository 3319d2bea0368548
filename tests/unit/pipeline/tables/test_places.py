"""Whose directories there are below a path, however it is written."""

from __future__ import annotations

import shutil
from os.path import normpath
from pathlib import Path

import pytest

from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import bookie_folders, index_directories
from bkctl.vfs import PosixFileSystem

DEMO = Path(__file__).parents[3] / "data" / "demo" / "bookie1"
FILES = PosixFileSystem()


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("one", "two"):
        shutil.copytree(DEMO, tmp_path / "fleet" / name)
    monkeypatch.chdir(tmp_path / "fleet")
    return tmp_path / "fleet"


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        (".", ["one", "two"]),
        ("./", ["one", "two"]),
        ("../fleet", ["../fleet/one", "../fleet/two"]),
        ("one", ["one"]),
        ("one/ledgers", ["one/ledgers"]),
        ("one/ledgers/current", ["one/ledgers/current"]),
    ],
)
def test_the_folder_of_a_bookie_is_found_and_not_above_the_path(
    fleet: Path, path: str, folders: list[str]
) -> None:
    assert bookie_folders(FILES, [path]) == folders
    whole = normpath(fleet / path)
    assert bookie_folders(FILES, [whole]) == [normpath(fleet / folder) for folder in folders]


def test_the_folder_of_the_bookie_one_stands_in_is_the_current_one(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fleet / "one")
    assert bookie_folders(FILES, ["."]) == ["."]
    (index,) = index_directories(FILES, ["."], TableOptions())
    assert index.dir.endswith("ledgers/current")
