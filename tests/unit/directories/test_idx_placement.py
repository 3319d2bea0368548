"""``.idx`` files speak of the logs of all ledger directories: a rebuild of one takes all of them, or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.file_info import NO_LEDGER, FileInfoHeader, encode_header, index_path
from bkctl.directories.placement import find_placement
from bkctl.engine.interleaved_storage.index_places import find_files
from bkctl.scan.idx_tree import IdxTree
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
    assert "Java knows no limbo over index files" in result.stderr
    assert readable(bookie.root) == before
    # The other directory may have had more: nothing proves that it is all.
    assert run_cli("index", "rebuild", bookie.current(0), "--accept-loss", "--yes").exit_code == 3


@pytest.mark.parametrize(("mine", "theirs"), [(0, 1), (1, 0)])
def test_a_file_without_a_ledger_beside_the_ledgers_own_is_moved_away(
    run_cli: Callable[..., Any], bookie: CheckedBookie, mine: int, theirs: int
) -> None:
    """A deletion that was cut off leaves one; the bookie starts with one file of a ledger alone."""
    own = bookie.current(0) / index_path(5)
    if mine:
        (bookie.current(mine) / index_path(5)).parent.mkdir(parents=True)
        own = own.rename(bookie.current(mine) / index_path(5))
    before = own.read_bytes()
    stray = bookie.current(theirs) / index_path(5)
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(encode_header(FileInfoHeader(1, b"", NO_LEDGER)))
    result = run_cli("index", "rebuild", bookie.root, "--yes")
    assert result.exit_code == 0, result.stderr
    assert not stray.exists()
    header = IdxTree(FILES, str(bookie.current(mine))).header(5)
    assert header is not None
    assert header.has_ledger
    assert own.read_bytes() == before
    find_files(FILES, [str(bookie.current(number)) for number in range(2)])  # raises where there are two


def test_a_ledger_whose_only_file_lost_it_gets_a_whole_one_there(
    run_cli: Callable[..., Any], bookie: CheckedBookie
) -> None:
    """Its entries are in the logs, and nothing proves that it was deleted."""
    (bookie.current(0) / index_path(5)).unlink()
    stray = bookie.current(1) / index_path(5)
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(encode_header(FileInfoHeader(1, b"", NO_LEDGER)))
    result = run_cli("index", "rebuild", bookie.root, "--yes")
    assert result.exit_code == 1, "its fence and key are not known"
    header = IdxTree(FILES, str(bookie.current(1))).header(5)
    assert header is not None
    assert header.has_ledger
    assert header.fenced
    find_files(FILES, [str(bookie.current(number)) for number in range(2)])
