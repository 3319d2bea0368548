"""SQL: what metadata says of ledgers that were seen on disk."""

from __future__ import annotations

from bkctl.pipeline.job import Input, Snapshot

#: What :data:`LEDGER_FATE` reads.
LEDGER_FATE_INPUTS = (
    Input("ledgers", "ledgers", ("ledger",), snapshot=Snapshot.BEFORE),
    Input("ledgers_after", "ledgers", ("ledger",), snapshot=Snapshot.AFTER),
)

#: Defines ``ledger_fate(ledger, fate)`` for ``seen_ledgers(ledger)``, which stands before it.
#:
#: With two snapshots a ledger that neither has is gone, for one that was made in between would be in the
#: second. With one only, a ledger above the highest id that it has may be younger than it, and stays unknown;
#: ids that clients choose themselves (beyond 2**31) are not compared with those that the cluster counts up.
LEDGER_FATE = """
-- view ledger_bounds
SELECT max(CASE WHEN ledger < 2147483648 THEN ledger END) AS short_max, max(ledger) AS long_max FROM ledgers

-- step ledger_fate
SELECT s.ledger,
       CASE WHEN b.ledger IS NOT NULL AND a.ledger IS NOT NULL THEN 'live'
            WHEN b.ledger IS NOT NULL THEN 'deleted_meanwhile'
            WHEN a.ledger IS NOT NULL THEN 'created_meanwhile'
            WHEN p.two_snapshots THEN 'gone'
            WHEN s.ledger <= CASE WHEN s.ledger < 2147483648 THEN m.short_max ELSE m.long_max END THEN 'gone'
            ELSE 'unknown' END AS fate
FROM seen_ledgers s
LEFT JOIN ledgers b ON b.ledger = s.ledger
LEFT JOIN ledgers_after a ON a.ledger = s.ledger
CROSS JOIN ledger_bounds m
CROSS JOIN parameters p
"""

FATE_NOTE = (
    "with one metadata snapshot a ledger above its highest id is unknown; give a second one, read after the "
    "files, to tell these as well"
)
