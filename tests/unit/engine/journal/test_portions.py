"""Portions of a journal's group."""

from __future__ import annotations

from bkctl.engine.journal import JournalBatch
from bkctl.engine.journal.portions import portions
from tests.support.journal_rig import RecordingSink, batch_of, body


def test_large_groups_are_written_in_portions() -> None:
    sink = RecordingSink()
    small = [batch_of([body(1, entry, 100)] * 3, sink) for entry in range(10)]
    large = batch_of([body(2, entry, 100) for entry in range(50)], sink)
    batches = [*small, large, *small]
    expected = [piece for batch in batches for piece in batch.pieces]
    parts = list(portions(batches, 1000, b"padding"))
    assert [piece for part in parts for piece in part] == [*expected, b"padding"]
    assert all(sum(map(len, part)) <= 1010 for part in parts)
    assert list(portions([JournalBatch([], 0, 0, sink)], 1000)) == [[b""]]
