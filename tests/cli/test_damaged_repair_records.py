"""A record of a repair that cannot be read stops every repair, and one command removes it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.scan.directory import REPAIRS_NAME
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import TruthfulBookie, started

Run = Callable[..., Any]
COUNT = 2

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "version": lambda data: data.replace(b'"version": 1', b'"version": 99'),
    "junk": lambda data: data[:40] + b"\xff" + data[41:],
    "deep": lambda data: b"[" * 100_000,
    "other number": lambda data: data.replace(b'"number": "2', b'"number": "3'),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", "db", COUNT)


@pytest.fixture
def bookie(made: TruthfulBookie, tmp_path: Path) -> TruthfulBookie:
    return made.copy(tmp_path / "bookie with space")


def content(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def damaged(run_cli: Run, bookie: TruthfulBookie, damage: Callable[[bytes], bytes]) -> Path:
    """Return the record of a repair that kept databases and marks in each directory."""
    done = run_cli("lastmark", "set", bookie.root, "--journal", "0", "--offset", "0", "--yes")
    assert done.exit_code == 0, done.stderr
    (record,) = bookie.root.rglob("repair.json")
    record.write_bytes(damage(record.read_bytes()))
    return record


def forget(run_cli: Run, bookie: TruthfulBookie, *words: str) -> Any:
    return run_cli("repair", "forget", bookie.root, "-o", "json", *words)


@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_a_damaged_record_is_shown_and_forgotten_by_its_number(
    run_cli: Run, bookie: TruthfulBookie, kind: str
) -> None:
    record = damaged(run_cli, bookie, DAMAGE[kind])
    number = record.parent.name
    kept = [path for path in bookie.root.rglob(f"{REPAIRS_NAME}/{number}/*") if path != record]
    assert len(kept) == COUNT
    (row,) = from_ndjson(run_cli("repair", "log", bookie.root, "-o", "ndjson").stdout)
    assert {key: row[key] for key in ("number", "state", "made_by", "changes", "dir")} == {
        "number": number,
        "state": "damaged",
        "made_by": "",
        "changes": 0,
        "dir": str(record.parents[2]),
    }
    command = shlex.join(["bkctl", "repair", "forget", str(record.parents[2]), "--number", number])
    assert command in row["why_not"]
    before = content(bookie.root)
    for words in (("repair", "undo", bookie.root, "--yes"), ("repair", "forget", bookie.root, "--yes")):
        refused = run_cli(*words)
        assert refused.exit_code == 4, (words, refused.stderr)
        assert command in refused.stderr
    looked = forget(run_cli, bookie, "--number", number, "--dry-run")
    assert looked.exit_code == 0, looked.stderr
    for path in kept:
        assert str(path) in looked.stderr
    assert forget(run_cli, bookie, "--number", number).exit_code == 4, "it asks"
    assert content(bookie.root) == before
    done = forget(run_cli, bookie, "--number", number, "--yes")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == [{"number": number, "made_by": "", "dir": str(record.parents[2])}]
    assert str(kept[0]) in done.stderr
    assert {path: data for path, data in before.items() if REPAIRS_NAME not in path} == content(bookie.root)


def test_no_repair_goes_on_behind_it(run_cli: Run, bookie: TruthfulBookie) -> None:
    record = damaged(run_cli, bookie, DAMAGE["cut"])
    home, number = record.parents[2], record.parent.name
    before = content(bookie.root)
    for words in (
        ("entrylog", "quarantine", home / "0.log", home),
        ("lastmark", "set", bookie.root, "--journal", "0", "--offset", "0"),
        ("index", "limbo", "1", bookie.root),
        ("index", "rebuild", bookie.root),
    ):
        refused = run_cli(*words, "--yes")
        assert refused.exit_code == 4, (words, refused.stderr)
        assert f"--number {number}" in refused.stderr
    assert content(bookie.root) == before
    assert forget(run_cli, bookie, "--number", number, "--yes").exit_code == 0
    assert run_cli("entrylog", "quarantine", home / "0.log", home, "--yes").exit_code == 0


def test_other_records_of_the_number_keep_what_is_theirs(
    run_cli: Run, made: TruthfulBookie, tmp_path: Path
) -> None:
    one, other = made.copy(tmp_path / "one"), made.copy(tmp_path / "other")
    number = damaged(run_cli, one, DAMAGE["cut"]).parent.name
    before = content(other.root)
    record = damaged(run_cli, other, lambda data: data)
    # As if both had begun within one second.
    for folder in other.root.rglob(f"{REPAIRS_NAME}/*"):
        if folder.name == record.parent.name and folder.name != number:
            folder.rename(folder.with_name(number))
    record = record.parent.with_name(number) / record.name
    record.write_bytes(
        record.read_bytes().replace(json.loads(record.read_bytes())["number"].encode(), number.encode())
    )
    done = run_cli("repair", "forget", tmp_path, "--number", number, "--dry-run")
    assert str(other.root) not in done.stderr
    done = run_cli("repair", "forget", one.root, "--number", number, "--yes")
    assert done.exit_code == 0, done.stderr
    assert run_cli("repair", "undo", other.root, "--yes").exit_code == 0
    assert content(other.root) == before


def test_a_cookie_that_an_undo_has_moved_away_is_not_forgotten(run_cli: Run, bookie: TruthfulBookie) -> None:
    record = damaged(run_cli, bookie, DAMAGE["empty"])
    number = record.parent.name
    cookie = bookie.current(1) / "VERSION"
    moved = bookie.current(1) / REPAIRS_NAME / number / "VERSION"
    cookie.rename(moved)
    before = content(bookie.root)
    refused = forget(run_cli, bookie, "--number", number, "--yes")
    assert refused.exit_code == 4
    assert str(moved) in refused.stderr
    assert content(bookie.root) == before
    moved.rename(cookie)
    assert forget(run_cli, bookie, "--number", number, "--yes").exit_code == 0


def test_the_doctor_names_the_command_and_a_bookie_starts(run_cli: Run, bookie: TruthfulBookie) -> None:
    record = damaged(run_cli, bookie, DAMAGE["junk"])
    found = from_ndjson(run_cli("doctor", bookie.root, "--only", "leftovers", "-o", "ndjson").stdout)
    (row,) = [row for row in found if row["kind"] == "damaged_repair_record"]
    assert row["path"] == str(record.parent)
    assert not row["commands"], "a plan that is run must not throw away what was kept"
    program, *words = shlex.split(row["instead"].rpartition(": ")[2])
    assert program == "bkctl"
    with started(bookie.root, COUNT):
        pass
    assert run_cli(*words, "--yes").exit_code == 0
    found = from_ndjson(run_cli("doctor", bookie.root, "--only", "leftovers", "-o", "ndjson").stdout)
    assert [row for row in found if row["kind"] == "damaged_repair_record"] == []
