"""The proof of a new index: parts of a log, and rows that do not belong there."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.admin.index.rebuild import verification
from bkctl.admin.index.rebuild.verification import LogCheckTask, check_log
from bkctl.admin.index.rows.location_runs import Rows, write_run
from bkctl.codec.location import OFFSET_MAX
from bkctl.errors import CorruptionError
from bkctl.scan.directory import LogFile

LOG_ID = 5


@given(st.integers(0, 1 << 33))
def test_the_parts_of_a_log_are_all_of_it(size_bytes: int) -> None:
    parts = list(verification._ranges(size_bytes))
    assert parts[0][0] == 0
    assert parts[-1][1] == OFFSET_MAX + 1
    assert all(one[1] == other[0] for one, other in pairwise(parts))
    assert all(start < stop for start, stop in parts)


def log_of(folder: Path, entries: int) -> tuple[LogFile, Rows]:
    """A log's records and the rows that point to them."""
    data, places = bytearray(1024), []
    for entry in range(entries):
        body = struct.pack(">qq", 7, entry) + bytes(entry % 11)
        places.append(LOG_ID << 32 | len(data) + 4)
        data += struct.pack(">i", len(body)) + body
    path = folder / f"{LOG_ID:x}.log"
    path.write_bytes(data)
    rows = Rows(np.full(entries, 7, np.int64), np.arange(entries), np.array(places, np.int64))
    return LogFile(str(path), LOG_ID, len(data)), rows


def checked(folder: Path, log: LogFile, rows: Rows, cuts: list[int]) -> int:
    run = write_run(str(folder / "0.run"), rows, durable=False)
    bounds = [0, *cuts, OFFSET_MAX + 1]
    told: list[int] = []
    found = sum(
        check_log(LogCheckTask(log, start, stop, (run,), 3), told.append) for start, stop in pairwise(bounds)
    )
    assert sum(told) == found
    return found


@pytest.mark.parametrize("cuts", [[], [1028], [1500, 1501, 1600], [10, 1029, 3000]])
def test_every_row_is_compared_once_however_a_log_is_cut(tmp_path: Path, cuts: list[int]) -> None:
    log, rows = log_of(tmp_path, 40)
    assert checked(tmp_path, log, rows, cuts) == 40


@pytest.mark.parametrize("column", ["ledgers", "entries", "locations"])
@pytest.mark.parametrize("index", [0, 17, 39])
def test_a_row_that_is_wrong_is_found_in_whatever_part(tmp_path: Path, column: str, index: int) -> None:
    log, rows = log_of(tmp_path, 40)
    getattr(rows, column)[index] += 1
    with pytest.raises(CorruptionError, match="disagree with the log"):
        checked(tmp_path, log, rows, [1500, 1700])
