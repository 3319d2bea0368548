"""``repair undo`` stopped at every step: no bookie starts in between, and it goes on from there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bkctl.admin.journals.mark_change import plan_mark, set_mark
from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
from bkctl.admin.repairs.repair_chain import last_repair
from bkctl.admin.repairs.repair_journal import (
    begin_repair,
    changes_database,
    changes_file,
    makes_directory,
    moves_file,
    replaces_index_folder,
)
from bkctl.admin.repairs.repair_records import find_repairs
from bkctl.admin.repairs.repair_undo import undo
from bkctl.codec.last_mark import LastMark
from bkctl.errors import BkctlError
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.faulty import FaultyFileSystem, FileOperation
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.bookie_in_memory import ROOT, BookieInMemory
from tests.support.grades import steps
from tests.support.manual_clock import ManualClock
from tests.support.truthful_bookie import TruthfulBookie

STEPS_MAX = 400
DIRECTORIES = [f"{ROOT}/{name}/current" for name in ("l0", "l1", "j")]


def test_a_stop_at_any_step_is_gone_on_from(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", "db", 2)
    whole = BookieInMemory.copy_of(made.root)
    before, repaired = whole.content, whole.again()
    newest = made.journals()[-1]
    found = find_stopped_bookie(repaired.files, [ROOT])
    mark = LastMark(int(newest.stem, 16), newest.stat().st_size)
    plan = plan_mark(repaired.files, found, mark, repaired.databases)
    set_mark(repaired.files, found, plan, repaired.databases, ManualClock())
    for step in steps(STEPS_MAX):
        stopped = repaired.again(crash_after=step)
        try:
            undo(stopped.files, last_repair(stopped.files, DIRECTORIES))
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        names = left.disk.files
        has_cookies = all(f"{path}/VERSION" in names for path in DIRECTORIES)
        if has_cookies:
            without_kept = {path: data for path, data in left.content.items() if "/bkctl-" not in path}
            after = {path: data for path, data in repaired.content.items() if "/bkctl-" not in path}
            assert without_kept in (before, after)
        if find_repairs(left.files, DIRECTORIES):
            undo(left.files, last_repair(left.files, DIRECTORIES))
        assert left.content == before
        if not stopped.files.crashed:
            break
    else:
        pytest.fail("it never ends")
    assert step > 20


HOME, JOURNAL = "/b/current", "/j/current"
ASIDE = f"{HOME}/bkctl-quarantine"
FILES = {
    f"{HOME}/VERSION": b"cookie",
    f"{HOME}/1.log": b"records" * 100,
    f"{HOME}/lastId": b"1",
    f"{HOME}/lastMark": b"0123456789abcdef",
    f"{HOME}/ledgers/CURRENT": b"MANIFEST-1",
    f"{HOME}/ledgers/MANIFEST-1": b"m" * 100,
    f"{JOURNAL}/VERSION": b"cookie",
    f"{JOURNAL}/lastMark": b"0123456789abcdef",
}


def repaired() -> MemoryFileSystem:
    """Return files behind a repair with a change of each kind that is of files alone."""
    fs = MemoryFileSystem(FILES)
    intents = [
        changes_file(f"{HOME}/lastMark"),
        changes_database(f"{HOME}/ledgers"),
        changes_file(f"{JOURNAL}/lastMark"),
        makes_directory(ASIDE),
        moves_file(f"{HOME}/1.log", f"{ASIDE}/1.log"),
        changes_file(f"{HOME}/lastId"),
    ]
    repair = begin_repair(fs, ManualClock(), [HOME, JOURNAL], "a repair", "", intents)
    for path in (f"{HOME}/lastMark", f"{HOME}/ledgers/CURRENT", f"{JOURNAL}/lastMark"):
        fs.replace(path, b"another content")
    fs.make_directories(ASIDE)
    fs.link(f"{HOME}/1.log", f"{ASIDE}/1.log")
    fs.sync_directory(ASIDE)
    fs.remove(f"{HOME}/1.log")
    fs.sync_directory(HOME)
    repair.finish()
    return fs.crash()


def undone(fs: WritableFileSystem, crash_after: int | None = None) -> bool:
    """Undo the repair, if there is one; return whether that was stopped."""
    faulty = FaultyFileSystem(fs, crash_after=crash_after)
    try:
        if find_repairs(faulty, [HOME, JOURNAL]):
            undo(faulty, last_repair(faulty, [HOME, JOURNAL]))
    except BkctlError:
        assert faulty.crashed
    return faulty.crashed


def test_what_a_kill_left_unsynced_is_synced_before_anything_relies_on_it() -> None:
    """Behind the kill the names are as they were, and the power cut comes in the undo that goes on."""
    for killed in range(STEPS_MAX):
        for step in range(killed % 9, STEPS_MAX, 9):
            fs = repaired()
            was_killed = undone(fs, killed)
            was_cut = undone(fs, step)
            left = fs.crash()
            undone(left)
            assert left.files == FILES, (killed, step)
            if not was_cut:
                break
        if not was_killed:
            break
    assert killed > 40


def test_what_is_kept_goes_before_the_record_that_says_where_it_is() -> None:
    """Without a record nobody finds it, and it takes room for good."""
    for step in range(STEPS_MAX):
        for seed in range(4):
            fs = repaired()
            is_cut = undone(fs, step)
            left = fs.crash(random.Random(f"{step} {seed}"))
            undone(left)
            assert left.files == FILES, (step, seed)
        if not is_cut:
            break
    assert step > 40


class NotedFileSystem(FaultyFileSystem):
    """A file system that notes renames and syncs of directories."""

    def __init__(self, noted: list[tuple[str, ...]], crash_after: int | None = None) -> None:
        super().__init__(PosixFileSystem(), crash_after=crash_after)
        self._noted = noted

    def enter(
        self, operation: FileOperation, *paths: str, doing: str = "", offset: int | None = None
    ) -> None:
        super().enter(operation, *paths, doing=doing, offset=offset)
        self._noted.append((operation, *paths))


@pytest.mark.parametrize("is_index", [False, True])
def test_a_folder_that_a_kill_has_left_moved_back_is_synced(tmp_path: Path, is_index: bool) -> None:
    for killed in range(STEPS_MAX):
        current = tmp_path / str(killed) / "current"
        folder, kept = current / "1", current / "old" / "1"
        for made in (folder, kept) if is_index else (folder,):
            made.mkdir(parents=True)
            (made / "file").write_bytes(b"old")
        (current / "VERSION").write_bytes(b"cookie")
        intent = (replaces_index_folder if is_index else moves_file)(str(folder), str(kept))
        repair = begin_repair(PosixFileSystem(), ManualClock(), [str(current)], "a repair", "", [intent])
        if is_index:
            (folder / "file").write_bytes(b"the new one")
        else:
            kept.parent.mkdir()
            folder.rename(kept)
        repair.finish()
        noted: list[tuple[str, ...]] = []
        was_killed = False
        for crash_after in (killed, None):
            fs = NotedFileSystem(noted, crash_after)
            try:
                if find_repairs(fs, [str(current)]):
                    undo(fs, last_repair(fs, [str(current)]))
            except BkctlError:
                assert fs.crashed
            was_killed |= fs.crashed
        assert (folder / "file").read_bytes() == b"old"
        moved = next(at for at, each in enumerate(noted) if each[:2] == ("rename", str(kept)))
        forgotten = next(
            at for at, each in enumerate(noted) if "remove" in each and each[1].endswith(".json")
        )
        for parent in (current, kept.parent):
            assert ("sync_directory", str(parent)) in noted[moved:forgotten], killed
        if not was_killed:
            break
    assert killed > 10
