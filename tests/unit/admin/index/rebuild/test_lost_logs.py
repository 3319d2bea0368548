"""A directory whose logs are all gone is rebuilt all the same: its ledgers are in limbo then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild import swap as index_swap
from bkctl.admin.index.rebuild.db_rebuild import DbRebuild
from bkctl.admin.index.rebuild.idx_swap import IdxSwap
from bkctl.admin.index.rebuild.swap import Swap
from bkctl.directories.placement import find_placement
from bkctl.scan.index import open_index
from bkctl.vfs import PosixFileSystem
from tests.support.checked_bookie import FILES, CheckedBookie
from tests.support.rows import from_ndjson

Run = Callable[..., Any]


class StoppedError(Exception):
    pass


def stop(*_: object) -> None:
    raise StoppedError


@pytest.fixture
def bookie(tmp_path: Path) -> CheckedBookie:
    """Two directories, the first without its logs and its mark."""
    made = CheckedBookie(tmp_path / "bookie", count=2)
    made.fill([4, 5])
    made.write()
    for path in (*made.current(0).glob("*.log"), made.current(0) / "lastMark"):
        path.unlink()
    return made


def test_by_its_cookie_a_directory_without_logs_is_a_ledger_directory(bookie: CheckedBookie) -> None:
    whole = find_placement(FILES, str(bookie.root))
    assert [place.ledger_dir for place in whole.directories] == [str(bookie.current(n)) for n in range(2)]
    (alone,) = find_placement(FILES, str(bookie.current(0))).directories
    assert (alone.position, alone.count, alone.ledger_dir) == (0, 2, str(bookie.current(0)))


def test_what_the_check_advises_sets_limbo(run_cli: Run, bookie: CheckedBookie) -> None:
    rows = from_ndjson(run_cli("index", "check", bookie.root, "-o", "ndjson").stdout)
    lines = {tuple(line) for row in rows if row["severity"] == "damage" for line in row["commands"]}
    assert lines
    for _, *words in lines:
        assert run_cli(*words).exit_code == 1, "locations_lost"
    index = open_index(PosixFileSystem(), str(bookie.current(0)))
    assert index is not None
    with index:
        assert [(row.ledger, row.data.limbo) for row in index.ledgers.merged()] == [(4, True)]  # type: ignore[union-attr]


def limbo_in(bookie: CheckedBookie) -> dict[int, bool]:
    index = open_index(FILES, str(bookie.current()))
    assert index is not None
    with index:
        return {row.ledger: bool(row.data.limbo) for row in index.ledgers.merged()}  # type: ignore[union-attr]


def two_logs(root: Path, storage: str) -> CheckedBookie:
    """Ledger 4 in the one, ledger 5 in the other."""
    made = CheckedBookie(root / "bookie", storage)
    made.fill([4], log_id=0)
    made.fill([5], log_id=1)
    made.write()
    return made


def stop_between(swap: Swap, backup: str) -> None:
    """Stop between the two renames of a file system that cannot exchange two names."""
    os.rename(swap.live, backup)
    raise StoppedError


@pytest.mark.parametrize("where", ["behind the rows", "between two names"])
def test_a_log_that_goes_behind_a_kill_puts_its_ledgers_into_limbo(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The rows that the first run has put in place know nothing of it; its locations alone do."""
    bookie = two_logs(tmp_path, "db")
    command = ("index", "rebuild", bookie.root, "--yes", "-o", "json")
    with monkeypatch.context() as patch:
        if where == "behind the rows":
            patch.setattr(DbRebuild, "_replace_locations", stop)
        else:
            put = index_swap._put_in_place
            patch.setattr(
                index_swap,
                "_put_in_place",
                lambda swap, backup: (stop_between if swap.name == "locations" else put)(swap, backup),
            )
        assert run_cli(*command).exit_code == 7
    (bookie.current() / "0.log").unlink()
    again = run_cli(*command)
    assert (again.exit_code, "locations_lost" in again.stdout) == (1, True)
    assert limbo_in(bookie) == {4: True, 5: False}


def test_what_a_run_that_was_killed_has_put_into_limbo_is_told_by_one_that_reads_other_logs(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = two_logs(tmp_path, "idx")
    (bookie.current() / "0.log").unlink()
    command = ("index", "rebuild", bookie.root, "--yes", "--accept-loss", "-o", "json")
    with monkeypatch.context() as patch:
        patch.setattr(IdxSwap, "remove_files", stop)
        assert run_cli(*command).exit_code == 7
    assert limbo_in(bookie) == {4: True, 5: False}
    os.utime(bookie.current() / "1.log", (1, 1))
    again = run_cli(*command)
    assert (again.exit_code, "entries_lost" in again.stdout) == (1, True)
    assert limbo_in(bookie) == {4: True, 5: False}
