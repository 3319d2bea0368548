"""``bkctl journal`` on files that a real bookie wrote."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.digest import master_key
from tests.support.rows import from_csv, from_ndjson, same_in_every_format
from tests.support.stored_metadata import embedded_metadata

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"
JOURNAL_ID = 0x1A1FE14808F
JOURNAL = DEMO / f"bookie1/journal/current/{JOURNAL_ID:x}.txn"
SAMPLES = DATA / "samples"
ZK = DEMO / "zk.json"
SECRET = master_key(b"secret").hex()

Run = Callable[..., Any]

ENTRY_KEYS = [
    "journal_id", "path", "offset", "size", "kind", "ledger", "entry", "lac", "ledger_length",
    "payload_bytes", "digest", "digest_ok",
]  # fmt: skip
WITH_JOURNALS = sorted({path.relative_to(SAMPLES).parts[0] for path in SAMPLES.rglob("*.txn")})


def test_list(run_cli: Run) -> None:
    assert same_in_every_format(run_cli, "journal", "list", DEMO) == [
        {
            "dir": str(JOURNAL.parent), "journal_id": JOURNAL_ID, "path": str(JOURNAL), "bytes": 458_752,
            "version": 6,
        }
    ]  # fmt: skip
    versions = {
        row["journal_id"]: row["version"]
        for row in from_ndjson(run_cli("journal", "list", SAMPLES / "jr").stdout)
    }
    assert versions[7] is versions[0x11] is versions[0x16] is None
    assert [versions[number] for number in (1, 2, 3, 4, 5, 6, 0x12)] == [1, 2, 3, 4, 5, 6, 1]


def test_scan_keys_kinds_and_values(run_cli: Run) -> None:
    result = run_cli("journal", "scan", SAMPLES / "a", "--password", "secret")
    rows = from_ndjson(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [list(row) for row in rows] == [ENTRY_KEYS] * 12
    path = str(SAMPLES / "a/j/current/1a1fdeb6fc0.txn")
    head = {"journal_id": 0x1A1FDEB6FC0, "path": path}
    nothing = {"ledger_length": None, "payload_bytes": None, "digest": None, "digest_ok": None}
    master = {"offset": 512, "size": 40, "kind": "master_key", "ledger": 5, "entry": -4096, "lac": None}
    assert rows[0] == {**head, **master, **nothing}
    assert rows[1] == {
        **head, "offset": 556, "size": 46, "kind": "entry", "ledger": 5, "entry": 0, "lac": -1,
        "ledger_length": 10, "payload_bytes": 10, "digest": "crc32c", "digest_ok": True,
    }  # fmt: skip
    fence = {"offset": 2048, "size": 16, "kind": "fence", "ledger": 5, "entry": -8192, "lac": None}
    assert rows[4] == {**head, **fence, **nothing}
    lac = {"offset": 2560, "size": 40, "kind": "explicit_lac", "ledger": 5, "entry": -32768, "lac": 1}
    assert rows[5] == {**head, **lac, **nothing}
    assert Counter(row["kind"] for row in rows) == {
        "entry": 6,
        "master_key": 4,
        "fence": 1,
        "explicit_lac": 1,
    }
    assert {row["ledger"]: row["digest"] for row in rows if row["kind"] == "entry"} == {
        5: "crc32c", 19088743: "crc32", 7: "mac", 8: None,
    }  # fmt: skip


@pytest.mark.parametrize("payload", ["none", "sha256", "hex", "base64", "text"])
@pytest.mark.parametrize(
    "folder", [*(SAMPLES / name for name in WITH_JOURNALS), DEMO], ids=lambda path: path.name
)
def test_the_fast_path_says_what_the_slow_one_says(run_cli: Run, folder: Path, payload: str) -> None:
    command = (
        "journal",
        "scan",
        folder,
        "--payload",
        payload,
        "--padding",
        "--show-secrets",
        "--password",
        "secret",
    )
    fast, slow = run_cli(*command, "-o", "ndjson"), run_cli(*command, "-o", "json")
    assert [list(row.items()) for row in from_ndjson(fast.stdout)] == [
        list(row.items()) for row in json.loads(slow.stdout)
    ]
    assert fast.stdout
    assert (fast.exit_code, fast.stderr) == (slow.exit_code, slow.stderr)


def test_scan_in_every_format(run_cli: Run) -> None:
    rows = same_in_every_format(run_cli, "journal", "scan", SAMPLES / "r")
    table = run_cli("journal", "scan", SAMPLES / "r", "-o", "table").stdout.splitlines()
    assert table[0].split() == ENTRY_KEYS
    assert len(table) == 2 + len(rows)


def test_master_keys_are_shown_only_on_request(run_cli: Run) -> None:
    for form in ("ndjson", "json", "csv", "table"):
        assert SECRET not in run_cli("journal", "scan", SAMPLES / "a", "-o", form).stdout
    hidden = run_cli("journal", "scan", SAMPLES / "a", "--payload", "hex")
    assert "master_key" not in {key for row in from_ndjson(hidden.stdout) for key in row}
    shown = from_ndjson(run_cli("journal", "scan", SAMPLES / "a", "--show-secrets").stdout)
    assert [row.get("master_key") for row in shown if row["kind"] == "master_key"] == [SECRET] * 4


def test_filters(run_cli: Run) -> None:
    def found(*filters: object) -> list[tuple[str, int, int]]:
        result = run_cli("journal", "scan", DEMO, *filters)
        assert result.exit_code == 0
        return [(row["kind"], row["ledger"], row["entry"]) for row in from_ndjson(result.stdout)]

    assert found("--ledger", 2, "--entry", "10-13") == [("entry", 2, 10), ("entry", 2, 11), ("entry", 2, 13)]
    ledger = found("--ledger", 123456800)
    assert ledger[0] == ("master_key", 123456800, -4096)
    assert len(ledger) == 41
    # Out-of-order adds stand in the order they came in.
    assert [entry for _, _, entry in ledger[1:]] != sorted(entry for _, _, entry in ledger[1:])
    assert found("--ledger", 99) == []
    for spelling in (JOURNAL_ID, f"0x{JOURNAL_ID:x}", JOURNAL.name):
        assert len(found("--journal", spelling)) == 753


def test_padding_is_listed_on_request(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("journal", "scan", SAMPLES / "pd4", "--padding").stdout)
    padding = [row for row in rows if row["kind"] == "padding"]
    assert padding
    assert all(row["ledger"] is row["entry"] is None for row in padding)
    # A padding record ends at a multiple of the alignment: 8 bytes of marks, then its size.
    assert {(row["offset"] + 8 + row["size"]) % 4096 for row in padding} == {0}
    plain = from_ndjson(run_cli("journal", "scan", SAMPLES / "pd4").stdout)
    assert plain == [row for row in rows if row["kind"] != "padding"]


def test_digest_modes(run_cli: Run) -> None:
    def digests(*options: object) -> tuple[int, set[tuple[str | None, bool | None]]]:
        result = run_cli("journal", "scan", DEMO, "--ledger", 0, *options)
        rows = [row for row in from_ndjson(result.stdout) if row["kind"] == "entry"]
        return result.exit_code, {(row["digest"], row["digest_ok"]) for row in rows}

    assert digests() == (0, {("crc32", True)})
    assert digests("--digest", "crc32c") == (1, {("crc32c", False)})
    assert digests("--digest", "off") == (0, {(None, None)})


def test_verify(run_cli: Run) -> None:
    (row,) = same_in_every_format(run_cli, "journal", "verify", DEMO, "--ledger-metadata", ZK)
    assert row == {
        "path": str(JOURNAL), "verdict": "clean", "tail": "clean", "records": 753, "entries": 745,
        "unchecked": 0, "unchecked_ledgers": [], "first_bad_offset": None, "bytes_salvageable": 446_976,
        "damages": 0, "damage": [], "next": None, "commands": [], "instead": None,
    }  # fmt: skip


def test_verify_says_what_it_could_not_check(run_cli: Run, tmp_path: Path) -> None:
    result = run_cli("journal", "verify", DEMO)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked"]) == (3, "unchecked", 266)
    assert "266 of 745 entries could not be checked (ledgers 2, 3)" in result.stderr
    result = run_cli("journal", "verify", DEMO, "--metadata-uri", embedded_metadata(ZK, tmp_path))
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked"], result.stderr) == (0, "clean", 0, "")


def test_verify_names_damage(run_cli: Run) -> None:
    path = SAMPLES / "jr/j/current/a.txn"
    for form in ("ndjson", "json", "csv"):
        assert run_cli("journal", "verify", path, "-o", form, "--digest", "dummy").exit_code == 1
        assert run_cli("journal", "verify", path, "-o", form).exit_code == 3
    (row,) = from_ndjson(run_cli("journal", "verify", path).stdout)
    (damage,) = row["damage"]
    assert (row["verdict"], row["records"], row["first_bad_offset"]) == ("damaged", 2, 532)
    assert list(damage) == ["offset", "bytes", "reason", "expected", "found", "missing"]
    table = run_cli("journal", "verify", path, "-o", "table", "--digest", "dummy")
    assert table.exit_code == 1
    assert f"{path}: damage at 532, 4 bytes: record size" in table.stderr
    scan = run_cli("journal", "scan", path)
    assert (scan.exit_code, len(from_ndjson(scan.stdout))) == (1, 2)
    assert f"{path}: damage at 532, 4 bytes: record size" in scan.stderr


def test_the_last_mark_beside_the_journal_tells_a_power_cut_from_damage(run_cli: Run, tmp_path: Path) -> None:
    bookie = shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1")
    journal = bookie / "journal/current" / JOURNAL.name

    def verdict_with_a_hole_at(offset: int) -> tuple[int, str]:
        data = bytearray(JOURNAL.read_bytes())
        data[offset : offset + 4096] = bytes(4096)
        journal.write_bytes(data)
        result = run_cli("journal", "verify", bookie, "--ledger-metadata", ZK)
        (row,) = from_ndjson(result.stdout)
        return result.exit_code, row["verdict"]

    assert verdict_with_a_hole_at(400_384) == (0, "unsynced_tail")
    assert verdict_with_a_hole_at(100_352) == (1, "damaged")
    mark = run_cli("journal", "verify", bookie, "--mark", f"{JOURNAL.name}:512", "--ledger-metadata", ZK)
    assert mark.exit_code == 0
    # A bookie without a mark replays from the beginning, and takes the hole for what a power cut left.
    (bookie / "ledgers/current/lastMark").unlink()
    assert verdict_with_a_hole_at(400_384) == (0, "unsynced_tail")
    # Where the ledger directory is nobody knows, nothing explains the hole.
    (bookie / "ledgers").rename(tmp_path / "away")
    assert verdict_with_a_hole_at(400_384) == (1, "damaged")


@pytest.mark.parametrize("verb", ["list", "scan", "verify"])
def test_exit_codes(run_cli: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "1.txn").symlink_to("1.txn")
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("no journal")
    os.mkfifo(tmp_path / "2.txn")
    for path, code, word in (
        (tmp_path / "none.txn", 6, "none.txn: no such file"),
        (tmp_path / "empty", 2, "empty: no journal, entry log, index or cookie"),
        (tmp_path / "note.txt", 2, "note.txt: is not a journal"),
        (SAMPLES / "el", 2, "el: no journal in it"),
        (tmp_path / "1.txn", 7, "1.txn: Too many levels"),
        (tmp_path / "2.txn", 7, "2.txn: not a regular file"),
    ):
        result = run_cli("journal", verb, path)
        assert (result.exit_code, result.stdout) == (code, ""), path
        assert word in result.stderr
    assert run_cli("journal", verb).exit_code == 2


def test_wrong_usage(run_cli: Run) -> None:
    for options in (
        ("--journal", "x"),
        ("--entry", "a"),
        ("--digest", "md5"),
        ("--mark", "nonsense"),
        ("-o", "x"),
    ):
        result = run_cli("journal", "scan", DEMO, *options)
        assert (result.exit_code, result.stdout) == (2, ""), options
    assert run_cli("journal", "scan", DEMO, "--journal", "7").exit_code == 6


@pytest.mark.parametrize("verb", ["list", "scan", "verify"])
def test_schema_names_the_keys(run_cli: Run, verb: str) -> None:
    keys = [row["key"] for row in from_csv(run_cli("journal", verb, "--schema", "-o", "csv").stdout)]
    options = ("--payload", "hex", "--show-secrets") if verb == "scan" else ()
    rows = from_ndjson(run_cli("journal", verb, DEMO, *options).stdout)
    assert {key for row in rows for key in row} == set(keys)
