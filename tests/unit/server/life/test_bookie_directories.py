from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bkctl.codec.cookie import decode_cookie, encode_cookie
from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.directories.cookie_rules import CookieDecision, cookie_of, decide
from bkctl.directories.holders import DirectoryLock
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError
from bkctl.metadata.api import AlreadyExistsError, CookieStore, VersionConflictError, Versioned
from bkctl.server.life import own_directories as place
from bkctl.storage_kinds import IDX
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.memory import MemoryFileSystem

SETTINGS = DirectorySettings(
    journals=("/j",), ledgers=("/a", "/b"), indexes=(), allow_expansion=False, allow_same_partition=True
)
WANTED = cookie_of("h:1", SETTINGS, "uuid")
ALL = ("/j", "/a", "/b")


class Cookies:
    """A cookie store in a dictionary; fails when told to."""

    def __init__(self) -> None:
        self.stored: dict[str, Versioned] = {}
        self.calls: list[str] = []

    def read_cookie(self, bookie: str) -> Versioned | None:
        return self.stored.get(bookie)

    def create_cookie(self, bookie: str, data: bytes) -> None:
        self.calls.append("create")
        if bookie in self.stored:
            raise AlreadyExistsError(bookie)
        self.stored[bookie] = Versioned(data, 0)

    def update_cookie(self, bookie: str, data: bytes, version: int) -> int:
        self.calls.append("update")
        if self.stored[bookie].version != version:
            raise VersionConflictError(bookie)
        self.stored[bookie] = Versioned(data, version + 1)
        return version + 1

    def delete_cookie(self, bookie: str, version: int) -> None:
        raise AssertionError

    def cookie_bookies(self) -> list[str]:
        raise AssertionError

    def cookies(self) -> dict[str, Versioned]:
        raise AssertionError


def start(filesystem: MemoryFileSystem, cookies: CookieStore) -> CookieDecision:
    """What a bookie does before its storage."""
    facts = place.examine(filesystem, SETTINGS)
    stored = place.read_stored(cookies, ["1.2.3.4:1", "h:1", "h:1"])
    decision = decide(WANTED, facts, stored, allow_expansion=False)
    place.make_current(filesystem, SETTINGS)
    place.stamp(filesystem, cookies, decision)
    return decision


def test_a_first_start_stamps_every_directory_durably_and_then_the_store() -> None:
    filesystem, cookies = MemoryFileSystem(), Cookies()
    assert start(filesystem, cookies).is_new_bookie
    left = filesystem.crash().files
    content = encode_cookie(WANTED)
    assert left == {f"{directory}/current/VERSION": content for directory in ALL}
    assert cookies.stored == {"h:1": Versioned(content, 0)}
    assert start(filesystem, cookies) == CookieDecision(WANTED)
    assert cookies.calls == ["create"]


def test_examining_writes_nothing() -> None:
    filesystem = MemoryFileSystem()
    facts = place.examine(filesystem, SETTINGS)
    assert [one.path for one in facts] == list(ALL)
    assert all(one.is_empty and one.cookie is None and not one.holds_data for one in facts)
    assert filesystem.status("/j") is None


@pytest.mark.parametrize("stamped", range(4))
def test_a_start_that_stopped_while_stamping_goes_on(stamped: int) -> None:
    filesystem, cookies = MemoryFileSystem(), Cookies()
    place.make_current(filesystem, SETTINGS)
    for directory in ALL[:stamped]:
        filesystem.replace(f"{directory}/current/VERSION", encode_cookie(WANTED))
    start(filesystem, cookies)
    assert list(filesystem.files.values()) == [encode_cookie(WANTED)] * 3
    assert decode_cookie(cookies.stored["h:1"].data) == WANTED


def test_a_half_made_cookie_does_not_make_a_directory_full() -> None:
    filesystem = MemoryFileSystem({"/a/current/VERSION.0123abcdef01.tmp": b"5\nbook"})
    assert start(filesystem, Cookies()).is_new_bookie


def test_a_cookie_that_changed_meanwhile_is_refused() -> None:
    filesystem, cookies = MemoryFileSystem(), Cookies()
    place.make_current(filesystem, SETTINGS)
    cookies.stored["h:1"] = Versioned(b"", 2)
    for version in (None, 1):
        with pytest.raises(RefusedError, match="another process has changed the cookie of bookie h:1"):
            place.stamp(filesystem, cookies, CookieDecision(WANTED, (), True, version))


@pytest.mark.parametrize("name", ["VERSION", "1a.txn", "0.log", "5.idx"])
def test_a_layout_older_than_3_is_refused_and_left_alone(name: str) -> None:
    filesystem = MemoryFileSystem({f"/a/{name}": b""})
    for attempt in (place.examine, place.make_current):
        with pytest.raises(RefusedError, match=rf"^/a: holds {name} directly"):
            attempt(filesystem, SETTINGS)
    assert filesystem.status("/a/current") is None


def test_other_files_beside_current_do_not_matter() -> None:
    filesystem = MemoryFileSystem({"/a/lost+found/x": b"", "/b/current/0.log": b"", "/b/VERSION": b"2"})
    facts = place.examine(filesystem, SETTINGS)
    assert [(one.is_empty, one.holds_data) for one in facts] == [(True, False), (True, False), (False, True)]


def test_a_file_named_current_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"/a/current: is a file"):
        place.examine(MemoryFileSystem({"/a/current": b""}), SETTINGS)


