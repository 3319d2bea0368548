"""What a path holds, and which last mark counts."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec.last_mark import ZERO_MARK, LastMark
from bkctl.errors import NotFoundError, StorageError, UsageError
from bkctl.scan import directory as directory_module
from bkctl.scan.directory import (
    FOLDER_DEPTH_MAX,
    find_directories,
    inspect_directory,
    last_mark_of,
)
from bkctl.vfs.base import FileStatus
from bkctl.vfs.memory import MemoryFileSystem

COOKIE = b'5\nbookieHost: "b:1"\njournalDir: "/b/j"\nledgerDirs: "1\\t/else/l"\n'


def mark(journal: int, offset: int) -> bytes:
    return struct.pack(">qq", journal, offset)


def found(system: MemoryFileSystem, path: str) -> list[str]:
    return [directory.path for directory in find_directories(system, path)]


def marked(files: dict[str, bytes], path: str = "/b/j/current") -> LastMark | None:
    system = MemoryFileSystem({"/b/j/current/5.txn": b"", **files})
    return last_mark_of(system, inspect_directory(system, path))


def test_what_a_directory_holds() -> None:
    system = MemoryFileSystem(
        {
            "/b/current/a.log": b"xx",
            "/b/current/9.log": b"",
            "/b/current/b.log.compacting": b"",
            "/b/current/c.log.9.compacted": b"",
            "/b/current/00a.log": b"",
            "/b/current/A.log": b"",
            "/b/current/x.log": b"",
            "/b/current/1f.txn": b"",
            "/b/current/foo.txn": b"",
            "/b/current/lastMark": b"",
            "/b/current/lastMark.1": b"",
            "/b/current/lastMark.x": b"",
            "/b/current/VERSION": b"",
            "/b/current/DIRTY": b"",
            "/b/current/locations/CURRENT": b"",
            "/b/current/ledgers/nothing": b"",
            "/b/current/0/5/5.idx": b"",
        }
    )
    here = inspect_directory(system, "/b/current")
    assert [(log.log_id, log.compaction) for log in here.logs] == [
        (9, False),
        (10, False),
        (11, True),
        (12, True),
    ]
    assert here.logs[1].size_bytes == 2
    assert here.logs[1].directory == "/b/current"
    assert [journal.journal_id for journal in here.journals] == [0x1F]
    assert here.last_marks == ("lastMark", "lastMark.1")
    assert set(here.indexes) == {"locations", "idx"}
    assert here.has_cookie
    assert here.dirty
    assert not here.is_empty


@pytest.mark.parametrize("path", ["/top/b/l1/current", "/top/b/l1", "/top/b/l1/"])
def test_a_directory_and_its_current(path: str) -> None:
    system = MemoryFileSystem({"/top/b/l1/current/0.log": b"", "/top/b/l2/current/0.log": b""})
    assert [place.rstrip("/") for place in found(system, path)] == ["/top/b/l1/current"]


def test_a_folder_of_several() -> None:
    system = MemoryFileSystem(
        {
            "/top/b/j/current/1.txn": b"",
            "/top/b/l1/current/0.log": b"",
            "/top/b/l2/current/VERSION": b"",
            "/top/b/.hidden/current/0.log": b"",
            "/top/b/empty/current/readme": b"",
            "/top/other/readme": b"",
        }
    )
    expected = ["/top/b/j/current", "/top/b/l1/current", "/top/b/l2/current"]
    assert found(system, "/top") == expected
    assert found(system, "/top/b") == expected


@pytest.mark.parametrize(
    ("depth", "seen"), [(0, True), (FOLDER_DEPTH_MAX, True), (FOLDER_DEPTH_MAX + 1, False)]
)
def test_how_deep_it_looks(depth: int, seen: bool) -> None:
    below = "/top" + "".join(f"/d{level}" for level in range(depth))
    system = MemoryFileSystem({f"{below}/current/0.log": b""})
    if seen:
        assert found(system, "/top") == [f"{below}/current"]
    else:
        with pytest.raises(UsageError, match="/top"):
            find_directories(system, "/top")


def test_a_wide_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "FOLDERS_MAX", 20)
    system = MemoryFileSystem({f"/top/{number}/x/file": b"" for number in range(30)})
    with pytest.raises(UsageError, match="more than 20 folders"):
        find_directories(system, "/top")


def test_errors_of_paths() -> None:
    system = MemoryFileSystem({"/top/file": b"", "/b/locations/CURRENT": b""})
    with pytest.raises(NotFoundError):
        find_directories(system, "/nowhere")
    with pytest.raises(UsageError):
        find_directories(system, "/top/file")
    with pytest.raises(UsageError):
        find_directories(system, "/top")


def test_no_mark_anywhere() -> None:
    assert marked({}) is None


def test_the_highest_of_several_ledger_directories_counts() -> None:
    assert marked(
        {
            "/b/l1/current/lastMark": mark(5, 512),
            "/b/l2/current/lastMark": mark(5, 2048),
            "/b/l3/current/lastMark": mark(4, 9999),
        }
    ) == LastMark(5, 2048)


def test_marks_that_are_cut_do_not_count() -> None:
    assert marked(
        {"/b/l1/current/lastMark": mark(7, 0)[:15], "/b/l2/current/lastMark": mark(5, 8)}
    ) == LastMark(5, 8)
    assert marked({"/b/l1/current/lastMark": b""}) == ZERO_MARK


def test_without_any_mark_a_bookie_replays_from_the_beginning() -> None:
    """A hole that it takes for an unsynced tail is no damage; without a ledger directory nothing is known."""
    assert marked({"/b/j/current/6.txn": b"", "/b/l1/current/0.log": b""}) == ZERO_MARK
    assert marked({"/b/j/current/6.txn": b""}) is None


class Vanishing(MemoryFileSystem):
    """A directory that was there when it was listed, and is gone when it is looked into."""

    gone = "/top/b/work"

    def names(self, path: str) -> list[str]:
        if path.startswith(self.gone):
            raise NotFoundError(f"{path}: no such file or directory")
        return super().names(path)


def test_a_folder_that_vanishes_is_left_out_and_noted() -> None:
    system = Vanishing({"/top/b/l1/current/0.log": b"", "/top/b/work/current/0.log": b""})
    vanished: list[str] = []
    places = [place.path for place in find_directories(system, "/top", vanished)]
    assert (places, vanished) == (["/top/b/l1/current"], ["/top/b/work"])
    with pytest.raises(NotFoundError):
        find_directories(system, "/top/b/work")


class Closed(MemoryFileSystem):
    """Whoever asks may not enter the databases."""

    def status(self, path: str) -> FileStatus | None:
        if "/locations/" in path:
            raise StorageError(f"{path}: Permission denied", path=path)
        return super().status(path)


def test_a_database_that_may_not_be_entered_counts_as_one() -> None:
    system = Closed({"/b/l1/current/0.log": b"", "/b/l1/current/locations/CURRENT": b""})
    assert inspect_directory(system, "/b/l1/current").indexes == ("locations",)


def test_marks_of_several_journal_directories() -> None:
    files = {
        "/b/j/current/6.txn": b"",
        "/b/j2/current/70.txn": b"",
        "/b/l1/current/lastMark.0": mark(6, 100),
        "/b/l1/current/lastMark.1": mark(0x70, 200),
        "/b/l2/current/lastMark.0": mark(5, 300),
    }
    assert marked(files) == LastMark(6, 100)
    assert marked(files, "/b/j2/current") == LastMark(0x70, 200)


def test_an_index_without_its_journal_leaves_the_plain_mark() -> None:
    assert marked(
        {"/b/l1/current/lastMark.1": mark(99, 100), "/b/l1/current/lastMark": mark(4, 7)}
    ) == LastMark(4, 7)


def test_a_neighbour_with_another_cookie_is_another_bookie() -> None:
    files = {
        "/b/j/current/VERSION": COOKIE,
        "/b/l1/current/VERSION": COOKIE.replace(b"b:1", b"b:2"),
        "/b/l1/current/lastMark": mark(5, 9000),
        "/b/l2/current/VERSION": COOKIE,
        "/b/l2/current/lastMark": mark(5, 100),
    }
    assert marked(files) == LastMark(5, 100)
    del files["/b/l2/current/lastMark"]
    assert marked(files) is None


def test_the_cookie_says_where_ledger_directories_are() -> None:
    files = {
        "/b/j/current/VERSION": COOKIE,
        "/else/l/current/VERSION": COOKIE,
        "/else/l/current/lastMark": mark(5, 77),
    }
    assert marked(files) == LastMark(5, 77)
    del files["/b/j/current/VERSION"]
    assert marked(files) is None


def test_a_cookie_that_does_not_decode_says_nothing() -> None:
    assert marked({"/b/j/current/VERSION": b"???", "/b/l1/current/lastMark": mark(5, 1)}) == LastMark(5, 1)


def test_a_mark_beside_the_journals() -> None:
    assert marked({"/b/j/current/lastMark": mark(5, 3)}) == LastMark(5, 3)


@pytest.mark.parametrize(
    ("names", "has_folders"),
    [
        (["0/5/"], True),
        (["0/5/5.idx"], True),
        (["0/"], False),
        (["0/x/"], False),
        (["0/5/", "locations/CURRENT"], False),
        (["0/5/", "ledgers.PREV-2026/CURRENT"], False),
    ],
)
def test_folders_of_idx_files_are_told_where_databases_left_no_trace(
    names: list[str], has_folders: bool
) -> None:
    """They stay when the last ledger is deleted, and when Java has converted the files to databases."""
    system = MemoryFileSystem({f"/b/current/{name}": b"" for name in names if not name.endswith("/")})
    for name in names:
        if name.endswith("/"):
            system.make_directories(f"/b/current/{name.rstrip('/')}")
    assert inspect_directory(system, "/b/current").has_idx_folders == has_folders
