"""What the checks advise where rows of the index name a damaged log: its salvage, no rebuild."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.checked_bookie import CheckedBookie
from tests.support.readable import readable
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import TruthfulBookie

Run = Callable[..., Any]
#: Where a bit is flipped, from the size word of a record on: in its size, its ledger id, its entry id.
FLIPS = {"size": (2, 1), "ledger id": (10, 1), "entry id": (18, 1)}


def damaged(folder: Path, what: str) -> tuple[CheckedBookie, Path]:
    """Make a bookie of whose log one bit is flipped; the bookie and the log."""
    bookie = CheckedBookie(folder / "bookie")
    bookie.fill([1, 2])
    _, place = bookie.locations[0, 1, 5]
    bookie.write()
    log = bookie.current() / "0.log"
    at, bit = FLIPS[what]
    data = bytearray(log.read_bytes())
    data[place - 4 + at] ^= bit
    log.write_bytes(data)
    return bookie, log


@pytest.mark.parametrize("what", FLIPS)
def test_the_commands_that_the_checks_name_lose_nothing(run_cli: Run, tmp_path: Path, what: str) -> None:
    bookie, log = damaged(tmp_path, what)
    salvage = ["bkctl", "entrylog", "salvage", str(log), "--yes"]
    for words in (("doctor", bookie.root, "--deep"), ("index", "check", bookie.root)):
        found = from_ndjson(run_cli(*words, "-o", "ndjson").stdout)
        assert [row["commands"] for row in found if row["kind"] == "dangling_location"] == [[salvage]]
        assert [row["commands"] for row in found if row["commands"]] == [[salvage]]
    assert run_cli(*salvage[1:]).exit_code == 0
    assert len(readable(bookie.root)) == 40
    assert from_ndjson(run_cli("index", "check", bookie.root, "-o", "ndjson").stdout) == []


def test_a_rebuild_that_is_refused_names_the_salvage(run_cli: Run, tmp_path: Path) -> None:
    bookie, log = damaged(tmp_path, "size")
    refused = run_cli("index", "rebuild", bookie.root, "--yes")
    assert refused.exit_code == 4
    said = refused.stderr
    assert f"bkctl entrylog salvage {log}" in said
    assert said.index("entrylog salvage") < said.index("--accept-loss")


def test_a_file_with_many_damaged_ranges_is_one_finding(run_cli: Run, tmp_path: Path) -> None:
    """What to do about it stands there once, and the ranges beside each other."""
    bookie = TruthfulBookie.make(tmp_path / "bookie", "db", 1)
    for path, offsets in (
        (bookie.logs()[0], (1100, 1300, 1500, 1700, 1900, 2100, 2300)),
        (bookie.journals()[-2], (700, 1000, 5000)),
    ):
        content = bytearray(path.read_bytes())
        for offset in offsets:
            content[offset : offset + 30] = b"\xee" * 30
        path.write_bytes(content)
    done = run_cli("doctor", bookie.root, "--deep", "--only", "entry_logs,journals", "-o", "ndjson")
    rows = {(row["kind"], row["severity"]): row for row in from_ndjson(done.stdout)}
    assert len(rows) == len(from_ndjson(done.stdout)) == 3
    log = rows["damaged_log", "error"]
    assert log["found"].startswith(f"{log['count']} ranges that cannot be read as records: ")
    assert log["count"] > 5
    assert f"at {log['offset']} (" in log["found"]
    assert f" and {log['count'] - 5} more; entries of " in log["found"]
    assert rows["damaged_journal", "warning"]["found"].endswith("what was there is in the entry logs already")
    assert rows["damaged_journal", "error"]["offset"] > rows["damaged_journal", "warning"]["offset"]
