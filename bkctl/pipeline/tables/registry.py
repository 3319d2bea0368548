"""The tables by name."""

from __future__ import annotations

from bkctl.errors import UsageError
from bkctl.pipeline.tables.checks import ChecksTable
from bkctl.pipeline.tables.damage import DamageTable
from bkctl.pipeline.tables.entries import Entries
from bkctl.pipeline.tables.index import IndexLedgers, IndexLocations, IndexRuns
from bkctl.pipeline.tables.journal import Journal
from bkctl.pipeline.tables.ledgers import fragments_table, ledgers_table
from bkctl.pipeline.tables.logs import LogLedgers, Logs
from bkctl.pipeline.tables.runs import RunTable
from bkctl.pipeline.tables.table import Table
from bkctl.pipeline.tables.verification import Verification

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Entries(),
        RunTable(),
        ChecksTable(),
        Logs(),
        LogLedgers(),
        Journal(),
        IndexLocations(),
        IndexRuns(),
        IndexLedgers(),
        ledgers_table,
        fragments_table,
        DamageTable(),
        Verification(),
    )
}


def table_named(name: str) -> Table:
    """Return the table of a name. Raises UsageError."""
    found = TABLES.get(name)
    if found is None:
        raise UsageError(f"no table {name!r} (known: {', '.join(sorted(TABLES))})")
    return found
