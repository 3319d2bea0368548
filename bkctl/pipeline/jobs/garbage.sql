-- view seen_ledgers
SELECT DISTINCT ledger FROM log_ledgers

-- include ledger_fate

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
SELECT t.*, d.damaged_logs,
       CASE WHEN t.bytes = 0 THEN CAST(0 AS DOUBLE)
            ELSE CAST(t.unknown_bytes AS DOUBLE) / CAST(t.bytes AS DOUBLE) END AS share_not_judged
FROM totals t CROSS JOIN damaged d
