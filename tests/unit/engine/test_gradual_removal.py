"""The room of large files that are removed comes back in steps, of none that anybody can still read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine import gradual_removal
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.gradual_removal import FILE_BYTES_MIN, FILES_MAX, STEP_BYTES, GradualRemoval
from bkctl.errors import BkctlError, NotFoundError, StorageError
from bkctl.vfs import PosixFileSystem, SyncError
from tests.support.log_builder import simple_log

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has leases")
STEPS = 17
SIZE = STEPS * STEP_BYTES - 1000
SECONDS = 20


class Trace:
    """Keeps the calls on the disk that the thread makes; may hold it up, or fail, in a cut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int]] = []
        self.open = threading.Event()
        self.open.set()
        self.failures: list[OSError] = []
        truncate, sync = os.ftruncate, PosixFileSystem.sync_directory

        def cut(descriptor: int, size_bytes: int) -> None:
            assert self.open.wait(SECONDS)
            self.calls.append(("cut", size_bytes))
            if self.failures:
                raise self.failures.pop()
            truncate(descriptor, size_bytes)

        def synced(self_: PosixFileSystem, path: str) -> None:
            self.calls.append((f"sync {path}", 0))
            sync(self_, path)

        monkeypatch.setattr("os.ftruncate", cut)
        monkeypatch.setattr(PosixFileSystem, "sync_directory", synced)
        monkeypatch.setattr(gradual_removal, "REST_MIN_MS", 1)

    def cuts(self) -> list[int]:
        return [size_bytes for what, size_bytes in self.calls if what == "cut"]


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    return Trace(monkeypatch)


@pytest.fixture
def errors() -> list[BkctlError]:
    return []


@pytest.fixture
def filesystem(trace: Trace, errors: list[BkctlError]) -> Iterator[GradualRemoval]:
    found = GradualRemoval(SystemClock(), errors.append)
    before = descriptors()
    yield found
    trace.open.set()
    found.close()
    assert descriptors() == before


def descriptors() -> set[str]:
    """The files that this process has open."""
    return {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if alive(name)}


