"""The inputs of ``held.sql`` and ``stretches.sql``: which entries each bookie holds.

``held.sql`` defines ``held(bookie, ledger, low, high)`` from entry logs and from journals after the mark.
``stretches.sql`` defines ``stretches(bookie, ledger, low, high)`` from ``held``: they neither touch nor
overlap. A stretch begins where nothing before it reaches up to it, so entries that stand twice (after a
replay or a compaction) are in one stretch. Of those that begin with the same entry only the longest goes
on: two windows may not order equals in two ways.

The next start replays no record in front of the last mark: what cannot be read there of a journal would be in
no row of ``unflushed``, and changes no answer of the jobs that know journals by that table alone.
"""

from __future__ import annotations

from bkctl.pipeline.job import Input

RUNS = Input("runs", "runs")

#: Entries that the next start of the bookie takes from its journals.
UNFLUSHED = Input(
    "unflushed",
    "journal",
    ("bookie", "dir", "ledger", "entry", "kind", "after_mark"),
    reduce="""
        SELECT j.bookie AS bookie, j.ledger AS ledger, j.entry AS entry
        FROM journal j WHERE j.kind = 'entry' AND j.after_mark
    """,
    may_lack=True,
    behind_mark_only=True,
)
