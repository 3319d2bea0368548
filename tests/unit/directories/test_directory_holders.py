"""Who uses a directory: databases, open files, our own commands."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bkctl.directories import holders as module
from bkctl.directories.holders import DirectoryLock, holders, is_dirty
from bkctl.errors import NotFoundError, RefusedError, StorageError
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store


@pytest.fixture
def current(tmp_path: Path) -> Path:
    directory = tmp_path / "current"
    directory.mkdir()
    (directory / "0.log").write_bytes(b"BKLO")
    open_store(str(directory / "ledgers"), LEDGERS_PROFILE, create=True).close()
    return directory


@contextmanager
def process(program: str, current: Path) -> Iterator[int]:
    """A process that runs ``program`` (``d`` is the directory) until the block ends; its id."""
    code = f"import sys; d = sys.argv[1]\n{program}\nprint('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(current)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started.pid
        started.kill()


DATABASE = (
    "from bkctl.kvstore.rocksdb_store import open_store; from bkctl.kvstore.profile import LEDGERS_PROFILE\n"
    "s = open_store(d + '/ledgers', LEDGERS_PROFILE, create=False)"
)
OPEN_FILE = "f = open(d + '/0.log', 'rb')"
BKCTL = "from bkctl.directories.holders import DirectoryLock\nl = DirectoryLock(d).__enter__()"


def test_nobody_uses_it(current: Path) -> None:
    assert holders(str(current)) == []
    before = sorted(os.listdir(current))
    with DirectoryLock(str(current)) as lock:
        lock.recheck()
        assert sorted(os.listdir(current)) == before
    assert sorted(os.listdir(current)) == before


def test_a_database_that_is_open(current: Path) -> None:
    with process(DATABASE, current) as pid:
        found = holders(str(current))
        assert (found[0].pid, found[0].how) == (pid, "database lock")
        assert found[0].path == str(current / "ledgers/LOCK")
        assert {holder.pid for holder in found} == {pid}
        with pytest.raises(
            RefusedError, match=rf"current: in use by python\S* \(pid {pid}\) \(database lock"
        ):
            DirectoryLock(str(current)).__enter__()
    with DirectoryLock(str(current)):
        pass


def test_a_file_that_is_open(current: Path) -> None:
    with process(OPEN_FILE, current) as pid:
        (found,) = holders(str(current))
        assert (found.pid, found.how, found.path) == (pid, "open file", str(current / "0.log"))
        (current / "0.log").unlink()
        assert holders(str(current)) == [found]
        with pytest.raises(RefusedError, match=str(pid)):
            DirectoryLock(str(current)).__enter__()


def test_files_of_a_rebuild_are_no_bookies(current: Path) -> None:
    """Its workers map them for as long as they live; two rebuilds are kept apart by the lock."""
    work = current / "locations.bkctl-rebuild"
    work.mkdir()
    (work / "digests.column").write_bytes(bytes(100))
    mapped = "f = open(d + '/locations.bkctl-rebuild/digests.column', 'rb')"
    with process(mapped, current), DirectoryLock(str(current)) as lock:
        lock.recheck()
        assert holders(str(current)) == []


def test_a_directory_reached_by_a_link(current: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(current)
    with process(OPEN_FILE, current) as pid:
        assert [holder.pid for holder in holders(str(tmp_path / "link"))] == [pid]


#: A view of mounts of its own, in which the last argument's directory stands where ``d`` is.
_OTHER_MOUNTS = (
    "import os, ctypes\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "assert libc.unshare(0x00020000) == 0, 'unshare'\n"
    "assert libc.mount(None, b'/', None, 0x44000, None) == 0, 'private'\n"
    "assert libc.mount({there!r}, {here!r}, None, 0x1000, None) == 0, 'bind'\n"
)


def may_mount() -> bool:
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x00020000) != 0)"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not may_mount(), reason="a view of mounts of its own needs root")


def in_other_mounts(program: str, there: Path, here: Path) -> str:
    mounts = _OTHER_MOUNTS.format(there=os.fsencode(there), here=os.fsencode(here))
    return mounts + program


@needs_mounts
def test_another_containers_directory_of_the_same_path_is_not_this_one(current: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "0.log").write_bytes(b"BKLO")
    with process(in_other_mounts(OPEN_FILE, theirs, current), current), DirectoryLock(str(current)) as lock:
        assert holders(str(current)) == []
        lock.recheck()
    removed = f"{OPEN_FILE}; os.unlink(d + '/0.log')"
    with process(in_other_mounts(removed, theirs, current), current):
        assert holders(str(current)) == []


@needs_mounts
def test_a_container_that_uses_this_directory_by_another_path_is_seen(current: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = in_other_mounts(OPEN_FILE.replace("d +", "sys.argv[1] +"), current, elsewhere)
    with process(program.replace("sys.argv[1]", repr(str(elsewhere))), current) as pid:
        (found,) = holders(str(current))
        assert (found.pid, found.how, found.path) == (pid, "open file", str(current / "0.log"))
        with pytest.raises(RefusedError, match=str(pid)):
            DirectoryLock(str(current)).__enter__()


def test_two_commands_exclude_each_other(current: Path) -> None:
    with (
        process(BKCTL, current) as pid,
        pytest.raises(RefusedError, match=rf"\(pid {pid}\) \(bkctl lock\)"),
    ):
        DirectoryLock(str(current)).__enter__()
    with DirectoryLock(str(current)), pytest.raises(RefusedError, match=str(os.getpid())):
        DirectoryLock(str(current)).__enter__()


def test_our_own_files_and_databases_do_not_stand_in_our_way(current: Path) -> None:
    with (
        DirectoryLock(str(current)) as lock,
        (current / "0.log").open("rb"),
        open_store(str(current / "ledgers"), LEDGERS_PROFILE, create=False),
    ):
        lock.recheck()


def test_a_bookie_that_starts_later_is_seen(current: Path) -> None:
    with (
        DirectoryLock(str(current)) as lock,
        process(OPEN_FILE, current) as pid,
        pytest.raises(RefusedError, match=str(pid)),
    ):
        lock.recheck()


def test_a_refused_directory_gives_the_others_back(current: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with process(OPEN_FILE, current), pytest.raises(RefusedError):
        DirectoryLock(str(tmp_path / "a"), str(current)).__enter__()
    with DirectoryLock(str(tmp_path / "a"), str(current)):
        pass


def test_the_dirty_mark_alone_does_not_refuse(current: Path) -> None:
    (current / "DIRTY").touch()
    assert is_dirty(str(current))
    with DirectoryLock(str(current)) as lock:
        assert lock.dirty == [str(current)]
    with process(OPEN_FILE, current), pytest.raises(RefusedError, match="marked DIRTY"):
        DirectoryLock(str(current)).__enter__()


def test_what_cannot_be_looked_at_is_said(current: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(directory: str, pid: int) -> str | None:
        raise PermissionError

    monkeypatch.setattr(module, "_open_below", forbidden)
    with DirectoryLock(str(current)) as lock:
        assert lock.unseen > 0
    with process(DATABASE, current), pytest.raises(RefusedError, match="other users could not be looked at"):
        DirectoryLock(str(current)).__enter__()


def test_no_such_directory(tmp_path: Path) -> None:
    for call in (lambda: holders(str(tmp_path / "none")), DirectoryLock(str(tmp_path / "none")).__enter__):
        with pytest.raises(NotFoundError):
            call()


@pytest.mark.parametrize("call", ["listdir", "lstat"])
def test_records_that_cannot_be_looked_at_may_be_of_an_undo_that_was_cut_off(
    current: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    folder = current / "bkctl-repairs" / "20261123T051500Z"
    folder.mkdir(parents=True)
    (folder / "VERSION").write_bytes(b"cookie")
    original = getattr(os, call)

    def fail(path: str, **options: object) -> object:
        if "bkctl-repairs" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return original(path, **options)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StorageError, match="bkctl-repairs"), DirectoryLock(str(current)):
        pass


def test_a_file_among_the_records_is_none(current: Path) -> None:
    (current / "bkctl-repairs").mkdir()
    (current / "bkctl-repairs" / "a file").write_bytes(b"")
    with DirectoryLock(str(current)):
        pass
