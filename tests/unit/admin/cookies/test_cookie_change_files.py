"""Cookies in files: what is planned, kept and written when disks fail or somebody else was faster."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.admin.cookies.changes import (
    Action,
    apply_to_file,
    back_up,
    change_of,
    folders_to_lock,
    plan_files,
)
from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem, FileOperation
from tests.support.manual_clock import ManualClock

FILES = PosixFileSystem()


@pytest.fixture
def cookie(tmp_path: Path) -> Cookie:
    for name in ("j", "l1", "l2"):
        (tmp_path / name / "current").mkdir(parents=True)
    ledgers = join_dirs([f"{tmp_path}/l1", f"{tmp_path}/l2"])
    return Cookie(5, "b:3181", f"{tmp_path}/j", ledgers, "cluster")


def test_paths_of_a_creation(cookie: Cookie, tmp_path: Path) -> None:
    content = encode_cookie(cookie)
    paths = [str(tmp_path / "j"), str(tmp_path / "l1/current"), str(tmp_path / "l2/current/VERSION")]
    changes = plan_files(FILES, paths, Action.CREATE, content, force=False)
    assert [change.target for change in changes] == [
        f"{tmp_path}/j/current/VERSION",
        f"{tmp_path}/l1/current/VERSION",
        f"{tmp_path}/l2/current/VERSION",
    ]
    assert {change.action for change in changes} == {Action.CREATE}
    for change in changes:
        apply_to_file(FILES, change)
        assert Path(change.target).read_bytes() == content
    assert folders_to_lock(FILES, changes) == [f"{tmp_path}/{name}/current" for name in ("j", "l1", "l2")]


def test_a_new_directory_is_made(cookie: Cookie, tmp_path: Path) -> None:
    (tmp_path / "l2/current").rmdir()
    (change,) = plan_files(FILES, [str(tmp_path / "l2")], Action.CREATE, encode_cookie(cookie), force=False)
    apply_to_file(FILES, change)
    assert (tmp_path / "l2/current/VERSION").read_bytes() == encode_cookie(cookie)


def test_what_has_changed_meanwhile_is_left_alone(cookie: Cookie, tmp_path: Path) -> None:
    file = tmp_path / "j/current/VERSION"
    file.write_bytes(encode_cookie(cookie))
    new = encode_cookie(replace(cookie, instance_id=None))
    (change,) = plan_files(FILES, [str(file)], Action.UPDATE, new, force=False)
    file.write_bytes(b"5\nsomebody else's")
    with pytest.raises(RefusedError, match="changed in the meantime"):
        apply_to_file(FILES, change)
    assert file.read_bytes() == b"5\nsomebody else's"
    (deletion,) = plan_files(FILES, [str(file)], Action.DELETE, None, force=False)
    assert deletion.bookie is None
    file.unlink()
    with pytest.raises(RefusedError, match="changed in the meantime"):
        apply_to_file(FILES, deletion)


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_disk_that_fails_leaves_the_old_cookie(
    cookie: Cookie, tmp_path: Path, operation: FileOperation
) -> None:
    file = tmp_path / "j/current/VERSION"
    file.write_bytes(encode_cookie(cookie))
    new = encode_cookie(replace(cookie, instance_id=None))
    (change,) = plan_files(FILES, [str(file)], Action.UPDATE, new, force=False)
    failing = FaultyFileSystem(FILES)
    failing.inject(FaultRule(operation))
    with pytest.raises(StorageError):
        apply_to_file(failing, change)
    assert file.read_bytes() == encode_cookie(cookie)


def test_backups_never_replace_each_other(cookie: Cookie, tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    old = encode_cookie(replace(cookie, bookie_host="a/../b:1"))
    change = change_of("VERSION", "file", Action.DELETE, old, None)
    paths = [back_up(change, str(tmp_path), clock) for _ in range(2)]
    assert paths == [
        f"{tmp_path}/cookie-a_.._b_1-20231114T221320Z-1",
        f"{tmp_path}/cookie-a_.._b_1-20231114T221320Z-2",
    ]
    for path in paths:
        assert path is not None
        assert Path(path).read_bytes() == old
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    with pytest.raises(NotFoundError, match=r"none: no such directory for the backup .*make it, or choose"):
        back_up(change, str(tmp_path / "none"), clock)


def test_nothing_to_keep(cookie: Cookie, tmp_path: Path) -> None:
    content = encode_cookie(cookie)
    for change in (
        change_of("x", "file", Action.CREATE, None, content),
        change_of("x", "file", Action.UPDATE, content, content),
    ):
        assert back_up(change, str(tmp_path), ManualClock()) is None


def test_wrong_starts(cookie: Cookie, tmp_path: Path) -> None:
    with pytest.raises(CorruptionError):
        plan_files(FILES, [str(tmp_path / "j")], Action.CREATE, b"junk", force=True)
    with pytest.raises(NotFoundError):
        plan_files(FILES, [str(tmp_path / "j/current/VERSION")], Action.DELETE, None, force=True)
    elsewhere = encode_cookie(replace(cookie, journal_dirs="/elsewhere"))
    with pytest.raises(RefusedError, match="does not name"):
        plan_files(FILES, [str(tmp_path / "j")], Action.CREATE, elsewhere, force=False)


def test_a_copy_does_not_lock_its_origin(cookie: Cookie, tmp_path: Path) -> None:
    copy = tmp_path / "copy/j/current"
    copy.mkdir(parents=True)
    (copy / "VERSION").write_bytes(encode_cookie(cookie))
    changes = plan_files(FILES, [str(copy)], Action.DELETE, None, force=False)
    assert folders_to_lock(FILES, changes) == [str(copy)]
