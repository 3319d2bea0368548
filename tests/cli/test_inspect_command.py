"""``bkctl inspect``: every file that BookKeeper writes is recognised, and anything else is not."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.rows import from_csv, from_ndjson, same_in_every_format

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"
SAMPLES = DATA / "samples"

Run = Callable[..., Any]

KINDS = [
    (
        "demo/bookie1/ledgers/current/0.log",
        "entry_log",
        {"version": 1, "ledgers_map_offset": 125_786, "ledgers": 4},
    ),
    ("demo/bookie1/ledgers/current/2.log", "entry_log", {"state": "only allocated"}),
    (
        "samples/d/l/current/0.log",
        "entry_log",
        {"layout": "direct", "ledgers_map_offset": 12_288, "ledgers": 2},
    ),
    ("samples/el/l/current/8.log", "entry_log", {"version": 0, "ledgers": None}),
    ("demo/bookie1/journal/current/1a1fe14808f.txn", "journal", {"version": 6}),
    ("samples/v4/j/current/1a1fdfd143f.txn", "journal", {"version": 4}),
    ("samples/i/l/current/0/5/5.idx", "index_file", {"ledger": 5, "version": 1, "fenced": True}),
    (
        "samples/i0/l/current/a/b/a0b.idx",
        "index_file",
        {"ledger": 0xA0B, "version": 0, "has_explicit_lac": False},
    ),
    (
        "demo/bookie1/ledgers/current/VERSION",
        "cookie",
        {"layout_version": 5, "bookie_host": "127.0.0.1:4100"},
    ),
    ("demo/bookie1/ledgers/current/lastMark", "last_mark", {"journal": "1a1fe14808f.txn", "offset": 341_504}),
    ("samples/m/l1/current/lastMark.1", "last_mark", {"offset": 1536}),
    ("demo/bookie1/ledgers/current/lastId", "last_id", {"log_id": 2}),
    ("samples/st/BOOKIE_STATUS", "bookie_status", {"mode": "READ_ONLY", "manual": True}),
    ("demo/bookie1/ledgers/current/DIRTY", "dirty", {}),
    ("demo/bookie1/ledgers/current/locations", "locations", {"files": 6}),
    ("demo/bookie1/ledgers/current/ledgers", "ledgers", {"files": 6}),
    ("index/g/l/current/metadata-cache", "metadata_cache", {}),
    ("demo/zk.json", "metadata_dump", {"root": "/ledgers", "ledgers": 9}),
]


@pytest.mark.parametrize(("path", "kind", "facts"), KINDS, ids=[path for path, _, _ in KINDS])
def test_a_file_is_recognised(run_cli: Run, path: str, kind: str, facts: dict[str, Any]) -> None:
    result = run_cli("inspect", DATA / path)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert list(row) == ["path", "kind", "bytes", "facts", "problem"]
    assert (row["path"], row["kind"], row["problem"]) == (str(DATA / path), kind, None)
    assert facts.items() <= row["facts"].items()
    if (DATA / path).is_file():
        assert row["bytes"] == (DATA / path).stat().st_size


def test_a_directory_lists_everything_in_it(run_cli: Run) -> None:
    rows = same_in_every_format(run_cli, "inspect", DEMO)
    current = DEMO / "bookie1/ledgers/current"
    names = ["0.log", "1.log", "2.log", "DIRTY", "VERSION", "lastId", "lastMark", "ledgers", "locations"]
    assert [row["path"] for row in rows[2:]] == [str(current / name) for name in names]
    assert [row["kind"] for row in rows[:2]] == ["journal", "cookie"]


def test_index_files_are_counted(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("inspect", SAMPLES / "pl/l").stdout)
    (index,) = [row for row in rows if row["kind"] == "index_file"]
    assert (index["bytes"], index["facts"]) == (18_432, {"files": 2})


def test_a_file_is_recognised_by_its_content(run_cli: Run, tmp_path: Path) -> None:
    for source, kind in (
        ("demo/bookie1/ledgers/current/0.log", "entry_log"),
        ("demo/bookie1/journal/current/1a1fe14808f.txn", "journal"),
        ("demo/bookie1/ledgers/current/VERSION", "cookie"),
    ):
        shutil.copy(DATA / source, tmp_path / "unnamed")
        (row,) = from_ndjson(run_cli("inspect", tmp_path / "unnamed").stdout)
        assert row["kind"] == kind


def test_compaction_and_metadata_files_are_recognised(run_cli: Run, tmp_path: Path) -> None:
    for name in ("1c.log.compacting", "1c.log.0.compacted"):
        shutil.copy(DEMO / "bookie1/ledgers/current/0.log", tmp_path / name)
        (row,) = from_ndjson(run_cli("inspect", tmp_path / name).stdout)
        assert (row["kind"], row["facts"]["ledgers"]) == ("compaction_log", 4)
    node = json.loads((DEMO / "zk.json").read_text())["/ledgers/00/0000/L0002"]["data"]
    (tmp_path / "L0002").write_bytes(base64.b64decode(node))
    result = run_cli("inspect", tmp_path / "L0002")
    (row,) = from_ndjson(result.stdout)
    assert (row["kind"], row["facts"]["digest"], row["facts"]["last_entry"]) == (
        "ledger_metadata",
        "mac",
        199,
    )
    password = json.loads((DEMO / "manifest.json").read_text())["ledgers"]["2"]["password_hex"]
    assert "password" not in result.stdout
    assert password not in result.stdout


def test_a_problem_is_a_finding(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "lastMark").write_bytes(b"short")
    result = run_cli("inspect", tmp_path / "lastMark")
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["kind"], row["facts"]) == (1, "last_mark", {})
    assert row["problem"] == "last mark at offset 5: expected 16 bytes, found 5 bytes"
    result = run_cli("inspect", SAMPLES / "el/l/current/a.log")
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["kind"]) == (1, "entry_log")
    assert row["problem"].startswith("entry log header at 0")


def test_a_table(run_cli: Run) -> None:
    table = run_cli("inspect", DEMO / "bookie1/ledgers/current/lastMark", "-o", "table").stdout.splitlines()
    assert table[0].split() == ["path", "kind", "bytes", "facts"]
    assert table[2].endswith(
        "last_mark      16   journal_id 1795264118927, journal 1a1fe14808f.txn, offset 341504"
    )


def test_exit_codes(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("nothing of BookKeeper's")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe.log")
    for name, code, word in (
        ("none", 6, "none: no such file"),
        ("note.txt", 2, "note.txt: is no file that BookKeeper writes"),
        ("empty", 2, "empty: no journal"),
        ("loop", 7, "loop: Too many levels"),
        ("pipe.log", 7, "pipe.log: not a regular file"),
    ):
        result = run_cli("inspect", tmp_path / name)
        assert (result.exit_code, result.stdout) == (code, ""), name
        assert word in result.stderr
    assert run_cli("inspect").exit_code == 2


def test_schema(run_cli: Run) -> None:
    keys = [row["key"] for row in from_csv(run_cli("inspect", "--schema", "-o", "csv").stdout)]
    assert keys == ["path", "kind", "bytes", "facts", "problem"]
