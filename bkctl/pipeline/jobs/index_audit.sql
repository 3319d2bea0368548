-- view given_dirs
SELECT b.dir, max(coalesce(b.index_space, b.dir)) AS space,
       min(CASE WHEN coalesce(b.index_whole, b.ledger_dirs = 1, FALSE) THEN 1 ELSE 0 END) AS whole
FROM bookies b GROUP BY b.dir

-- view seen_dirs
SELECT DISTINCT l.dir FROM logs l
UNION SELECT DISTINCT i.dir FROM index_ledgers i
UNION SELECT DISTINCT r.dir FROM index_runs r

-- step dir_spaces
SELECT d.dir, coalesce(g.space, d.dir) AS space, coalesce(g.whole, 1) AS whole
FROM seen_dirs d LEFT JOIN given_dirs g ON g.dir = d.dir

-- view log_sums
SELECT d.space, r.ledger, r.log_id, sum(r.entries) AS entries,
       CAST(sum(quotient(r.ids_hash, 4194304)) AS BIGINT) AS high_sum,
       CAST(sum(r.ids_hash % 4194304) AS BIGINT) AS low_sum
FROM runs r JOIN dir_spaces d ON d.dir = r.dir GROUP BY d.space, r.ledger, r.log_id

-- view log_side
SELECT s.space, s.ledger, s.log_id, s.entries,
       (s.high_sum % 4194304 * 4194304 + s.low_sum) % 17592186044416 AS ids_hash
FROM log_sums s

-- view index_sums
SELECT d.space, r.ledger, r.log_id, sum(r.entries) AS entries,
       CAST(sum(quotient(r.ids_hash, 4194304)) AS BIGINT) AS high_sum,
       CAST(sum(r.ids_hash % 4194304) AS BIGINT) AS low_sum
FROM index_runs r JOIN dir_spaces d ON d.dir = r.dir GROUP BY d.space, r.ledger, r.log_id

-- view index_side
SELECT s.space, s.ledger, s.log_id, s.entries,
       (s.high_sum % 4194304 * 4194304 + s.low_sum) % 17592186044416 AS ids_hash
FROM index_sums s

-- view ledger_rows
SELECT DISTINCT d.space, i.ledger FROM index_ledgers i JOIN dir_spaces d ON d.dir = i.dir

-- view whole_spaces
SELECT d.space FROM dir_spaces d GROUP BY d.space HAVING min(d.whole) = 1

-- step judged_spaces
SELECT w.space FROM whole_spaces w
JOIN (SELECT space FROM ledger_rows UNION SELECT space FROM index_side) x ON x.space = w.space

-- step suspects
SELECT DISTINCT coalesce(l.space, i.space) AS space, coalesce(l.ledger, i.ledger) AS ledger
FROM log_side l
FULL OUTER JOIN index_side i ON i.space = l.space AND i.ledger = l.ledger AND i.log_id = l.log_id
LEFT JOIN ledger_rows w ON w.space = l.space AND w.ledger = l.ledger
JOIN judged_spaces x ON x.space = coalesce(l.space, i.space)
WHERE l.ledger IS NULL
   OR (i.ledger IS NULL AND w.ledger IS NOT NULL)
   OR (i.ledger IS NOT NULL AND (l.entries <> i.entries OR l.ids_hash <> i.ids_hash))

-- expand suspects

-- view log_ends
SELECT l.dir, l.log_id, max(l.bytes) AS bytes FROM logs l GROUP BY l.dir, l.log_id

-- view copies
SELECT d.space, d.dir, e.ledger, e.entry, e.log_id, e.offset AS place,
       CASE WHEN e.offset < l.bytes THEN 0 ELSE 1 END AS flushed_since
FROM suspect_entries e
JOIN dir_spaces d ON d.dir = e.dir
JOIN suspects s ON s.space = d.space AND s.ledger = e.ledger
LEFT JOIN log_ends l ON l.dir = e.dir AND l.log_id = e.log_id

-- step newest
SELECT c.space, c.ledger, c.entry, max(c.log_id * 4294967296 + c.place) AS location, count(*) AS copies,
       min(c.flushed_since) AS flushed_since
FROM copies c GROUP BY c.space, c.ledger, c.entry

-- step rows
SELECT DISTINCT d.space, d.dir, i.ledger, i.entry, i.log_id, i.offset AS place
FROM suspect_locations i
JOIN dir_spaces d ON d.dir = i.dir
JOIN suspects s ON s.space = d.space AND s.ledger = i.ledger

-- view log_dirs
SELECT d.space, l.log_id, min(l.dir) AS dir FROM logs l JOIN dir_spaces d ON d.dir = l.dir
GROUP BY d.space, l.log_id

-- view pending
SELECT DISTINCT u.bookie, u.ledger, u.entry FROM unflushed u

-- view dir_bookies
SELECT l.dir, max(coalesce(l.bookie, '')) AS bookie FROM logs l GROUP BY l.dir
UNION ALL
SELECT i.dir, max(coalesce(i.bookie, '')) AS bookie FROM index_ledgers i
WHERE i.dir NOT IN (SELECT dir FROM logs) GROUP BY i.dir

