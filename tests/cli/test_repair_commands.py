"""``bkctl repair``: the last repair is undone byte for byte, or refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.repair_record import RepairState
from bkctl.directories.holders import DirectoryLock
from bkctl.errors import RefusedError
from bkctl.scan.directory import REPAIRS_NAME
from tests.support.truthful_bookie import TruthfulBookie, started

Run = Callable[..., Any]
COUNT = 2
BACK = ("--journal", "0", "--offset", "0", "--yes")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", "db", COUNT)


@pytest.fixture
def bookie(made: TruthfulBookie, tmp_path: Path) -> TruthfulBookie:
    return made.copy(tmp_path / "bookie")


def content(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def rows(done: Any) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def forwards(run_cli: Run, bookie: TruthfulBookie) -> Any:
    return run_cli("lastmark", "set", bookie.root, *forwards_words(bookie))


def forwards_words(bookie: TruthfulBookie) -> tuple[str, ...]:
    newest = bookie.journals()[-1]
    place = ("--journal", hex(int(newest.stem, 16)), "--offset", str(newest.stat().st_size))
    return (*place, "--accept-loss", "--yes")


def undo(run_cli: Run, bookie: TruthfulBookie, *words: str) -> Any:
    return run_cli("repair", "undo", bookie.root, "-o", "json", *words)


def test_marks_and_rows_in_limbo_are_undone_byte_for_byte(run_cli: Run, bookie: TruthfulBookie) -> None:
    before = content(bookie.root)
    assert forwards(run_cli, bookie).exit_code == 1
    repaired = content(bookie.root)
    assert repaired != before
    planned = rows(undo(run_cli, bookie, "--dry-run"))
    assert content(bookie.root) == repaired
    assert undo(run_cli, bookie).exit_code == 4
    assert rows(undo(run_cli, bookie, "--yes")) == planned
    assert {row["action"] for row in planned} == {"restored"}
    assert len(planned) == 2 * COUNT
    assert content(bookie.root) == before
    assert undo(run_cli, bookie, "--yes").exit_code == 6


def test_a_copy_of_journals_is_undone(run_cli: Run, bookie: TruthfulBookie) -> None:
    before = content(bookie.root)
    out = bookie.root / "fresh"
    assert run_cli("journal", "salvage", bookie.root, "--out", out, "--yes").exit_code == 0
    assert (out / "current" / "VERSION").exists()
    assert undo(run_cli, bookie, "--yes").exit_code == 0
    assert content(bookie.root) == before


def test_of_several_repairs_the_last_one_goes_first(run_cli: Run, bookie: TruthfulBookie) -> None:
    states = [content(bookie.root)]
    assert forwards(run_cli, bookie).exit_code == 1
    states.append(content(bookie.root))
    assert run_cli("lastmark", "set", bookie.root, *BACK).exit_code == 0
    listed = rows(run_cli("repair", "log", bookie.root, "-o", "json"))
    assert [row["made_by"] for row in listed] == ["lastmark set"] * 2
    assert [row["why_not"] is None for row in listed] == [False, True]
    for state in reversed(states):
        assert undo(run_cli, bookie, "--yes").exit_code == 0
        assert content(bookie.root) == state


def test_a_chain_of_all_repairs_is_undone_from_its_end(run_cli: Run, bookie: TruthfulBookie) -> None:
    first = bookie.logs()[0]
    data = bytearray(first.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 60] = b"\xee" * 60
    first.write_bytes(data)
    quarantine = ("entrylog", "quarantine", first.name, first.parent, "--yes")
    repairs: list[tuple[tuple[object, ...], int]] = [
        (("lastmark", "set", bookie.root, *BACK), 0),
        (quarantine, 0),
        ((*quarantine, "--release"), 0),
        (("entrylog", "salvage", first, "--yes"), 1),
        (("lastmark", "set", bookie.root, *forwards_words(bookie)), 1),
        (("journal", "salvage", bookie.root, "--out", bookie.root / "fresh", "--yes"), 0),
    ]
    states = []
    for words, code in repairs:
        states.append(content(bookie.root))
        assert run_cli(*words).exit_code == code, words
        assert content(bookie.root) != states[-1]
    listed = rows(run_cli("repair", "log", bookie.root, "-o", "json"))
    # A journal salvage that loses nothing only makes the copy, and stands in nobody's way.
    assert [row["why_not"] for row in listed[:-1]] == [
        None
        if later["made_by"] == "journal salvage"
        else f"undo {later['made_by']} of {later['number']} first"
        for later in listed[1:]
    ]
    for position, state in reversed(list(enumerate(states))):
        listed = rows(run_cli("repair", "log", bookie.root, "-o", "json"))
        assert [row["made_by"] for row in listed] == [
            " ".join(map(str, words[:2])) + (" --release" if "--release" in words else "")
            for words, _ in repairs[: position + 1]
        ]
        assert listed[-1]["why_not"] is None
        assert undo(run_cli, bookie, "--yes").exit_code == 0
        assert content(bookie.root) == state
    assert undo(run_cli, bookie, "--yes").exit_code == 6


def test_what_worked_between_two_repairs_ends_the_chain_there(run_cli: Run, bookie: TruthfulBookie) -> None:
    assert run_cli("lastmark", "set", bookie.root, *BACK).exit_code == 0
    assert run_cli("index", "compact", bookie.root, "--yes").exit_code == 0
    before = content(bookie.root)
    assert forwards(run_cli, bookie).exit_code == 1
    listed = rows(run_cli("repair", "log", bookie.root, "-o", "json"))
    assert "the directories have changed since the repair" in listed[0]["why_not"]
    assert listed[1]["why_not"] is None
    assert undo(run_cli, bookie, "--yes").exit_code == 0
    assert content(bookie.root) == before
    refused = undo(run_cli, bookie, "--yes")
    assert refused.exit_code == 4
    assert "the directories have changed since the repair" in refused.stderr
    assert content(bookie.root) == before


def test_behind_a_start_it_is_refused_with_the_reason(run_cli: Run, bookie: TruthfulBookie) -> None:
    assert run_cli("lastmark", "set", bookie.root, *BACK).exit_code == 0
    with started(bookie.root, COUNT):
        pass
    after = content(bookie.root)
    refused = undo(run_cli, bookie, "--yes")
    assert refused.exit_code == 4
    assert "the directories have changed since the repair" in refused.stderr
    assert str(bookie.root) in refused.stderr
    assert content(bookie.root) == after
    (listed,) = rows(run_cli("repair", "log", bookie.root, "-o", "json"))
    assert "have changed since the repair" in listed["why_not"]
    assert (
        rows(run_cli("repair", "forget", bookie.root, "--yes", "-o", "json"))[0]["number"] == listed["number"]
    )
    assert not list(bookie.root.rglob(REPAIRS_NAME))
    assert rows(run_cli("repair", "log", bookie.root, "-o", "json")) == []
    none = run_cli("repair", "log", bookie.root)
    assert (none.stdout, none.stderr) == ("", "bkctl: repairs on record in 3 directories, nothing found\n")


def test_behind_another_command_it_is_refused(run_cli: Run, bookie: TruthfulBookie) -> None:
    assert run_cli("lastmark", "set", bookie.root, *BACK).exit_code == 0
    assert run_cli("index", "compact", bookie.root, "--yes").exit_code == 0
    refused = undo(run_cli, bookie, "--yes")
    assert refused.exit_code == 4
    assert "ledgers/" in refused.stderr


def test_a_directory_that_a_bookie_uses_is_refused(run_cli: Run, bookie: TruthfulBookie) -> None:
    assert run_cli("lastmark", "set", bookie.root, *BACK).exit_code == 0
    with DirectoryLock(str(bookie.current(1))):
        refused = undo(run_cli, bookie, "--yes")
    assert refused.exit_code == 4
    assert "in use" in refused.stderr


def test_a_record_that_names_other_places_is_refused(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    """Whoever may write into the directory may write a record."""
    assert run_cli("lastmark", "set", bookie.root, *BACK).exit_code == 0
    (record,) = bookie.root.rglob("repair.json")
    victim = tmp_path / "victim"
    victim.write_text("kept")
    document = json.loads(record.read_bytes())
    document["changes"].append({"what": "file", "path": "../../../victim", "kept": None})
    record.write_text(json.dumps(document))
    refused = undo(run_cli, bookie, "--yes")
    assert refused.exit_code == 4
    assert str(victim) in refused.stderr
    assert victim.read_text() == "kept"


def test_only_the_directories_of_one_record_have_to_be_named(run_cli: Run, bookie: TruthfulBookie) -> None:
    before = content(bookie.root)
    assert run_cli("lastmark", "set", bookie.root, *BACK).exit_code == 0
    refused = run_cli("repair", "undo", bookie.current(0), "--yes")
    assert refused.exit_code == 4
    assert "the repair has changed this path, too" in refused.stderr
    named = (bookie.current(0), bookie.current(1), bookie.journal)
    assert run_cli("repair", "undo", *named, "--yes").exit_code == 0
    assert content(bookie.root) == before


def test_while_an_undo_is_cut_off_nobody_else_works_there(run_cli: Run, bookie: TruthfulBookie) -> None:
    before = content(bookie.root)
    assert run_cli("lastmark", "set", bookie.root, *BACK).exit_code == 0
    (record,) = bookie.root.rglob("repair.json")
    document = json.loads(record.read_bytes())
    record.write_text(json.dumps({**document, "state": RepairState.UNDOING}))
    cookie = bookie.current() / "VERSION"
    cookie.rename(record.parent / "VERSION")
    with (
        pytest.raises(RefusedError, match="an undo of a repair was cut off"),
        DirectoryLock(str(bookie.current())),
    ):
        pass
    look = run_cli("lastmark", "set", bookie.root, *BACK[:-1], "--dry-run")
    assert look.exit_code == 4
    assert "bkctl repair undo" in look.stderr
    assert undo(run_cli, bookie, "--yes").exit_code == 0
    assert content(bookie.root) == before
