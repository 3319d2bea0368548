"""``garbage``: how much of each entry log is alive, and in which order to reclaim the rest."""

from __future__ import annotations

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable
from bkctl.pipeline.jobs.ledger_fate import FATE_NOTE, LEDGER_FATE, LEDGER_FATE_INPUTS

GARBAGE = Job(
    name="garbage",
    summary="Share of live bytes of every entry log, and a plan of what to reclaim first.",
    inputs=(Input("logs", "logs"), Input("log_ledgers", "log_ledgers"), *LEDGER_FATE_INPUTS),
    sql="".join(
        (
            """
-- view seen_ledgers
SELECT DISTINCT ledger FROM log_ledgers
""",
            LEDGER_FATE,
            """
-- view log_parts
SELECT coalesce(l.bookie, '') AS bookie, l.dir, l.log_id, sum(l.bytes) AS record_bytes, count(*) AS ledgers,
       sum(CASE WHEN f.fate IN ('live', 'created_meanwhile') THEN 1 ELSE 0 END) AS live_ledgers,
       sum(CASE WHEN f.fate IN ('live', 'created_meanwhile') THEN l.bytes ELSE 0 END) AS live_bytes,
       sum(CASE WHEN f.fate IN ('unknown', 'deleted_meanwhile') THEN l.bytes ELSE 0 END) AS unknown_bytes,
       sum(CASE WHEN f.fate = 'gone' THEN l.bytes ELSE 0 END) AS dead_bytes
FROM log_ledgers l JOIN ledger_fate f ON f.ledger = l.ledger
GROUP BY coalesce(l.bookie, ''), l.dir, l.log_id

-- view newest_logs
SELECT coalesce(l.bookie, '') AS bookie, l.dir, max(l.log_id) AS log_id
FROM logs l GROUP BY coalesce(l.bookie, ''), l.dir

-- view judged
SELECT coalesce(l.bookie, '') AS bookie, l.dir, l.log_id, l.path, l.bytes, l.damaged,
       n.log_id IS NOT NULL AND NOT l.has_ledgers_map AS being_written,
       coalesce(p.ledgers, 0) AS ledgers, coalesce(p.live_ledgers, 0) AS live_ledgers,
       coalesce(p.record_bytes, 0) AS record_bytes, coalesce(p.live_bytes, 0) AS live_bytes,
       coalesce(p.unknown_bytes, 0) AS unknown_bytes, coalesce(p.dead_bytes, 0) AS dead_bytes,
       CASE WHEN p.record_bytes > 0
            THEN CAST(p.live_bytes + p.unknown_bytes AS DOUBLE) / CAST(p.record_bytes AS DOUBLE)
            ELSE CAST(0 AS DOUBLE) END AS live_ratio
FROM logs l
LEFT JOIN log_parts p ON p.bookie = coalesce(l.bookie, '') AND p.dir = l.dir AND p.log_id = l.log_id
LEFT JOIN newest_logs n ON n.bookie = coalesce(l.bookie, '') AND n.dir = l.dir AND n.log_id = l.log_id

-- table log_garbage
SELECT j.bookie, j.dir, j.log_id, j.path, j.bytes, j.ledgers, j.live_ledgers, j.live_bytes, j.unknown_bytes,
       j.dead_bytes, j.live_ratio,
       CASE WHEN j.damaged THEN 'set_aside'
            WHEN j.being_written THEN 'keep'
            WHEN j.live_bytes + j.unknown_bytes = 0 THEN 'remove'
            WHEN j.live_ratio < p.threshold THEN 'compact'
            ELSE 'keep' END AS action,
       CASE WHEN j.damaged THEN 'it cannot be read to its end'
            WHEN j.being_written THEN 'the newest of its directory, not closed'
            WHEN j.record_bytes = 0 THEN 'no entries in it'
            WHEN j.live_bytes + j.unknown_bytes = 0 THEN 'no live ledger in it'
            WHEN j.live_ratio < p.threshold THEN 'live share is below the threshold'
            ELSE 'live share is not below the threshold' END AS why
FROM judged j CROSS JOIN parameters p

-- view reclaimable
SELECT g.bookie, g.dir, g.log_id, g.path, g.bytes, g.action, g.live_ratio,
       g.live_bytes + g.unknown_bytes AS copied_bytes, g.bytes - g.live_bytes - g.unknown_bytes AS freed_bytes
FROM log_garbage g WHERE g.action IN ('remove', 'compact')

-- view ordered
SELECT r.*,
       row_number() OVER (PARTITION BY r.bookie, r.dir
                          ORDER BY r.copied_bytes > 0, r.live_ratio, r.bytes DESC, r.log_id) AS step,
       sum(r.copied_bytes) OVER (PARTITION BY r.bookie, r.dir
                                 ORDER BY r.copied_bytes > 0, r.live_ratio, r.bytes DESC, r.log_id
                                 ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS copied_so_far
FROM reclaimable r

-- table compaction_plan
SELECT o.bookie, o.dir, o.step, o.action, o.log_id, o.path, o.bytes, o.live_ratio, o.copied_bytes,
       o.freed_bytes,
       o.copied_so_far, p.budget_bytes = 0 OR o.copied_so_far <= p.budget_bytes AS within_budget
FROM ordered o CROSS JOIN parameters p

-- table bookie_garbage
SELECT g.bookie, g.dir, count(*) AS logs, sum(g.bytes) AS bytes, sum(g.live_bytes) AS live_bytes,
       sum(g.unknown_bytes) AS unknown_bytes, sum(g.dead_bytes) AS dead_bytes,
       sum(CASE WHEN g.action = 'remove' THEN g.bytes ELSE 0 END) AS removable_bytes,
       sum(CASE WHEN g.action = 'compact' THEN g.bytes - g.live_bytes - g.unknown_bytes ELSE 0 END)
           AS compactable_bytes
FROM log_garbage g GROUP BY g.bookie, g.dir

-- view damaged
SELECT count(*) AS damaged_logs FROM log_garbage g WHERE g.action = 'set_aside'

-- view totals
SELECT coalesce(sum(b.logs), 0) AS logs, coalesce(sum(b.bytes), 0) AS bytes,
       coalesce(sum(b.live_bytes), 0) AS live_bytes, coalesce(sum(b.unknown_bytes), 0) AS unknown_bytes,
       coalesce(sum(b.dead_bytes), 0) AS dead_bytes, coalesce(sum(b.removable_bytes), 0) AS removable_bytes,
       coalesce(sum(b.compactable_bytes), 0) AS compactable_bytes
FROM bookie_garbage b

-- table summary
SELECT t.*, d.damaged_logs FROM totals t CROSS JOIN damaged d
""",
        )
    ),
    results=(
        ResultTable(
            "log_garbage",
            "what is alive in each log",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("log_id", "BIGINT", "entry log"),
                Column("path", "STRING", "its file"),
                Column("bytes", "BIGINT", "size of the file"),
                Column("ledgers", "BIGINT", "ledgers with entries in it"),
                Column("live_ledgers", "BIGINT", "of these, those that metadata has"),
                Column("live_bytes", "BIGINT", "bytes of their entries"),
                Column("unknown_bytes", "BIGINT", "bytes of ledgers that metadata leaves open; kept"),
                Column("dead_bytes", "BIGINT", "bytes of ledgers that are gone"),
                Column("live_ratio", "DOUBLE", "share of live and unknown bytes"),
                Column("action", "STRING", "remove, compact, keep, set_aside"),
                Column("why", "STRING", "why"),
            ),
            order="dead_bytes DESC, bookie, dir, log_id",
        ),
        ResultTable(
            "compaction_plan",
            "what to reclaim, in this order, by directory",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("step", "BIGINT", "place in the order of its directory"),
                Column("action", "STRING", "remove or compact"),
                Column("log_id", "BIGINT", "entry log"),
                Column("path", "STRING", "its file"),
                Column("bytes", "BIGINT", "size of the file"),
                Column("live_ratio", "DOUBLE", "share of live and unknown bytes"),
                Column("copied_bytes", "BIGINT", "what has to be copied"),
                Column("freed_bytes", "BIGINT", "what it gives back, the copy taken off"),
                Column("copied_so_far", "BIGINT", "copied up to here"),
                Column("within_budget", "BOOLEAN", "whether that is within --budget"),
            ),
            order="bookie, dir, step",
            shown=True,
        ),
        ResultTable(
            "bookie_garbage",
            "what is alive, by directory",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("logs", "BIGINT", "entry logs"),
                Column("bytes", "BIGINT", "bytes of these"),
                Column("live_bytes", "BIGINT", "bytes of live ledgers"),
                Column("unknown_bytes", "BIGINT", "bytes of ledgers that metadata leaves open"),
                Column("dead_bytes", "BIGINT", "bytes of ledgers that are gone"),
                Column("removable_bytes", "BIGINT", "logs without a live ledger"),
                Column("compactable_bytes", "BIGINT", "what compaction gives back"),
            ),
            order="bookie, dir",
            shown=True,
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("logs", "BIGINT", "entry logs"),
                Column("bytes", "BIGINT", "bytes of these"),
                Column("live_bytes", "BIGINT", "bytes of live ledgers"),
                Column("unknown_bytes", "BIGINT", "bytes of ledgers that metadata leaves open"),
                Column("dead_bytes", "BIGINT", "bytes of ledgers that are gone"),
                Column("removable_bytes", "BIGINT", "logs without a live ledger"),
                Column("compactable_bytes", "BIGINT", "what compaction gives back"),
                Column("damaged_logs", "BIGINT", "logs that cannot be read to their end"),
            ),
            order="logs",
        ),
    ),
    found=("damaged_logs",),
    advice="'bkctl entrylog verify DIR' says what is wrong with a damaged log",
    parameters=("threshold", "budget_bytes"),
    notes=(
        "bytes are those of the ledgers maps: copies that replays and compactions leave behind count as live",
    ),
    one_snapshot_notes=(FATE_NOTE,),
    plots=(
        Plot(
            "Bytes by directory",
            "bookie_garbage",
            ("dir",),
            ("live_bytes", "unknown_bytes", "dead_bytes"),
            "bookie, dir",
            bytes_axis=True,
            meanings=("good", "unknown", "warning"),
        ),
    ),
)
