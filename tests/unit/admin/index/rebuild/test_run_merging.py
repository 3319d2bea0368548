"""Runs that are merged in groups, against the runs themselves, and how few are opened afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.admin.index.rebuild import run_merging
from bkctl.admin.index.rebuild.run_merging import LocationSearch, fewer_runs
from bkctl.admin.index.rebuild.state import WorkDirectory
from bkctl.admin.index.rows.location_runs import (
    Rows,
    Run,
    RunSearch,
    concatenated,
    merged,
    partitions,
    read_slice,
    sorted_rows,
    write_run,
)
from bkctl.workers import Workers

IDS = st.one_of(st.integers(0, 4), st.integers(0, 2**63 - 1))
KEYS = st.lists(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=12), min_size=1, max_size=25)


def rows_of(keys: Sequence[tuple[int, int]], first: int) -> Rows:
    """Rows whose locations ascend."""
    ids = np.array(keys, np.int64).reshape(-1, 2)
    return Rows(ids[:, 0], ids[:, 1], np.arange(first, first + len(keys), dtype=np.int64))


def runs_of(folder: str, logs: Sequence[Sequence[tuple[int, int]]]) -> list[Run]:
    """A run for each log, as reading the logs leaves them."""
    firsts = np.cumsum([0, *(len(keys) for keys in logs)]).tolist()
    return [
        write_run(f"{folder}/{number}.run", sorted_rows(rows_of(keys, first)), durable=False)
        for number, (keys, first) in enumerate(zip(logs, firsts, strict=False))
    ]


def contents(runs: Sequence[Run], rows_max: int) -> list[tuple[int, int, int]]:
    """What the runs come to."""
    parts = concatenated([merged(partition) for partition in partitions(runs, rows_max)])
    return list(zip(parts.ledgers.tolist(), parts.entries.tolist(), parts.locations.tolist(), strict=True))


@given(KEYS, st.integers(1, 30), st.integers(2, 5), st.integers(1, 4))
def test_merged_runs_come_to_what_the_runs_come_to(
    logs: list[list[tuple[int, int]]], rows_max: int, group: int, runs_max: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched, Workers(1) as one:
        patched.setattr(run_merging, "GROUP_RUNS", group)
        work = WorkDirectory(f"{folder}/work")
        runs = runs_of(folder, logs)
        few = fewer_runs(work, "merged", runs, runs_max, rows_max, one)
        assert len(few) <= runs_max
        assert sum(run.rows for run in few) == sum(run.rows for run in runs)
        assert contents(few, rows_max) == contents(runs, rows_max)
        # Only the last level stays on disk.
        assert len(list(Path(folder, "work").rglob("*.run"))) == (0 if few == runs else len(few))


@given(KEYS, st.integers(1, 30))
def test_runs_in_order_of_locations_stay_so(logs: list[list[tuple[int, int]]], rows_max: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched, Workers(1) as one:
        patched.setattr(run_merging, "GROUP_RUNS", 3)
        keyed = sorted_rows(rows_of([key for keys in logs for key in keys], 1))
        runs = []
        for first in range(0, len(keyed), 5):
            part = keyed.select(slice(first, first + 5))
            part = part.select(np.argsort(part.locations))
            runs.append(write_run(f"{folder}/{first}.run", part, durable=False))
        work = WorkDirectory(f"{folder}/work")
        (whole,) = fewer_runs(work, "check/merged", runs, 1, rows_max, one, by_location=True)
        (piece,) = partitions([whole], len(keyed))
        rows = read_slice(piece[0])
        expected = keyed.select(np.argsort(keyed.locations))
        for found, wanted in (
            (rows.ledgers, expected.ledgers),
            (rows.entries, expected.entries),
            (rows.locations, expected.locations),
        ):
            assert found.tolist() == wanted.tolist()
        search = LocationSearch(whole)
        middle = int(expected.locations[len(expected) // 2])
        assert search.key_position((middle, 0), 0, whole.rows) == len(expected) // 2
        assert search.key(len(expected) // 2) == (middle, 0)


def test_a_range_of_keys_opens_few_of_very_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 logs that share 40 ledgers: every range of keys has rows in every run."""
    opened = 0
    searched = RunSearch._opened

    def counted(search: RunSearch) -> object:
        nonlocal opened
        opened += 1
        return searched(search)

    logs = [[(ledger, log) for ledger in range(40)] for log in range(2000)]
    runs = runs_of(str(tmp_path), logs)
    with Workers(1) as one:
        few = fewer_runs(WorkDirectory(str(tmp_path / "work")), "merged", runs, 16, 20_000, one)
    assert len(few) <= 16
    monkeypatch.setattr(RunSearch, "_opened", counted)
    parts = list(partitions(few, 5000))
    assert len(parts) >= 16
    assert sum(len(part) for part in parts) <= 16 * len(parts)
    assert opened < 10_000  # of 2,000 runs it would be hundreds of thousands


def test_few_runs_stay_as_they_are(tmp_path: Path) -> None:
    runs = runs_of(str(tmp_path), [[(1, 1)], [(1, 2)]])
    with Workers(1) as one:
        assert fewer_runs(WorkDirectory(str(tmp_path / "work")), "merged", runs, 2, 10, one) == runs
    assert not (tmp_path / "work").exists()
