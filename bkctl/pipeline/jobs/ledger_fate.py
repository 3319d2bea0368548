"""The inputs of ``ledger_fate.sql``: what metadata says of ledgers that were seen on disk.

The file defines ``ledger_fate(ledger, fate)`` for ``seen_ledgers(ledger)``, which stands before it. With two
snapshots a ledger that neither has is gone, for one that was made in between would be in the second. With one
only, a ledger above the highest id that it has may be younger than it, and stays unknown; ids that clients
choose themselves (beyond 2**31) are not compared with those that the cluster counts up.
"""

from __future__ import annotations

from bkctl.pipeline.job import Input, Snapshot

#: The tables that ``ledger_fate.sql`` reads.
LEDGER_FATE_INPUTS = (
    Input("ledgers", "ledgers", ("ledger",), snapshot=Snapshot.BEFORE),
    Input("ledgers_after", "ledgers", ("ledger",), snapshot=Snapshot.AFTER),
)

FATE_NOTE = (
    "with one metadata snapshot a ledger above its highest id is unknown; give a second one, read after the "
    "files, to tell these as well"
)
