-- view held
SELECT coalesce(r.bookie, '') || ' logs' AS bookie, r.ledger AS ledger, r.first AS low,
       r.last AS high FROM runs r
UNION ALL
SELECT coalesce(r.bookie, '') || ' index' AS bookie, r.ledger AS ledger, r.first AS low, r.last AS high
FROM index_runs r

-- include stretches

-- view known_ledgers
SELECT DISTINCT coalesce(i.bookie, '') AS bookie, i.ledger FROM index_ledgers i

-- view given_bookies
SELECT b.bookie, sum(CASE WHEN b.holds_ledgers THEN 1 ELSE 0 END) < max(b.ledger_dirs) AS lacks_dirs,
       min(CASE WHEN b.index_whole = FALSE THEN 0 ELSE 1 END) = 0 AS lacks_indexes
FROM bookies b WHERE b.bookie IS NOT NULL GROUP BY b.bookie

-- view indexed_bookies
SELECT DISTINCT k.bookie FROM known_ledgers k
WHERE k.bookie NOT IN (SELECT g.bookie FROM given_bookies g WHERE g.lacks_indexes)

-- step records
SELECT coalesce(j.bookie, '') AS bookie, j.journal_id, j.path, j.offset AS record_offset, j.ledger, j.entry,
       j.after_mark,
       l.ledger IS NOT NULL AS in_logs,
       CASE WHEN b.bookie IS NOT NULL THEN x.ledger IS NOT NULL END AS in_index,
       b.bookie IS NULL AS no_index, coalesce(g.lacks_dirs, FALSE) AS lacks_dirs, k.ledger IS NULL AS deleted
FROM journal_entries j
LEFT JOIN stretches l ON l.bookie = coalesce(j.bookie, '') || ' logs' AND l.ledger = j.ledger
                     AND j.entry >= l.low AND j.entry <= l.high
LEFT JOIN stretches x ON x.bookie = coalesce(j.bookie, '') || ' index' AND x.ledger = j.ledger
                     AND j.entry >= x.low AND j.entry <= x.high
LEFT JOIN known_ledgers k ON k.bookie = coalesce(j.bookie, '') AND k.ledger = j.ledger
LEFT JOIN indexed_bookies b ON b.bookie = coalesce(j.bookie, '')
LEFT JOIN given_bookies g ON g.bookie = j.bookie

-- step judged
SELECT r.*,
       CASE WHEN r.in_logs AND (r.in_index IS NULL OR r.in_index) THEN 'flushed'
            WHEN r.after_mark THEN 'to_replay'
            WHEN r.no_index OR (r.lacks_dirs AND NOT r.in_logs) THEN 'undecided'
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

-- view counts
SELECT coalesce(sum(b.records), 0) AS records, coalesce(sum(b.after_mark), 0) AS after_mark,
       coalesce(sum(b.flushed), 0) AS flushed, coalesce(sum(b.to_replay), 0) AS to_replay,
       coalesce(sum(b.deleted), 0) AS deleted, coalesce(sum(b.undecided), 0) AS undecided,
       coalesce(sum(b.unindexed), 0) AS unindexed,
       coalesce(sum(b.lost), 0) AS lost
FROM bookie_journals b

-- table summary
SELECT c.*,
       CASE WHEN c.records = 0 THEN CAST(0 AS DOUBLE)
            ELSE CAST(c.undecided AS DOUBLE) / CAST(c.records AS DOUBLE) END AS share_not_judged
FROM counts c
