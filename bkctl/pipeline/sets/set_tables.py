"""The tables of a set and their columns. They bear the names of the jobs' inputs.

Tables ``runs`` and ``index_runs`` hold stripes: ``step``, ``width`` and ``phase`` say which of the entries
``first`` to ``last`` a row stands for (``bkctl.pipeline.sets.stripes``).
"""

from __future__ import annotations

import pyarrow as pa

from bkctl.pipeline.jobs.replica_compare import REPLICA_COLUMNS
from bkctl.pipeline.survey import BOOKIES
from bkctl.pipeline.tables import schemas
from bkctl.pipeline.tables.schemas import chosen

_STRIPE = [("step", pa.int32()), ("width", pa.int32()), ("phase", pa.int32())]
_PLACE = [("bookie", pa.string()), ("dir", pa.string())]

STRIPED_RUNS = pa.schema([*schemas.RUNS, *_STRIPE])
STRIPED_INDEX_RUNS = pa.schema([*schemas.INDEX_RUNS, *_STRIPE])
BLOCKS = pa.schema(
    [
        *_PLACE,
        ("log_id", pa.int64()),
        ("ledger", pa.int64()),
        ("block", pa.int64()),
        ("step", pa.int32()),
        ("residue", pa.int32()),
        ("entries", pa.int64()),
        ("digest", pa.int64()),
    ]
)
UNFLUSHED = pa.schema([("bookie", pa.string()), ("ledger", pa.int64()), ("entry", pa.int64())])
JOURNAL_ENTRIES = chosen(
    schemas.JOURNAL, ["bookie", "journal_id", "path", "offset", "ledger", "entry", "after_mark"]
)
INDEX_LEDGERS = chosen(schemas.INDEX_LEDGERS, ["bookie", "dir", "ledger", "fenced", "explicit_lac", "limbo"])
SUSPECT_ENTRIES = chosen(schemas.ENTRIES, ["bookie", "dir", "log_id", "offset", "ledger", "entry"])
REPLICAS = chosen(schemas.ENTRIES, REPLICA_COLUMNS)

#: Blocks of which table ``replicas`` has every entry.
EXPANDED_BLOCKS = pa.schema([("bookie", pa.string()), ("ledger", pa.int64()), ("block", pa.int64())])

#: Tables with a row or more for each entry log; those of a log that did not change are taken over.
OF_LOGS: dict[str, pa.Schema] = {
    "runs": STRIPED_RUNS,
    "blocks": BLOCKS,
    "logs": schemas.LOGS,
    "log_ledgers": schemas.LOG_LEDGERS,
    "verification": schemas.VERIFICATION,
}
#: Tables that are read again each time.
OF_THE_REST: dict[str, pa.Schema] = {
    "bookies": BOOKIES,
    "journal_entries": JOURNAL_ENTRIES,
    "unflushed": UNFLUSHED,
    "index_runs": STRIPED_INDEX_RUNS,
    "index_ledgers": INDEX_LEDGERS,
    "suspect_entries": SUSPECT_ENTRIES,
    "suspect_locations": schemas.INDEX_LOCATIONS,
    "replicas": REPLICAS,
    "expanded_blocks": EXPANDED_BLOCKS,
}
TABLES = OF_LOGS | OF_THE_REST
