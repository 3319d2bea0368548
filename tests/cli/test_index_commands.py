"""``bkctl index`` on RocksDB directories and ``.idx`` files that a real bookie wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.digest import master_key
from tests.support.rows import from_csv, from_ndjson, same_in_every_format

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"
CURRENT = DEMO / "bookie1/ledgers/current"
INDEX = DATA / "index"
SECRET = master_key(b"secret").hex()

Run = Callable[..., Any]

LOCATION_KEYS = ["dir", "ledger", "entry", "log_id", "offset"]


def test_scan_a_database(run_cli: Run) -> None:
    rows = same_in_every_format(run_cli, "index", "scan", DEMO)
    assert len(rows) == 532
    assert rows[0] == {"dir": str(CURRENT), "ledger": 0, "entry": 1, "log_id": 0, "offset": 1028}
    keys = [(row["ledger"], row["entry"]) for row in rows]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    "path", [CURRENT, CURRENT / "locations", CURRENT / "0.log", CURRENT.parent], ids=lambda p: p.name
)
def test_an_index_is_found_from_any_place_near_it(run_cli: Run, path: Path) -> None:
    assert len(from_ndjson(run_cli("index", "scan", path).stdout)) == 532


def test_scan_index_files(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("index", "scan", DATA / "samples/i").stdout)
    assert [(row["ledger"], row["entry"], row["log_id"], row["offset"]) for row in rows] == [
        (5, 0, 0, 0x404), (5, 1, 0, 0x436), (5, 2, 0, 0x468),
        (0x1234567, 0, 0, 0x49A), (0x1234567, 1030, 0, 0x4CB), (0x1234567, 1031, 0, 0x4F8),
    ]  # fmt: skip


def test_scan_filters(run_cli: Run) -> None:
    def found(*filters: object) -> list[tuple[int, int]]:
        result = run_cli("index", "scan", DEMO, *filters)
        assert result.exit_code == 0
        return [(row["ledger"], row["entry"]) for row in from_ndjson(result.stdout)]

    assert found("--ledger", 2, "--entry", "10-13") == [(2, 10), (2, 11), (2, 13)]
    assert len(found("--ledger", 3)) == 133
    assert found("--ledger", 4) == []
    assert run_cli("index", "scan", DEMO, "--entry", "1").exit_code == 2


def test_get(run_cli: Run) -> None:
    row = {"dir": str(CURRENT), "ledger": 0, "entry": 2, "log_id": 0, "offset": 1172}
    command = ("index", "get", "0", "2", DEMO)
    assert json.loads(run_cli(*command).stdout) == row
    assert json.loads(run_cli(*command, "-o", "json").stdout) == row
    assert from_ndjson(run_cli(*command, "-o", "ndjson").stdout) == [row]
    (cells,) = from_csv(run_cli(*command, "-o", "csv").stdout)
    assert cells == {key: str(value) for key, value in row.items()}
    table = run_cli(*command, "-o", "table").stdout
    assert [line.split() for line in table.splitlines()] == [[key, str(value)] for key, value in row.items()]


def test_get_of_what_is_not_there(run_cli: Run) -> None:
    for ledger, entry in ((0, 0), (0, 200), (4, 1), (99, 0)):
        result = run_cli("index", "get", ledger, entry, DEMO)
        assert (result.exit_code, result.stdout) == (6, "")
        assert f"ledger {ledger}, entry {entry}: not in the index" in result.stderr


def test_ledgers_of_a_database(run_cli: Run) -> None:
    rows = same_in_every_format(run_cli, "index", "ledgers", DEMO)
    assert rows == [
        {
            "dir": str(CURRENT), "ledger": ledger, "fenced": False, "master_key": None, "explicit_lac": None,
            "limbo": False, "key_bytes": 8,
        }
        for ledger in range(4)
    ]  # fmt: skip


def test_ledgers_show_fences_lacs_limbo_and_rebuilt_rows(run_cli: Run) -> None:
    def of(sample: str, *options: str) -> dict[int, dict[str, Any]]:
        return {
            row["ledger"]: row
            for row in from_ndjson(run_cli("index", "ledgers", INDEX / sample, *options).stdout)
        }

    assert (of("a")[5]["fenced"], of("a")[5]["explicit_lac"]) == (True, 1)
    assert (of("i")[5]["fenced"], of("i")[5]["explicit_lac"]) == (True, 1)
    assert of("s")[5]["limbo"] is True
    assert {ledger: row["key_bytes"] for ledger, row in of("b").items()} == {5: 16, 6: 16, 7: 8}
    every = from_ndjson(run_cli("index", "ledgers", INDEX / "b", "--every-row").stdout)
    assert [(row["ledger"], row["key_bytes"]) for row in every] == [(5, 16), (6, 16), (7, 8)]


def test_master_keys_are_shown_only_on_request(run_cli: Run) -> None:
    for sample in ("a", "i"):
        hidden = run_cli("index", "ledgers", INDEX / sample)
        assert SECRET not in hidden.stdout
        assert {row["master_key"] for row in from_ndjson(hidden.stdout)} == {None}
        shown = from_ndjson(run_cli("index", "ledgers", INDEX / sample, "--show-secrets").stdout)
        assert {row["master_key"] for row in shown} == {SECRET}


def test_two_directories_have_two_spaces_of_log_ids(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("index", "scan", INDEX / "m").stdout)
    assert [(Path(row["dir"]).parts[-2], row["ledger"], row["log_id"], row["offset"]) for row in rows] == [
        ("i1", 4, 0, 1028), ("i1", 8, 0, 1078), ("i2", 5, 0, 1028), ("i2", 7, 0, 1078),
    ]  # fmt: skip


def test_a_damaged_index_file_is_told_and_the_others_read(run_cli: Run, tmp_path: Path) -> None:
    current = shutil.copytree(DATA / "samples/pl/l/current", tmp_path / "current")
    (current / "0/5/5.idx").write_bytes(b"JUNK" + bytes(2044))
    for verb in ("scan", "ledgers"):
        result = run_cli("index", verb, tmp_path)
        assert result.exit_code == 1
        assert {row["ledger"] for row in from_ndjson(result.stdout)} == {6}
        assert "0/5/5.idx: damage at 0" in result.stderr


@pytest.mark.parametrize("verb", ["scan", "ledgers"])
def test_a_damaged_database_never_reads_as_an_empty_one(run_cli: Run, tmp_path: Path, verb: str) -> None:
    current = shutil.copytree(CURRENT, tmp_path / "current")
    for name in ("locations", "ledgers"):
        (manifest,) = (current / name).glob("MANIFEST-*")
        manifest.write_bytes(b"\xff" * 66)
    result = run_cli("index", verb, tmp_path)
    assert (result.exit_code, result.stdout) in ((1, ""), (7, ""))
    assert str(current) in result.stderr
    assert run_cli("index", "get", "0", "2", tmp_path).exit_code in (1, 7)


def test_exit_codes(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    for arguments in (("scan",), ("ledgers",), ("get", "0", "2")):
        for path, code in (
            (tmp_path / "none", 6),
            (DATA / "samples/jr", 6),
            (tmp_path / "empty", 2),
            (tmp_path / "loop", 7),
        ):
            result = run_cli("index", *arguments, path)
            assert (result.exit_code, result.stdout) == (code, ""), (arguments, path)
            assert path.name in result.stderr
    assert run_cli("index", "get", "0", DEMO).exit_code == 2
    assert run_cli("index", "get", "0", "1", "2", DEMO).exit_code == 2


@pytest.mark.parametrize("verb", ["scan", "ledgers", "get"])
def test_schema_names_the_keys(run_cli: Run, verb: str) -> None:
    keys = [row["key"] for row in from_csv(run_cli("index", verb, "--schema", "-o", "csv").stdout)]
    targets = ("0", "2", DEMO) if verb == "get" else (DEMO,)
    first = run_cli("index", verb, *targets, "-o", "ndjson").stdout.splitlines()[0]
    assert list(json.loads(first)) == keys
