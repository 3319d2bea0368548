"""Exports that are killed at one step after the other: readers see one set or none, the next run mends it.

A kill is simulated: from a step on, everything that would change the folder raises. Only what was being
written at that moment is cut off where it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bkctl.clock import SystemClock
from bkctl.pipeline.locations import Location, located
from bkctl.pipeline.sets.export_turn import ExportTurn
from bkctl.pipeline.sets.partitions import PartitionedTables
from bkctl.pipeline.sets.store import CompleteSet
from bkctl.reporting import nobody
from tests.support.sets import DEMO, collected

TABLES = ["runs", "logs", "log_ledgers"]


class KilledError(BaseException):
    """The end of the process, which nothing catches."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing change any more from a step on; ``KilledError`` ends here."""
    left = [step]

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KilledError
            return change(*arguments)

        return changed

    plain = Location.opened

    @contextmanager
    def opened(place: Location, name: str) -> Iterator[Any]:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        with plain(place, name) as stream:
            yield stream
            left[0] -= 1
            if left[0] < 0:
                raise KilledError

    with monkeypatch.context() as patched:
        for name in ("move_file", "remove_file", "remove"):
            patched.setattr(Location, name, counted(getattr(Location, name)))
        patched.setattr(Location, "opened", opened)
        try:
            yield
        except KilledError:
            return


def rows_of(files: list[Path], columns: list[str] | None = None) -> list[str]:
    """Return the rows of Parquet files, without the columns of their partitions, in one order."""
    tables = [pq.read_table(path, partitioning=None) for path in files]
    kept = [table.drop_columns(["bookie"]) if "bookie" in table.column_names else table for table in tables]
    return sorted(repr(row) for table in kept for row in table.to_pylist())


def seen_set(folder: Path) -> str | None:
    """Return the id of the set that table ``sets`` names; None where no row can be read."""
    found = []
    for path in folder.glob("sets/*/*/*.parquet"):
        if path.stat().st_size and path.read_bytes()[-4:] == b"PAR1":
            found += pq.read_table(path, partitioning=None).column("set_id").to_pylist()
    assert len(found) <= 1, found
    return found[0] if found else None


def check(folder: Path, sets: list[CompleteSet]) -> str | None:
    """Check that the tables have the rows of the set that is named, and no others; return its id."""
    named = seen_set(folder)
    for one in sets:
        if one.manifest.set_id == named:
            for table in TABLES:
                there = rows_of(sorted(folder.glob(f"{table}/*/*/*.parquet")))
                assert there == rows_of([Path(path) for path in one.files(table)]), (named, table)
    return named


def exported(folder: Path, one: CompleteSet) -> str:
    place = located(str(folder))
    PartitionedTables(place).claim()
    with ExportTurn(place, SystemClock()) as turn:
        tables = PartitionedTables(place, turn.check)
        (done,) = tables.export([one], TABLES, True, 1, nobody)
    return done.state


@pytest.mark.parametrize("replaces", [False, True])
def test_a_kill_at_any_step_leaves_one_set_or_none(
    replaces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    first = collected(bookie, tmp_path / "sets").complete
    min(bookie.glob("ledgers/current/*.log")).unlink()
    second = collected(bookie, tmp_path / "sets").complete
    if replaces:
        assert exported(tmp_path / "before", first) == "exported"
    else:
        (tmp_path / "before").mkdir()
    seen = set()
    for step in range(100):
        folder = Path(shutil.copytree(tmp_path / "before", tmp_path / f"tables-{step}"))
        state = None
        with killed_at(step, monkeypatch):
            state = exported(folder, second)
        seen.add(check(folder, [first, second]))
        shutil.rmtree(folder / "_exports", ignore_errors=True)  # three minutes later
        assert exported(folder, second) in ("exported", "replaced", "unchanged"), step
        assert check(folder, [first, second]) == second.manifest.set_id, step
        assert not any((folder / "_replacing").glob("*")), step
        if state is not None:
            break
    assert step > 10
    assert seen == {first.manifest.set_id if replaces else None, None, second.manifest.set_id}
