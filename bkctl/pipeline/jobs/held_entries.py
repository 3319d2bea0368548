"""SQL: which entries each bookie holds, as stretches that neither touch nor overlap."""

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
)

#: Defines ``held(bookie, ledger, low, high)`` from entry logs and from journals after the mark.
HELD = """
-- view held
SELECT r.bookie AS bookie, r.ledger AS ledger, r.first AS low, r.last AS high
FROM runs r WHERE r.bookie IS NOT NULL
UNION ALL
SELECT u.bookie AS bookie, u.ledger AS ledger, u.entry AS low, u.entry AS high
FROM unflushed u WHERE u.bookie IS NOT NULL
"""

#: Defines ``stretches(bookie, ledger, low, high)`` from ``held``: a stretch begins where nothing before it
#: reaches up to it, so entries that stand twice (after a replay or a compaction) are in one stretch. Of those
#: that begin with the same entry only the longest goes on: two windows may not order equals in two ways.
STRETCHES = """
-- view held_once
SELECT h.bookie, h.ledger, h.low, max(h.high) AS high FROM held h GROUP BY h.bookie, h.ledger, h.low

-- view held_marked
SELECT h.bookie, h.ledger, h.low, h.high,
       CASE WHEN h.low <= 1 + max(h.high) OVER (
                PARTITION BY h.bookie, h.ledger ORDER BY h.low
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            THEN 0 ELSE 1 END AS begins
FROM held_once h

-- view held_numbered
SELECT m.bookie, m.ledger, m.low, m.high,
       sum(m.begins) OVER (
           PARTITION BY m.bookie, m.ledger ORDER BY m.low
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS stretch
FROM held_marked m

-- step stretches
SELECT n.bookie, n.ledger, min(n.low) AS low, max(n.high) AS high
FROM held_numbered n GROUP BY n.bookie, n.ledger, n.stretch
"""
