"""What only the real file system can get wrong: system calls that fail, end early, or are not made."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl import _kernels
from bkctl.errors import StorageError
from bkctl.vfs import NoSpaceError, PosixFileSystem, SyncError, posix

SYSTEM = PosixFileSystem()


def failing(number: int, *, from_call: int = 1) -> Callable[..., int]:
    """A system call that writes three bytes at a time and fails with ``number`` at a call."""
    calls = 0
    real = os.pwrite

    def call(descriptor: int, data: memoryview, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls >= from_call:
            raise OSError(number, os.strerror(number))
        return real(descriptor, memoryview(data)[:3], offset)

    return call


def refuse(number: int) -> Callable[..., int]:
    def call(*_: object, **named: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SYSTEM.create(str(tmp_path / "f"))
    monkeypatch.setattr(os, "pwrite", failing(errno.EIO, from_call=99))
    file.write_at(5, b"0123456789")
    assert file.read_at(0, 99) == b"\0" * 5 + b"0123456789"
    file.close()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, NoSpaceError), (errno.EDQUOT, NoSpaceError), (errno.EIO, StorageError)],
)
def test_a_failed_write_says_where_and_what_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    path = str(tmp_path / "f")
    file = SYSTEM.create(path)
    monkeypatch.setattr(os, "pwrite", failing(number, from_call=3))
    with pytest.raises(StorageError) as caught:
        file.write_at(1000, b"0123456789")
    error = caught.value
    assert type(error) is kind
    assert (error.path, error.offset) == (path, 1006)
    assert str(error) == f"{path}: writing 4 bytes at offset 1006: {os.strerror(number)}"
    assert isinstance(error.__cause__, OSError)
    assert error.__cause__.errno == number
    with pytest.raises(kind) as caught:
        file.write_at(7, b"01")
    assert str(caught.value) == f"{path}: writing 2 bytes at offset 7: {os.strerror(number)}"
    file.close()


def test_a_write_that_takes_nothing_does_not_go_on_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SYSTEM.create(str(tmp_path / "f"))
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(StorageError, match="takes none"):
        file.write_at(0, b"0123")
    file.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_is_one_even_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = SYSTEM.create(str(tmp_path / "f"))
    monkeypatch.setattr(os, "fsync", refuse(number))
    monkeypatch.setattr(os, "fdatasync", refuse(number))
    calls: list[Callable[[], None]] = [
        file.sync,
        file.sync_data,
        lambda: SYSTEM.sync_directory(str(tmp_path)),
        lambda: SYSTEM.replace(str(tmp_path / "g"), b"content"),
        lambda: SYSTEM.make_directories(str(tmp_path / "d")),
    ]
    for call in calls:
        with pytest.raises(SyncError, match=os.strerror(number)):
            call()
    file.close()
    assert sorted(os.listdir(tmp_path)) == ["f"]


def test_the_syncs_are_the_ones_they_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: called.append("fsync"))
    monkeypatch.setattr(os, "fdatasync", lambda _: called.append("fdatasync"))
    file = SYSTEM.create(str(tmp_path / "f"))
    file.sync_data()
    file.sync()
    file.close()
    assert called == ["fdatasync", "fsync"]


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ENOSPC, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, None]
)
def test_an_error_of_the_disk_while_bytes_are_written_back_counts_as_that_of_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    """Linux reports it once: the sync behind it succeeds. A system without the call has no error."""

    def refused(*_: int) -> int:
        assert number is not None
        return number

    monkeypatch.setattr(posix, "_sync_file_range", lambda: None if number is None else refused)
    file = SYSTEM.create(str(tmp_path / "f"))
    file.write_at(0, b"content")
    if number not in (errno.ENOSYS, None):
        with pytest.raises(SyncError, match=os.strerror(number)):
            file.write_back(0, 7)
    else:
        file.write_back(0, 7)
    file.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sync_file_range")
def test_written_bytes_are_given_to_the_disk(tmp_path: Path) -> None:
    assert posix._sync_file_range() is not None
    file = SYSTEM.create(str(tmp_path / "f"))
    file.write_at(0, b"content")
    file.write_back(0, 7)
    file.close()
    with pytest.raises(StorageError, match="closed"):
        file.write_back(0, 7)


@pytest.mark.parametrize("open_", [SYSTEM.open, SYSTEM.open_to_write])
@pytest.mark.timeout(120)
def test_a_fifo_is_refused_without_waiting(tmp_path: Path, open_: Callable[[str], object]) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StorageError, match="not a regular file"):
        open_(str(tmp_path / "fifo"))
    with pytest.raises(StorageError, match="not a regular file"):
        open_("/dev/null")


def test_a_new_file_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(StorageError, match="exists"):
        SYSTEM.create(str(tmp_path / "link"))
    assert not (tmp_path / "target").exists()


def test_modes_are_what_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        SYSTEM.replace(str(tmp_path / "f"), b"")
        SYSTEM.make_directories(str(tmp_path / "d"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o750


class Recorder:
    """Notes fsync, rename and mkdir, by inode and name, while it lets them happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[str, object]] = []
        fsync, rename, mkdir = os.fsync, os.rename, os.mkdir

        def recorded_fsync(descriptor: int) -> None:
            facts = os.fstat(descriptor)
            self.steps.append(("fsync", (stat.S_ISDIR(facts.st_mode), facts.st_ino, facts.st_size)))
            fsync(descriptor)

        def recorded_rename(old: str, new: str) -> None:
            self.steps.append(("rename", os.path.basename(new)))
            rename(old, new)

        def recorded_mkdir(path: str, mode: int) -> None:
            self.steps.append(("mkdir", os.path.basename(path)))
            mkdir(path, mode)

        monkeypatch.setattr(os, "fsync", recorded_fsync)
        monkeypatch.setattr(os, "rename", recorded_rename)
        monkeypatch.setattr(os, "mkdir", recorded_mkdir)


