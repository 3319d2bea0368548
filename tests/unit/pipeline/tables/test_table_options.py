"""Options of tables as text and as values."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.digest import Digester
from bkctl.errors import UsageError
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.log_rows import within
from bkctl.pipeline.tables.options import TableOptions, intersection, parse_options
from bkctl.pipeline.tables.split import SPLIT_BYTES_MIN, SPLIT_FILES_MAX, SplitFile, packed
from bkctl.types import DigestType


def test_options_are_read_whatever_their_case() -> None:
    options = parse_options(
        {
            "ledger": "7,10-19",
            "Entry": "0-99",
            "LOG": "28,0x1d,1e.log",
            "splitBytes": "64m",
            "only_bad": "true",
        }
    )
    assert options.ledgers == ((7, 7), (10, 19))
    assert options.entries == ((0, 99),)
    assert options.log_ids == {28, 29, 30}
    assert options.split_bytes == 64 << 20
    assert options.only_bad


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ledger", "x"),
        ("ledger", "9-3"),
        ("ledger", str(2**63)),
        ("log", "zz"),
        ("digest", "md5"),
        ("damage", "maybe"),
        ("splitbytes", "many"),
        ("splitbytes", "0"),
        ("secrets", "perhaps"),
        ("colour", "red"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UsageError, match="option"):
        parse_options({name: value})


def test_further_conditions_narrow_and_may_leave_nothing() -> None:
    options = TableOptions(ledgers=((10, 20),))
    narrowed = options.narrowed(ledgers=((15, 30),))
    assert narrowed is not None
    assert narrowed.ledgers == ((15, 20),)
    assert options.narrowed(ledgers=((30, 40),)) is None
    assert options.narrowed(entries=()) is None
    assert options.narrowed(log_ids=frozenset()) is None
    assert intersection((), ((1, 2),)) == ((1, 2),)


@given(
    ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6),
    values=st.lists(st.integers(0, 60), max_size=30),
)
def test_ids_are_inside_ranges_that_may_overlap(ranges: list[tuple[int, int]], values: list[int]) -> None:
    wanted = tuple((first, first + more) for first, more in ranges)
    expected = [not wanted or any(first <= value <= last for first, last in wanted) for value in values]
    assert within(np.array(values, np.int64), wanted).tolist() == expected
    options = TableOptions(ledgers=wanted)
    assert [options.wants_ledger(value) for value in values] == expected


def test_passwords_and_keys_do_not_show() -> None:
    known = KnownDigests.of({3: Digester.of(DigestType.MAC, b"geheim")})
    assert "geheim" not in repr(TableOptions(password=b"geheim"))
    assert repr(known.keys[3]) not in repr(known)


def test_known_digests_go_with_a_task_and_come_out_as_they_were() -> None:
    digesters = {
        5: Digester(DigestType.CRC32C),
        2**62: Digester(DigestType.CRC32),
        7: Digester.of(DigestType.MAC, b"x"),
        8: Digester(DigestType.MAC),
    }
    known = pickle.loads(pickle.dumps(KnownDigests.of(digesters)))
    assert known.digesters() == digesters
    assert known.only([7, 5, 99]).digesters() == {5: digesters[5], 7: digesters[7]}


def test_small_files_are_packed_and_cores_are_fed() -> None:
    files = [SplitFile(f"/{number}", "/", None, number, 10 << 20) for number in range(10)]
    assert [len(group) for group in packed(files, 25 << 20, 1)] == [2, 2, 2, 2, 2]
    assert [len(group) for group in packed(files, 256 << 20, 0)] == [10]
    fed = list(packed(files, 256 << 20, 2))
    assert [len(group) for group in fed] == [5, 5]
    assert [file for group in fed for file in group] == files
    tiny = [SplitFile(f"/{number}", "/", None, number, SPLIT_BYTES_MIN // 10) for number in range(10)]
    assert len(list(packed(tiny, 256 << 20, 8))) == 1


def test_a_split_has_a_bounded_number_of_files_however_small_they_are() -> None:
    files = [SplitFile(f"/{number}", "/", None, number, 0) for number in range(3 * SPLIT_FILES_MAX + 1)]
    for cores in (0, 1, 4):
        groups = list(packed(iter(files), 256 << 20, cores))
        assert [len(group) for group in groups] == [SPLIT_FILES_MAX] * 3 + [1]
        assert [file for group in groups for file in group] == files


def test_a_password_may_have_bytes_that_are_no_utf_8() -> None:
    assert parse_options({"password": "p\udc8aw"}).password == b"p\x8aw"
    with pytest.raises(UsageError, match="option password: expected text or bytes of a command line"):
        parse_options({"password": "\ud800"})
