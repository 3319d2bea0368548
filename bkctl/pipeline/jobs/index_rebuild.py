"""``index-rebuild`` as ``pipeline list`` shows it; ``bkctl.pipeline.index_rebuild`` does the work.

A log that cannot be read whole is refused, or counts as ``lossy`` with ``--accept-loss``.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import REBUILD_NAME, Column, Job, ResultTable
from bkctl.pipeline.sentences import number, sentence

REBUILD_TABLE = "rebuilt_indexes"


def rebuild_sentence(counts: Mapping[str, int]) -> str:
    """Say what was built, and what is not as it was."""
    lossy, alarming, unproved = counts["lossy"], counts["alarming"], counts["unproved"]
    rows, ledgers = number(counts["rows"], "location"), number(counts["ledgers"], "ledger")
    return sentence(
        (
            f"{number(counts['indexes'], 'index', 'indexes')} with {rows} of {ledgers}",
            f"in {alarming:,} something is not as it was, or not known" if alarming else "",
            f"{lossy:,} may lack entries that damage of a log took" if lossy else "",
            f"of {unproved:,} it is not proved that the logs have every entry" if unproved else "",
        )
    )


#: The rebuild has a job's table and counts, although it is no SQL. Its table lists the differences.
REBUILD = Job(
    name=REBUILD_NAME,
    summary="Rebuild the indexes of many bookies from their logs, and swap them in.",
    inputs=(),
    sql="",
    sentence=rebuild_sentence,
    results=(
        ResultTable(
            REBUILD_TABLE,
            "indexes that were rebuilt",
            (
                Column("dir", "STRING", "index directory"),
                Column("rows", "BIGINT", "locations in it; null when nothing was done"),
                Column("ledgers", "BIGINT", "ledgers in it"),
                Column("seconds", "DOUBLE", "how long it took"),
                Column("backups", "STRING", "where the old index is now"),
                Column("lossy", "BOOLEAN", "whether entries may be missing for damage of a log"),
                Column("alarming", "BOOLEAN", "whether something is not as before, or not known"),
            ),
            order="dir",
            shown=True,
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("indexes", "BIGINT", "indexes"),
                Column("rows", "BIGINT", "locations in them"),
                Column("ledgers", "BIGINT", "ledgers in them"),
                Column("lossy", "BIGINT", "indexes that may lack entries for damage of a log"),
                Column("alarming", "BIGINT", "indexes in which something is not as before, or not known"),
                Column("unproved", "BIGINT", "indexes of which logs may be missing unseen"),
                Column("differences", "BIGINT", "findings in logs and indexes"),
            ),
            order="indexes",
        ),
    ),
    found=("alarming",),
    unexamined=("unproved",),
    needs_metadata=False,
    advice="'bkctl index ledgers DIR' shows which ledgers may lack entries (limbo); job replication-audit "
    "which bookies hold what",
)