def directory_sync(path: Path) -> tuple[str, tuple[bool, int, int]]:
    return "fsync", (True, path.stat().st_ino, path.stat().st_size)


def test_replace_syncs_the_content_before_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch)
    SYSTEM.replace(str(tmp_path / "f"), b"12345")
    inode = (tmp_path / "f").stat().st_ino
    assert recorder.steps == [
        ("fsync", (False, inode, 5)),
        ("rename", "f"),
        directory_sync(tmp_path),
    ]


@pytest.mark.parametrize("call", ["pwrite", "fsync", "rename"])
def test_a_replace_that_fails_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    (tmp_path / "f").write_bytes(b"old")
    monkeypatch.setattr(os, call, refuse(errno.EIO))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(StorageError):
        SYSTEM.replace(str(tmp_path / "f"), b"new")
    assert set(os.listdir("/proc/self/fd")) == before
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_every_new_directory_is_made_durable_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch)
    SYSTEM.make_directories(str(tmp_path / "a/b/c"))
    monkeypatch.undo()
    kinds = [(kind, fact[1] if isinstance(fact, tuple) else fact) for kind, fact in recorder.steps]
    inodes = [path.stat().st_ino for path in (tmp_path.parent, tmp_path, tmp_path / "a", tmp_path / "a/b")]
    assert kinds == [
        ("fsync", inodes[0]),
        ("mkdir", "a"),
        ("fsync", inodes[1]),
        ("mkdir", "b"),
        ("fsync", inodes[2]),
        ("mkdir", "c"),
        ("fsync", inodes[3]),
    ]


def test_a_directory_whose_name_a_kill_left_volatile_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    recorder = Recorder(monkeypatch)
    SYSTEM.make_directories(str(tmp_path / "a"))
    assert recorder.steps == [directory_sync(tmp_path)]


def test_a_parent_that_is_closed_to_us_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    real = os.open

    def closed(path: str, *arguments: int) -> int:
        if path.endswith(".."):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", closed)
    SYSTEM.make_directories(str(tmp_path / "a"))
    with pytest.raises(StorageError, match="Permission denied"):
        SYSTEM.make_directories(str(tmp_path / "a/b"))


