"""A directory whose logs are all gone is rebuilt all the same: its ledgers are in limbo then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.directories.placement import find_placement
from bkctl.scan.index import open_index
from bkctl.vfs import PosixFileSystem
from tests.support.checked_bookie import FILES, CheckedBookie
from tests.support.rows import from_ndjson


@pytest.fixture
def bookie(tmp_path: Path) -> CheckedBookie:
    """Two directories, the first without its logs and its mark."""
    made = CheckedBookie(tmp_path / "bookie", count=2)
    made.fill([4, 5])
    made.write()
    for path in (*made.current(0).glob("*.log"), made.current(0) / "lastMark"):
        path.unlink()
    return made


def test_by_its_cookie_a_directory_without_logs_is_a_ledger_directory(bookie: CheckedBookie) -> None:
    whole = find_placement(FILES, str(bookie.root))
    assert [place.ledger_dir for place in whole.directories] == [str(bookie.current(n)) for n in range(2)]
    (alone,) = find_placement(FILES, str(bookie.current(0))).directories
    assert (alone.position, alone.count, alone.ledger_dir) == (0, 2, str(bookie.current(0)))


def test_what_the_check_advises_sets_limbo(run_cli: Callable[..., Any], bookie: CheckedBookie) -> None:
    rows = from_ndjson(run_cli("index", "check", bookie.root, "-o", "ndjson").stdout)
    lines = {tuple(line) for row in rows if row["severity"] == "damage" for line in row["commands"]}
    assert lines
    for _, *words in lines:
        assert run_cli(*words).exit_code == 1, "locations_lost"
    index = open_index(PosixFileSystem(), str(bookie.current(0)))
    assert index is not None
    with index:
        assert [(row.ledger, row.data.limbo) for row in index.ledgers.merged()] == [(4, True)]  # type: ignore[union-attr]
