"""``bkctl index check`` from the command line."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bkctl.commands.index.check import CHECK_SCHEMA
from tests.support.checked_bookie import CheckedBookie
from tests.support.rows import same_in_every_format


@pytest.fixture
def bookie(tmp_path: Path) -> CheckedBookie:
    made = CheckedBookie(tmp_path / "bookie")
    made.fill([5, 6])
    return made


def test_a_sound_index_ends_with_0_and_no_rows(run_cli: Any, bookie: CheckedBookie) -> None:
    words = ("index", "check", bookie.write().root)
    checked = "bkctl: 1 index against 1 entry log, nothing found"
    assert run_cli(*words, "-o", "json") == (0, "[]\n", f"{checked}\n")
    assert run_cli(*words) == (0, "", f"{checked}\n")
    unchecked = "digests were not checked (--digest auto checks them)"
    assert run_cli(*words, "--digest", "off", "-o", "table") == (0, "", f"{checked}; {unchecked}\n")
    assert run_cli("--quiet", *words) == (0, "", "")


def test_notes_end_with_0(run_cli: Any, bookie: CheckedBookie) -> None:
    bookie.ledger(7)
    result = run_cli("index", "check", bookie.write().current(), "-o", "ndjson")
    assert result.exit_code == 0
    row = json.loads(result.stdout)
    assert (row["kind"], row["severity"], row["ledger"]) == ("ledger_without_entries", "note", 7)
    assert row["entry"] is row["log_id"] is row["offset"] is None


def test_damage_ends_with_1_and_the_rows_agree_in_every_format(run_cli: Any, bookie: CheckedBookie) -> None:
    log_id, offset = bookie.locations.pop((0, 5, 7))
    bookie.locations[0, 6, 3] = (9, 1028)
    bookie.write()
    assert run_cli("index", "check", bookie.root).exit_code == 1
    missing, dangling = same_in_every_format(run_cli, "index", "check", bookie.root)
    assert list(missing) == [key.key for key in CHECK_SCHEMA]
    assert "--accept-loss" in missing["instead"]
    assert missing | {"detail": "", "instead": ""} == {
        "kind": "missing_location",
        "severity": "damage",
        "dir": str(bookie.current()),
        "ledger": 5,
        "entry": 7,
        "log_id": log_id,
        "offset": offset,
        "detail": "",
        "next": f"bkctl index rebuild {bookie.current()}",
        "commands": [["bkctl", "index", "rebuild", str(bookie.current()), "--yes"]],
        "instead": "",
    }
    assert (dangling["kind"], dangling["log_id"]) == ("dangling_location", 9)


def test_metadata_digest_and_memory(run_cli: Any, bookie: CheckedBookie, tmp_path: Path) -> None:
    bookie.store(77, 0)
    bookie.write()
    text = (
        "BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nlastEntryId: -1\n"
        'state: OPEN\nsegment {\n  ensembleMember: "bookie:3181"\n  firstEntryId: 0\n}\n'
        'digestType: CRC32C\npassword: ""\nackQuorumSize: 1\n'
    )
    dump = tmp_path / "zk.json"
    znode = {"data": base64.b64encode(text.encode()).decode(), "version": 0, "ephemeral": False}
    dump.write_text(json.dumps({"/ledgers/00/0000/L0077": znode}))
    arguments = ("--digest", "off", "--memory", "2M", "-o", "ndjson")
    result = run_cli("index", "check", bookie.root, "--metadata", dump, *arguments)
    assert result.exit_code == 1, result.stderr
    assert json.loads(result.stdout)["kind"] == "missing_ledger"
    assert run_cli("index", "check", bookie.root, *arguments).exit_code == 0


def test_a_wrong_path_is_never_an_index_without_faults(run_cli: Any, tmp_path: Path) -> None:
    assert run_cli("index", "check", tmp_path / "none").exit_code == 6
    assert run_cli("index", "check", tmp_path).exit_code == 2


@pytest.mark.parametrize(
    "line",
    ["index check", "index scan", "index compact --yes", "gc plan", "gc explain", "gc run --yes", "space"],
)
def test_a_directory_without_an_index_is_no_such_thing(run_cli: Any, tmp_path: Path, line: str) -> None:
    journal = shutil.copytree(Path(__file__).parents[1] / "data/demo/bookie1/journal", tmp_path / "journal")
    refused = run_cli(*line.split(), journal)
    assert (refused.exit_code, "no index in it" in refused.stderr) == (6, True), refused.stderr


def test_schema_and_bad_sizes(run_cli: Any, bookie: CheckedBookie) -> None:
    result = run_cli("index", "check", "--schema", "-o", "json")
    assert [key["key"] for key in json.loads(result.stdout)] == [key.key for key in CHECK_SCHEMA]
    for memory, says in (("lots", "is not a size"), ("1023K", "is less than 1M")):
        refused = run_cli("index", "check", bookie.root, "--memory", memory)
        assert refused.exit_code == 2
        assert says in refused.stderr
