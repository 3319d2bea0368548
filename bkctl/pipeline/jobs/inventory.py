"""``inventory``: what every bookie has in its entry logs, as stretches of entries, ledgers and logs."""

from __future__ import annotations

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable
from bkctl.pipeline.jobs.held_entries import RUNS, STRETCHES, UNFLUSHED

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
    sql="".join(
        (
            """
-- view held
SELECT coalesce(r.bookie, '') AS bookie, r.ledger AS ledger, r.first AS low, r.last AS high FROM runs r
""",
            STRETCHES,
            """
-- view distinct_entries
SELECT s.bookie, s.ledger, sum(s.high - s.low + 1) AS entries, count(*) AS stretches
FROM stretches s GROUP BY s.bookie, s.ledger

-- view records
SELECT coalesce(r.bookie, '') AS bookie, r.ledger AS ledger, sum(r.entries) AS records,
       min(r.first) AS first_entry,
       max(r.last) AS last_entry, sum(r.bytes) AS bytes, count(DISTINCT r.log_id) AS logs,
       max(r.max_lac) AS max_lac
FROM runs r GROUP BY coalesce(r.bookie, ''), r.ledger

-- table ledger_inventory
SELECT r.bookie, r.ledger, d.entries, r.records, r.first_entry, r.last_entry, d.stretches, r.max_lac, r.logs,
       r.bytes
FROM records r JOIN distinct_entries d ON d.bookie = r.bookie AND d.ledger = r.ledger

-- view log_totals
SELECT coalesce(l.bookie, '') AS bookie, count(*) AS logs, count(DISTINCT l.dir) AS dirs,
       sum(l.bytes) AS log_bytes,
       sum(CASE WHEN l.damaged THEN 1 ELSE 0 END) AS damaged_logs
FROM logs l GROUP BY coalesce(l.bookie, '')

-- view ledger_totals
SELECT i.bookie, count(*) AS ledgers, sum(i.entries) AS entries, sum(i.records) AS records,
       sum(i.bytes) AS entry_bytes
FROM ledger_inventory i GROUP BY i.bookie

-- table bookie_inventory
SELECT l.bookie, l.dirs, l.logs, l.log_bytes, l.damaged_logs, coalesce(t.ledgers, 0) AS ledgers,
       coalesce(t.entries, 0) AS entries, coalesce(t.records, 0) AS records,
       coalesce(t.entry_bytes, 0) AS entry_bytes
FROM log_totals l LEFT JOIN ledger_totals t ON t.bookie = l.bookie

-- view ledger_count
SELECT count(DISTINCT i.ledger) AS ledgers FROM ledger_inventory i

-- view bookie_totals
SELECT count(*) AS bookies, coalesce(sum(b.logs), 0) AS logs, coalesce(sum(b.log_bytes), 0) AS log_bytes,
       coalesce(sum(b.entries), 0) AS entries, coalesce(sum(b.records), 0) AS records,
       coalesce(sum(b.damaged_logs), 0) AS damaged_logs
FROM bookie_inventory b

-- table summary
SELECT b.bookies, b.logs, b.log_bytes, l.ledgers, b.entries, b.records, b.damaged_logs
FROM bookie_totals b CROSS JOIN ledger_count l
""",
        )
    ),
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
