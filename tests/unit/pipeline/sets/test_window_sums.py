"""Runs and words of a window: the compiled functions, those over numpy, and entry by entry say the same."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl import _kernels
from bkctl.codec import entry as entries_codec
from bkctl.codec.digest import DIGEST_BYTES, Digester, DigestType
from bkctl.pipeline.sets import blocks
from bkctl.pipeline.sets.blocks import BLOCK_ENTRIES, BlockSums, entry_words
from bkctl.pipeline.sets.stripes import striped
from bkctl.pipeline.tables import run_lengths
from bkctl.pipeline.tables.log_digests import KINDS
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.run_lengths import RunJoiner, Runs, concatenated
from bkctl.pipeline.tables.runs import window_runs
from tests.support import window_sums
from tests.support.kernel_twins import COMPILED, COMPILED_TWINS, twin

_KEY = b"k" * 20

#: Ledger, entry, payload, how its digest was made, and whether it was found right.
Made = tuple[int, int, bytes, DigestType, int]

_entries = st.lists(
    st.tuples(
        st.integers(0, 3) | st.just((1 << 63) - 1),
        st.integers(0, 4) | st.integers((1 << 63) - 3, (1 << 63) - 1) | st.integers(1020, 2060),
        st.binary(max_size=20),
        st.sampled_from(KINDS),
        st.sampled_from([-1, 0, 1]),
    ),
    min_size=1,
    max_size=40,
)


def window(made: list[Made], base: int = 1024, short: int = 0) -> LogRows:
    """Rows of entries one behind the other, and behind them ``short`` bodies of nothing but their ids."""
    buffer, starts, sizes = b"", [], []
    for ledger, entry, payload, kind, _ in made:
        header = entries_codec.EntryHeader(ledger, entry, (entry * 7919) % 100 - 1, len(payload))
        body = entries_codec.encode(header, payload, Digester(kind, _KEY if kind is DigestType.MAC else b""))
        starts.append(len(buffer))
        sizes.append(len(body))
        buffer += len(body).to_bytes(4, "big") + body
    for number in range(short):
        starts.append(len(buffer))
        sizes.append(16)
        buffer += (16).to_bytes(4, "big") + (7).to_bytes(8, "big") + number.to_bytes(8, "big")
    ids = [(one[0], one[1]) for one in made] + [(7, number) for number in range(short)]
    ledgers, entries = (np.array(column, np.int64) for column in zip(*ids, strict=True))
    kinds = np.array([KINDS.index(one[3]) for one in made] + [-1] * short, np.int8)
    results = np.array([one[4] for one in made] + [-1] * short, np.int8)
    return LogRows(
        buffer, base, np.array(starts, np.int64), np.array(sizes, np.int64), ledgers, entries, kinds, results
    )


def runs_and_words(rows: LogRows, monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """What each twin makes of a window; the function over numpy comes first."""
    found = []
    with monkeypatch.context() as patched:
        patched.setattr(_kernels, "run_columns", None)
        patched.setattr(_kernels, "digest_words", None)
        runs, words = window_runs(5, rows), entry_words(rows)
        found.append([column.tolist() for column in (*runs.columns(), words)])
    for name in COMPILED_TWINS:
        with twin(name) as native, monkeypatch.context() as patched:
            patched.setattr(_kernels, "run_columns", native.run_columns)
            patched.setattr(_kernels, "digest_words", native.digest_words)
            runs, words = window_runs(5, rows), entry_words(rows)
            found.append([column.tolist() for column in (*runs.columns(), words)])
    return found


@given(_entries, st.integers(0, 2))
def test_all_twins_agree(made: list[Made], short: int) -> None:
    rows = window(made, short=short)
    columns = [column.tolist() for column in (rows.starts, rows.sizes, rows.ledgers, rows.entries)]
    failing = bytes((rows.results == 0).tolist())
    expected = [
        array("q", column).tolist()
        for column in window_sums.run_columns(rows.buffer, *columns, failing, 5 << 32 | rows.base + 4)
    ]
    with pytest.MonkeyPatch.context() as monkeypatch:
        answers = runs_and_words(rows, monkeypatch)
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][:9] == expected
    used = [min(DIGEST_BYTES[kind], 8) if result == 1 else 0 for *_, kind, result in made] + [0] * short
    words = array("q", window_sums.digest_words(rows.buffer, *columns, bytes(used)))
    proved = [number for number, size in enumerate(used) if size]
    assert [answers[0][9][number] for number in proved] == [words[number] for number in proved]


@COMPILED
@pytest.mark.parametrize("name", COMPILED_TWINS)
def test_what_does_not_fit_is_refused(name: str) -> None:
    rows = window([(1, 0, b"payload", DigestType.CRC32C, 1), (1, 1, b"", DigestType.CRC32, 1)])
    columns = [column.tobytes() for column in (rows.starts, rows.sizes, rows.ledgers, rows.entries)]
    with twin(name) as native:
        assert native.run_columns is not None
        assert native.digest_words is not None
        assert len(native.run_columns(rows.buffer, *columns, bytes(2), 0)) == 9
        assert len(native.digest_words(rows.buffer, *columns, bytes([4, 8]))) == 16
        assert native.digest_words(b"", b"", b"", b"", b"", b"") == b""
        assert native.run_columns(b"", b"", b"", b"", b"", b"", 0) == (b"",) * 9
        for wrong in (bytes(1), bytes(3)):
            with pytest.raises(ValueError, match="different lengths"):
                native.run_columns(rows.buffer, *columns, wrong, 0)
        for number in range(4):
            cut = [column[:-1] if number == at else column for at, column in enumerate(columns)]
            with pytest.raises(ValueError, match="different lengths"):
                native.digest_words(rows.buffer, *cut, bytes(2))
        for starts, sizes in (
            ([0, -1], [40, 40]),
            ([0, 1 << 62], [40, 40]),
            ([0, 4], [40, -1]),
            ([0, 44], [40, 1 << 62]),
        ):
            places = [array("q", starts).tobytes(), array("q", sizes).tobytes(), *columns[2:]]
            with pytest.raises(ValueError, match="outside of the buffer"):
                native.run_columns(rows.buffer, *places, bytes(2), 0)
            with pytest.raises(ValueError, match="outside of the buffer"):
                native.digest_words(rows.buffer, *places, bytes(2))
        for wanted in (bytes([4, 5]), bytes([255, 8]), bytes([8, 20])):
            with pytest.raises(ValueError, match="shorter than its digest"):
                native.digest_words(rows.buffer, *columns, wanted)
        short = window([(1, 0, b"", DigestType.CRC32C, 1)])
        columns = [column.tobytes() for column in (short.starts, short.sizes, short.ledgers, short.entries)]
        with pytest.raises(ValueError, match="shorter than its digest"):
            native.digest_words(short.buffer, *columns, bytes([8]))


@given(_entries, st.sampled_from([1, 3, 1 << 20]))
def test_sums_of_blocks_are_the_same_by_cells_and_by_order(made: list[Made], rows_max: int) -> None:
    """However many entries are held, and whether remainders have cells or are put in order."""
    found = []
    for cells_max in (0, 1 << 30):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(blocks, "_CELLS_MAX", cells_max)
            sums = BlockSums(rows_max)
            joiner = RunJoiner(1 << 10)
            for start in range(0, len(made), 7):
                rows = window(made[start : start + 7])
                sums.add(rows)
                joiner.add(window_runs(1, rows))
            runs = joiner.end()
            assert runs is not None
            result = sums.end(striped(runs))
        assert result is not None
        found.append(
            list(
                zip(
                    result.ledgers.tolist(),
                    result.block.tolist(),
                    result.residue.tolist(),
                    result.entries.tolist(),
                    result.digests.tolist(),
                    strict=True,
                )
            )
        )
    assert found[0] == found[1]
    assert sum(row[3] for row in found[0]) == len(made)
    assert {(row[0], row[1]) for row in found[0]} == {(one[0], one[1] // BLOCK_ENTRIES) for one in made}
    words = sum(entry_words(window(made)).tolist()) % (1 << 44)
    assert sum(row[4] for row in found[0]) % (1 << 44) == words


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), min_size=1, max_size=60), st.integers(1, 9))
def test_runs_are_the_same_whether_windows_are_joined_before_or_not(
    ids: list[tuple[int, int]], step: int
) -> None:
    made = [(ledger, entry, b"x", DigestType.CRC32C, 1) for ledger, entry in ids]
    one_by_one = concatenated([window_runs(1, window([one])) for one in made]).merged()[0]
    joiner, parts = RunJoiner(step), []
    for start in range(0, len(made), step):
        parts += [runs for runs in [joiner.add(window_runs(1, window(made[start : start + step])))] if runs]
    rest = joiner.end()
    assert rest is not None
    together = concatenated([*parts, rest]).merged()[0]
    expected, found = (
        sorted(zip(*(column.tolist() for column in runs.columns()[:8]), strict=True))
        for runs in (one_by_one, together)
    )
    assert found == expected


def test_runs_that_wait_are_joined_when_there_are_twice_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each window, which would go through all that wait each time."""
    calls: list[int] = []
    merged = Runs.merged

    def counted(self: Runs) -> object:
        calls.append(len(self))
        return merged(self)

    monkeypatch.setattr(run_lengths.Runs, "merged", counted)
    joiner = RunJoiner(10)
    for number in range(200):
        joiner.add(
            window_runs(1, window([(number * 10 + one, 0, b"", DigestType.CRC32C, 1) for one in range(10)]))
        )
    assert all(later >= 2 * former for former, later in pairwise(calls))