def test_free_space_is_what_this_user_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = os.statvfs_result((4096, 512, 1000, 300, 200, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: space)
    found = SYSTEM.disk_space(str(tmp_path))
    assert (found.total_bytes, found.free_bytes) == (512_000, 102_400)
    assert found.device == tmp_path.stat().st_dev


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_permissions_of_the_one_it_is_of(tmp_path: Path) -> None:
    system, old = PosixFileSystem(), tmp_path / "old"
    old.write_bytes(b"")
    for wanted in (0o644, 0o600, 0o664):
        old.chmod(wanted)
        new = tmp_path / f"{wanted:o}"
        system.create(str(new), mode_of=str(old)).close()
        assert mode(new) == wanted
    (tmp_path / "link").symlink_to(old)
    for number, other in enumerate(("gone", "link")):
        system.create(str(tmp_path / f"{number}"), mode_of=str(tmp_path / other)).close()
        assert mode(tmp_path / f"{number}") == 0o640


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    system, path = PosixFileSystem(), tmp_path / "f"
    system.replace(str(path), b"one")
    assert mode(path) == 0o640
    path.chmod(0o604)
    system.replace(str(path), b"two")
    assert (mode(path), path.read_bytes()) == (0o604, b"two")


def test_a_directory_gets_the_permissions_of_another_one(tmp_path: Path) -> None:
    system, one, other = PosixFileSystem(), tmp_path / "one", tmp_path / "other"
    one.mkdir(mode=0o750)
    other.mkdir()
    other.chmod(0o575)
    one.chmod(0o2750)
    system.copy_directory_mode(str(one), str(other))
    assert mode(one) == 0o2775, "its owner can always use it"
    system.copy_directory_mode(str(one), str(tmp_path / "gone"))
    assert mode(one) == 0o2775
    (tmp_path / "link").symlink_to(one)
    with pytest.raises(StorageError):
        system.copy_directory_mode(str(tmp_path / "link"), str(other))


has_direct_writes = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has O_DIRECT")


class Recorded:
    """Stands for ``os.pwrite``: notes which writes go past the page cache, and refuses or shortens those."""

    def __init__(self, number: int | None = None, taken: int | None = None) -> None:
        self.direct: list[tuple[int, int]] = []
        self.usual: list[tuple[int, int]] = []
        self._number = number
        self._taken = taken
        self._pwrite = os.pwrite

    def __call__(self, descriptor: int, data: memoryview, offset: int) -> int:
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            self.usual.append((offset, len(data)))
            return self._pwrite(descriptor, data, offset)
        self.direct.append((offset, len(data)))
        if self._number is not None:
            raise OSError(self._number, os.strerror(self._number))
        return self._pwrite(descriptor, data[: self._taken], offset)


@has_direct_writes
def test_whole_blocks_go_past_the_page_cache_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Recorded()
    monkeypatch.setattr(os, "pwrite", calls)
    file = SYSTEM.create(str(tmp_path / "f"))
    file.write_direct(512, [b"a" * 500, b"b" * 12])
    file.write_direct(1024, [b"c" * 100])
    file.write_at(1124, b"d" * 412)
    file.write_direct(1536, [b"e" * 512] * 100)
    file.close()
    assert calls.direct == [(512, 512), (1536, 51200)]
    assert calls.usual == [(1024, 100), (1124, 412)]
    content = bytes(512) + b"a" * 500 + b"b" * 12 + b"c" * 100 + b"d" * 412 + b"e" * 51200
    assert (tmp_path / "f").read_bytes() == content


@has_direct_writes
@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_where_the_page_cache_cannot_be_passed_it_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls = Recorded(number)
    monkeypatch.setattr(os, "pwrite", calls)
    file = SYSTEM.create(str(tmp_path / "f"))
    for at in range(0, 1536, 512):
        file.write_direct(at, [b"x" * 512])
    file.close()
    assert calls.direct == [(0, 512)]
    assert calls.usual == [(0, 512), (512, 512), (1024, 512)]
    assert (tmp_path / "f").read_bytes() == b"x" * 1536


@has_direct_writes
def test_what_a_direct_write_leaves_is_written_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Recorded(taken=1024)
    monkeypatch.setattr(os, "pwrite", calls)
    content = bytes(range(256)) * 10
    file = SYSTEM.create(str(tmp_path / "f"))
    file.write_direct(0, [content])
    file.close()
    assert calls.usual == [(1024, 1536)]
    assert (tmp_path / "f").read_bytes() == content


@has_direct_writes
def test_without_memory_for_the_buffer_bytes_are_written_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error would end the journal, which it has nothing to do with."""
    calls = Recorded()
    monkeypatch.setattr(os, "pwrite", calls)
    file = SYSTEM.create(str(tmp_path / "f"))
    with monkeypatch.context() as short:
        short.setattr(mmap, "mmap", refuse(errno.ENOMEM))
        file.write_direct(0, [b"x" * 512])
    file.write_direct(512, [b"y" * 512])
    file.close()
    assert (calls.usual, calls.direct) == ([(0, 512)], [(512, 512)])
    assert (tmp_path / "f").read_bytes() == b"x" * 512 + b"y" * 512


@has_direct_writes
@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, NoSpaceError)])
def test_an_error_of_a_direct_write_is_that_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    calls = Recorded(number)
    monkeypatch.setattr(os, "pwrite", calls)
    file = SYSTEM.create(str(tmp_path / "f"))
    with pytest.raises(kind, match="writing 1024 bytes at offset 512") as caught:
        file.write_direct(512, [bytes(512), bytes(512)])
    assert caught.value.offset == 512
    assert not calls.usual
    # The descriptor is as before: the file can be written to as usual.
    file.write_at(512, b"end")
    file.close()


class Synced:
    """Stands for the call that writes and syncs; answers with ``results``, then does what is asked."""

    def __init__(self, *results: tuple[int, int, int, int]) -> None:
        self.calls: list[tuple[bool, int, int]] = []
        self._results = list(results)

    def __call__(self, descriptor: int, data: bytes | memoryview, offset: int) -> tuple[int, int, int, int]:
        direct = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        self.calls.append((direct, offset, len(data)))
        if not self._results:
            return write_and_sync(descriptor, data, offset)
        wrote, *rest = self._results.pop(0)
        assert os.pwrite(descriptor, data[:wrote], offset) == wrote
        return wrote, *rest  # type: ignore[return-value]


write_and_sync = _kernels.write_and_sync


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The syncs that are calls of their own."""
    made: list[int] = []
    fdatasync = os.fdatasync

    def counted(descriptor: int) -> None:
        made.append(descriptor)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    return made


@has_direct_writes
@pytest.mark.skipif(_kernels.IMPL != "native", reason="the twin calls them from Python")
def test_a_write_and_its_sync_are_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: list[int]
) -> None:
    calls = Synced()
    monkeypatch.setattr(_kernels, "write_and_sync", calls)
    file = SYSTEM.create(str(tmp_path / "f"))
    assert file.write_synced(0, [b"a" * 500, b"b" * 12], direct=True) > 0
    assert file.write_synced(512, [b"c" * 100], direct=True) > 0
    assert file.write_synced(612, [b"d" * 512], direct=False) > 0
    file.close()
    assert calls.calls == [(True, 0, 512), (False, 512, 100), (False, 612, 512)]
    assert syncs == []
    assert (tmp_path / "f").read_bytes() == b"a" * 500 + b"b" * 12 + b"c" * 100 + b"d" * 512


