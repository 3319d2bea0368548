"""The index files of a bookie: bounds, moves, what a start puts in order, and what Java's lose."""

from __future__ import annotations

import errno
import random
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.codec.file_info import HEADER_BYTES, FileInfoHeader, encode_header, index_path
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.interleaved_storage.index_files import IndexFiles
from bkctl.engine.interleaved_storage.index_headers import HeaderIndex, HeaderStore, header_of, row_of
from bkctl.engine.interleaved_storage.interleaved_ledger_storage import ENTRY_ID_MAX
from bkctl.engine.interleaved_storage.ledger_file import LedgerFile
from bkctl.errors import BadRequestError, CorruptionError, NoEntryError, RefusedError, StorageError
from bkctl.scan.idx_tree import IdxTree
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.interleaved_storage_rig import FILES, InterleavedStorageRig
from tests.support.storage_rig import entry_of, key_of
from tests.unit.engine.interleaved_storage.index_directories import HEADER, PLACES, disk_with, opened


@pytest.mark.parametrize("entry", [ENTRY_ID_MAX, 1 << 59, (1 << 63) - 1, -1])
def test_an_entry_that_no_file_has_a_slot_for_is_absent(tmp_path: Path, entry: int) -> None:
    """A client may ask for any; no offset in a file is that large."""
    (tmp_path / "current").mkdir()
    files = IndexFiles(PosixFileSystem(), [str(tmp_path / "current")], FILES)
    files.write_headers({7: HEADER})
    assert files.get(7, [0, entry]) == [0, 0]
    files.close()


def test_entries_are_counted_as_they_come_and_go() -> None:
    """A slot that is set again is the same entry; a page has room for more than are there."""
    disk = disk_with()
    files = opened(disk)
    files.write_headers(dict.fromkeys((1, 2, 3), HEADER))
    files.put(1, [0, 1, 5], [11, 12, 13])
    files.put(1, [1, 2], [14, 15])
    files.put(2, [40], [16])
    files.put(3, [7], [17])
    assert files.entries.total == 4 + 1 + 1
    files.remove(2)
    files.begin_anew(3, HEADER)
    assert files.entries.total == 4
    files.put(3, [0], [18])
    files.sync()
    files.close()
    again = opened(disk)
    assert dict(again.read_headers()).keys() == {1, 3}
    assert again.entries.total == 5
    again.remove(1)
    again.put(3, [1], [19])
    assert again.entries.total == 2


def test_what_a_long_file_has_is_guessed_by_its_first_page() -> None:
    """Of a ledger whose ensemble is larger than its write quorum a bookie has, say, two entries of three."""
    disk = disk_with(f"{PLACES[0]}/{index_path(5)}")
    files = opened(disk)
    entries = [entry for entry in range(12_000) if entry % 3]
    files.put(5, entries, [entry << 16 for entry in entries])
    files.sync()
    assert files.entries.total == len(entries)
    again = opened(disk)
    list(again.read_headers())
    assert again.entries.total == pytest.approx(len(entries), rel=0.01)


def test_a_page_that_cannot_be_read_keeps_no_bookie_from_starting() -> None:
    disk = FaultyFileSystem(disk_with(f"{PLACES[0]}/{index_path(5)}"))
    opened(disk).put(5, [0], [7])
    disk.inject(FaultRule("read", path=f"{PLACES[0]}/{index_path(5)}", first=2))
    files = opened(disk)
    assert dict(files.read_headers()) == {5: HEADER}
    assert files.entries.total == 0


def test_a_copy_in_progress_counts_only_where_there_is_no_file() -> None:
    moved, kept = index_path(5), index_path(6)
    disk = disk_with(f"{PLACES[1]}/{moved}.rloc", f"{PLACES[0]}/{kept}", f"{PLACES[1]}/{kept}.rloc")
    disk.replace(f"{PLACES[0]}/{kept}.abc.tmp", b"half")
    files = opened(disk)
    assert files.path(5) == f"{PLACES[1]}/{moved}"
    assert files.path(6) == f"{PLACES[0]}/{kept}"
    assert disk.names(f"{PLACES[0]}/0/6") == ["6.idx"]
    assert disk.names(f"{PLACES[1]}/0/6") == []


