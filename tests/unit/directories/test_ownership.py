"""What root makes in a bookie's directory is its owner's as soon as the lock on it is given back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkctl.directories import ownership
from bkctl.directories.holders import DirectoryLock
from bkctl.directories.ownership import give_new_directories
from bkctl.errors import StorageError

BOOKIE = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def owner(path: Path) -> tuple[int, int]:
    facts = path.lstat()
    return facts.st_uid, facts.st_gid


@pytest.fixture
def current(tmp_path: Path) -> Path:
    path = tmp_path / "ledgers" / "current"
    (path / "locations").mkdir(parents=True)
    for made in (path, path / "locations"):
        os.chown(made, BOOKIE, BOOKIE)
    return path


@as_root
def test_files_and_folders_go_to_the_owner_of_the_directory(current: Path) -> None:
    with DirectoryLock(str(current)):
        made = [current / "lastMark", current / "locations" / "CURRENT", current / "a" / "b" / "c" / "d"]
        for path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
    for path in (*made, *made[-1].parents[:3]):
        assert owner(path) == (BOOKIE, BOOKIE), path


@as_root
def test_what_a_command_that_failed_or_was_killed_has_left_is_given_too(current: Path) -> None:
    (current / "killed").write_bytes(b"")

    def fail() -> None:
        with DirectoryLock(str(current)):
            (current / "failed").write_bytes(b"")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert owner(current / "killed") == owner(current / "failed") == (BOOKIE, BOOKIE)


@as_root
def test_most_of_the_owners_files_say_which_permissions_a_new_one_has(current: Path) -> None:
    for name, mode in (("a", 0o644), ("b", 0o644), ("c", 0o600)):
        (current / name).write_bytes(b"")
        (current / name).chmod(mode)
        os.chown(current / name, BOOKIE, BOOKIE)
    (current / "locations").chmod(0o2750)
    kept = current / "bkctl-repairs" / "1"
    kept.mkdir(parents=True, mode=0o700)
    with DirectoryLock(str(current)):
        made = [current / "new", current / "ledgers" / "CURRENT", kept / "0"]
        made[1].parent.mkdir(mode=0o700)
        for path in made:
            path.write_bytes(b"")
            path.chmod(0o640)
        made[0].chmod(0o666)
    assert [path.stat().st_mode & 0o7777 for path in made] == [0o644, 0o640, 0o640]
    assert made[1].parent.stat().st_mode & 0o7777 == 0o750
    assert kept.stat().st_mode & 0o7777 == 0o700


@as_root
def test_what_is_not_the_commands_is_not_given_away(current: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of root")
    os.link(secret, current / "second name")
    (current / "link").symlink_to(secret)
    (current / "folder").symlink_to(tmp_path)
    work = current / "locations.bkctl-rebuild"
    work.mkdir()
    (work / "manifest").write_bytes(b"")
    other = current / "other"
    other.write_bytes(b"")
    os.chown(other, 54321, 54321)
    with DirectoryLock(str(current)):
        pass
    for path in (secret, tmp_path, work, work / "manifest", current / "link"):
        assert owner(path) == (0, 0), path
    assert owner(other) == (54321, 54321)


@as_root
def test_in_a_directory_of_root_everything_stays(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"")
    os.chown(other, BOOKIE, BOOKIE)
    with DirectoryLock(str(tmp_path)):
        (tmp_path / "new").write_bytes(b"")
    assert owner(other) == (BOOKIE, BOOKIE)
    assert owner(tmp_path / "new") == (0, 0)


@as_root
def test_a_new_directory_goes_to_the_owner_of_the_others(current: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "disk" / "current", tmp_path / "theirs" / "current"
    for made in (first, second):
        made.mkdir(parents=True)
    os.chown(second.parent, 54321, 54321)
    give_new_directories([str(first)], [str(current)])
    assert owner(first) == (BOOKIE, BOOKIE)
    assert owner(first.parent) == (0, 0)
    give_new_directories([str(second)], [])
    assert owner(second) == (54321, 54321)


def test_a_failure_is_told_unless_another_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int, owner: tuple[int, int], depth: int, **how: bool) -> None:
        raise PermissionError(1, "no right to do so")

    monkeypatch.setattr(ownership, "_ROOT", os.geteuid())
    monkeypatch.setattr(ownership, "_is_roots", lambda facts: False)
    monkeypatch.setattr(ownership, "_give_below", failing)
    with pytest.raises(StorageError, match="no right to do so"), DirectoryLock(str(tmp_path)):
        pass
    with pytest.raises(KeyError), DirectoryLock(str(tmp_path)):
        raise KeyError
    monkeypatch.undo()
    with DirectoryLock(str(tmp_path)):
        pass  # the lock was given back all the same


def test_another_user_than_root_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership.os, "geteuid", lambda: BOOKIE)
    monkeypatch.setattr(ownership, "_give_below", None)
    with DirectoryLock(str(tmp_path)):
        (tmp_path / "new").write_bytes(b"")
