"""Ledgers that the metadata place on the bookie: only journals have entries of them, and not their key."""

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
from bkctl.scan.index import open_index
from bkctl.scan.index_rows import LedgerRow
from bkctl.vfs import PosixFileSystem
from tests.support.checked_bookie import HOST, JOURNAL_ID, CheckedBookie
from tests.support.cluster_dump import write_dump

Cli = Callable[..., Any]
PASSWORD = b"secret"
BEHIND = LastMark(JOURNAL_ID, 0)
FRONT = LastMark(JOURNAL_ID, 1 << 40)


@pytest.fixture(params=["db", "idx"])
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> CheckedBookie:
    """Ledgers 4 and 5; in the journal the key of ledger 33, which was that of 32, and entries of 32 and 9."""
    made = CheckedBookie(tmp_path / "bookie", request.param)
    made.fill([4, 5])
    made.journal.special(master_key_record(33, master_key(PASSWORD)))
    for ledger, entry in ((32, 0), (9, 0), (32, 1), (32, 2)):
        made.journal.add(made.body(ledger, entry))
    made.mark = BEHIND
    write_dump(
        tmp_path / "dump.json",
        [4, 5, 32, 34],
        bookie=HOST,
        instance_id="instance",
        next_ledger=1000,
        password=PASSWORD,
    )
    return made


def found_in(bookie: CheckedBookie) -> dict[int | None, str]:
    """The details of ``missing_ledger``."""
    found = bookie.check(metadata_file=bookie.root.parent / "dump.json")
    return {each.ledger: each.detail for each in found if each.kind.value == "missing_ledger"}


def rebuilt(run_cli: Cli, bookie: CheckedBookie, *options: str) -> tuple[Any, dict[str, set[int]]]:
    dump = str(bookie.root.parent / "dump.json")
    result = run_cli("index", "rebuild", bookie.root, "--yes", "-o", "json", "--metadata", dump, *options)
    differences: dict[str, set[int]] = {}
    for each in json.loads(result.stdout or '{"differences": []}')["differences"]:
        differences.setdefault(each["kind"], set()).add(each["ledger"])
    return result, differences


def row_of(bookie: CheckedBookie, ledger: int) -> LedgerData | None:
    index = open_index(PosixFileSystem(), str(bookie.current()))
    assert index is not None
    with index:
        rows = [row for row in index.ledgers.rows() if isinstance(row, LedgerRow)]
        return next((row.data for row in rows if row.ledger == ledger), None)


def test_entries_that_a_start_would_leave_out_are_damage(bookie: CheckedBookie) -> None:
    found = found_in(bookie.write())
    assert found.keys() == {32}
    assert "3 entries in the journal past the last mark" in found[32]
    assert "neither a ledger row nor a master key" in found[32]
    assert not [each for each in bookie.check() if each.ledger == 32]


def test_entries_that_a_start_has_left_out_are_damage(bookie: CheckedBookie) -> None:
    bookie.mark = FRONT
    found = found_in(bookie.write())
    assert found.keys() == {32}
    assert "3 entries only in journals, where no start replays them" in found[32]


@pytest.mark.parametrize("mark", [BEHIND, FRONT], ids=["behind", "front"])
def test_the_rebuild_gives_such_a_ledger_a_row_in_limbo(
    run_cli: Cli, bookie: CheckedBookie, mark: LastMark
) -> None:
    bookie.mark = mark
    bookie.write()
    result, differences = rebuilt(run_cli, bookie)
    if bookie.storage == "idx" and mark == FRONT:
        assert result.exit_code == 4  # as for all entries that only a journal has
        result, differences = rebuilt(run_cli, bookie, "--accept-loss")
    assert result.exit_code == 1
    assert differences["ledger_added"] == {32}
    row = row_of(bookie, 32)
    assert row is not None
    # The dump is older than the journal, so that the ledger may have been fenced since.
    assert (row.fenced, row.limbo) == (True, True)
    assert row.master_key == master_key(PASSWORD)
    assert row_of(bookie, 9) is None
    assert not found_in(bookie)


def test_an_entry_behind_a_damaged_key_record_counts(run_cli: Cli, tmp_path: Path) -> None:
    """A bit in the record's kind makes the key one more range that cannot be read."""
    bookie = CheckedBookie(tmp_path / "bookie")
    bookie.fill([4])
    at = bookie.journal.special(master_key_record(32, master_key(PASSWORD)))
    for entry in range(3):
        bookie.journal.add(bookie.body(32, entry))
    bookie.mark = BEHIND
    write_dump(tmp_path / "dump.json", [4, 32], bookie=HOST, instance_id="instance", next_ledger=1000)
    bookie.write()
    (journal,) = (bookie.root / "j" / "current").glob("*.txn")
    data = bytearray(journal.read_bytes())
    data[at + 19] ^= 1
    journal.write_bytes(data)
    assert found_in(bookie).keys() == {32}
    _, differences = rebuilt(run_cli, bookie)
    assert differences["ledger_added"] == {32}
    assert not found_in(bookie)


def test_a_ledger_whose_key_the_next_start_replays_is_no_damage(run_cli: Cli, bookie: CheckedBookie) -> None:
    bookie.journal.special(master_key_record(34, master_key(PASSWORD)))
    bookie.journal.add(bookie.body(34, 0))
    assert found_in(bookie.write()).keys() == {32}
    _, differences = rebuilt(run_cli, bookie)
    assert differences["ledger_added"] == {32}
