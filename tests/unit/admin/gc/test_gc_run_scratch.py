"""``gc run --scratch``: a stopped bookie on a disk that has no room for the copy of a log."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from bkctl.admin.gc.run import RunOptions, Work, perform, prepare
from bkctl.admin.gc.run_rows import RunRow
from bkctl.admin.ledgers.known_ledgers import NoCluster
from bkctl.directories.holders import DirectoryLock
from bkctl.errors import CorruptionError, StorageError
from bkctl.scan.directory import SCRATCH_NAME
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import DiskSpace, WritableFileSystem
from bkctl.vfs.faulty import CrashPointReached, FaultRule, FaultyFileSystem
from tests.support.grades import times
from tests.unit.admin.gc.stopped_bookie import CLOCK, LIVE, Stopped


class FullDisk(PosixFileSystem):
    """The disk of everything but the scratch directory is full."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = str(scratch)

    def disk_space(self, path: str) -> DiskSpace:
        if path.startswith(self._scratch):
            return DiskSpace(2, 1 << 30, 1 << 29)
        # Too little for a copy and what is to stay free, enough to bring a small one back.
        return DiskSpace(1, 1 << 30, 1 << 20)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def bookie(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path / "b").build()


def prepared(made: Stopped, filesystem: WritableFileSystem, scratch: Path | None) -> Work:
    (space,) = made.spaces()
    options = RunOptions(threshold=0.6, scratch=None if scratch is None else str(scratch))
    return prepare(filesystem, space, NoCluster(), CLOCK, options)


def ran(made: Stopped, filesystem: WritableFileSystem, scratch: Path | None) -> list[RunRow]:
    with DirectoryLock(str(made.current())) as lock:
        return list(perform(filesystem, prepared(made, filesystem, scratch), CLOCK, lock))


def test_without_it_nothing_is_compacted(bookie: Stopped, scratch: Path) -> None:
    rows = ran(bookie, FullDisk(scratch), None)
    assert [(row.action, row.log_id, row.done) for row in rows] == [("remove", 1, True)] + [
        ("left", log_id, False) for log_id in (2, 0)
    ]
    assert bookie.readable() == LIVE


def test_with_it_logs_are_compacted_and_nothing_stays_behind(bookie: Stopped, scratch: Path) -> None:
    work = prepared(bookie, FullDisk(scratch), scratch)
    assert not work.is_empty
    assert all(step.fits for step in work.steps)
    rows = ran(bookie, FullDisk(scratch), scratch)
    assert [(row.action, row.log_id, row.done) for row in rows] == [
        ("remove", 1, True),
        ("compact", 2, True),
        ("compact", 0, True),
    ]
    assert f"by way of {scratch}" in rows[-1].detail
    assert bookie.readable() == LIVE
    assert not [path for path in bookie.current().iterdir() if path.is_symlink() or "compact" in path.name]
    assert not [path for path in scratch.rglob("*") if path.is_file()]


def test_a_copy_that_cannot_come_back_is_read_where_it_is(bookie: Stopped, scratch: Path) -> None:
    def comes_back(path: str) -> bool:
        return path.startswith(str(bookie.current())) and path.endswith(".compacting")

    faulty = FaultyFileSystem(FullDisk(scratch), [FaultRule("create", comes_back, error_number=errno.ENOSPC)])
    ran(bookie, faulty, scratch)
    links = [path for path in bookie.current().iterdir() if path.is_symlink()]
    assert links
    assert all(path.resolve().is_relative_to(scratch) for path in links)
    assert bookie.readable() == LIVE
    why = {row.log_id: row.why for row in bookie.explain().values()}
    assert all(str(scratch) in why[int(path.stem, 16)] for path in links)
    # The next run, which has room, needs no option to finish it.
    rows = bookie.run()
    assert {row.log_id for row in rows if row.action == "finish"} == {int(path.stem, 16) for path in links}
    assert not [path for path in bookie.current().iterdir() if path.is_symlink()]
    assert bookie.readable() == LIVE


def test_a_stop_at_any_step_loses_nothing(tmp_path: Path, scratch: Path) -> None:
    point = 0
    while True:
        made = Stopped(tmp_path / str(point)).build()
        faulty = FaultyFileSystem(FullDisk(scratch), crash_after=point)
        with suppress(CrashPointReached):
            ran(made, faulty, scratch)
        assert made.readable() == LIVE
        ran(made, FullDisk(scratch), scratch)
        assert made.readable() == LIVE
        assert not [path for path in made.current().iterdir() if path.is_symlink() or "compact" in path.name]
        assert not [path for path in scratch.rglob("*") if path.is_file()]
        if not faulty.stopped.is_set():
            break
        point += times(9, 3)
    assert point > 30


@pytest.mark.parametrize("kind", ["a file elsewhere", "a file in such a directory", "a link there"])
def test_a_planted_link_copies_no_file_that_is_no_log(bookie: Stopped, tmp_path: Path, kind: str) -> None:
    """Whoever owns the directory can make links; root, who runs the command there, can read every file."""
    secret = tmp_path / "secret"
    secret.write_text("only root may read this\n" * 100)
    secret.chmod(0o600)
    place = tmp_path / ("elsewhere" if kind == "a file elsewhere" else SCRATCH_NAME) / "tag"
    place.mkdir(parents=True)
    copy = place / "9.log.0.compacted"
    if kind == "a link there":
        copy.symlink_to(secret)
    else:
        copy.write_bytes(secret.read_bytes())
    (bookie.current() / "9.log").symlink_to(copy)
    with suppress(StorageError, CorruptionError):
        bookie.run()
    assert (bookie.current() / "9.log").is_symlink()
    files = [path for path in bookie.current().iterdir() if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if b"only root" in path.read_bytes()]
    assert bookie.readable() == LIVE
