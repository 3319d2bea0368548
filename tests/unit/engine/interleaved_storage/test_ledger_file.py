"""One ``.idx`` file that is written: what is durable when, and that every reader finds the same in it."""

from __future__ import annotations

import random
import shutil
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.codec.file_info import FENCED, HEADER_BYTES, FileInfoHeader, encode_header, index_path
from bkctl.engine.interleaved_storage.ledger_file import LedgerFile
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.scan.idx_tree import IdxTree
from bkctl.vfs import PosixFileSystem, WritableFile
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem

CURRENT = "/i/current"
LEDGER = 0x1234567
PATH = f"{CURRENT}/{index_path(LEDGER)}"
OPEN = FileInfoHeader(1, b"k" * 20)
FENCE = replace(OPEN, state=FENCED, explicit_lac=b"a" * 20)
#: Small pages: 8 slots.
PAGE_BYTES = 64
REAL = Path(__file__).parents[3] / "data" / "index"


def made(files: MemoryFileSystem | FaultyFileSystem, header: FileInfoHeader = OPEN) -> LedgerFile:
    return LedgerFile.create(files, CURRENT, LEDGER, header, PAGE_BYTES)


def reopened(files: MemoryFileSystem) -> LedgerFile:
    return LedgerFile.open(files, PATH, PAGE_BYTES)


def page(*slots: int) -> array[int]:
    return array("q", slots + (0,) * (8 - len(slots)))


@pytest.mark.parametrize("seed", range(10))
def test_a_file_that_was_made_survives_a_power_cut_with_its_header(seed: int) -> None:
    files = MemoryFileSystem()
    made(files, FENCE)
    left = reopened(files.crash(random.Random(seed)))
    assert (left.header, left.pages, left.last_entry()) == (FENCE, 0, None)


def test_a_file_has_its_name_only_with_a_whole_header() -> None:
    """Whatever step of its making is the last one: no file, or one that can be read."""
    files = MemoryFileSystem()
    steps = FaultyFileSystem(files)
    made(steps)
    for point in range(steps.points):
        memory = MemoryFileSystem()
        with pytest.raises(StorageError):
            made(FaultyFileSystem(memory, crash_after=point))
        for seed in range(5):
            left = memory.crash(random.Random(seed))
            try:
                assert reopened(left).header == OPEN
            except NotFoundError:
                continue


@pytest.mark.parametrize("seed", range(5))
def test_a_fence_of_an_idle_ledger_is_durable_when_the_call_returns(seed: int) -> None:
    """Java syncs a header only together with pages: the fence is gone after a restart."""
    files = MemoryFileSystem()
    made(files).write_header(FENCE)
    left = reopened(files.crash(random.Random(seed)))
    assert left.header == FENCE
    assert left.header.fenced


def test_a_header_that_could_not_be_synced_is_not_taken_for_written() -> None:
    files = MemoryFileSystem()
    faulty = FaultyFileSystem(files)
    file = made(faulty)
    faulty.inject(FaultRule("sync", ".idx"))
    with pytest.raises(StorageError):
        file.write_header(FENCE)
    assert file.header == OPEN


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_before_the_sync_leaves_one_of_the_two_headers(seed: int) -> None:
    files = MemoryFileSystem()
    faulty = FaultyFileSystem(files)
    file = made(faulty)
    faulty.inject(FaultRule("sync", ".idx"))
    with pytest.raises(StorageError):
        file.write_header(FENCE)
    assert reopened(files.crash(random.Random(seed))).header in (OPEN, FENCE)


def test_a_file_keeps_its_version_and_version_0_has_no_explicit_lac() -> None:
    files = MemoryFileSystem()
    file = made(files, FileInfoHeader(0, b"key"))
    file.write_header(replace(FENCE, master_key=b"key"))
    assert file.header == FileInfoHeader(0, b"key", FENCED)
    assert reopened(files.crash()).header == file.header


def test_a_shorter_header_leaves_nothing_of_a_longer_one() -> None:
    files = MemoryFileSystem()
    file = made(files, FENCE)
    file.write_header(FileInfoHeader(1, b""))
    assert reopened(files).header == FileInfoHeader(1, b"")
    assert files.files[PATH] == encode_header(FileInfoHeader(1, b""))


def test_a_bad_header_is_refused_at_every_opening_and_holds_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "5.idx"
    path.write_bytes(b"BKLE" + b"\xff" * 4 + bytes(HEADER_BYTES))
    files = PosixFileSystem()
    opened: list[WritableFile] = []
    open_to_write = files.open_to_write
    monkeypatch.setattr(files, "open_to_write", lambda name: opened.append(open_to_write(name)) or opened[-1])
    for _ in range(2):
        with pytest.raises(CorruptionError) as caught:
            LedgerFile.open(files, str(path))
        assert caught.value.path == str(path)
    assert len(opened) == 2
    for file in opened:
        with pytest.raises(StorageError):
            file.read_at(0, 1)


def test_pages_are_whole_sparse_and_what_readers_find() -> None:
    files = MemoryFileSystem()
    file = made(files)
    file.write_page(3, page(0, 77, 0, 79))
    file.write_page(0, page(10, 11))
    file.sync()
    assert (file.pages, file.last_entry(), list(file.entries())) == (4, 27, [0, 1, 25, 27])
    assert (file.read_page(3), file.read_page(1), file.read_page(9)) == (page(0, 77, 0, 79), page(), page())
    left = files.crash()
    assert len(left.files[PATH]) == HEADER_BYTES + 4 * PAGE_BYTES
    tree = IdxTree(left, CURRENT)
    assert tree.last_entry(LEDGER) == 27
    found = tree.get(LEDGER, 25)
    assert found is not None
    assert found.offset == 77


def test_entries_are_found_in_front_of_a_page_without_any() -> None:
    files = MemoryFileSystem()
    file = made(files)
    file.write_page(0, page(0, 0, 5))
    file.write_page(2, page())
    assert file.last_entry() == 2


def test_a_page_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="7 slots"):
        made(MemoryFileSystem()).write_page(0, array("q", range(7)))


def test_a_page_that_is_cut_short_has_the_slots_that_are_there() -> None:
    files = MemoryFileSystem()
    file = made(files)
    file.write_page(0, page(1, 2, 3))
    file.close()
    data = files.files[PATH][: HEADER_BYTES + 20]
    copy = MemoryFileSystem({PATH: data})
    short = reopened(copy)
    assert (short.pages, short.read_page(0), short.last_entry()) == (1, page(1, 2), 1)


@pytest.mark.parametrize(("name", "ledger"), [("i/l", 5), ("i/l", LEDGER), ("i0/l", 0xA0B)])
def test_javas_files_are_read_and_a_fence_changes_nothing_else(
    name: str, ledger: int, tmp_path: Path
) -> None:
    shutil.copytree(REAL / name / "current", tmp_path / "current")
    path = tmp_path / "current" / index_path(ledger)
    before = path.read_bytes()
    current = str(tmp_path / "current")
    file = LedgerFile.open(PosixFileSystem(), str(path))
    expected = [
        entry for batch in IdxTree(PosixFileSystem(), current).locations(ledger) for entry in batch.entries
    ]
    assert list(file.entries()) == expected
    assert file.last_entry() == expected[-1]
    header = file.header
    file.write_header(replace(header, state=header.state | FENCED))
    file.close()
    after = path.read_bytes()
    assert after[HEADER_BYTES:] == before[HEADER_BYTES:]
    assert LedgerFile.open(PosixFileSystem(), str(path)).header == replace(
        header, state=header.state | FENCED
    )
