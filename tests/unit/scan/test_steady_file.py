"""Reading around bad sectors."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.errors import StorageError
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem

DATA = random.Random(1).randbytes(50_000)


def steady(*faults: tuple[int, int], data: bytes = DATA) -> SteadyFile:
    system = FaultyFileSystem(
        MemoryFileSystem({"/f": data}), [ReadFault("/f", start, stop) for start, stop in faults]
    )
    return SteadyFile(system.open("/f"))


class CountingFile:
    """Counts reads; every one that touches the second sector fails."""

    path = "/f"
    size_bytes = 40_960

    def __init__(self) -> None:
        self.failed = 0

    def read_at(self, offset: int, length: int) -> bytes:
        if offset < 8192 and offset + length > 4096:
            self.failed += 1
            raise StorageError("Input/output error", path=self.path, offset=offset)
        return b"x" * min(length, self.size_bytes - offset)

    def close(self) -> None:
        pass


def test_a_good_file_reads_as_it_is() -> None:
    file = steady()
    assert file.read_at(10, 20_000) == DATA[10:20_010]
    assert file.read_at(49_990, 100) == DATA[49_990:]
    assert file.read_at(50_000, 1) == b""
    assert file.read_at(60_000, 10) == b""
    assert file.unreadable == []
    assert not file.refused(0, 50_000)


def test_only_the_bad_sector_is_zero_however_the_read_is_aligned() -> None:
    for offset in (0, 1, 1024, 4095, 4096, 4097, 5000):
        file = steady((9000, 9001))
        block = file.read_at(offset, 30_000)
        expected = bytearray(DATA)
        expected[8192:12_288] = bytes(4096)
        assert block == bytes(expected[offset : offset + 30_000])
        assert file.unreadable == [(8192, 12_288)]


def test_neighbours_join_and_others_do_not() -> None:
    file = steady((4096, 12_288), (20_480, 20_481), (49_999, 50_000))
    file.read_at(0, 50_000)
    assert file.unreadable == [(4096, 12_288), (20_480, 24_576), (49_152, 50_000)]
    assert file.refused(12_287, 12_288)
    assert not file.refused(12_288, 20_480)
    assert file.refused(0, 4097)
    assert not file.refused(0, 4096)
    assert not file.refused(8192, 8192)


def test_a_bad_sector_is_asked_for_once() -> None:
    inner = CountingFile()
    file = SteadyFile(inner)
    file.read_at(0, 40_960)
    failed = inner.failed
    for offset in range(0, 10_000, 100):
        file.read_at(offset, 5000)
        file.peek(offset, 20)
    assert inner.failed == failed


def test_peeking_is_reading() -> None:
    file = steady((9000, 9001))
    for offset in (0, 8000, 8190, 12_000, 49_995, 100):
        assert file.peek(offset, 24) == file.read_at(offset, 24)


@pytest.mark.parametrize("at", [0, 1, 4095, 30_000, 49_999])
def test_first_nonzero_and_end_of_data(at: int) -> None:
    data = bytearray(50_000)
    data[at] = 7
    file = steady(data=bytes(data))
    assert file.first_nonzero(0) == at
    assert file.first_nonzero(at + 1) is None
    assert file.end_of_data(0) == at + 1
    assert file.end_of_data(at + 1) == at + 1
    assert file.is_zero(0, at)
    assert not file.is_zero(0, at + 1)
    assert file.is_zero(at + 1, 50_000)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=4),
    st.lists(st.tuples(st.integers(0, 50_100), st.integers(0, 50_100)), min_size=1, max_size=6),
)
def test_any_faults_and_reads(faults: list[tuple[int, int]], reads: list[tuple[int, int]]) -> None:
    file = steady(*((4096 * first, 4096 * (first + count)) for first, count in faults))
    bad = {sector for first, count in faults for sector in range(first, first + count)}
    for offset, length in reads:
        block = file.read_at(offset, length)
        expected = bytes(
            0 if position // 4096 in bad else DATA[position]
            for position in range(offset, min(offset + length, 50_000))
        )
        assert block == expected
    assert all(start // 4096 in bad for start, _ in file.unreadable)
    assert file.unreadable == sorted(file.unreadable)
