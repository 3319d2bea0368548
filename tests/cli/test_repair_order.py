"""The order of repairs is that of what they left, also where the clock went back between two of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.clock import SystemClock
from tests.support.truthful_bookie import TruthfulBookie

Run = Callable[..., Any]
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", "db", 1)


@pytest.fixture
def bookie(made: TruthfulBookie, tmp_path: Path) -> TruthfulBookie:
    return made.copy(tmp_path / "bookie")


def content(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def records(run_cli: Run, bookie: TruthfulBookie) -> list[dict[str, Any]]:
    done = run_cli("repair", "log", bookie.root, "-o", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def quarantine(run_cli: Run, bookie: TruthfulBookie, log: int) -> None:
    done = run_cli("entrylog", "quarantine", log, bookie.root, "--yes")
    assert done.exit_code == 0, done.stderr


def undo(run_cli: Run, bookie: TruthfulBookie, *words: object) -> Any:
    return run_cli("repair", "undo", bookie.root, "--yes", *words)


def back(monkeypatch: pytest.MonkeyPatch) -> None:
    time_ms = SystemClock().time_ms() - HOUR_MS
    monkeypatch.setattr(SystemClock, "time_ms", lambda self: time_ms)


def make_older(bookie: TruthfulBookie, detail: str) -> None:
    """Give a record a time an hour ago, as an earlier version did where the clock had gone back."""
    for path in bookie.root.rglob("repair.json"):
        document = json.loads(path.read_bytes())
        if document["detail"] == detail:
            path.write_text(json.dumps({**document, "time_ms": document["time_ms"] - HOUR_MS}))


def test_a_repair_behind_a_clock_that_went_back_is_the_last_one(
    run_cli: Run, bookie: TruthfulBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [content(bookie.root)]
    quarantine(run_cli, bookie, 0)
    states.append(content(bookie.root))
    back(monkeypatch)
    quarantine(run_cli, bookie, 1)
    listed = records(run_cli, bookie)
    assert [row["detail"] for row in listed] == ["log 0", "log 1"]
    assert listed[0]["time_ms"] < listed[1]["time_ms"]
    assert sorted(row["number"] for row in listed) == [row["number"] for row in listed]
    assert listed[0]["why_not"] == f"undo entrylog quarantine of {listed[1]['number']} first"
    for state in reversed(states):
        assert undo(run_cli, bookie).exit_code == 0
        assert content(bookie.root) == state


def test_records_in_the_wrong_order_of_time_are_undone_from_the_chains_end(
    run_cli: Run, bookie: TruthfulBookie
) -> None:
    states = []
    for log in (0, 1):
        states.append(content(bookie.root))
        quarantine(run_cli, bookie, log)
    make_older(bookie, "log 1")
    second, first = records(run_cli, bookie)
    assert (second["detail"], second["why_not"]) == ("log 1", None)
    assert first["why_not"] == f"undo entrylog quarantine of {second['number']} first"
    assert undo(run_cli, bookie).exit_code == 0
    without_records = {path: data for path, data in states[1].items() if not path.endswith("repair.json")}
    assert without_records.items() <= content(bookie.root).items()
    assert undo(run_cli, bookie).exit_code == 0
    assert content(bookie.root) == states[0]


def test_a_number_names_the_repair_that_is_undone(run_cli: Run, bookie: TruthfulBookie) -> None:
    before = content(bookie.root)
    quarantine(run_cli, bookie, 0)
    quarantine(run_cli, bookie, 1)
    first, second = (row["number"] for row in records(run_cli, bookie))
    repaired = content(bookie.root)
    refused = undo(run_cli, bookie, "--number", first)
    assert refused.exit_code == 4
    assert f"undo entrylog quarantine of {second} first" in refused.stderr
    assert undo(run_cli, bookie, "--number", "20010101T000000Z").exit_code == 6
    assert content(bookie.root) == repaired
    assert undo(run_cli, bookie, "--number", second).exit_code == 0
    assert undo(run_cli, bookie, "--number", first).exit_code == 0
    assert content(bookie.root) == before


def test_a_number_tells_two_bookies_apart(run_cli: Run, made: TruthfulBookie, tmp_path: Path) -> None:
    one, other = made.copy(tmp_path / "one"), made.copy(tmp_path / "other")
    before = content(one.root)
    quarantine(run_cli, one, 0)
    (number,) = (row["number"] for row in records(run_cli, one))
    quarantine(run_cli, other, 0)
    kept = content(other.root)
    done = run_cli("repair", "undo", tmp_path, "--number", number, "--yes")
    if done.exit_code == 4:
        # Both were made within one second.
        assert "Name the directories of one bookie" in done.stderr
        done = undo(run_cli, one, "--number", number)
    assert done.exit_code == 0, done.stderr
    assert content(one.root) == before
    assert content(other.root) == kept
