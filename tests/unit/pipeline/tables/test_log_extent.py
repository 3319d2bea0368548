"""How far the whole records of a log go, while it is written, rolled, cut and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.codec.entry import BODY_BYTES_MAX
from bkctl.pipeline.tables import log_extent
from bkctl.pipeline.tables.log_extent import Extent, follow
from bkctl.pipeline.tables.split import SplitFile
from bkctl.vfs import PosixFileSystem
from tests.support.log_builder import EntryLogBuilder, entry_body, simple_log

FILES = PosixFileSystem()


def extent(tmp_path: Path, data: bytes, start: int = 0, bytes_max: int | None = None) -> Extent:
    path = tmp_path / "1.log"
    path.write_bytes(data)
    return follow(FILES, SplitFile(str(path), str(tmp_path), None, 1, len(data)), start, bytes_max)


@pytest.mark.parametrize("direct", [False, True])
def test_the_end_is_that_of_the_last_whole_record_wherever_the_file_is_cut(
    tmp_path: Path, direct: bool
) -> None:
    log = simple_log(direct=direct)
    ends = {0, 1024, *(span.stop for span in log.spans)}
    for size in range(1024, len(log.data) + 1, 7):
        found = extent(tmp_path, log.data[:size])
        records = [built.end for built in log.entries if built.end <= size]
        assert not found.rolled
        assert found.end <= max(size, 1024)
        assert found.end >= (records[-1] if records else 0)
        assert found.end in ends


def test_a_rolled_log_ends_with_the_file_and_is_complete(tmp_path: Path) -> None:
    data = simple_log(rolled=True).data
    assert extent(tmp_path, data) == Extent(len(data), rolled=True)
    assert extent(tmp_path, data, len(data)) == Extent(len(data), rolled=True)


def test_a_rolled_log_is_not_read_to_know_where_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = simple_log(rolled=True).data
    monkeypatch.delattr(log_extent, "walk_columns")
    assert extent(tmp_path, data, 1024, len(data)) == Extent(len(data), rolled=True)
    with pytest.raises(NameError):
        extent(tmp_path, data, 1024, 100)


def test_damage_is_waited_for_until_the_log_has_been_rolled(tmp_path: Path) -> None:
    for rolled in (False, True):
        log = simple_log(rolled=rolled)
        data = bytearray(log.data)
        data[log.entries[5].offset] ^= 0x70
        found = extent(tmp_path, bytes(data))
        assert found == Extent(len(data) if rolled else log.entries[5].offset, rolled=rolled)


def test_zeros_and_cut_headers_are_waited_for(tmp_path: Path) -> None:
    log = simple_log()
    assert extent(tmp_path, log.data + bytes(4096)) == Extent(len(log.data), rolled=False)
    assert extent(tmp_path, b"") == Extent(0, rolled=False)
    assert extent(tmp_path, b"BKLO") == Extent(0, rolled=False)


def test_a_bound_takes_about_as_many_bytes_and_always_a_whole_record(tmp_path: Path) -> None:
    log = simple_log(entries=50)
    ends = {built.end for built in log.entries}
    position, steps = 0, 0
    while True:
        found = extent(tmp_path, log.data, position, 300)
        if found.end == position:
            break
        assert found.end in ends
        assert found.end - max(position, 1024) < 300 + 200
        position, steps = found.end, steps + 1
    assert position == len(log.data)
    assert steps > 20


def test_an_entry_larger_than_a_window_is_one_record(tmp_path: Path) -> None:
    log = EntryLogBuilder()
    log.add(entry_body(1, 0, b"x" * (3 << 20)))
    log.add(entry_body(1, 1))
    data = log.build().data
    assert extent(tmp_path, data).end == len(data)
    assert extent(tmp_path, data[: 2 << 20]).end == 1024


def test_a_size_that_no_record_has_is_waited_for(tmp_path: Path) -> None:
    data = simple_log().data
    path = tmp_path / "1.log"
    for size, end in ((BODY_BYTES_MAX, len(data) + 4 + BODY_BYTES_MAX), (BODY_BYTES_MAX + 1, len(data))):
        path.write_bytes(data + size.to_bytes(4, "big") + bytes(16))
        with path.open("r+b") as file:
            file.truncate(len(data) + 4 + BODY_BYTES_MAX + 1)
        log = SplitFile(str(path), str(tmp_path), None, 1, path.stat().st_size)
        assert follow(FILES, log, 0).end == end