def test_a_ledger_with_two_files_is_refused() -> None:
    with pytest.raises(RefusedError, match="two index files"):
        opened(disk_with(*(f"{place}/{index_path(5)}" for place in PLACES)))


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_within_a_move_leaves_the_file_in_one_place(seed: int) -> None:
    for point in range(60):
        disk = disk_with(f"{PLACES[0]}/{index_path(5)}")
        files = opened(disk)
        files.put(5, [0, 9], [7, 8])
        files.sync()
        try:
            moving = opened(FaultyFileSystem(disk, crash_after=point))  # type: ignore[arg-type]
            moving.move(5, 1)
            finished = True
        except StorageError:
            finished = False
        left = opened(disk.crash(random.Random(seed + point)))
        assert dict(left.read_headers()) == {5: HEADER}
        assert left.get(5, [0, 1, 9]) == [7, 0, 8]
        if finished:
            assert left.path(5) == f"{PLACES[1]}/{index_path(5)}"
            return
    raise AssertionError("the move has no end")


def test_a_file_goes_to_another_disk_when_its_own_is_full() -> None:
    memory = disk_with(f"{PLACES[0]}/{index_path(5)}")
    disk = FaultyFileSystem(memory)
    files = opened(disk)
    disk.inject(FaultRule("write", path=f"{PLACES[0]}/{index_path(5)}", error_number=28))
    free = {PLACES[0]: 0, PLACES[1]: 1 << 20}
    original = memory.disk_space
    disk.disk_space = lambda path: replace(original(path), free_bytes=free[path])  # type: ignore[method-assign]
    files.put(5, [1], [4])
    files.sync()
    assert files.path(5) == f"{PLACES[1]}/{index_path(5)}"
    assert opened(memory.crash(random.Random(0))).get(5, [1]) == [4]


def test_a_move_that_fails_behind_the_removal_has_nothing_written_to_a_file_without_a_name() -> None:
    """The next flush would set slots in the old file, sync it, and give the journal up."""
    memory = disk_with(f"{PLACES[0]}/{index_path(5)}")
    disk = FaultyFileSystem(memory)
    files = opened(disk)
    files.put(5, [0], [7])
    disk.inject(FaultRule("rename", path=".rloc", count=1))
    with pytest.raises(StorageError):
        files.move(5, 1)
    with pytest.raises(CorruptionError):
        files.put(5, [1], [8])
    with pytest.raises(CorruptionError):
        files.get(5, [0])
    again = opened(memory.crash())
    assert again.get(5, [0, 1]) == [7, 0]
    again.put(5, [1], [8])


def test_a_removal_that_fails_behind_its_effect_ends_the_use_of_the_moved_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = disk_with(f"{PLACES[0]}/{index_path(5)}")
    files = opened(memory)
    files.put(5, [0], [7])
    original = memory.remove

    def remove(path: str) -> None:
        original(path)
        raise StorageError("removed, and said otherwise")

    monkeypatch.setattr(
        memory, "remove", lambda path: original(path) if path.endswith(".rloc") else remove(path)
    )
    with pytest.raises(StorageError):
        files.move(5, 1)
    with pytest.raises(CorruptionError):
        files.put(5, [1], [8])


def test_a_move_that_cannot_remove_the_old_file_leaves_it_in_use() -> None:
    memory = disk_with(f"{PLACES[0]}/{index_path(5)}")
    disk = FaultyFileSystem(memory)
    files = opened(disk)
    files.put(5, [0], [7])
    disk.inject(FaultRule("remove", path=".idx", count=1))
    with pytest.raises(StorageError):
        files.move(5, 1)
    files.put(5, [1], [8])
    files.sync()
    assert opened(memory.crash()).get(5, [0, 1]) == [7, 8]
    files.move(5, 1)
    assert opened(memory.crash()).path(5) == f"{PLACES[1]}/{index_path(5)}"


@pytest.mark.parametrize("error_number", [errno.EIO, errno.EMFILE])
def test_a_file_that_fails_behind_its_name_is_not_made_in_another_directory_too(error_number: int) -> None:
    """A start refuses a ledger with two files."""
    memory = disk_with()
    disk = FaultyFileSystem(memory)
    files = opened(disk)
    disk.inject(FaultRule("open", path=index_path(5), count=1, error_number=error_number))
    with pytest.raises(StorageError):
        files.write_headers({5: HEADER})
    files.write_headers({5: HEADER})
    files.put(5, [1], [8])
    files.sync()
    assert opened(memory.crash()).get(5, [1]) == [8]


