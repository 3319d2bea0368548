"""Master keys in the journals against the rows and the metadata, and their repair by ``journal salvage``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.digest import master_key
from bkctl.codec.journal import master_key_record
from bkctl.codec.last_mark import LastMark
from bkctl.codec.ledger_data import LedgerData
from tests.support.checked_bookie import HOST, JOURNAL_ID, CheckedBookie
from tests.support.cluster_dump import write_dump

Cli = Callable[..., Any]
PASSWORD = b"secret"
RIGHT = master_key(PASSWORD)
WRONG = RIGHT[:7] + bytes([RIGHT[7] ^ 1]) + RIGHT[8:]


def bookie_with(
    folder: Path, row: bytes | None, *journaled: bytes, storage: str = "db", mark: int = 0
) -> CheckedBookie:
    """Ledger 4 is sound; ledger 5 has a row with a key, if any, and key records in the journal."""
    made = CheckedBookie(folder / "bookie", storage)
    made.fill([4, 5])
    made.ledgers[0, 4] = LedgerData(False, RIGHT)
    if row is None:
        del made.ledgers[0, 5]
        for each in [each for each in made.locations if each[1] == 5]:
            del made.locations[each]
    else:
        made.ledgers[0, 5] = LedgerData(False, row)
    made.journal.special(master_key_record(4, RIGHT))
    for key in journaled:
        made.journal.special(master_key_record(5, key))
        made.journal.add(made.body(5, 0))
    made.mark = LastMark(JOURNAL_ID, mark)
    write_dump(
        folder / "dump.json",
        [4, 5],
        bookie=HOST,
        instance_id="instance",
        next_ledger=1000,
        password=PASSWORD,
    )
    return made.write()


def keys_found(bookie: CheckedBookie, **options: Any) -> list[str]:
    """The kinds of the findings about keys; all are about ledger 5."""
    found = [each for each in bookie.check(**options) if "key" in each.kind.value]
    assert {each.ledger for each in found} <= {5}
    return [each.kind.value for each in found]


@pytest.mark.parametrize("storage", ["db", "idx"])
@pytest.mark.parametrize(
    ("row", "journaled", "untold", "told"),
    [
        (RIGHT, WRONG, ["doubtful_master_key"], ["damaged_journal_key"]),
        (WRONG, RIGHT, ["doubtful_master_key"], ["damaged_master_key"]),
        (WRONG, WRONG, [], ["damaged_master_key", "damaged_journal_key"]),
        (None, WRONG, [], ["damaged_journal_key"]),
        (RIGHT, RIGHT, [], []),
        (bytes(20), RIGHT, [], []),
        # Another life of the ledger, which a start forgets.
        (master_key(b"earlier"), RIGHT, [], []),
    ],
    ids=["journal", "row", "both", "no row", "sound", "blank", "another"],
)
def test_which_key_is_damaged(
    tmp_path: Path, storage: str, row: bytes | None, journaled: bytes, untold: list[str], told: list[str]
) -> None:
    bookie = bookie_with(tmp_path, row, journaled, storage=storage)
    assert keys_found(bookie) == untold
    with_metadata = keys_found(bookie, metadata_file=tmp_path / "dump.json")
    assert [kind for kind in with_metadata if kind != "other_master_key"] == told


def test_two_keys_of_the_journal_that_nearly_match(tmp_path: Path) -> None:
    bookie = bookie_with(tmp_path, None, RIGHT, WRONG)
    assert keys_found(bookie) == ["doubtful_master_key"]


def test_what_is_in_front_of_the_mark_is_not_replayed(tmp_path: Path) -> None:
    bookie = bookie_with(tmp_path, RIGHT, WRONG, mark=1 << 40)
    assert keys_found(bookie, metadata_file=tmp_path / "dump.json") == []


@pytest.mark.parametrize("storage", ["db", "idx"])
def test_the_salvage_writes_the_key_of_the_metadata(run_cli: Cli, tmp_path: Path, storage: str) -> None:
    bookie = bookie_with(tmp_path, RIGHT, WRONG, storage=storage)
    (journal,) = (bookie.root / "j" / "current").glob("*.txn")
    before = journal.read_bytes()
    words = ("journal", "salvage", bookie.root, "--in-place", "--yes", "-o", "json")
    untold = run_cli(*words)
    assert (untold.exit_code, journal.read_bytes()) == (0, before)
    result = run_cli(*words, "--metadata", tmp_path / "dump.json")
    assert result.exit_code == 0
    (row,) = [row for row in json.loads(result.stdout) if row["kind"] == "key"]
    assert (row["ledger"], row["offset"]) == (5, before.index(WRONG) - 24)
    assert journal.read_bytes() == before.replace(WRONG, RIGHT)
    assert keys_found(bookie, metadata_file=tmp_path / "dump.json") == []
    # The file as it was is kept, and comes back.
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 0
    assert journal.read_bytes() == before
