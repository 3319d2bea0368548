"""A log read as columns is what its scan reads, whatever is wrong with it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.entry import EntryBatch
from bkctl.scan import record_windows as module
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.record_windows import Part, RecordWindow, record_windows
from bkctl.scan.records import HELD_RECORDS, Item
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem
from tests.property.test_damage import Subject, Wreck, logs
from tests.support.log_builder import simple_log

PATH = "/bookie/current/0.log"


def listed(items: Iterable[Part | Item]) -> Iterator[object]:
    """Each record by itself: its offset and its bytes; what else there is as it comes."""
    for item in items:
        if isinstance(item, EntryBatch):
            for index in range(len(item)):
                yield item.offset(index), item.ledgers[index], item.entries[index], item.body(index)
        elif isinstance(item, RecordWindow):
            starts, sizes, ledgers, entries = (
                array("q", column) for column in (item.starts, item.sizes, item.ledgers, item.entries)
            )
            for start, size, ledger, entry in zip(starts, sizes, ledgers, entries, strict=True):
                yield item.base + start, ledger, entry, item.buffer[start + 4 : start + 4 + size]
        else:
            yield item


def assert_same(data: bytes, faults: list[ReadFault] | None = None, window_bytes: int = 256) -> list[object]:
    """Compare both ways of reading, with windows that are small; what was read."""
    read = []
    for ways in (iter, record_windows):
        system = FaultyFileSystem(MemoryFileSystem({PATH: data}), faults or [])
        with (
            mock.patch.object(module, "WINDOW_BYTES", window_bytes),
            mock.patch.object(module, "WINDOW_BYTES_MAX", 4 * window_bytes),
            EntryLogScan(system, PATH) as scan,
        ):
            read.append([*listed(ways(scan)), sorted(scan.evidence.ledgers)])
    assert read[0] == read[1]
    return read[1]


@given(subject=logs(), data=st.data())
def test_a_damaged_log(subject: Subject, data: st.DataObject) -> None:
    wreck = Wreck.of(subject.built.data)
    spots = st.integers(0, len(wreck.data) - 1)
    for at in data.draw(st.lists(spots, max_size=3)):
        wreck.write(at, data.draw(st.binary(min_size=1, max_size=12)))
    if data.draw(st.booleans()):
        wreck.remove(data.draw(st.integers(0, len(wreck.data) - 1)), data.draw(st.integers(1, 60)))
    elif data.draw(st.booleans()):
        wreck.insert(
            data.draw(st.integers(0, len(wreck.data))), data.draw(st.binary(min_size=1, max_size=60))
        )
    faults = [
        ReadFault(".log", at, at + data.draw(st.integers(1, 40)))
        for at in data.draw(st.lists(spots, max_size=data.draw(st.integers(0, 1))))
    ]
    assert_same(bytes(wreck.data), faults, data.draw(st.sampled_from([64, 256, 2048, 1 << 20])))


@pytest.mark.parametrize("window_bytes", [64, 512, 1 << 20])
def test_a_whole_log(window_bytes: int) -> None:
    built = simple_log(3, 40, 90)
    read = assert_same(built.data, window_bytes=window_bytes)
    assert [each[0] for each in read if isinstance(each, tuple) and len(each) == 4] == [
        entry.offset for entry in built.entries
    ]


def test_a_clean_log_is_columns_but_for_its_end() -> None:
    """The records that its scan would hold back at the end are all that it gets."""
    built = simple_log(3, 40, 90)
    with EntryLogScan(MemoryFileSystem({PATH: built.data}), PATH) as scan:
        first = next(iter(record_windows(scan)))
    assert isinstance(first, RecordWindow)
    assert len(first) == len(built.entries) - HELD_RECORDS


@given(
    sizes=st.lists(st.integers(16, 400), min_size=1, max_size=30),
    entries_max=st.integers(1, 9),
    bytes_max=st.integers(1, 900),
)
def test_parts_keep_their_bounds(sizes: list[int], entries_max: int, bytes_max: int) -> None:
    starts = [400 * number for number in range(len(sizes))]
    window = RecordWindow.of_batch(EntryBatch(b"", 7, starts, sizes, starts, starts))
    parts = list(window.parts(entries_max, bytes_max))
    assert b"".join(part.starts for part in parts) == window.starts
    for part in parts:
        lengths = array("q", part.sizes)
        assert 0 < len(part) <= entries_max
        assert sum(lengths[:-1]) < bytes_max
        assert part.ledgers == part.entries == part.starts
        assert part.base == 7
