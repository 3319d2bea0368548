"""Table ``verification`` against tables ``checks`` and ``damage``: the same rows, from one reading."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import StorageError
from bkctl.pipeline.tables import damage
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.schemas import CHECKS, DAMAGE
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import ReadableFile
from tests.support.log_builder import Built, simple_journal, simple_log
from tests.support.table_rows import ROWS, table_rows

DEMO = Path(__file__).parents[3] / "data" / "demo" / "bookie1"
STRUCTURE = replace(ROWS, digest="off")


def part(rows: list[dict[str, Any]], name: str, columns: list[str]) -> list[str]:
    return sorted(repr({column: row[column] for column in columns}) for row in rows if row["part"] == name)


def same_as_the_tables(paths: list[Path], options: TableOptions = ROWS) -> list[dict[str, Any]]:
    """What the table gives, after it was compared with the two."""
    rows = table_rows("verification", paths, options)
    assert {row["part"] for row in rows} <= {"checks", "damage"}
    checks = [{"part": "checks", **row} for row in table_rows("checks", paths, options)]
    found = [{"part": "damage", **row} for row in table_rows("damage", paths, replace(options, digest="off"))]
    assert part(rows, "checks", CHECKS.names) == part(checks, "checks", CHECKS.names)
    assert part(rows, "damage", DAMAGE.names) == part(found, "damage", DAMAGE.names)
    assert len(rows) == len(checks) + len(found)
    return rows


def log(rolled: bool = True) -> Built:
    return simple_log(entries=80, rolled=rolled)


@pytest.mark.parametrize("rolled", [True, False])
@pytest.mark.parametrize("place", ["nothing", "size", "payload", "ledger", "tail", "map", "header"])
def test_both_parts_are_those_of_the_tables(tmp_path: Path, place: str, rolled: bool) -> None:
    made = log(rolled)
    data = bytearray(made.data)
    victim = made.entries[100].offset
    if place in ("size", "payload", "ledger"):
        data[victim + {"size": 0, "payload": 45, "ledger": 5}[place]] ^= 0x55
    elif place == "tail":
        del data[-30:]
    elif place == "map":
        data[-3] ^= 0x55
    elif place == "header":
        data[1] ^= 0x55
    (tmp_path / "7.log").write_bytes(data)
    rows = same_as_the_tables([tmp_path])
    assert sum(row["entries"] or 0 for row in rows) >= 200 or place == "header"
    same_as_the_tables([tmp_path], replace(ROWS, ledgers=((2, 2),)))
    same_as_the_tables([tmp_path], replace(ROWS, only_bad=True))
    same_as_the_tables([tmp_path], STRUCTURE)


def test_real_directories_with_journals_and_indexes() -> None:
    rows = same_as_the_tables([DEMO])
    assert {row["part"] for row in rows} == {"checks"}


def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    data = simple_journal().data
    at = len(data) // 2
    (tmp_path / "1.txn").write_bytes(
        data[:at] + bytes(byte ^ 0x55 for byte in data[at : at + 30]) + data[at + 30 :]
    )
    (tmp_path / "2.txn").write_bytes(data)
    (tmp_path / "7.log").write_bytes(log().data)
    rows = same_as_the_tables([tmp_path])
    assert {row["kind"] for row in rows if row["part"] == "damage"} == {"journal"}


def test_a_clean_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "7.log").write_bytes(log().data)
    monkeypatch.setattr(damage, "LogReader", None)
    monkeypatch.setattr(damage, "verify_logs", None)
    assert len(table_rows("verification", [tmp_path], ROWS)) == 3


def test_a_log_that_cannot_be_read_is_a_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("7.log", "8.log"):
        (tmp_path / name).write_bytes(log().data)
    opened = PosixFileSystem.open
    refused: list[str] = []

    def fails(self: PosixFileSystem, path: str) -> ReadableFile:
        # Once: what was left out is told even when a second reading would succeed.
        if path.endswith("/7.log") and not refused:
            refused.append(path)
            raise StorageError(f"{path}: Input/output error", path=path)
        return opened(self, path)

    monkeypatch.setattr(PosixFileSystem, "open", fails)
    rows = table_rows("verification", [tmp_path], ROWS)
    assert {row["log_id"] for row in rows if row["part"] == "checks"} == {8}
    (found,) = [row for row in rows if row["part"] == "damage"]
    assert (found["id"], found["bytes"]) == (7, (tmp_path / "7.log").stat().st_size)
    assert "Input/output error" in found["reason"]
