"""``.idx`` files speak of the logs of all ledger directories: a rebuild of one takes all of them, or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.directories.placement import find_placement
from tests.support.checked_bookie import FILES, CheckedBookie
from tests.support.readable import readable


@pytest.fixture
def bookie(tmp_path: Path) -> CheckedBookie:
    made = CheckedBookie(tmp_path, "idx", 2)
    made.fill([4, 5])
    made.locations[0, 5, 20] = made.store(5, 20, 1, place=1)
    return made.write()


def test_one_directory_stands_for_all_of_its_bookie(bookie: CheckedBookie) -> None:
    placed = find_placement(FILES, str(bookie.current(0)))
    assert [place.ledger_dir for place in placed.directories] == [str(bookie.current(n)) for n in range(2)]


def test_a_rebuild_that_would_drop_locations_is_refused(
    run_cli: Callable[..., Any], bookie: CheckedBookie
) -> None:
    """The old index knows entries that no log has: without their rows they would be "no such entry"."""
    shutil.rmtree(bookie.root / "l1")
    before = readable(bookie.root)
    result = run_cli("index", "rebuild", bookie.current(0), "--yes")
    assert result.exit_code == 4
    assert "ledger 5: 1 entry (20)" in result.stderr
    assert "this storage has no limbo" in result.stderr
    assert readable(bookie.root) == before
    assert run_cli("index", "rebuild", bookie.current(0), "--accept-loss", "--yes").exit_code == 1
