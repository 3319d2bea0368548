"""Indexes of real bookies, taken away and rebuilt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from tests.support.grades import every_value, one_kept
from tests.support.java_bookkeeper import copy_directory
from tests.support.manifest import index_rows
from tests.support.two_directories import split_in_two

pytestmark = pytest.mark.corpora

Corpora = Callable[[str], Path]
Cli = Callable[..., Any]
BOOKIES = ("bookie1", "bookie2", "bookie3")
IDX = ("sorted", "interleaved", "perledger")
#: Of two of them collections have removed logs; a ledger is open, so that the metadata do not tell it all.
UNPROVED = {"sorted": 1, "interleaved": 3, "perledger": 3}


def rebuilt(run_cli: Cli, folder: Path, *options: str, code: int = 0) -> Any:
    result = run_cli("index", "rebuild", folder, "--yes", "-o", "json", *options)
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout)


def trusted(corpora: Corpora, corpus: str) -> tuple[str, ...]:
    """The dump of the corpus, which is complete, though it has no end marker."""
    return ("--metadata", str(corpora(corpus) / "zk-clean.json"), "--trust-dump")


def ledger_rows(run_cli: Cli, folder: Path) -> dict[int, dict[str, Any]]:
    result = run_cli("index", "ledgers", folder, "--show-secrets", "-o", "json")
    assert result.exit_code == 0, result.stderr
    return {row["ledger"]: row for row in json.loads(result.stdout)}


@every_value("as another bookie", lost=("emptied", "removed"), bookie=BOOKIES)
def test_locations_come_back_row_for_row(
    corpora: Corpora, run_cli: Cli, tmp_path: Path, bookie: str, lost: str
) -> None:
    folder = copy_directory(corpora("db") / "clean" / bookie, tmp_path / bookie)
    current = folder / "ledgers/current"
    before = list(index_rows(current))
    ledgers = ledger_rows(run_cli, folder)
    shutil.rmtree(current / "locations")
    if lost == "emptied":
        open_store(str(current / "locations"), LOCATIONS_PROFILE, create=True).close()
    # Collections have removed logs, and some ledgers are open: what those had here is not known.
    answer = rebuilt(run_cli, folder, *trusted(corpora, "db"), code=3)
    found = [each["kind"] for each in answer["differences"] if each["kind"] != "note"]
    # Where an entry stands twice, in both the highest place counts.
    assert list(index_rows(current)) == before
    assert ledger_rows(run_cli, folder) == ledgers
    assert (answer["rows"], answer["ledgers"], found) == (len(before), len(ledgers), ["not_proved"])


@every_value("as another bookie", with_metadata=(True, False), bookie=BOOKIES)
def test_lost_ledger_rows_come_back_with_their_keys_and_fenced_at_least_as_before(
    corpora: Corpora, run_cli: Cli, tmp_path: Path, bookie: str, with_metadata: bool
) -> None:
    folder = copy_directory(corpora("db") / "clean" / bookie, tmp_path / bookie)
    before = ledger_rows(run_cli, folder)
    shutil.rmtree(folder / "ledgers/current/ledgers")
    rebuilt(run_cli, folder, *(trusted(corpora, "db") if with_metadata else ()), code=1)
    after = ledger_rows(run_cli, folder)
    if with_metadata:
        assert after.keys() == before.keys()
    assert after.keys() >= before.keys()
    for ledger, row in before.items():
        assert after[ledger]["master_key"] == row["master_key"]
        assert after[ledger]["key_bytes"] == 8
        assert after[ledger]["limbo"], "whether entries were lost stood in the row alone"
        assert after[ledger]["fenced"] or not row["fenced"]
        assert after[ledger]["explicit_lac"] in (row["explicit_lac"], None)


@pytest.mark.parametrize("corpus", one_kept("index files as of the others", *IDX))
def test_idx_files_come_back_slot_for_slot(
    corpora: Corpora, run_cli: Cli, tmp_path: Path, corpus: str
) -> None:
    folder = copy_directory(corpora(corpus) / "clean/bookie1", tmp_path / "bookie1")
    current = folder / "ledgers/current"
    before = list(index_rows(current))
    ledgers = ledger_rows(run_cli, folder)
    for path in current.glob("*/*/*.idx"):
        data = path.read_bytes()
        path.write_bytes(data[:1024] + bytes(len(data) - 1024))
    rebuilt(run_cli, folder, *trusted(corpora, corpus))
    assert list(index_rows(current)) == before
    assert ledger_rows(run_cli, folder) == ledgers
    # And with the files gone: metadata prove which ledgers there are no more.
    for path in current.glob("*/*/*.idx"):
        path.unlink()
    answer = rebuilt(run_cli, folder, "--storage", "idx", *trusted(corpora, corpus), code=UNPROVED[corpus])
    assert ("not_proved" in {each["kind"] for each in answer["differences"]}) == (UNPROVED[corpus] == 3)
    assert list(index_rows(current)) == before
    after = ledger_rows(run_cli, folder)
    for ledger, row in ledgers.items():
        assert after[ledger]["master_key"] == row["master_key"]
        assert after[ledger]["fenced"] or not row["fenced"]


def test_several_ledger_directories_by_names_and_ledgers(
    corpora: Corpora, run_cli: Cli, tmp_path: Path
) -> None:
    folder = copy_directory(corpora("samples") / "m/m", tmp_path / "m")
    before = {name: list(index_rows(folder / name / "current")) for name in ("i1", "i2")}
    assert any(before.values())
    for name in ("i1", "i2"):
        shutil.rmtree(folder / name / "current/locations")
    result = run_cli("index", "rebuild", folder, "--yes", "-o", "json")
    if result.exit_code == 2:
        # No cookie, and too few ledgers to prove the order: it must be given.
        assert "--ledger-dir" in result.stderr
        options = ("--ledger-dir", folder / "l1", "--ledger-dir", folder / "l2")
        options += ("--index-dir", folder / "i1", "--index-dir", folder / "i2")
        result = run_cli("index", "rebuild", folder, "--yes", "-o", "json", *options)
    assert result.exit_code == 0, result.stderr
    assert {name: list(index_rows(folder / name / "current")) for name in ("i1", "i2")} == before


@pytest.mark.parametrize("lose_ledgers", [False, True])
def test_two_ledger_directories_by_their_cookie(
    corpora: Corpora, run_cli: Cli, tmp_path: Path, lose_ledgers: bool
) -> None:
    target = tmp_path / "two"
    expected = split_in_two(corpora("db") / "clean/bookie1", target)
    before = ledger_rows(run_cli, target)
    if lose_ledgers:
        for half in (1, 2):
            shutil.rmtree(target / f"ledgers{half}/current/ledgers")
    result = run_cli("index", "rebuild", target, "--yes", "-o", "json", *trusted(corpora, "db"))
    assert result.exit_code == 1, "each old index names an entry that no log has: " + result.stderr
    for half in (0, 1):
        rows = {(r[0], r[1]): (r[2], r[3]) for r in index_rows(target / f"ledgers{half + 1}/current")}
        assert rows == expected[half]
    after = ledger_rows(run_cli, target)
    assert {ledger: row["dir"] for ledger, row in after.items()} == {
        ledger: row["dir"] for ledger, row in before.items()
    }
