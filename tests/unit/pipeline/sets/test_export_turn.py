"""Exports take turns at a folder: another one is refused, a killed one is forgotten, a stalled one stops."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.errors import RefusedError, StorageError
from bkctl.pipeline.locations import Location, located
from bkctl.pipeline.sets.export_turn import TURN_FOLDER, ExportTurn
from bkctl.pipeline.turn import RENEWAL_S, STALE_S
from tests.support.manual_clock import ManualClock
from tests.support.s3_server import s3_bucket
from tests.support.waiting import until


def notes(folder: Path) -> list[Path]:
    return sorted((folder / TURN_FOLDER).glob("*"))


def turn_at(folder: Path, renewal_s: float = RENEWAL_S) -> ExportTurn:
    return ExportTurn(located(str(folder)), SystemClock(), renewal_s)


def goes_on(turn: ExportTurn) -> bool:
    try:
        turn.check()
    except StorageError:
        return False
    return True


def test_a_second_export_is_refused_and_leaves_the_first_ones_note(tmp_path: Path) -> None:
    with turn_at(tmp_path) as first:
        (note,) = notes(tmp_path)
        with (
            pytest.raises(RefusedError, match=f"of process {os.getpid()} on .*{note.name}"),
            turn_at(tmp_path),
        ):
            pass
        assert notes(tmp_path) == [note]
        first.check()
    assert notes(tmp_path) == []
    with turn_at(tmp_path):
        assert len(notes(tmp_path)) == 1


def test_a_note_that_says_nothing_counts_as_well(tmp_path: Path) -> None:
    (tmp_path / TURN_FOLDER).mkdir()
    (tmp_path / TURN_FOLDER / "torn.json").write_bytes(b'{"host"')
    with (
        pytest.raises(RefusedError, match=r"an export writes to these tables.*torn\.json"),
        turn_at(tmp_path),
    ):
        pass


def test_a_killed_export_is_forgotten_after_three_minutes(tmp_path: Path) -> None:
    (tmp_path / TURN_FOLDER).mkdir()
    old = tmp_path / TURN_FOLDER / "old.json"
    old.write_text(json.dumps({"host": "a", "pid": 1, "started_ms": 1}))
    for age_s, refused in ((STALE_S - 20, True), (STALE_S + 20, False)):
        at = time.time() - age_s
        os.utime(old, (at, at))
        if refused:
            with pytest.raises(RefusedError, match="of process 1 on 'a'"), turn_at(tmp_path):
                pass
            assert notes(tmp_path) == [old]
        else:
            with turn_at(tmp_path):
                assert old not in notes(tmp_path)


def test_the_note_is_written_again_and_again(tmp_path: Path) -> None:
    with turn_at(tmp_path, renewal_s=0.01):
        (note,) = notes(tmp_path)
        before = note.stat().st_mtime_ns
        until(lambda: note.stat().st_mtime_ns > before)


def test_an_export_whose_note_grows_old_writes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    with ExportTurn(located(str(tmp_path)), clock, renewal_s=0.01) as turn:

        def full(location: Location, name: str, content: bytes) -> None:
            raise StorageError("the disk is full")

        monkeypatch.setattr(Location, "write", full)
        clock.advance(STALE_S / 2 + 1)
        with pytest.raises(StorageError, match="could not be renewed for 91 s"):
            turn.check()
        monkeypatch.undo()
        (note,) = notes(tmp_path)
        before = note.stat().st_mtime_ns
        # The note is written a moment before the turn knows it.
        until(lambda: goes_on(turn))
        assert note.stat().st_mtime_ns > before


@pytest.mark.parametrize("removed", [False, True], ids=["stopped", "suspended"])
def test_an_export_that_stood_still_does_not_go_on_beside_the_next_one(tmp_path: Path, removed: bool) -> None:
    """It writes its note again when it wakes up, but another one has begun. A machine that is suspended has a
    clock that stood still as well; the other one has taken the old note away."""
    clock = ManualClock()
    with ExportTurn(located(str(tmp_path)), clock, renewal_s=0.01) as turn:
        turn.check()

        def is_over() -> bool:
            if removed:  # once more where the note was just being written
                for note in notes(tmp_path):
                    note.unlink(missing_ok=True)
            return not turn.is_held

        if not removed:
            clock.advance(STALE_S + 1)
        until(is_over)
        time.sleep(0.1)
        with pytest.raises(StorageError, match="another export may have begun; run the export again"):
            turn.check()


def test_turns_are_taken_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_bucket("audits", monkeypatch) as parameters:
        place = located(f"s3://audits/tables?{parameters}")
        with (
            ExportTurn(place, SystemClock()),
            pytest.raises(RefusedError, match="of process"),
            ExportTurn(place, SystemClock()),
        ):
            pass
        with ExportTurn(place, SystemClock()):
            pass
        assert place.child(TURN_FOLDER).written_at() == {}
