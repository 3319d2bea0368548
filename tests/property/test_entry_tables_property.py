"""Table ``entries`` against the reader that knows damage, over any log, any damage and any windows."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.digest import Digester
from bkctl.pipeline.tables.options import TableOptions
from tests.support.grades import times
from tests.support.log_builder import ALL_DIGESTERS, PASSWORD, Built, EntryLogBuilder, entry_body
from tests.support.table_rows import Row, command_line_rows, small_windows, table_rows

OPTIONS = TableOptions(damage="rows", password=PASSWORD)
LEDGERS = st.sampled_from([0, 1, 7, 2**40])
BATCH = st.tuples(LEDGERS, st.integers(1, 12), st.integers(0, 90))


@st.composite
def logs(draw: st.DrawFn) -> Built:
    """A log of batches of entries; every ledger has one digest type."""
    kinds: dict[int, Digester] = {}
    log = EntryLogBuilder(direct=draw(st.booleans()))
    following: dict[int, int] = {}
    for ledger, count, size in draw(st.lists(BATCH, min_size=1, max_size=14)):
        if ledger not in kinds:
            kinds[ledger] = draw(st.sampled_from(ALL_DIGESTERS))
        for _ in range(count):
            entry = following.get(ledger, 0)
            following[ledger] = entry + draw(st.sampled_from([1, 1, 1, 2]))
            log.add(entry_body(ledger, entry, b"p" * size, kinds[ledger]))
        if draw(st.booleans()):
            log.flush()
    return log.roll() if draw(st.booleans()) else log.build()


def without_place(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key != "bookie"} for row in rows]


@settings(max_examples=times(30, 80))
@given(
    log=logs(),
    # The last eight records are held back until what follows shows their sizes: a window has room for as many
    # of the smallest. In one that has less, records without a digest behind damage and a hole are left out.
    window=st.integers(400, 1200),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255))),
)
def test_rows_are_the_same_whichever_way_a_log_is_read(
    log: Built, window: int, flips: list[tuple[float, int]]
) -> None:
    data = bytearray(log.data)
    for place, bits in flips[:3]:
        data[min(len(data) - 1, 1024 + int(place * (len(data) - 1024)))] ^= bits
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "1.log")
        path.write_bytes(data)
        with small_windows(window, 2 * window):
            found = without_place(table_rows("entries", [path], OPTIONS))
        expected = command_line_rows(path, password=PASSWORD)
    # A digest type that few entries tell, damaged ones among them, may be learnt by the one who reads more of
    # the log; what the records are may not depend on it.
    ids = ("offset", "size", "ledger", "entry", "lac", "ledger_length")
    assert [[row[name] for name in ids] for row in found] == [[row[name] for name in ids] for row in expected]
    if not flips:
        assert found == [{name: row[name] for name in found[0]} for row in expected]


@settings(max_examples=times(15, 40))
@given(log=logs(), window=st.integers(60, 700), rows_max=st.integers(1, 50))
def test_runs_are_the_run_length_form_of_the_entries(log: Built, window: int, rows_max: int) -> None:
    options = TableOptions(damage="rows", password=PASSWORD, batch_rows=rows_max)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "1.log")
        path.write_bytes(log.data)
        with small_windows(window):
            runs = table_rows("runs", [path], options)
        rows = table_rows("entries", [path], options)
    expected: dict[int, list[list[int]]] = {}
    for row in rows:
        stretches = expected.setdefault(row["ledger"], [])
        if stretches and stretches[-1][-1] + 1 == row["entry"]:
            stretches[-1].append(row["entry"])
        else:
            stretches.append([row["entry"]])
    found: dict[int, list[tuple[int, int, int]]] = {}
    for run in runs:
        found.setdefault(run["ledger"], []).append((run["first"], run["last"], run["entries"]))
    assert found == {
        ledger: [(ids[0], ids[-1], len(ids)) for ids in stretches] for ledger, stretches in expected.items()
    }
    assert sum(run["bytes"] for run in runs) == sum(row["size"] + 4 for row in rows)