def alive(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def large(path: Path, size_bytes: int = SIZE) -> str:
    """A file of zeros, which takes no room, and a word at its end."""
    with path.open("wb") as file:
        file.seek(size_bytes - 3)
        file.write(b"end")
    return f"{path}"


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_the_name_goes_at_once_and_the_room_in_steps_behind_a_sync_of_the_directory(
    filesystem: GradualRemoval, trace: Trace, tmp_path: Path
) -> None:
    trace.open.clear()
    filesystem.remove(large(tmp_path / "1.txn"))
    assert os.listdir(tmp_path) == []
    trace.open.set()
    until(lambda: 0 in trace.cuts())
    assert trace.calls[0] == (f"sync {tmp_path}", 0)
    assert trace.cuts() == [max(SIZE - step * STEP_BYTES, 0) for step in range(1, STEPS + 1)]


@pytest.mark.parametrize("is_short", [False, True], ids=["roomy", "short of room"])
def test_on_a_disk_with_less_room_than_the_file_takes_it_comes_back_at_once(
    filesystem: GradualRemoval,
    trace: Trace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_short: bool,
) -> None:
    """A compaction would leave the next log, for want of the room that is on its way."""
    space = os.statvfs(tmp_path)
    free_blocks = SIZE // space.f_frsize + (not is_short)
    short = os.statvfs_result((*space[:4], free_blocks, *space[5:]))
    monkeypatch.setattr("os.fstatvfs", lambda descriptor: short)
    trace.open.clear()
    path = large(tmp_path / "1.log")
    filesystem.remove(path)
    assert os.listdir(tmp_path) == []
    assert any(path in name for name in descriptors()) is not is_short


def test_a_file_with_another_name_keeps_every_byte(
    filesystem: GradualRemoval, trace: Trace, tmp_path: Path
) -> None:
    path = large(tmp_path / "1.log")
    os.link(path, tmp_path / "snapshot.log")
    filesystem.remove(path)
    filesystem.remove(large(tmp_path / "2.log"))
    until(lambda: 0 in trace.cuts())
    assert trace.cuts()[0] == SIZE - STEP_BYTES
    assert len(trace.cuts()) == STEPS
    assert (tmp_path / "snapshot.log").read_bytes()[-3:] == b"end"
    assert (tmp_path / "snapshot.log").stat().st_size == SIZE


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
def test_who_has_it_open_reads_all_of_it(
    filesystem: GradualRemoval, trace: Trace, tmp_path: Path, flags: int
) -> None:
    path = large(tmp_path / "1.log")
    reader = os.open(path, flags)
    try:
        filesystem.remove(path)
        filesystem.remove(large(tmp_path / "2.log"))
        until(lambda: 0 in trace.cuts())
        assert len(trace.cuts()) == STEPS
        assert os.pread(reader, 3, SIZE - 3) == b"end"
    finally:
        os.close(reader)


def test_another_process_that_has_it_open_reads_all_of_it(
    filesystem: GradualRemoval, trace: Trace, tmp_path: Path
) -> None:
    path = large(tmp_path / "1.log")
    code = (
        "import sys; f = open(sys.argv[1], 'rb'); print(flush=True); input(); f.seek(-3, 2); print(f.read())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        filesystem.remove(path)
        filesystem.remove(large(tmp_path / "2.log"))
        until(lambda: 0 in trace.cuts())
        out, _ = process.communicate("\n", SECONDS)
    assert out == "b'end'\n"
    assert len(trace.cuts()) == STEPS


def test_an_entry_log_that_was_read_gives_its_room_back_in_steps(
    filesystem: GradualRemoval, trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradual_removal, "FILE_BYTES_MIN", 1)
    log = simple_log()
    (tmp_path / "0.log").write_bytes(log.data)
    logger = EntryLogger(f"{tmp_path}", filesystem, EntryLogSettings())
    logger.open()
    body = log.entries[0].body
    # Behind the length word; the log's id, in the upper half of a location, is 0.
    assert logger.read(log.entries[0].offset + 4, body[:16]) == body
    logger.remove(0)
    until(trace.cuts)
    assert os.listdir(tmp_path) == []
    logger.close()


def test_small_files_and_links_are_removed_as_ever(
    filesystem: GradualRemoval, trace: Trace, tmp_path: Path
) -> None:
    target = large(tmp_path / "target")
    (tmp_path / "link").symlink_to(target)
    filesystem.remove(f"{tmp_path}/link")
    filesystem.remove(large(tmp_path / "small", FILE_BYTES_MIN - 1))
    assert os.listdir(tmp_path) == ["target"]
    assert os.path.getsize(target) == SIZE
    with pytest.raises(NotFoundError):
        filesystem.remove(f"{tmp_path}/none")
    filesystem.close()
    assert trace.calls == []


def test_the_room_of_more_than_a_few_comes_back_at_once(
    filesystem: GradualRemoval, trace: Trace, tmp_path: Path
) -> None:
    trace.open.clear()
    filesystem.remove(large(tmp_path / "first"))
    # The thread has it, and is held up.
    until(lambda: trace.calls)
    for number in range(FILES_MAX + 3):
        filesystem.remove(large(tmp_path / f"{number}"))
    trace.open.set()
    until(lambda: trace.cuts().count(0) == FILES_MAX + 1)
    filesystem.close()
    assert len(trace.cuts()) == STEPS * (FILES_MAX + 1)


def test_an_end_in_the_middle_waits_for_one_step_alone(
    filesystem: GradualRemoval, trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradual_removal, "REST_MIN_MS", 3_600_000)
    for number in range(3):
        filesystem.remove(large(tmp_path / f"{number}"))
    until(trace.cuts)
    filesystem.close()
    assert len(trace.cuts()) == 1
    filesystem.remove(large(tmp_path / "later"))
    assert os.listdir(tmp_path) == []


def test_a_cut_that_fails_leaves_the_file_to_the_system_and_the_next_one_is_cut(
    filesystem: GradualRemoval, trace: Trace, errors: list[BkctlError], tmp_path: Path
) -> None:
    trace.failures = [OSError(5, "of the disk")]
    for number in range(2):
        filesystem.remove(large(tmp_path / f"{number}"))
    until(lambda: 0 in trace.cuts())
    assert len(trace.cuts()) == 1 + STEPS
    assert errors == []


@pytest.mark.parametrize(("error", "reported"), [(SyncError, 1), (StorageError, 0)])
def test_a_directory_that_cannot_be_synced_is_reported_and_nothing_is_cut(
    filesystem: GradualRemoval,
    trace: Trace,
    errors: list[BkctlError],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[StorageError],
    reported: int,
) -> None:
    """One that cannot even be opened, because it is gone as well, loses nothing."""

    def fails(self: PosixFileSystem, path: str) -> None:
        raise error(f"{path}: fsync of the directory", path=path)

    monkeypatch.setattr(PosixFileSystem, "sync_directory", fails)
    filesystem.remove(large(tmp_path / "1.txn"))
    until(lambda: errors or "comes back at once" in caplog.text)
    filesystem.close()
    assert len(errors) == reported
    assert trace.cuts() == []


OPENED_AFTERWARDS = """
import os, signal, sys, time
from bkctl.clock import SystemClock
from bkctl.engine import gradual_removal
gradual_removal.REST_MIN_MS = 20
path, when = sys.argv[1:]
removal, tried, cuts = gradual_removal.GradualRemoval(SystemClock(), print), [], []
def removed():
    there = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [each for each in there if os.path.lexists(each) and "deleted" in os.readlink(each)]
def open_again():
    (path,) = removed()
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except BlockingIOError:
        tried.append(True)
truncate = os.ftruncate
def cut(descriptor, size_bytes):
    cuts.append(size_bytes)
    truncate(descriptor, size_bytes)
    if when == "in the middle" and len(cuts) == 3:
        open_again()
os.ftruncate = cut
if when == "before the first step":
    gradual_removal.GradualRemoval.sync_directory = lambda self, path: open_again()
removal.remove(path)
until = time.monotonic() + 20
while not tried and time.monotonic() < until:
    time.sleep(0.01)
while removed():
    time.sleep(0.01)
removal.close()
print(len(tried), len(cuts))
"""


@pytest.mark.parametrize(("when", "cuts"), [("before the first step", 0), ("in the middle", 3)])
def test_who_opens_it_afterwards_ends_the_steps_and_not_the_process(
    tmp_path: Path, when: str, cuts: int
) -> None:
    """The kernel's signal for a lease that is broken ends a process, unless it is another one."""
    command = [sys.executable, "-c", OPENED_AFTERWARDS, large(tmp_path / "1.txn"), when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"1 {cuts}\n", "")


def test_a_thread_that_cannot_start_for_want_of_memory_leaks_no_descriptor(
    filesystem: GradualRemoval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: threading.Thread) -> None:
        raise MemoryError

    monkeypatch.setattr(threading.Thread, "start", fails)
    with pytest.raises(MemoryError):
        filesystem.remove(large(tmp_path / "1.txn"))
