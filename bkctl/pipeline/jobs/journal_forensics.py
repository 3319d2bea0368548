"""``journal-forensics``: records of the journals that are in no entry log, or in no index."""

from __future__ import annotations

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable
from bkctl.pipeline.jobs.held_entries import STRETCHES

_RECORD = (
    Column("status", "STRING", "to_replay, lost, unindexed, deleted"),
    Column("bookie", "STRING", "bookie"),
    Column("journal_id", "BIGINT", "journal"),
    Column("path", "STRING", "its file"),
    Column("record_offset", "BIGINT", "offset of the record, as lastMark counts"),
    Column("ledger", "BIGINT", "ledger"),
    Column("entry", "BIGINT", "entry"),
    Column("after_mark", "BOOLEAN", "whether the next start replays it"),
    Column("in_logs", "BOOLEAN", "whether an entry log has the entry"),
    Column("in_index", "BOOLEAN", "whether the index has it"),
)

JOURNAL_FORENSICS = Job(
    name="journal-forensics",
    summary="Acknowledged entries that are only in a journal, or that no index leads to.",
    inputs=(
        Input(
            "journal_entries",
            "journal",
            ("bookie", "journal_id", "path", "offset", "kind", "ledger", "entry", "after_mark"),
            reduce="""
                SELECT j.bookie AS bookie, j.journal_id AS journal_id, j.path AS path, j.offset AS offset,
                       j.ledger AS ledger, j.entry AS entry, j.after_mark AS after_mark
                FROM journal j WHERE j.kind = 'entry'
            """,
        ),
        Input("runs", "runs", ("bookie", "ledger", "first", "last"), may_lack=True),
        Input("index_runs", "index_runs", ("bookie", "ledger", "first", "last"), may_lack=True),
        Input("index_ledgers", "index_ledgers", ("bookie", "ledger"), may_lack=True),
    ),
    sql="".join(
        (
            """
-- view held
SELECT coalesce(r.bookie, '') || ' logs' AS bookie, r.ledger AS ledger, r.first AS low,
       r.last AS high FROM runs r
UNION ALL
SELECT coalesce(r.bookie, '') || ' index' AS bookie, r.ledger AS ledger, r.first AS low, r.last AS high
FROM index_runs r
""",
            STRETCHES,
            """
-- view known_ledgers
SELECT DISTINCT coalesce(i.bookie, '') AS bookie, i.ledger FROM index_ledgers i

-- view indexed_bookies
SELECT DISTINCT bookie FROM known_ledgers

-- step records
SELECT coalesce(j.bookie, '') AS bookie, j.journal_id, j.path, j.offset AS record_offset, j.ledger, j.entry,
       j.after_mark,
       l.ledger IS NOT NULL AS in_logs,
       CASE WHEN b.bookie IS NOT NULL THEN x.ledger IS NOT NULL END AS in_index,
       b.bookie IS NULL AS no_index, k.ledger IS NULL AS deleted
FROM journal_entries j
LEFT JOIN stretches l ON l.bookie = coalesce(j.bookie, '') || ' logs' AND l.ledger = j.ledger
                     AND j.entry >= l.low AND j.entry <= l.high
LEFT JOIN stretches x ON x.bookie = coalesce(j.bookie, '') || ' index' AND x.ledger = j.ledger
                     AND j.entry >= x.low AND j.entry <= x.high
LEFT JOIN known_ledgers k ON k.bookie = coalesce(j.bookie, '') AND k.ledger = j.ledger
LEFT JOIN indexed_bookies b ON b.bookie = coalesce(j.bookie, '')

-- step judged
SELECT r.*,
       CASE WHEN r.in_logs AND (r.in_index IS NULL OR r.in_index) THEN 'flushed'
            WHEN r.after_mark THEN 'to_replay'
            WHEN r.no_index THEN 'undecided'
            WHEN r.deleted THEN 'deleted'
            WHEN r.in_logs THEN 'unindexed'
            ELSE 'lost' END AS status
FROM records r

-- table lost_records
SELECT * FROM judged j WHERE j.status IN ('lost', 'unindexed')

-- table unflushed_records
SELECT * FROM judged j WHERE j.status = 'to_replay'

-- table bookie_journals
SELECT j.bookie, count(DISTINCT j.journal_id) AS journals, count(*) AS records,
       sum(CASE WHEN j.after_mark THEN 1 ELSE 0 END) AS after_mark,
       sum(CASE WHEN j.status = 'flushed' THEN 1 ELSE 0 END) AS flushed,
       sum(CASE WHEN j.status = 'to_replay' THEN 1 ELSE 0 END) AS to_replay,
       sum(CASE WHEN j.status = 'deleted' THEN 1 ELSE 0 END) AS deleted,
       sum(CASE WHEN j.status = 'undecided' THEN 1 ELSE 0 END) AS undecided,
       sum(CASE WHEN j.status = 'unindexed' THEN 1 ELSE 0 END) AS unindexed,
       sum(CASE WHEN j.status = 'lost' THEN 1 ELSE 0 END) AS lost
FROM judged j GROUP BY j.bookie

-- table summary
SELECT coalesce(sum(b.records), 0) AS records, coalesce(sum(b.after_mark), 0) AS after_mark,
       coalesce(sum(b.flushed), 0) AS flushed, coalesce(sum(b.to_replay), 0) AS to_replay,
       coalesce(sum(b.deleted), 0) AS deleted, coalesce(sum(b.undecided), 0) AS undecided,
       coalesce(sum(b.unindexed), 0) AS unindexed,
       coalesce(sum(b.lost), 0) AS lost
FROM bookie_journals b
""",
        )
    ),
    results=(
        ResultTable(
            "lost_records",
            "entries before the mark that no log has, or that no index leads to",
            _RECORD,
            order="bookie, ledger, entry, record_offset",
            shown=True,
        ),
        ResultTable(
            "unflushed_records",
            "entries after the mark that are not flushed and indexed yet; the next start replays them",
            _RECORD,
            order="bookie, ledger, entry, record_offset",
        ),
        ResultTable(
            "bookie_journals",
            "by bookie",
            (
                Column("bookie", "STRING", "bookie"),
                Column("journals", "BIGINT", "journals with entries"),
                Column("records", "BIGINT", "records of entries"),
                Column("after_mark", "BIGINT", "of these, after the mark"),
                Column("flushed", "BIGINT", "in a log and in the index"),
                Column("to_replay", "BIGINT", "after the mark and not flushed"),
                Column("deleted", "BIGINT", "not there because the bookie deleted the ledger"),
                Column("undecided", "BIGINT", "before the mark, in no log, and no index was given"),
                Column("unindexed", "BIGINT", "before the mark, in a log, not in the index"),
                Column("lost", "BIGINT", "before the mark, in no log: the journal has the only copy"),
            ),
            order="lost DESC, bookie",
            shown=True,
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("records", "BIGINT", "records of entries in journals"),
                Column("after_mark", "BIGINT", "of these, after the mark"),
                Column("flushed", "BIGINT", "in a log and in the index"),
                Column("to_replay", "BIGINT", "after the mark and not flushed"),
                Column("deleted", "BIGINT", "not there because the bookie deleted the ledger"),
                Column("undecided", "BIGINT", "before the mark, in no log, and no index was given"),
                Column("unindexed", "BIGINT", "before the mark, in a log, not in the index"),
                Column("lost", "BIGINT", "before the mark, in no log: the journal has the only copy"),
            ),
            order="records",
        ),
    ),
    found=("unindexed", "lost"),
    unexamined=("undecided",),
    advice="keep these journals; 'bkctl doctor DIR' says what else is wrong there, 'bkctl index rebuild DIR' "
    "indexes what is in a log",
    needs_metadata=False,
    trusts_absence=True,
    notes=(
        "what is after the mark and not flushed is the normal trace of a bookie that was not stopped",
        "a ledger without a ledger row counts as deleted by the bookie",
    ),
    plots=(
        Plot(
            "Records of entries",
            "bookie_journals",
            ("bookie",),
            ("flushed", "to_replay", "deleted", "undecided", "unindexed", "lost"),
            "bookie",
            meanings=("good", "warning", "amount", "unknown", "warning", "bad"),
        ),
    ),
)