@pytest.mark.parametrize("begun", [False, True])
def test_a_removal_that_has_failed_is_done_again(*, begun: bool) -> None:
    """The ledger would be back after the next start; or have two files, if it was made again in between."""
    path = f"{PLACES[0]}/{index_path(5)}"
    memory = disk_with(*([] if begun else [path]))
    disk = FaultyFileSystem(memory)
    files = opened(disk)
    if begun:
        disk.inject(FaultRule("open", path=index_path(5), count=1))
        with pytest.raises(StorageError):
            files.write_headers({5: HEADER})
    disk.inject(FaultRule("remove", path=path, count=1))
    with pytest.raises(StorageError):
        files.remove(5)
    files.remove(5)
    assert opened(memory.crash()).path(5) is None


def test_a_ledger_made_again_behind_a_failed_removal_has_one_file() -> None:
    path = f"{PLACES[1]}/{index_path(5)}"
    memory = disk_with(path)
    disk = FaultyFileSystem(memory)
    files = opened(disk)
    files.put(5, [0], [7])
    files.sync()
    disk.inject(FaultRule("remove", path=path, count=1))
    with pytest.raises(StorageError):
        files.remove(5)
    files.write_headers({5: HEADER})
    again = opened(memory.crash())
    assert (again.path(5), again.get(5, [0])) == (path, [0])


@pytest.mark.parametrize("fails", [lambda files: files.remove(5), lambda files: files.move(5, 0)])
def test_a_name_whose_removal_was_not_durable_is_not_back_beside_a_new_one(
    fails: Callable[[IndexFiles], None],
) -> None:
    """The bookie ends with EIO, the next start sees no name, and a power cut brings the old one back."""
    memory = disk_with(f"{PLACES[1]}/{index_path(5)}")
    disk = FaultyFileSystem(memory)
    files = opened(disk)
    disk.inject(FaultRule("sync_directory", path=f"{PLACES[1]}/0/5", error_number=errno.EIO))
    with pytest.raises(StorageError):
        fails(files)
    again = opened(memory)
    again.write_headers({5: HEADER})
    assert opened(memory.crash()).path(5) == f"{PLACES[0]}/{index_path(5)}"


def test_a_ledger_whose_file_could_not_be_begun_is_removed_without_a_directory() -> None:
    disk = FaultyFileSystem(disk_with())
    files = opened(disk)
    disk.inject(FaultRule("make_directories", count=1))
    with pytest.raises(StorageError):
        files.write_headers({5: HEADER})
    files.remove(5)
    assert files.path(5) is None


def test_a_header_keeps_limbo_and_bits_without_a_name() -> None:
    row = LedgerData(fenced=True, master_key=b"key", explicit_lac=bytes(20), limbo=True)
    header = header_of(row, 1 << 7)
    assert header.state & 1 << 7
    assert row_of(header) == row
    assert header_of(replace(row, fenced=False, limbo=None), header.state).state == 1 << 7


def test_what_no_header_has_room_for_is_refused() -> None:
    rows = HeaderIndex(opened(disk_with()))
    for wrong in (
        LedgerData(fenced=False, master_key=b"k" * 1005),
        LedgerData(fenced=False, master_key=b"k", explicit_lac=b"short"),
    ):
        with pytest.raises(BadRequestError):
            rows.set(1, wrong)
    rows.set(1, LedgerData(fenced=False, master_key=b"k" * 1004))
    rows.flush()
    assert rows.get(2) is None


def test_an_entry_without_a_slot_is_refused_before_it_is_kept() -> None:
    rig = InterleavedStorageRig().open()
    with pytest.raises(BadRequestError):
        rig.put(1, ENTRY_ID_MAX + 1)
    assert not rig.storage.has_unflushed(1)
    body = rig.put(1, 0)
    rig.storage.flush()
    assert rig.storage.read(1, 0) == body


def test_a_file_without_a_byte_is_none() -> None:
    """Java makes the file first; a power cut leaves it empty, and its entries are in the journal."""
    disk = disk_with()
    disk.make_directories(f"{PLACES[0]}/0/5")
    disk.create(f"{PLACES[0]}/{index_path(5)}").close()
    rows = HeaderIndex(opened(disk))
    assert rows.get(5) is None
    assert disk.names(f"{PLACES[0]}/0/5") == []


# --- what Java loses: each is tried with the mutant that loses it, too ------------------------------------


