"""Entry id 2^63-1: a bookie acknowledges it, so a rebuild may not lose it without a word.

Java's deletion of a ledger leaves the row of that entry behind, so the row alone proves no ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.location import ID_MAX
from tests.support.checked_bookie import CheckedBookie

Run = Callable[..., Any]


@pytest.fixture
def bookie(tmp_path: Path) -> CheckedBookie:
    """Ledger 5 has the entry in a log that is lost; of ledger 60 a deletion has left that entry's row."""
    made = CheckedBookie(tmp_path / "bookie")
    made.fill([4, 5])
    made.ledger(5)
    made.locations[0, 5, ID_MAX] = (44, 1028)
    made.locations[0, 60, ID_MAX] = (44, 2048)
    made.write()
    return made


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_its_ledger_is_in_limbo_when_its_log_is_lost(
    run_cli: Run, bookie: CheckedBookie, words: tuple[str, ...]
) -> None:
    done = run_cli("index", "rebuild", bookie.root, *words, "--yes", "-o", "json")
    assert done.exit_code == 1, done.stderr
    differences = json.loads(done.stdout)["differences"]
    assert [row["ledger"] for row in differences if row["kind"] == "limbo_set"] == [5]
    assert 60 not in [row["ledger"] for row in differences], "a deletion leaves this row behind"
