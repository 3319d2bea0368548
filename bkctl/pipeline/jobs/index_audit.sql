-- view indexed_dirs
SELECT DISTINCT i.dir FROM index_ledgers i UNION SELECT DISTINCT r.dir FROM index_runs r

-- view log_side
SELECT r.dir, r.ledger, r.log_id, sum(r.entries) AS entries,
       CAST(sum(r.ids_hash) AS BIGINT) % 17592186044416 AS ids_hash
FROM runs r GROUP BY r.dir, r.ledger, r.log_id

-- view index_side
SELECT r.dir, r.ledger, r.log_id, sum(r.entries) AS entries,
       CAST(sum(r.ids_hash) AS BIGINT) % 17592186044416 AS ids_hash
FROM index_runs r GROUP BY r.dir, r.ledger, r.log_id

-- view ledger_rows
SELECT DISTINCT i.dir, i.ledger FROM index_ledgers i

-- step suspects
SELECT DISTINCT coalesce(l.dir, i.dir) AS dir, coalesce(l.ledger, i.ledger) AS ledger
FROM log_side l
FULL OUTER JOIN index_side i ON i.dir = l.dir AND i.ledger = l.ledger AND i.log_id = l.log_id
LEFT JOIN ledger_rows w ON w.dir = l.dir AND w.ledger = l.ledger
JOIN indexed_dirs x ON x.dir = coalesce(l.dir, i.dir)
WHERE l.ledger IS NULL
   OR (i.ledger IS NULL AND w.ledger IS NOT NULL)
   OR (i.ledger IS NOT NULL AND (l.entries <> i.entries OR l.ids_hash <> i.ids_hash))

-- expand suspects

-- view copies
SELECT e.dir, e.ledger, e.entry, e.log_id, e.offset AS place
FROM suspect_entries e JOIN suspects s ON s.dir = e.dir AND s.ledger = e.ledger

-- step newest
SELECT c.dir, c.ledger, c.entry, max(c.log_id * 4294967296 + c.place) AS location, count(*) AS copies
FROM copies c GROUP BY c.dir, c.ledger, c.entry

-- step rows
SELECT DISTINCT i.dir, i.ledger, i.entry, i.log_id, i.offset AS place
FROM suspect_locations i JOIN suspects s ON s.dir = i.dir AND s.ledger = i.ledger

-- view pending
SELECT DISTINCT u.bookie, u.ledger, u.entry FROM unflushed u

-- view dir_bookies
SELECT l.dir, max(coalesce(l.bookie, '')) AS bookie FROM logs l GROUP BY l.dir
UNION ALL
SELECT i.dir, max(coalesce(i.bookie, '')) AS bookie FROM index_ledgers i
WHERE i.dir NOT IN (SELECT dir FROM logs) GROUP BY i.dir

-- step joined
SELECT coalesce(n.dir, r.dir) AS dir, coalesce(n.ledger, r.ledger) AS ledger, coalesce(n.entry,
       r.entry) AS entry,
       r.log_id AS index_log_id, r.place AS index_offset,
       quotient(n.location, 4294967296) AS log_id, n.location % 4294967296 AS log_offset, n.copies,
       CASE WHEN n.dir IS NULL THEN 'dangling'
            WHEN r.dir IS NULL THEN 'missing'
            WHEN n.location = r.log_id * 4294967296 + r.place THEN 'ok'
            WHEN c.dir IS NOT NULL THEN 'stale'
            ELSE 'mismatch' END AS kind
FROM newest n
FULL OUTER JOIN rows r ON r.dir = n.dir AND r.ledger = n.ledger AND r.entry = n.entry
LEFT JOIN copies c ON c.dir = r.dir AND c.ledger = r.ledger AND c.entry = r.entry AND c.log_id = r.log_id
                  AND c.place = r.place

-- step judged
SELECT coalesce(d.bookie, '') AS bookie, j.dir, j.ledger, j.entry, j.index_log_id, j.index_offset, j.log_id,
       j.log_offset, j.copies,
       CASE WHEN j.kind = 'missing' AND p.entry IS NOT NULL THEN 'to_replay'
            WHEN j.kind = 'missing' AND w.ledger IS NULL THEN 'garbage'
            ELSE j.kind END AS kind
FROM joined j
LEFT JOIN dir_bookies d ON d.dir = j.dir
LEFT JOIN pending p ON p.bookie = d.bookie AND p.ledger = j.ledger AND p.entry = j.entry
LEFT JOIN ledger_rows w ON w.dir = j.dir AND w.ledger = j.ledger

-- table index_findings
SELECT * FROM judged j WHERE j.kind IN ('dangling', 'missing', 'mismatch')

-- table stale_locations
SELECT * FROM judged j WHERE j.kind = 'stale'

-- table ledger_findings
SELECT j.bookie, j.dir, j.ledger, j.kind, count(*) AS entries, min(j.entry) AS first_entry,
       max(j.entry) AS last_entry
FROM judged j WHERE j.kind <> 'ok'
GROUP BY j.bookie, j.dir, j.ledger, j.kind

-- view not_indexed
SELECT count(d.dir) AS dirs_without_index,
       CASE WHEN count(*) = 0 THEN CAST(0 AS DOUBLE)
            ELSE CAST(count(d.dir) AS DOUBLE) / CAST(count(*) AS DOUBLE) END AS share_not_judged
FROM (SELECT DISTINCT l.dir AS log_dir FROM logs l) a
LEFT JOIN (SELECT DISTINCT l.dir FROM logs l WHERE l.dir NOT IN (SELECT dir FROM indexed_dirs)) d
       ON d.dir = a.log_dir

-- view sides
SELECT (SELECT coalesce(sum(entries), 0) FROM log_side) AS records,
       (SELECT coalesce(sum(entries), 0) FROM index_side) AS locations,
       (SELECT count(*) FROM suspects) AS ledgers_expanded

-- view counts
SELECT coalesce(sum(CASE WHEN j.kind = 'dangling' THEN 1 ELSE 0 END), 0) AS dangling,
       coalesce(sum(CASE WHEN j.kind = 'missing' THEN 1 ELSE 0 END), 0) AS missing,
       coalesce(sum(CASE WHEN j.kind = 'mismatch' THEN 1 ELSE 0 END), 0) AS mismatched,
       coalesce(sum(CASE WHEN j.kind = 'stale' THEN 1 ELSE 0 END), 0) AS stale,
       coalesce(sum(CASE WHEN j.kind = 'to_replay' THEN 1 ELSE 0 END), 0) AS to_replay,
       coalesce(sum(CASE WHEN j.kind = 'garbage' THEN 1 ELSE 0 END), 0) AS garbage,
       coalesce(sum(j.copies - 1), 0) AS older_copies
FROM judged j

-- table summary
SELECT s.records, s.locations, s.ledgers_expanded, c.dangling, c.missing, c.mismatched, c.stale, c.to_replay,
       c.garbage, c.older_copies, n.dirs_without_index,
       n.share_not_judged
FROM sides s CROSS JOIN counts c CROSS JOIN not_indexed n
