"""Journals that are no neighbours of the ledger directories, and neighbours that are another bookie's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.cookie import Cookie, encode_cookie
from bkctl.codec.journal import journal_name, master_key_record
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.scan.index import open_index
from bkctl.vfs import PosixFileSystem
from tests.support.checked_bookie import HOST, JOURNAL_ID, KEY, CheckedBookie, check, kinds

Cli = Callable[..., Any]


class Apart(CheckedBookie):
    """A bookie whose cookie names paths where nothing is: a copy of one."""

    def write(self) -> Apart:
        super().write()
        for name, folder in (("j", "journals"), ("l0", "data")):
            (self.root / "mnt" / folder).mkdir(parents=True)
            (self.root / name).rename(self.root / "mnt" / folder / "bk")
        return self

    @property
    def paths(self) -> list[Path]:
        return [self.root / "mnt" / folder / "bk" for folder in ("journals", "data")]


@pytest.fixture(params=["db", "idx"])
def apart(request: pytest.FixtureRequest, tmp_path: Path) -> Apart:
    """Its logs have ledger 6, which has no row, and an entry of ledger 4 without a location. The journal has
    both in front of the last mark, and no start replays them."""
    made = Apart(tmp_path / "bookie", request.param)
    made.fill([4])
    made.store(4, 20)
    made.store(6, 0)
    for ledger, entry in ((4, 20), (6, 0)):
        made.journal.special(master_key_record(ledger, KEY))
        made.journal.add(made.body(ledger, entry))
    return made


def ledgers(current: Path) -> set[int]:
    index = open_index(PosixFileSystem(), str(current))
    assert index is not None
    with index:
        return {row.ledger for row in index.ledgers.merged()}  # type: ignore[union-attr]


def test_the_mark_of_a_ledger_directory_counts_wherever_the_journals_are(apart: Apart) -> None:
    apart.write()
    assert kinds(check(apart.paths)) == ["missing_location"]


def test_what_is_behind_the_mark_is_still_pending(apart: Apart) -> None:
    apart.mark = LastMark(JOURNAL_ID, 0)
    apart.write()
    assert kinds(check(apart.paths)) == ["pending_replay"]


@pytest.mark.parametrize("cookie", ["there", "lost"])
def test_no_ledger_is_left_to_a_replay_that_will_not_come(run_cli: Cli, apart: Apart, cookie: str) -> None:
    apart.write()
    if cookie == "lost":
        (apart.paths[0] / "current" / "VERSION").unlink()
    result = run_cli("index", "rebuild", apart.root / "mnt", "--yes", "-o", "json")
    added = {
        each["ledger"] for each in json.loads(result.stdout)["differences"] if each["kind"] == "ledger_added"
    }
    assert (result.exit_code, added) == (1, {6})
    assert ledgers(apart.paths[1] / "current") == {4, 6}


def test_another_bookies_journals_bring_nothing_back(run_cli: Cli, tmp_path: Path) -> None:
    """They lie beside the ledger directory, and that bookie's next start replays them into its own."""
    made = CheckedBookie(tmp_path / "bookie")
    made.fill([4])
    made.store(6, 0)
    made.write()
    theirs = tmp_path / "bookie" / "j-of-another" / "current"
    theirs.mkdir(parents=True)
    cookie = encode_cookie(Cookie(5, f"other-{HOST}", "/x/j", "1\t/x/l", "instance"))
    (theirs / "VERSION").write_bytes(cookie)
    made.journal.special(master_key_record(6, KEY))
    (theirs / journal_name(JOURNAL_ID + 1)).write_bytes(made.journal.build().data)
    (made.current() / "lastMark").write_bytes(encode_last_mark(LastMark(JOURNAL_ID, 0)))
    result = run_cli("index", "rebuild", made.current(), "--yes")
    assert result.exit_code == 1
    assert ledgers(made.current()) == {4, 6}
