"""``inventory``: what every bookie has in its entry logs, as stretches of entries, ledgers and logs."""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable
from bkctl.pipeline.jobs.held_entries import RUNS, UNFLUSHED
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import entries, number, sentence, size


def inventory_sentence(counts: Mapping[str, int]) -> str:
    """Say what the logs hold, and how many of them cannot be read."""
    logs, bookies = number(counts["logs"], "entry log"), number(counts["bookies"], "bookie")
    held = f"{entries(counts['entries'])} of {number(counts['ledgers'], 'ledger')}"
    damaged = counts["damaged_logs"]
    return sentence(
        (
            f"{logs} of {bookies}, {size(counts['log_bytes'])}, with {held}",
            f"of {number(damaged, 'log')} the header or the ledgers map cannot be read" if damaged else "",
        )
    )


INVENTORY = Job(
    name="inventory",
    summary="Tables of what the entry logs hold: stretches of entries, ledgers by log, logs.",
    inputs=(
        RUNS,
        Input("logs", "logs"),
        Input("log_ledgers", "log_ledgers"),
        UNFLUSHED,
        Input("bookies", "bookies"),
        Input("index_runs", "index_runs", may_lack=True),
        Input("index_ledgers", "index_ledgers", ("bookie", "dir", "ledger"), may_lack=True),
        Input("entries", "entries", wanted_by="entries"),
    ),
    sql=sql_text("inventory"),
    sentence=inventory_sentence,
    results=(
        ResultTable(
            "bookie_inventory",
            "what each bookie's logs hold",
            (
                Column("bookie", "STRING", "bookie, as its cookie says; empty without one"),
                Column("dirs", "BIGINT", "ledger directories"),
                Column("logs", "BIGINT", "entry logs"),
                Column("log_bytes", "BIGINT", "bytes of these"),
                Column("damaged_logs", "BIGINT", "logs whose header or ledgers map cannot be read"),
                Column("ledgers", "BIGINT", "ledgers in them"),
                Column("entries", "BIGINT", "entries, each counted once"),
                Column("records", "BIGINT", "records: an entry may stand in several"),
                Column("entry_bytes", "BIGINT", "bytes of these records"),
            ),
            order="bookie",
            shown=True,
        ),
        ResultTable(
            "ledger_inventory",
            "what each bookie holds of each ledger",
            (
                Column("bookie", "STRING", "bookie"),
                Column("ledger", "BIGINT", "ledger"),
                Column("entries", "BIGINT", "entries, each counted once"),
                Column("records", "BIGINT", "records of these"),
                Column("first_entry", "BIGINT", "the lowest"),
                Column("last_entry", "BIGINT", "the highest"),
                Column("stretches", "BIGINT", "stretches without a gap"),
                Column("max_lac", "BIGINT", "highest last add confirmed that a record carries"),
                Column("logs", "BIGINT", "logs with a record of it"),
                Column("bytes", "BIGINT", "bytes of the records"),
            ),
            order="bytes DESC, bookie, ledger",
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("bookies", "BIGINT", "bookies with entry logs"),
                Column("logs", "BIGINT", "entry logs"),
                Column("log_bytes", "BIGINT", "bytes of these"),
                Column("ledgers", "BIGINT", "ledgers"),
                Column("entries", "BIGINT", "entries, each counted once a bookie"),
                Column("records", "BIGINT", "records"),
                Column("damaged_logs", "BIGINT", "logs whose header or ledgers map cannot be read"),
            ),
            order="bookies",
        ),
    ),
    found=("damaged_logs",),
    advice="'bkctl entrylog verify DIR' says what is wrong with a damaged log",
    needs_metadata=False,
    parameters=("entries",),
    notes=(
        "what cannot be read inside a log is left out; 'verify' tells it",
        "the tables that it reads stand in the directory as well; other jobs take it for a PATH, in place of "
        "the bookies' directories",
    ),
    plots=(
        Plot(
            "Bytes in entry logs", "bookie_inventory", ("bookie",), ("log_bytes",), "bookie", bytes_axis=True
        ),
        Plot("Ledgers", "bookie_inventory", ("bookie",), ("ledgers",), "bookie"),
    ),
)