-- view bookies_ledgers
SELECT DISTINCT b.bookie, w.ledger
FROM (SELECT space, ledger FROM ledger_rows UNION SELECT space, ledger FROM index_side) w
JOIN dir_spaces d ON d.space = w.space
JOIN dir_bookies b ON b.dir = d.dir

-- view named_ledgers
SELECT DISTINCT f.bookie, f.ledger FROM fragments_after f CROSS JOIN parameters p WHERE p.two_snapshots

-- step lost
SELECT b.bookie, min(r.dir) AS dir, r.ledger, sum(r.entries) AS entries
FROM runs r
JOIN dir_spaces d ON d.dir = r.dir
JOIN judged_spaces x ON x.space = d.space
JOIN dir_bookies b ON b.dir = r.dir
JOIN named_ledgers n ON n.bookie = b.bookie AND n.ledger = r.ledger
LEFT JOIN bookies_ledgers w ON w.bookie = b.bookie AND w.ledger = r.ledger
LEFT JOIN (SELECT DISTINCT bookie, ledger FROM pending) u ON u.bookie = b.bookie AND u.ledger = r.ledger
WHERE w.ledger IS NULL AND u.ledger IS NULL
GROUP BY b.bookie, r.ledger

-- step joined
SELECT coalesce(n.space, r.space) AS space, r.dir, coalesce(n.ledger, r.ledger) AS ledger,
       coalesce(n.entry, r.entry) AS entry,
       r.log_id AS index_log_id, r.place AS index_offset,
       quotient(n.location, 4294967296) AS log_id, n.location % 4294967296 AS log_offset, n.copies,
       CASE WHEN n.space IS NULL THEN 'dangling'
            WHEN r.space IS NULL AND n.flushed_since = 1 THEN 'ok'
            WHEN r.space IS NULL THEN 'missing'
            WHEN n.location = r.log_id * 4294967296 + r.place THEN 'ok'
            WHEN c.space IS NOT NULL THEN 'stale'
            ELSE 'mismatch' END AS kind
FROM newest n
FULL OUTER JOIN rows r ON r.space = n.space AND r.ledger = n.ledger AND r.entry = n.entry
LEFT JOIN copies c ON c.space = r.space AND c.ledger = r.ledger AND c.entry = r.entry AND c.log_id = r.log_id
                  AND c.place = r.place

-- view located
SELECT j.space, coalesce(j.dir, g.dir) AS dir, j.ledger, j.entry, j.index_log_id, j.index_offset, j.log_id,
       j.log_offset, j.copies, j.kind
FROM joined j LEFT JOIN log_dirs g ON g.space = j.space AND g.log_id = j.log_id

-- step judged
SELECT coalesce(d.bookie, '') AS bookie, j.dir, j.ledger, j.entry, j.index_log_id, j.index_offset, j.log_id,
       j.log_offset, j.copies,
       CASE WHEN j.kind = 'missing' AND p.entry IS NOT NULL THEN 'to_replay'
            WHEN j.kind = 'missing' AND w.ledger IS NULL THEN 'garbage'
            ELSE j.kind END AS kind
FROM located j
LEFT JOIN dir_bookies d ON d.dir = j.dir
LEFT JOIN pending p ON p.bookie = d.bookie AND p.ledger = j.ledger AND p.entry = j.entry
LEFT JOIN ledger_rows w ON w.space = j.space AND w.ledger = j.ledger

-- table index_findings
SELECT * FROM judged j WHERE j.kind IN ('dangling', 'missing', 'mismatch')

-- table stale_locations
SELECT * FROM judged j WHERE j.kind = 'stale'

-- table ledger_findings
SELECT j.bookie, j.dir, j.ledger, j.kind, count(*) AS entries, min(j.entry) AS first_entry,
       max(j.entry) AS last_entry
FROM judged j WHERE j.kind <> 'ok'
GROUP BY j.bookie, j.dir, j.ledger, j.kind
UNION ALL
SELECT l.bookie, l.dir, l.ledger, 'lost' AS kind, l.entries, CAST(NULL AS BIGINT) AS first_entry,
       CAST(NULL AS BIGINT) AS last_entry
FROM lost l

-- view not_indexed
SELECT coalesce(sum(CASE WHEN x.space IS NULL THEN 1 ELSE 0 END), 0) AS dirs_without_index,
       CASE WHEN count(*) = 0 THEN CAST(0 AS DOUBLE)
            ELSE CAST(sum(CASE WHEN x.space IS NULL THEN 1 ELSE 0 END) AS DOUBLE) / CAST(count(*) AS DOUBLE)
            END AS share_not_judged
FROM dir_spaces d LEFT JOIN judged_spaces x ON x.space = d.space

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

-- view lost_count
SELECT count(*) AS lost_ledgers FROM lost

-- table summary
SELECT s.records, s.locations, s.ledgers_expanded, c.dangling, c.missing, c.mismatched, o.lost_ledgers, c.stale, c.to_replay,
       c.garbage, c.older_copies, n.dirs_without_index,
       n.share_not_judged
FROM sides s CROSS JOIN counts c CROSS JOIN lost_count o CROSS JOIN not_indexed n
