"""``orphans``: ledgers that bookies have and metadata does not.

Of a log with a ledgers map only the map counts, and journals not at all: what cannot be read of its records,
or of a journal, changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, share_not_judged
from bkctl.pipeline.jobs.ledger_fate import FATE_NOTE, LEDGER_FATE_INPUTS
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import number, sentence, size

_COLUMNS = (
    Column("bookie", "STRING", "bookie"),
    Column("ledger", "BIGINT", "ledger"),
    Column("place", "STRING", "indexed (it has a ledger row), logs_only, no_index (not all rows were given)"),
    Column("logs", "BIGINT", "logs with entries of it"),
    Column("bytes", "BIGINT", "bytes of its entries"),
    Column("oldest_ms", "BIGINT", "when the oldest of these logs was last written"),
    Column("newest_ms", "BIGINT", "when the newest was"),
)


def orphans_sentence(counts: Mapping[str, int]) -> str:
    """Say how many ledgers on disk the metadata do not have."""
    orphans, undecided, left = (
        counts[name] for name in ("orphan_ledgers", "undecided_ledgers", "leftover_bytes")
    )
    ledgers = number(counts["ledgers"], "ledger")
    known = "every ledger that was judged" if undecided else f"every one of {ledgers}"
    return sentence(
        (
            f"{orphans:,} of {ledgers} on disk, {size(counts['orphan_bytes'])}, are not in the metadata"
            if orphans
            else f"{known} on disk is in the metadata",
            f"{size(left)} are of ledgers that the bookies have deleted, too" if left else "",
            f"{number(undecided, 'ledger')} may be younger than the metadata" if undecided else "",
        )
    )


ORPHANS = Job(
    name="orphans",
    summary="Ledgers on disk that metadata does not have.",
    inputs=(
        Input("logs", "logs", ("bookie", "dir", "log_id", "mtime_ms"), may_lack=True),
        Input("log_ledgers", "log_ledgers", may_lack=True),
        Input("index_ledgers", "index_ledgers", ("bookie", "dir", "ledger"), may_lack=True),
        Input("bookies", "bookies"),
        *LEDGER_FATE_INPUTS,
    ),
    sql=sql_text("orphans"),
    sentence=orphans_sentence,
    results=(
        ResultTable(
            "orphans", "ledgers that metadata does not have", _COLUMNS, "bytes DESC, ledger, bookie", True
        ),
        ResultTable(
            "leftovers",
            "ledgers that the bookie deleted too; compaction reclaims them",
            _COLUMNS,
            "bytes DESC, ledger, bookie",
        ),
        ResultTable(
            "undecided",
            "ledgers that may have been made after the metadata snapshot",
            _COLUMNS,
            "bytes DESC, ledger, bookie",
        ),
        ResultTable(
            "bookie_orphans",
            "by bookie",
            (
                Column("bookie", "STRING", "bookie"),
                Column("orphans", "BIGINT", "ledgers that metadata does not have"),
                Column("orphan_bytes", "BIGINT", "bytes of these in logs"),
                Column("leftover_bytes", "BIGINT", "bytes of ledgers that the bookie deleted too"),
                Column("undecided", "BIGINT", "ledgers that may be younger than the snapshot"),
            ),
            order="orphan_bytes DESC, bookie",
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("ledgers", "BIGINT", "ledgers on disk"),
                Column("orphans", "BIGINT", "rows of table orphans"),
                Column("orphan_ledgers", "BIGINT", "ledgers in it"),
                Column("orphan_bytes", "BIGINT", "bytes of these in logs"),
                Column("leftover_bytes", "BIGINT", "bytes of ledgers that the bookies deleted too"),
                Column("undecided_ledgers", "BIGINT", "ledgers that may be younger than the snapshot"),
                share_not_judged("undecided_ledgers of ledgers"),
            ),
            order="ledgers",
        ),
    ),
    found=("orphans",),
    advice="'bkctl gc explain DIR' says why a bookie kept them; if it is metadata that was lost, "
    "'bkctl ledger restore DUMP' gives it back",
    one_snapshot_notes=(FATE_NOTE,),
    plots=(
        Plot(
            "Orphaned bytes",
            "bookie_orphans",
            ("bookie",),
            ("orphan_bytes", "leftover_bytes"),
            "bookie",
            bytes_axis=True,
            meanings=("bad", "warning"),
        ),
    ),
)
