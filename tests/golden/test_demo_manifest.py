"""The cut-down bookie in ``tests/data/demo`` against its manifest; ``tests/corpora`` has the whole ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.last_mark import decode_last_mark
from bkctl.scan.damage import Verdict
from tests.support.manifest import Found, Image

DEMO = Path(__file__).parents[1] / "data/demo"
BOOKIE = "127.0.0.1:4100"

#: Ledgers of the first flush, of the second one that was cut short, and those that are in the journal alone.
FLUSHED = {0, 1, 2, 3}
IN_LOGS = FLUSHED | {4, 5}
IN_JOURNALS = IN_LOGS | {123456800, 8589934610}


@pytest.fixture(scope="module")
def image() -> Image:
    return Image.load(DEMO, DEMO / "manifest.json", DEMO / "zk.json")


def the_one(found: dict[str, Found]) -> Found:
    assert found.keys() == {BOOKIE}
    one = found[BOOKIE]
    assert not one.wrong
    assert set(one.entries.values()) == {1}
    return one


def test_the_manifest_lists_what_the_metadata_gives_to_this_bookie(image: Image) -> None:
    assert image.held_by(BOOKIE) == image.manifest.entries.keys()
    assert {ledger for ledger, _ in image.manifest.entries} == IN_JOURNALS
    assert set(image.manifest.digests.values()) == {"crc32c", "crc32", "mac", "dummy"}
    assert len(image.manifest.entries) == 745


def test_the_journal_holds_every_entry(image: Image) -> None:
    assert the_one(image.in_journals()).entries.keys() == image.manifest.entries.keys()


def test_entry_logs_hold_every_entry_of_their_ledgers(image: Image) -> None:
    held = {key for key in image.manifest.entries if key[0] in IN_LOGS}
    assert the_one(image.in_logs()).entries.keys() == held


def test_the_index_points_at_exactly_the_entries_of_the_first_flush(image: Image) -> None:
    held = {key for key in image.manifest.entries if key[0] in FLUSHED}
    assert the_one(image.indexed()).entries.keys() == held


def test_verify_finds_no_damage(image: Image) -> None:
    verdicts = {Path(verdict.path).name: verdict for verdict in image.verdicts()}
    assert verdicts.keys() == {"0.log", "1.log", "2.log", "1a1fe14808f.txn"}
    assert {verdict.verdict for verdict in verdicts.values()} == {Verdict.CLEAN}
    assert sum(verdict.unchecked for verdict in verdicts.values()) == 0
    # 745 entries and one master key for each of the eight ledgers; a log counts entries alone.
    assert verdicts["1a1fe14808f.txn"].records == 745 + len(IN_JOURNALS)
    assert verdicts["0.log"].records + verdicts["1.log"].records == 665


def test_the_last_mark_lies_behind_the_last_flushed_entry(image: Image) -> None:
    """Replaying from the mark gives what the index does not know, and nothing twice."""
    mark = decode_last_mark((DEMO / "bookie1/ledgers/current/lastMark").read_bytes())
    journal = (DEMO / "bookie1/journal/current/1a1fe14808f.txn").read_bytes()
    size, ledger, entry = (
        int.from_bytes(journal[mark.offset + start : mark.offset + stop], "big", signed=True)
        for start, stop in ((0, 4), (4, 12), (12, 20))
    )
    assert (mark.journal_id, size, ledger, entry) == (0x1A1FE14808F, 40, 4, -0x1000)


def test_the_mac_ledger_checks_with_its_password_and_no_other(
    image: Image, run_cli: Callable[..., Any]
) -> None:
    command = ("entrylog", "scan", DEMO, "--ledger", 2, "-o", "ndjson", "--digest", "mac", "--password-hex")
    right = run_cli(*command, image.manifest.passwords[2].hex())
    wrong = run_cli(*command, "00")
    rows = [json.loads(line) for line in right.stdout.splitlines()]
    assert (right.exit_code, wrong.exit_code) == (0, 1)
    assert len(rows) == sum(ledger == 2 for ledger, _ in image.manifest.entries)
    assert {(row["digest"], row["digest_ok"]) for row in rows} == {("mac", True)}
    assert '"digest_ok":true' not in wrong.stdout


def test_a_changed_byte_would_be_noticed(tmp_path: Path) -> None:
    demo = shutil.copytree(DEMO, tmp_path / "demo")
    log = demo / "bookie1/ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[1028 + 7] = 1  # ledger 0, entry 1 becomes ledger 1, entry 1
    data[60_000] ^= 1
    log.write_bytes(data)
    image = Image.load(demo, demo / "manifest.json", demo / "zk.json")
    logs, index = image.in_logs()[BOOKIE], image.indexed()[BOOKIE]
    assert [wrong for wrong in logs.wrong if "digest False" in wrong]
    assert [wrong for wrong in logs.wrong if "payload" in wrong]
    assert len(index.wrong) == 1
    assert (0, 1) in image.short_of_quorum({BOOKIE: logs})
    assert Verdict.DAMAGED in {verdict.verdict for verdict in image.verdicts()}