def fence_an_idle_ledger() -> LedgerData | None:
    """What a power cut leaves of a ledger that was fenced after its last entry was flushed."""
    rig = InterleavedStorageRig().open()
    rig.put(7, 0)
    rig.storage.ledgers.set(7, LedgerData(fenced=False, master_key=b"key"))
    rig.storage.flush()
    fenced = LedgerData(fenced=True, master_key=b"key", explicit_lac=bytes(20))
    rig.storage.ledgers.set(7, fenced)
    rig.storage.flush()
    return rig.after_crash().storage.ledgers.get(7)


def with_a_damaged_header() -> list[bool]:
    """For two starts over a file whose header does not decode: whether its ledger is served."""
    disk = disk_with(f"{PLACES[0]}/{index_path(7)}")
    file = disk.open_to_write(f"{PLACES[0]}/{index_path(7)}")
    file.write_at(0, b"XXXX")
    file.sync_data()
    served = []
    for _ in range(2):
        try:
            served.append(HeaderIndex(opened(disk)).get(7) is not None)
        except CorruptionError:
            served.append(False)
    return served


def test_the_fence_and_the_lac_of_an_idle_ledger_are_durable() -> None:
    found = fence_an_idle_ledger()
    assert found is not None
    assert (found.fenced, found.explicit_lac) == (True, bytes(20))


def test_a_damaged_header_is_refused_at_every_start() -> None:
    assert with_a_damaged_header() == [False, False]


def unsynced_header(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_header(file: LedgerFile, header: FileInfoHeader) -> None:
        file._file.write_at(0, encode_header(header))
        file.header = header

    monkeypatch.setattr(LedgerFile, "write_header", write_header)


def headers_with_pages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    original = IndexFiles.write_headers

    def write_headers(files: IndexFiles, headers: dict[int, FileInfoHeader]) -> None:
        with_pages = {
            ledger: each
            for ledger, each in headers.items()
            if files.path(ledger) is None or ledger in files._files.unsynced
        }
        original(files, with_pages)

    monkeypatch.setattr(IndexFiles, "write_headers", write_headers)


@pytest.mark.parametrize("mutant", [unsynced_header, headers_with_pages_only])
def test_a_mutant_that_loses_the_fence_of_an_idle_ledger_is_killed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    found = fence_an_idle_ledger()
    assert found is None or not found.fenced


def test_a_mutant_that_serves_a_damaged_header_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = IndexFiles.read_headers

    def read_headers(files: IndexFiles) -> object:
        try:
            yield from original(files)
        except CorruptionError:
            yield 7, FileInfoHeader(1, b"")

    monkeypatch.setattr(IndexFiles, "read_headers", read_headers)
    assert with_a_damaged_header() != [False, False]


def test_a_deletion_that_was_cut_off_leaves_no_ledger() -> None:
    rig = InterleavedStorageRig().open()
    rig.put(7, 0)
    rig.storage.ledgers.set(7, LedgerData(fenced=False, master_key=b"key"))
    rig.storage.flush()
    rig.storage.ledgers.delete(7)
    rig.storage.ledgers.flush()
    after = rig.after_crash()
    assert after.storage.ledgers.get(7) is None
    assert not _header_of(after, 7).has_ledger
    assert not list(IdxTree(after.disk, PLACES[0]).ledger_rows())
    assert HeaderStore(after.files).path == PLACES[0]


def _header_of(rig: InterleavedStorageRig, ledger: int) -> FileInfoHeader:
    header = rig.files.header(ledger)
    assert header is not None
    return header


def test_a_lost_index_directory_is_seen_and_an_empty_one_is_none() -> None:
    rig = InterleavedStorageRig().open()
    assert rig.storage.lost_parts() == {"idx": "empty"}
    rig.storage.note_written()
    rig.put(1, 0)
    rig.storage.flush()
    rig.delete(1)
    rig.storage.flush()
    after = rig.after_crash()
    assert after.storage.lost_parts() == {}
    with pytest.raises(NoEntryError):
        after.storage.read(1, 0)


def test_pages_are_as_other_readers_see_them() -> None:
    rig = InterleavedStorageRig().open()
    for entry in (0, 3, 40):
        rig.put(1, entry)
    rig.storage.flush()
    path = rig.files.path(1)
    assert path is not None
    slots = array("q", rig.disk.open(path).read_at(HEADER_BYTES, 8))
    assert slots[0] != 0
    assert rig.storage.locations.get_many([key_of(1, 0), key_of(1, 1)])[1] is None
    assert rig.storage.read(1, 40) == entry_of(1, 40)
