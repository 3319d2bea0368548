"""``bkctl entrylog salvage`` says where the journals still have what it gives up; what is gone stays gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.journal import master_key_record
from bkctl.codec.last_mark import LastMark
from tests.cli.test_entrylog_salvage_lengths import PLAIN, SECRET, SUMS, MixedBookie, of_kind, salvaged
from tests.support.checked_bookie import JOURNAL_ID, KEY

Run = Callable[..., Any]


@pytest.mark.parametrize("ledger", [SUMS, SECRET, PLAIN])
@pytest.mark.parametrize("key", [KEY, bytes(range(1, 21))])
@pytest.mark.parametrize("storage", ["db", "idx"])
def test_lost_entries_that_a_journal_still_has_are_named(
    run_cli: Run, tmp_path: Path, storage: str, ledger: int, key: bytes
) -> None:
    """Behind another key they are those of an earlier ledger under the id."""
    mixed = MixedBookie(tmp_path / "bookie", storage=storage)
    mixed.fill(mixed.digesters)
    mixed.journal.special(master_key_record(ledger, key))
    places = {entry: mixed.journal.add(mixed.body(ledger, entry)).offset for entry in range(3, 8)}
    mixed.mark = LastMark(JOURNAL_ID, 1 << 40)
    mixed.write()
    mixed.overwrite(ledger, 5)
    named = of_kind(salvaged(run_cli, mixed.log, code=1), "journaled")
    found = [(row["ledger"], row["entries"], row["offset"]) for row in named]
    assert found == ([(ledger, "5", places[5])] if key == KEY else [])
