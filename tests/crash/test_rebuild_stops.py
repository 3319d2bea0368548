"""Rebuilds that stop at one chosen step, and what the next run makes of that."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild import db_rebuild, log_scan, rebuild, state
from bkctl.kvstore.rocksdb import open_read_only
from tests.support.java_bookkeeper import copy_directory, sample_directory
from tests.support.manifest import index_rows

Corpora = Callable[[str], Path]
Cli = Callable[..., Any]


class StoppedError(Exception):
    pass


def stop(*_: object) -> None:
    raise StoppedError


@pytest.fixture
def small(corpora: Corpora, tmp_path: Path) -> Path:
    """A bookie with one ledger directory."""
    return copy_directory(sample_directory("d", corpora), tmp_path / "d")


def current_of(folder: Path) -> Path:
    return next(path.parent for path in folder.rglob("locations") if path.is_dir())


def foreign(current: Path) -> list[str]:
    """What a rebuild has left."""
    return sorted(name for name in os.listdir(current) if "bkctl-rebuild" in name or "BACKUP" in name)


def ledger_rows(current: Path) -> list[tuple[bytes, bytes]]:
    store = open_read_only(str(current / "ledgers"))
    try:
        return list(store.iterate())
    finally:
        store.close()


@pytest.mark.parametrize("alone", [False, True])
def test_an_old_index_that_was_half_removed_is_removed_by_the_next_run(
    small: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    current = current_of(small)
    before = list(index_rows(current))
    original = state.remove_tree

    def remove(path: str) -> None:
        if "BACKUP" in path:
            raise StoppedError
        original(path)

    assert rebuild.remove_tree is original  # the module is there before its names are patched
    with monkeypatch.context() as patch:
        patch.setattr(state, "remove_tree", remove)
        assert run_cli("index", "rebuild", small, "--yes", "--all", "--drop-old").exit_code == 7
    assert any(name.endswith(".dropping") for name in foreign(current))
    if alone:
        # The work directories of the run that stopped stay: they are the next rebuild's.
        assert run_cli("index", "rebuild", small, "--yes", "--drop-old").exit_code == 0
        assert not [name for name in foreign(current) if "BACKUP" in name]
    assert run_cli("index", "rebuild", small, "--yes", "--all", "--drop-old").exit_code == 0
    assert foreign(current) == []
    assert list(index_rows(current)) == before


def test_a_stop_before_the_old_index_is_dropped_is_made_good(
    small: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = current_of(small)
    with monkeypatch.context() as patch:
        patch.setattr(db_rebuild, "drop_whole", stop)
        assert run_cli("index", "rebuild", small, "--yes", "--all", "--drop-old").exit_code == 7
    assert len([name for name in foreign(current) if "BACKUP" in name]) == 2
    with monkeypatch.context() as patch:
        patch.setattr(log_scan, "_read_clean", stop)  # no log is read again
        assert run_cli("index", "rebuild", small, "--yes", "--all", "--drop-old").exit_code == 0
    assert foreign(current) == []


@pytest.mark.parametrize("database", ["ledgers", "locations"])
def test_a_database_that_was_damaged_after_a_stop_is_made_again(
    small: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """What a stopped run put in place is not taken for sound because it was so then."""
    current = current_of(small)
    before = list(index_rows(current)), [key for key, _ in ledger_rows(current)]
    with monkeypatch.context() as patch:
        patch.setattr(db_rebuild.DbRebuild, "finish", stop)
        assert run_cli("index", "rebuild", small, "--yes", "--all").exit_code == 7
    (current / database / "CURRENT").write_bytes(b"junk\n")
    again = run_cli("index", "rebuild", small, "--yes", "--all")
    assert again.exit_code == int(database == "ledgers"), "fences and limbo of rows that are lost"
    assert (list(index_rows(current)), [key for key, _ in ledger_rows(current)]) == before
    assert [name for name in foreign(current) if "bkctl-rebuild" in name] == []


@pytest.mark.parametrize("damage", ["header", "slot"])
def test_an_idx_file_that_was_damaged_after_a_stop_is_made_again(
    corpora: Corpora, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    folder = copy_directory(sample_directory("i", corpora), tmp_path / "i")
    file = next(folder.rglob("*.idx"))
    current = file.parents[2]
    before = list(index_rows(current))
    with monkeypatch.context() as patch:
        patch.setattr(state.WorkDirectory, "drop", stop)
        assert run_cli("index", "rebuild", folder, "--yes").exit_code == 7
    data = bytearray(file.read_bytes())
    at = 0 if damage == "header" else 1024
    data[at : at + 8] = bytes(8)
    file.write_bytes(data)
    again = run_cli("index", "rebuild", folder, "--yes")
    assert again.exit_code == int(damage == "header"), again.stderr
    assert list(index_rows(current)) == before
    assert file.read_bytes()[:4] == b"BKLE"
    assert [name for name in foreign(current) if "bkctl-rebuild" in name] == []


def test_a_stop_in_the_second_directory_keeps_what_the_first_one_told(
    corpora: Corpora, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_directory(sample_directory("m", corpora), tmp_path / "m")
    indexes = [folder / name / "current" for name in ("i1", "i2")]
    before = [list(index_rows(current)) for current in indexes]
    shutil.rmtree(indexes[0] / "ledgers")
    original = db_rebuild.DbRebuild.run

    def run(verb: db_rebuild.DbRebuild) -> Any:
        if verb._directory.position == 1:
            raise StoppedError
        return original(verb)

    with monkeypatch.context() as patch:
        patch.setattr(db_rebuild.DbRebuild, "run", run)
        assert run_cli("index", "rebuild", folder, "--yes").exit_code == 7
    assert ledger_rows(indexes[0])
    result = run_cli("index", "rebuild", folder, "--yes", "-o", "json")
    assert result.exit_code == 1, result.stderr
    first, second = json.loads(result.stdout)
    assert {"ledger_added", "fenced"} <= {found["kind"] for found in first["differences"]}
    assert second["differences"] == []
    assert [list(index_rows(current)) for current in indexes] == before
    assert len([name for name in foreign(indexes[0]) if name.startswith("locations.BACKUP")]) == 1
