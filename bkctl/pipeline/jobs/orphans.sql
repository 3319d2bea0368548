-- view in_logs
SELECT coalesce(l.bookie, '') AS bookie, l.ledger, count(*) AS logs, sum(l.bytes) AS bytes,
       min(g.mtime_ms) AS oldest_ms, max(g.mtime_ms) AS newest_ms
FROM log_ledgers l
LEFT JOIN logs g ON coalesce(g.bookie, '') = coalesce(l.bookie, '') AND g.dir = l.dir AND g.log_id = l.log_id
GROUP BY coalesce(l.bookie, ''), l.ledger

-- view in_index
SELECT DISTINCT coalesce(i.bookie, '') AS bookie, i.ledger FROM index_ledgers i

-- view indexed_bookies
SELECT DISTINCT x.bookie FROM in_index x
WHERE x.bookie NOT IN (SELECT b.bookie FROM bookies b WHERE b.bookie IS NOT NULL AND b.index_whole = FALSE)

-- step on_disk
SELECT coalesce(l.bookie, i.bookie) AS bookie, coalesce(l.ledger, i.ledger) AS ledger,
       i.ledger IS NOT NULL AS indexed, coalesce(l.logs, 0) AS logs, coalesce(l.bytes, 0) AS bytes,
       l.oldest_ms, l.newest_ms
FROM in_logs l FULL OUTER JOIN in_index i ON i.bookie = l.bookie AND i.ledger = l.ledger

-- view seen_ledgers
SELECT DISTINCT ledger FROM on_disk

-- include ledger_fate

-- step judged
SELECT d.bookie, d.ledger, f.fate,
       CASE WHEN d.indexed THEN 'indexed' WHEN x.bookie IS NOT NULL THEN 'logs_only' ELSE 'no_index' END AS
       place,
       d.logs, d.bytes, d.oldest_ms, d.newest_ms
FROM on_disk d
JOIN ledger_fate f ON f.ledger = d.ledger
LEFT JOIN indexed_bookies x ON x.bookie = d.bookie
WHERE f.fate IN ('gone', 'unknown')

-- table orphans
SELECT * FROM judged WHERE fate = 'gone' AND place <> 'logs_only'

-- table leftovers
SELECT * FROM judged WHERE fate = 'gone' AND place = 'logs_only'

-- table undecided
SELECT * FROM judged WHERE fate = 'unknown'

-- table bookie_orphans
SELECT j.bookie,
       sum(CASE WHEN j.fate = 'gone' AND j.place <> 'logs_only' THEN 1 ELSE 0 END) AS orphans,
       sum(CASE WHEN j.fate = 'gone' AND j.place <> 'logs_only' THEN j.bytes ELSE 0 END) AS orphan_bytes,
       sum(CASE WHEN j.fate = 'gone' AND j.place = 'logs_only' THEN j.bytes ELSE 0 END) AS leftover_bytes,
       sum(CASE WHEN j.fate = 'unknown' THEN 1 ELSE 0 END) AS undecided
FROM judged j GROUP BY j.bookie

-- view counts
SELECT coalesce(sum(CASE WHEN j.fate = 'gone' AND j.place <> 'logs_only' THEN 1 ELSE 0 END), 0) AS orphans,
       coalesce(sum(CASE WHEN j.fate = 'gone' AND j.place <> 'logs_only' THEN j.bytes ELSE 0 END),
       0) AS orphan_bytes,
       count(DISTINCT CASE WHEN j.fate = 'gone' AND j.place <> 'logs_only' THEN j.ledger END) AS
       orphan_ledgers,
       coalesce(sum(CASE WHEN j.fate = 'gone' AND j.place = 'logs_only' THEN j.bytes ELSE 0 END),
       0) AS leftover_bytes,
       count(DISTINCT CASE WHEN j.fate = 'unknown' THEN j.ledger END) AS undecided_ledgers
FROM judged j

-- view disk_count
SELECT count(DISTINCT ledger) AS ledgers FROM on_disk

-- table summary
SELECT d.ledgers, c.orphans, c.orphan_ledgers, c.orphan_bytes, c.leftover_bytes, c.undecided_ledgers,
       CASE WHEN d.ledgers = 0 THEN CAST(0 AS DOUBLE)
            ELSE CAST(c.undecided_ledgers AS DOUBLE) / CAST(d.ledgers AS DOUBLE) END AS share_not_judged
FROM counts c CROSS JOIN disk_count d
