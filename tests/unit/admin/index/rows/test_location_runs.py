"""The external sort against a dictionary."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.admin.index.rebuild.location_build import encoded
from bkctl.admin.index.rows.location_runs import (
    Rows,
    RunSlice,
    RunWriter,
    is_whole,
    merged,
    no_rows,
    of_ledgers,
    partitions,
    read_slice,
    sorted_rows,
    write_run,
)
from bkctl.codec import location
from bkctl.codec.location import Location
from bkctl.errors import StorageError

SMALL = st.integers(0, 6)
IDS = st.one_of(SMALL, st.integers(0, 2**63 - 1))
KEYS = st.lists(st.tuples(IDS, IDS), max_size=120)


def rows_of(keys: list[tuple[int, int]], first: int = 1) -> Rows:
    """Rows whose locations ascend."""
    ids = np.array(keys, np.int64).reshape(-1, 2)
    return Rows(ids[:, 0], ids[:, 1], np.arange(first, first + len(keys), dtype=np.int64))


def as_dict(rows: Rows) -> dict[tuple[int, int], int]:
    keys = list(zip(rows.ledgers.tolist(), rows.entries.tolist(), strict=True))
    assert keys == sorted(set(keys))
    return dict(zip(keys, rows.locations.tolist(), strict=True))


@given(KEYS)
def test_the_last_of_equal_keys_wins(keys: list[tuple[int, int]]) -> None:
    assert as_dict(sorted_rows(rows_of(keys))) == {key: number for number, key in enumerate(keys, 1)}


@given(KEYS, st.integers(1, 40), st.integers(1, 40), st.integers(1, 7))
def test_runs_merge_to_what_a_dictionary_holds(
    keys: list[tuple[int, int]], run_rows: int, partition_rows: int, step: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter(lambda number: f"{folder}/{number}.run", run_rows)
        for first in range(0, len(keys), step):
            writer.add(rows_of(keys[first : first + step], first + 1))
        runs = writer.close()
        assert all(is_whole(run) for run in runs)
        found: dict[tuple[int, int], int] = {}
        last = (-1, -1)
        for partition in partitions(runs, partition_rows):
            part = as_dict(merged(partition))
            assert min(part) > last
            last = max(part)
            in_memory = sum(piece.stop - piece.first for piece in partition)
            assert in_memory <= partition_rows or len(part) == 1
            found |= part
    assert found == {key: number for number, key in enumerate(keys, 1)}


@given(KEYS, st.sets(IDS))
def test_rows_of_other_ledgers_are_left_out(keys: list[tuple[int, int]], ledgers: set[int]) -> None:
    rows = sorted_rows(rows_of(keys))
    kept = as_dict(of_ledgers(rows, np.array(sorted(ledgers), np.int64)))
    assert kept == {key: place for key, place in as_dict(rows).items() if key[0] in ledgers}


@given(st.lists(st.tuples(IDS, IDS, st.integers(1, 2**62)), max_size=20))
def test_rows_are_encoded_as_the_codec_does(values: list[tuple[int, int, int]]) -> None:
    columns = np.array(values, np.int64).reshape(-1, 3)
    keys, places = encoded(Rows(columns[:, 0], columns[:, 1], columns[:, 2]))
    assert list(zip(keys, places, strict=True)) == [
        (location.encode_key(ledger, entry), location.encode_value(Location(at >> 32, at & 0xFFFFFFFF)))
        for ledger, entry, at in values
    ]


def test_a_run_that_was_damaged_is_noticed(tmp_path: Path) -> None:
    run = write_run(str(tmp_path / "0.run"), rows_of([(1, 2), (1, 3), (2, 0)]))
    assert is_whole(run)
    data = bytearray((tmp_path / "0.run").read_bytes())
    data[9] ^= 1
    (tmp_path / "0.run").write_bytes(data)
    assert not is_whole(run)
    (tmp_path / "0.run").write_bytes(data[:-1])
    assert not is_whole(run)
    with pytest.raises(StorageError, match="shorter"):
        read_slice(RunSlice(run, 0, 3))
    (tmp_path / "0.run").unlink()
    assert not is_whole(run)


def test_nothing_is_sorted_to_nothing() -> None:
    assert len(sorted_rows(no_rows())) == 0
    assert list(partitions([], 10)) == []
