"""A repair that cannot begin leaves nothing, and its own error is the one that is told."""

from __future__ import annotations

import pytest

from bkctl.admin.repairs.repair_chain import last_repair
from bkctl.admin.repairs.repair_journal import (
    begin_repair,
    changes_database,
    changes_file,
    note_moves,
    state_before,
)
from bkctl.admin.repairs.repair_undo import settle_unfinished, undo
from bkctl.errors import NoSpaceError, StorageError
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.faulty import FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.manual_clock import ManualClock

CURRENT = "/bookie/current"
JOURNAL = "/journal/current"
FILES = {
    f"{CURRENT}/lastMark": b"0123456789abcdef",
    f"{CURRENT}/ledgers/CURRENT": b"MANIFEST-1",
    f"{CURRENT}/ledgers/MANIFEST-1": b"m" * 100,
    f"{JOURNAL}/lastMark": b"0123456789abcdef",
}
INTENTS = [
    changes_file(f"{CURRENT}/lastMark"),
    changes_database(f"{CURRENT}/ledgers"),
    changes_file(f"{JOURNAL}/lastMark"),
]


def names(files: MemoryFileSystem) -> list[str]:
    return [*files.names(CURRENT), *files.names(JOURNAL)]


def test_a_disk_that_is_full_in_front_of_any_byte_has_nothing_new() -> None:
    used = sum(map(len, FILES.values()))
    refusals = 0
    for more in range(0, 4000, 7):
        files = MemoryFileSystem(FILES, capacity_bytes=used + more)
        before = names(files)
        try:
            begin_repair(files, ManualClock(), [CURRENT, JOURNAL], "a repair", "", INTENTS)
        except NoSpaceError:
            refusals += 1
            assert files.files == FILES
            assert names(files) == before
        else:
            break
    assert refusals > 100


def test_records_of_other_repairs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFileSystem(FILES)
    begin_repair(files, ManualClock(), [CURRENT, JOURNAL], "a repair", "", INTENTS).finish()
    before = files.files
    files.capacity_bytes = sum(map(len, before.values()))
    with pytest.raises(NoSpaceError):
        begin_repair(files, ManualClock(), [CURRENT, JOURNAL], "a repair", "", INTENTS)
    assert files.files == before


def test_what_cannot_be_removed_does_not_hide_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFileSystem(FILES, capacity_bytes=sum(map(len, FILES.values())))

    def refuse(path: str) -> None:
        raise NoSpaceError("another one", path=path)

    monkeypatch.setattr(files, "remove_directory", refuse)
    with pytest.raises(NoSpaceError, match=r"repair\.json"):
        begin_repair(files, ManualClock(), [CURRENT], "a repair", "", INTENTS[:1])


def test_a_repair_that_is_noted_when_it_is_done_leaves_no_empty_folder() -> None:
    files = MemoryFileSystem(FILES, capacity_bytes=sum(map(len, FILES.values())))
    before = state_before(files, [CURRENT])
    with pytest.raises(NoSpaceError):
        note_moves(
            files, ManualClock(), before, [CURRENT], "a repair", INTENTS[:1], {f"{CURRENT}/lastMark": b"old"}
        )
    assert files.files == FILES
    assert "bkctl-repairs" not in files.names(CURRENT)


def test_a_record_that_a_kill_has_left_unsynced_is_durable_before_the_next_repair() -> None:
    """Else a power cut makes the first repair one that was cut off, and taking it back takes the second."""

    def set_mark(system: WritableFileSystem, content: bytes) -> None:
        settle_unfinished(system, [CURRENT])
        repair = begin_repair(system, ManualClock(), [CURRENT], "a repair", "", INTENTS[:1])
        system.replace(f"{CURRENT}/lastMark", content)
        repair.finish()

    whole = FaultyFileSystem(MemoryFileSystem(FILES))
    set_mark(whole, b"the first")
    for step in range(whole.points):
        files = MemoryFileSystem(FILES)
        with pytest.raises(StorageError):
            set_mark(FaultyFileSystem(files, crash_after=step), b"the first")
        set_mark(files, b"the second")
        left = files.crash()
        settle_unfinished(left, [CURRENT])
        assert left.files[f"{CURRENT}/lastMark"] == b"the second", step


def test_a_repair_that_was_cut_off_is_not_taken_back_behind_one_that_was_finished_since() -> None:
    """It began, and was killed, when the other one had looked for such ones and had no lock yet."""
    files = MemoryFileSystem(FILES)
    begin_repair(files, ManualClock(), [CURRENT], "a repair", "", INTENTS[:1])
    files.replace(f"{CURRENT}/lastMark", b"the first")
    later = begin_repair(files, ManualClock(), [CURRENT, JOURNAL], "a repair", "", INTENTS[:1])
    files.replace(f"{CURRENT}/lastMark", b"the second")
    later.finish()
    settle_unfinished(files, [CURRENT])
    assert files.files[f"{CURRENT}/lastMark"] == b"the second"
    undo(files, last_repair(files, [CURRENT]))
    settle_unfinished(files, [CURRENT])
    assert files.files == FILES
