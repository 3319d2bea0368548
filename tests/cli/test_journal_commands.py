"""``bkctl journal`` on files of a real bookie; see also ``tests/transcripts/journal.txt``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.digest import master_key
from tests.support.rows import from_csv, from_ndjson
from tests.support.stored_metadata import embedded_metadata

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"
JOURNAL_ID = 0x1A1FE14808F
JOURNAL = DEMO / f"bookie1/journal/current/{JOURNAL_ID:x}.txn"
SAMPLES = DATA / "samples"
ZK = DEMO / "zk.json"
SECRET = master_key(b"secret").hex()

Run = Callable[..., Any]

WITH_JOURNALS = sorted({path.relative_to(SAMPLES).parts[0] for path in SAMPLES.rglob("*.txn")})


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


def test_master_keys_are_shown_only_on_request(run_cli: Run) -> None:
    for form in ("ndjson", "json", "csv", "table"):
        assert SECRET not in run_cli("journal", "scan", SAMPLES / "a", "-o", form).stdout
    hidden = run_cli("journal", "scan", SAMPLES / "a", "--payload", "hex")
    assert "master_key" not in {key for row in from_ndjson(hidden.stdout) for key in row}
    shown = from_ndjson(run_cli("journal", "scan", SAMPLES / "a", "--show-secrets").stdout)
    assert [row.get("master_key") for row in shown if row["kind"] == "master_key"] == [SECRET] * 4


def test_padding_is_listed_on_request(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("journal", "scan", SAMPLES / "pd4", "--padding").stdout)
    padding = [row for row in rows if row["kind"] == "padding"]
    assert padding
    assert all(row["ledger"] is row["entry"] is None for row in padding)
    # A padding record ends at a multiple of the alignment: 8 bytes of marks, then its size.
    assert {(row["offset"] + 8 + row["size"]) % 4096 for row in padding} == {0}
    plain = from_ndjson(run_cli("journal", "scan", SAMPLES / "pd4").stdout)
    assert plain == [row for row in rows if row["kind"] != "padding"]


def test_verify_says_what_it_could_not_check(run_cli: Run, tmp_path: Path) -> None:
    result = run_cli("journal", "verify", DEMO)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked"]) == (3, "unchecked", 266)
    assert "266 of 745 entries could not be checked (ledgers 2, 3)" in result.stderr
    result = run_cli("journal", "verify", DEMO, "--metadata", embedded_metadata(ZK, tmp_path))
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked"], result.stderr) == (0, "clean", 0, "")


def test_a_journal_beside_one_that_cannot_be_opened_is_named_as_well(run_cli: Run, tmp_path: Path) -> None:
    """How far it has to reach depends on that one: the error would be of a file that nobody asked for."""
    bookie = shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1")
    journal = bookie / "journal/current" / JOURNAL.name
    newest = journal.with_name(f"{JOURNAL_ID + 1:x}.txn")
    newest.mkdir()
    for verb in ("verify", "scan"):
        result = run_cli("journal", verb, journal)
        assert (result.exit_code, result.stdout) == (7, "")
        assert result.stderr.endswith(f"error: {journal} is not read: {newest}: not a regular file\n")


def test_the_last_mark_beside_the_journal_tells_a_power_cut_from_damage(run_cli: Run, tmp_path: Path) -> None:
    bookie = shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1")
    journal = bookie / "journal/current" / JOURNAL.name

    def verdict_with_a_hole_at(offset: int) -> tuple[int, str]:
        data = bytearray(JOURNAL.read_bytes())
        data[offset : offset + 4096] = bytes(4096)
        journal.write_bytes(data)
        result = run_cli("journal", "verify", bookie, "--metadata", ZK)
        (row,) = from_ndjson(result.stdout)
        return result.exit_code, row["verdict"]

    assert verdict_with_a_hole_at(400_384) == (0, "unsynced_tail")
    assert verdict_with_a_hole_at(100_352) == (1, "damaged")
    mark = run_cli("journal", "verify", bookie, "--mark", f"{JOURNAL.name}:512", "--metadata", ZK)
    assert mark.exit_code == 0
    # A bookie without a mark replays from the beginning, and takes the hole for what a power cut left.
    (bookie / "ledgers/current/lastMark").unlink()
    assert verdict_with_a_hole_at(400_384) == (0, "unsynced_tail")
    # Where the ledger directory is nobody knows, nothing explains the hole.
    (bookie / "ledgers").rename(tmp_path / "away")
    assert verdict_with_a_hole_at(400_384) == (1, "damaged")


@pytest.mark.parametrize("verb", ["list", "scan", "verify"])
def test_schema_names_the_keys(run_cli: Run, verb: str) -> None:
    keys = [row["key"] for row in from_csv(run_cli("journal", verb, "--schema", "-o", "csv").stdout)]
    options = ("--payload", "hex", "--show-secrets") if verb == "scan" else ()
    rows = from_ndjson(run_cli("journal", verb, DEMO, *options).stdout)
    assert {key for row in rows for key in row} == set(keys)
