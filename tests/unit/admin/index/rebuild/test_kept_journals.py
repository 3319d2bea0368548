"""Entries that only a journal in front of the last mark still proves: a rebuild and a check look there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.scan.index import open_index
from bkctl.vfs import PosixFileSystem, ReadableFile
from tests.support.checked_bookie import HOST, JOURNAL_ID, CheckedBookie, check
from tests.support.cluster_dump import write_dump

Cli = Callable[..., Any]
FRONT = LastMark(JOURNAL_ID, 1 << 40)


@pytest.fixture(params=["db", "idx"])
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> CheckedBookie:
    """Ledgers 4 and 5, with entries of them and of the deleted ledger 9 in a journal in front of the mark."""
    made = CheckedBookie(tmp_path / "bookie", request.param)
    made.fill([4, 5])
    for ledger, entry in ((4, 3), (5, 7), (5, 7), (5, 30), (5, 31), (9, 0)):
        made.journal.add(made.body(ledger, entry))
    return made


def rebuilt(
    run_cli: Cli, bookie: CheckedBookie, *options: str
) -> tuple[Any, dict[str, dict[int | None, str]]]:
    """The outcome, and the differences by kind and ledger."""
    result = run_cli("index", "rebuild", bookie.root, "--yes", "-o", "json", *options)
    differences: dict[str, dict[int | None, str]] = {}
    for each in json.loads(result.stdout or '{"differences": []}')["differences"]:
        differences.setdefault(each["kind"], {})[each["ledger"]] = each["detail"]
    return result, differences


def limbo(bookie: CheckedBookie) -> set[int]:
    index = open_index(PosixFileSystem(), str(bookie.current()))
    assert index is not None
    with index:
        return {row.ledger for row in index.ledgers.merged() if row.data.limbo}  # type: ignore[union-attr]


def test_a_ledger_with_entries_in_such_a_journal_alone_is_reported(
    run_cli: Cli, bookie: CheckedBookie
) -> None:
    bookie.write()
    result, differences = rebuilt(run_cli, bookie)
    if bookie.storage == "idx":
        assert result.exit_code == 4
        assert "ledger 5: 2 entries (30 to 31)" in result.stderr
        result, differences = rebuilt(run_cli, bookie, "--accept-loss")
        assert differences["entries_lost"].keys() == {5}
    assert result.exit_code == 1
    assert differences["only_in_journal"].keys() == {5}
    assert differences["only_in_journal"][5].startswith("2 entries (30 to 31): only in a journal")
    assert limbo(bookie) == {5}
    again, differences = rebuilt(run_cli, bookie)
    assert (again.exit_code, differences) == (0, {}), "limbo says it already"


@pytest.mark.parametrize("bookie", ["db"], indirect=True)
def test_limbo_tells_which_entries_are_known_to_be_lost(run_cli: Cli, bookie: CheckedBookie) -> None:
    """Also where the flag was set because the row was lost: who clears it would hide them."""
    del bookie.ledgers[0, 5]
    bookie.write()
    result, differences = rebuilt(run_cli, bookie)
    assert result.exit_code == 1
    assert differences["only_in_journal"].keys() == {5}
    assert limbo(bookie) == {5}
    found = bookie.check()
    assert {(each.kind.value, each.ledger) for each in found} == {("limbo", 5)}
    assert any(each.detail.startswith("2 entries (30 to 31): only in a journal") for each in found)


@pytest.mark.parametrize("bookie", ["db"], indirect=True)
@pytest.mark.parametrize("broken", [False, True], ids=["gone", "broken"])
def test_a_ledger_of_such_a_journal_alone_is_kept_where_locations_cannot_be_read(
    run_cli: Cli, bookie: CheckedBookie, broken: bool
) -> None:
    """Its row is lost, and so is its log; sound locations would tell whether it had been deleted."""
    bookie.write()
    assert "ledger_added" not in rebuilt(run_cli, bookie)[1]
    locations = bookie.current() / "locations"
    if broken:
        for path in locations.glob("*.sst"):
            path.write_bytes(b"\xa5" * path.stat().st_size)
    else:
        shutil.rmtree(locations)
    result, differences = rebuilt(run_cli, bookie)
    assert result.exit_code == 3, "the file lastId is not there"
    assert differences["ledger_added"][9].endswith("known from: journals")
    assert 9 in limbo(bookie)


def test_a_dry_run_notes_what_the_old_index_does_not_confirm(run_cli: Cli, bookie: CheckedBookie) -> None:
    bookie.write()
    result, differences = rebuilt(run_cli, bookie, "--dry-run")
    assert result.exit_code == 0
    assert differences["note"].keys() == {5}
    assert "2 entries (30 to 31)" in differences["note"][5]
    assert not limbo(bookie)


def test_what_the_next_start_replays_is_no_loss(run_cli: Cli, bookie: CheckedBookie) -> None:
    bookie.mark = LastMark(JOURNAL_ID, 0)
    bookie.write()
    result, differences = rebuilt(run_cli, bookie)
    assert (result.exit_code, differences.keys() - {"note"}) == (0, set())
    assert bookie.check() == []


def test_the_check_names_the_ledger_and_the_entries(bookie: CheckedBookie) -> None:
    bookie.write()
    (found,) = bookie.check()
    assert (found.kind.value, found.ledger) == ("only_in_journal", 5)
    assert found.detail.startswith("2 entries (30 to 31): only in a journal in front of the last mark")


def test_a_dry_run_without_an_index_leaves_it_to_the_rebuild(run_cli: Cli, tmp_path: Path) -> None:
    """Without locations nothing tells what the logs have, and every entry would look lost."""
    bookie = CheckedBookie(tmp_path / "bookie")
    bookie.fill([4, 5])
    bookie.journal.add(bookie.body(5, 7))
    bookie.write()
    shutil.rmtree(bookie.current() / "locations")
    _, differences = rebuilt(run_cli, bookie, "--dry-run")
    assert differences["note"].keys() == {None}
    assert "seen by the rebuild itself" in differences["note"][None]


@pytest.mark.parametrize("storage", ["db", "idx"])
@pytest.mark.parametrize("replayed", [range(20), range(15)], ids=["all", "some"])
def test_a_row_that_a_replay_brings_without_all_entries_is_missing(
    run_cli: Cli, storage: str, tmp_path: Path, replayed: range
) -> None:
    """The ledger is known by the metadata alone, and a journal between the others is gone."""
    bookie = CheckedBookie(tmp_path / "bookie", storage)
    bookie.fill([4])
    for entry in range(20):
        bookie.store(77, entry, 1)
    bookie.journaled(77, replayed)
    bookie.mark = LastMark(JOURNAL_ID, 0)
    bookie.write()
    dump = {"bookie": HOST, "instance_id": "instance", "next_ledger": 1000}
    write_dump(tmp_path / "dump.json", [4, 77], **dump)  # type: ignore[arg-type]
    found = bookie.check(metadata_file=tmp_path / "dump.json")
    kind = "pending_replay" if len(replayed) == 20 else "missing_ledger"
    assert {(each.kind.value, each.ledger) for each in found} == {(kind, 77)}
    options = ("--metadata", str(tmp_path / "dump.json"))
    _, differences = rebuilt(run_cli, bookie, *options)
    assert differences.get("ledger_added", {}).keys() == (set() if len(replayed) == 20 else {77})
    left = {each.kind.value for each in bookie.check(metadata_file=tmp_path / "dump.json")}
    assert "missing_ledger" not in left


class _FlushingBookie(PosixFileSystem):
    """A bookie that moves its mark as soon as somebody opens one of its logs."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def open(self, path: str) -> ReadableFile:
        if path.endswith(".log"):
            self._mark.write_bytes(encode_last_mark(FRONT))
        return super().open(path)


def test_a_bookie_that_flushes_meanwhile_is_not_blamed(bookie: CheckedBookie) -> None:
    """What is in front of the mark only since the check began may be in logs that it has read already."""
    bookie.mark = LastMark(JOURNAL_ID, 0)
    bookie.write()
    mark = bookie.current() / "lastMark"
    found = check([bookie.root], filesystem=_FlushingBookie(mark))
    assert mark.read_bytes() == encode_last_mark(FRONT)
    assert "only_in_journal" not in {each.kind.value for each in found}