@has_direct_writes
@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
@pytest.mark.parametrize("wrote", [0, 512])
def test_what_goes_not_past_the_cache_is_written_and_synced_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: list[int], number: int, wrote: int
) -> None:
    calls = Synced((wrote, number, 0, -1))
    monkeypatch.setattr(_kernels, "write_and_sync", calls)
    content = bytes(range(256)) * 6
    file = SYSTEM.create(str(tmp_path / "f"))
    assert file.write_synced(0, [content], direct=True) > 0
    assert len(syncs) == 1
    # Nor is it tried again.
    assert file.write_synced(1536, [content], direct=True) > 0
    file.close()
    assert calls.calls == [(True, 0, 1536), (False, 1536, 1536)]
    assert (tmp_path / "f").read_bytes() == content * 2


@pytest.mark.parametrize("direct", [False, pytest.param(True, marks=has_direct_writes)])
def test_a_write_that_ends_early_is_ended_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: list[int], direct: bool
) -> None:
    monkeypatch.setattr(_kernels, "write_and_sync", Synced((512, 0, 0, -1)))
    content = bytes(range(256)) * 6
    file = SYSTEM.create(str(tmp_path / "f"))
    file.write_synced(0, [content], direct=direct)
    file.close()
    assert len(syncs) == 1
    assert (tmp_path / "f").read_bytes() == content


@pytest.mark.parametrize("direct", [False, pytest.param(True, marks=has_direct_writes)])
@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, NoSpaceError)])
def test_of_a_write_that_fails_nothing_is_synced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    syncs: list[int],
    direct: bool,
    number: int,
    kind: type[StorageError],
) -> None:
    monkeypatch.setattr(_kernels, "write_and_sync", Synced((512, number, 0, -1)))
    file = SYSTEM.create(str(tmp_path / "f"))
    with pytest.raises(kind, match="writing 512 bytes at offset 512") as caught:
        file.write_synced(0, [bytes(1024)], direct=direct)
    assert not isinstance(caught.value, SyncError)
    assert syncs == []
    file.close()


@pytest.mark.parametrize("direct", [False, pytest.param(True, marks=has_direct_writes)])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINVAL])
def test_a_sync_that_fails_is_not_tried_again_and_is_no_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: list[int], direct: bool, number: int
) -> None:
    monkeypatch.setattr(_kernels, "write_and_sync", Synced((1024, 0, number, 1000)))
    file = SYSTEM.create(str(tmp_path / "f"))
    with pytest.raises(SyncError, match="fdatasync"):
        file.write_synced(0, [bytes(1024)], direct=direct)
    assert syncs == []
    file.close()
