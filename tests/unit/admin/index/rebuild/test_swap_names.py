"""Names that a swap of an index makes or removes are durable before anything relies on them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.admin.index.rebuild import swap as index_swap
from bkctl.admin.index.rebuild.idx_swap import IdxSwap
from bkctl.admin.index.rebuild.state import SWAP_MARKER, WorkDirectory, write_json
from bkctl.admin.index.rebuild.swap import Swap, announce, earlier_result, exchange
from bkctl.errors import StorageError


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The names in each directory when it was synced last."""
    found: dict[str, list[str]] = {}
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            found[path] = sorted(os.listdir(path))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


@pytest.mark.parametrize("left_by_a_kill", ["", "0", "0/1"])
def test_a_folder_of_index_files_that_was_not_there_has_a_durable_name(
    tmp_path: Path, synced: dict[str, list[str]], left_by_a_kill: str
) -> None:
    current, tree = tmp_path / "current", tmp_path / "tree"
    (current / left_by_a_kill).mkdir(parents=True)
    (tree / "0" / "1").mkdir(parents=True)
    (tree / "0" / "1" / "1.idx").write_bytes(b"header and slots")
    work = WorkDirectory(str(tmp_path / "work"))
    IdxSwap(str(current), work, str(tree), str(tmp_path / "backup")).put_in_place()
    assert (current / "0" / "1" / "1.idx").read_bytes() == b"header and slots"
    assert synced[str(current)] == ["0"]
    assert synced[str(current / "0")] == ["1"]
    assert synced[str(current / "0" / "1")] == ["1.idx"]


def test_a_file_that_a_kill_has_left_moved_is_durable(tmp_path: Path, synced: dict[str, list[str]]) -> None:
    current, tree = tmp_path / "current", tmp_path / "tree"
    (current / "0" / "1").mkdir(parents=True)
    (current / "0" / "1" / "1.idx").write_bytes(b"header and slots")
    (tree / "0" / "1").mkdir(parents=True)
    work = WorkDirectory(str(tmp_path / "work"))
    IdxSwap(str(current), work, str(tree), str(tmp_path / "backup")).put_in_place()
    assert synced[str(current / "0" / "1")] == ["1.idx"]


def test_a_marker_that_holds_no_more_is_gone_for_good_before_another_index_is_built(
    tmp_path: Path, synced: dict[str, list[str]]
) -> None:
    """Back behind a power cut it would give the name of the old index to what is half built by then."""
    work = WorkDirectory(str(tmp_path / "locations.bkctl-rebuild"))
    work.prepare()
    live = tmp_path / "locations"
    live.mkdir()
    (live / "IDENTITY").write_text("one")
    write_json(
        work.at(SWAP_MARKER),
        {"backup": "locations.BACKUP-x", "identity": "one", "fingerprint": "old", "result": {}},
    )
    assert earlier_result(Swap(str(tmp_path), "locations", work), "new") is None
    assert synced[work.path] == os.listdir(work.path) == []


@pytest.mark.parametrize("name", ["fresh", "backup"])
def test_an_old_index_that_cannot_be_looked_at_is_not_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Behind an exchange the work folder goes, and with it the old index where that is thought to be gone."""
    current, work = tmp_path / "current", WorkDirectory(str(tmp_path / "work"))
    swap = Swap(str(current), "locations", work)
    for path, identity in ((current / "locations", "new"), (tmp_path / "work" / "database", "old")):
        path.mkdir(parents=True)
        (path / "IDENTITY").write_text(identity)
    marker = {"backup": "locations.BACKUP", "identity": "new", "fingerprint": "", "result": {}}
    write_json(work.at(SWAP_MARKER), marker)
    failing = {"fresh": swap.fresh, "backup": swap.backup}[name]
    lstat = os.lstat

    def fails(path: str) -> os.stat_result:
        if path == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return lstat(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", fails)
        with pytest.raises(StorageError, match="Input/output error"):
            exchange(swap)
    backup = exchange(swap)
    assert backup == swap.backup
    assert (Path(backup) / "IDENTITY").read_text() == "old"


def test_a_folder_that_cannot_be_asked_for_does_not_pass_for_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that a kill has left there, moved, might not be durable yet."""
    folder = tmp_path / "current" / "0" / "1"
    folder.mkdir(parents=True)
    (tmp_path / "tree" / "0" / "1").mkdir(parents=True)

    asked: Callable[..., os.stat_result] = os.stat

    def failing(path: object, **options: object) -> os.stat_result:
        if str(path) == str(folder):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return asked(path, **options)

    work = WorkDirectory(str(tmp_path / "work"))
    swap = IdxSwap(str(tmp_path / "current"), work, str(tmp_path / "tree"), str(tmp_path / "backup"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", failing)
        patched.setattr(os, "lstat", lambda path: failing(path, follow_symlinks=False))
        with pytest.raises(StorageError, match="Input/output error"):
            swap.put_in_place()


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_database_and_each_of_its_names_is_durable_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    """In any other order a power cut leaves no database under the name, or a marker of half a one."""
    swap = Swap(str(tmp_path), "locations", WorkDirectory(str(tmp_path / "work")))
    for path, identity in ((swap.live, "old"), (swap.fresh, "new")):
        os.makedirs(path)
        Path(path, "IDENTITY").write_text(identity)
    events: list[str] = []
    fsync, rename, exchange_names = os.fsync, os.rename, index_swap._exchange_names

    def synced(descriptor: int) -> None:
        events.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        fsync(descriptor)

    def renamed(source: str, target: str) -> None:
        events.append(f"{os.path.relpath(source, tmp_path)} > {os.path.relpath(target, tmp_path)}")
        rename(source, target)

    def exchanged(one: str, other: str) -> bool:
        events.append("exchange")
        return can_exchange and exchange_names(one, other)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(index_swap, "_exchange_names", exchanged)
    announce(swap, "x", "", {})
    *proved, marker, work, current = events
    assert (proved, work, current) == (["work/database/IDENTITY", "work/database"], "work", ".")
    assert marker.startswith(f"work/{SWAP_MARKER}")
    events.clear()
    backup = exchange(swap)
    kept = ["work/database > locations.BACKUP-x", "work", "."]
    moved = ["locations > locations.BACKUP-x", ".", "work/database > locations", "work", "."]
    assert events == ["exchange", *(["work", ".", *kept] if can_exchange else moved)]
    assert (Path(str(backup), "IDENTITY").read_text(), Path(swap.live, "IDENTITY").read_text()) == (
        "old",
        "new",
    )


def test_files_of_ledgers_that_are_at_home_elsewhere_are_gone_for_good(
    tmp_path: Path, synced: dict[str, list[str]]
) -> None:
    """Back behind a power cut one would be the second file of its ledger, and refuse every start."""
    folder = tmp_path / "current" / "0" / "1"
    folder.mkdir(parents=True)
    for name in ("1.idx", "1.idx.rloc"):
        (folder / name).write_bytes(b"header and slots")
    work = WorkDirectory(str(tmp_path / "work"))
    swap = IdxSwap(str(tmp_path / "current"), work, str(tmp_path / "tree"), str(tmp_path / "backup"))
    swap.remove_files([1])
    assert synced[str(folder)] == os.listdir(folder) == []
