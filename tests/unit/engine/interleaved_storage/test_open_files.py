"""Open index files: their bounds, and files that go while others read or sync them."""

from __future__ import annotations

import pytest

from bkctl.codec.file_info import index_path
from bkctl.errors import SyncError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.interleaved_storage_rig import FILES
from tests.unit.engine.interleaved_storage.index_directories import HEADER, PLACES, disk_with, opened


def test_open_files_and_pages_stay_within_their_bounds() -> None:
    files = opened(disk_with())
    for ledger in range(20):
        files.write_headers({ledger: HEADER})
        files.put(ledger, list(range(30)), list(range(100, 130)))
    files.sync()
    assert all(files.get(ledger, [29]) == [129] for ledger in range(20))
    # One file may be in use while another one is opened.
    assert len(files._files._open) <= FILES.files_open_max + 1
    assert len(files._files._pages) <= FILES.pages_max
    assert sum(len(each.pages) for each in files._files._open.values()) == len(files._files._pages)


def test_a_reader_finds_every_entry_while_files_move() -> None:
    files = opened(disk_with(f"{PLACES[0]}/{index_path(5)}"))
    files.put(5, [3], [9])
    assert files.get(5, [3]) == [9]
    for place in (1, 0, 1):
        files.move(5, place)
        assert files.get(5, [3]) == [9]


def test_a_failed_sync_of_a_file_that_others_pushed_out_is_told() -> None:
    memory = disk_with()
    disk = FaultyFileSystem(memory)
    files = opened(disk)
    files.write_headers(dict.fromkeys(range(6), HEADER))
    disk.inject(FaultRule("sync", path="0/0/0.idx"))

    def put_and_sync() -> None:
        for ledger in range(6):
            files.put(ledger, [0], [1])
        files.sync()

    with pytest.raises(SyncError):
        put_and_sync()