def test_an_index_of_another_storage_is_refused() -> None:
    filesystem = MemoryFileSystem({"/a/current/0/5/5.idx": b"x", "/a/current/0.log": b"x"})
    with pytest.raises(RefusedError, match="SortedLedgerStorage"):
        place.examine(filesystem, SETTINGS)
    assert any(facts.holds_data for facts in place.examine(filesystem, SETTINGS, IDX))


def test_a_damaged_cookie_is_damage_and_names_its_file() -> None:
    with pytest.raises(CorruptionError, match=r"/a/current/VERSION"):
        place.examine(MemoryFileSystem({"/a/current/VERSION": b"five\n"}), SETTINGS)
    cookies = Cookies()
    cookies.stored["h:1"] = Versioned(b"x", 0)
    with pytest.raises(CorruptionError, match="cookie of bookie h:1"):
        place.read_stored(cookies, ["h:1"])


def test_two_directories_of_one_kind_on_one_file_system() -> None:
    filesystem = MemoryFileSystem()
    place.make_current(filesystem, SETTINGS)
    place.refuse_shared_partitions(filesystem, SETTINGS)
    apart = DirectorySettings(("/j",), ("/a", "/b"), (), False, allow_same_partition=False)
    with pytest.raises(RefusedError, match="ledgerDirectories: /a and /b are on the same file system"):
        place.refuse_shared_partitions(filesystem, apart)
    one_each = DirectorySettings(("/j",), ("/a",), (), False, allow_same_partition=False)
    place.refuse_shared_partitions(filesystem, one_each)


def test_every_directory_is_listed_once() -> None:
    shared = DirectorySettings(("/a", "/j"), ("/a", "/b"), ("/a", "/i"), False, True)
    assert place.every_directory(shared) == ["/a", "/j", "/b", "/i"]


# --- DIRTY --------------------------------------------------------------------------------------------------


def test_the_mark_of_a_running_bookie_is_durable_and_goes() -> None:
    filesystem = MemoryFileSystem()
    place.make_current(filesystem, SETTINGS)
    assert not place.was_unclean(filesystem, SETTINGS.ledgers)
    place.mark_dirty(filesystem, SETTINGS.ledgers)
    place.mark_dirty(filesystem, SETTINGS.ledgers)
    after_cut = filesystem.crash()
    assert after_cut.files == {"/a/current/DIRTY": b"", "/b/current/DIRTY": b""}
    assert place.was_unclean(after_cut, SETTINGS.ledgers)
    place.clear_dirty(filesystem, SETTINGS.ledgers)
    place.clear_dirty(filesystem, SETTINGS.ledgers)
    assert not filesystem.crash().files


def test_a_failure_to_mark_is_not_hidden() -> None:
    with pytest.raises(StorageError):
        place.mark_dirty(MemoryFileSystem(), ["/nowhere"])


# --- locks --------------------------------------------------------------------------------------------------


@pytest.fixture
def bookie(tmp_path: Path) -> list[str]:
    names = [str(tmp_path / name) for name in ("journal", "ledgers")]
    place.make_current(
        PosixFileSystem(), DirectorySettings((names[0],), (names[1],), (), False, allow_same_partition=True)
    )
    return names


def test_a_running_bookie_keeps_other_bookies_and_writing_commands_out(bookie: list[str]) -> None:
    with place.DirectoryLocks(bookie):
        with pytest.raises(RefusedError, match=r"in use by .*bkctl lock"), place.DirectoryLocks(bookie[1:]):
            pass
        with pytest.raises(RefusedError, match="bkctl lock"), DirectoryLock(f"{bookie[1]}/current"):
            pass
    with place.DirectoryLocks(bookie), pytest.raises(RefusedError):
        place.DirectoryLocks(bookie).__enter__()
    with DirectoryLock(f"{bookie[1]}/current"):
        pass


def test_a_bookie_does_not_start_under_a_writing_command_and_leaves_no_lock(bookie: list[str]) -> None:
    with DirectoryLock(f"{bookie[1]}/current"):
        with pytest.raises(RefusedError), place.DirectoryLocks(bookie):
            pass
        with place.DirectoryLocks(bookie[:1]):
            pass


def test_locks_leave_nothing_on_disk(bookie: list[str]) -> None:
    with place.DirectoryLocks(bookie):
        assert os.listdir(f"{bookie[0]}/current") == []
    assert os.listdir(f"{bookie[0]}/current") == []


def test_one_directory_under_two_names_is_locked_once(bookie: list[str], tmp_path: Path) -> None:
    other = tmp_path / "other-name"
    other.symlink_to(bookie[0])
    with place.DirectoryLocks([*bookie, bookie[0], str(other)]):
        pass


def test_a_missing_directory_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError), place.DirectoryLocks([str(tmp_path)]):
        pass


def test_a_process_with_open_files_is_seen(bookie: list[str]) -> None:
    """A Java bookie takes no lock on the directory; its open journal shows it."""
    journal = Path(bookie[0]) / "current" / "1a.txn"
    journal.touch()
    program = f"f = open({str(journal)!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with (
            pytest.raises(RefusedError, match=rf"pid {holder.pid}\).*open file"),
            place.DirectoryLocks(bookie),
        ):
            pass
        holder.communicate("\n", timeout=20)
    with place.DirectoryLocks(bookie):
        pass
