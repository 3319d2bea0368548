-- view disk_ledgers
SELECT coalesce(l.bookie, '') AS bookie, l.ledger, sum(l.bytes) AS bytes
FROM log_ledgers l GROUP BY coalesce(l.bookie, ''), l.ledger

-- view disk_bytes
SELECT d.ledger, sum(d.bytes) AS bytes, count(*) AS bookies FROM disk_ledgers d GROUP BY d.ledger

-- step sized
SELECT l.ledger, l.state, l.digest, l.ensemble_size, l.write_quorum, l.ack_quorum, l.ctime_ms, l.last_entry,
       l.application, l.topic,
       greatest(coalesce(l.length, 0), 0) AS bytes, coalesce(d.bytes, 0) AS disk_bytes,
       CASE WHEN l.ctime_ms >= 0 THEN greatest(p.now_ms - l.ctime_ms, 0) END AS age_ms
FROM ledgers l LEFT JOIN disk_bytes d ON d.ledger = l.ledger CROSS JOIN parameters p

-- table size_histogram
SELECT b.rank, b.label, count(s.ledger) AS ledgers, coalesce(sum(s.bytes), 0) AS bytes
FROM size_buckets b LEFT JOIN sized s ON s.bytes >= b.low AND (b.high IS NULL OR s.bytes < b.high)
     AND s.state = 'CLOSED'
GROUP BY b.rank, b.label

-- table age_histogram
SELECT b.rank, b.label, count(s.ledger) AS ledgers, coalesce(sum(s.bytes), 0) AS bytes
FROM age_buckets b LEFT JOIN sized s ON s.age_ms >= b.low AND (b.high IS NULL OR s.age_ms < b.high)
GROUP BY b.rank, b.label

-- table ledger_settings
SELECT s.state, s.digest, s.ensemble_size, s.write_quorum, s.ack_quorum, count(*) AS ledgers,
       sum(s.bytes) AS bytes
FROM sized s GROUP BY s.state, s.digest, s.ensemble_size, s.write_quorum, s.ack_quorum

-- view by_size
SELECT s.*, row_number() OVER (ORDER BY s.disk_bytes DESC, s.bytes DESC, s.ledger) AS rank FROM sized s

-- table largest_ledgers
SELECT b.rank, b.ledger, b.state, b.bytes, b.disk_bytes, b.last_entry, b.ctime_ms, b.age_ms,
       b.application, b.topic
FROM by_size b CROSS JOIN parameters p WHERE b.rank <= p.top

-- table ledger_owners
SELECT s.application, s.topic, count(*) AS ledgers,
       sum(CASE WHEN s.state = 'CLOSED' THEN 0 ELSE 1 END) AS ledgers_not_closed,
       sum(s.bytes) AS bytes, sum(s.disk_bytes) AS disk_bytes
FROM sized s GROUP BY s.application, s.topic

-- view bookie_disk
SELECT d.bookie, sum(d.bytes) AS bytes, count(*) AS ledgers FROM disk_ledgers d GROUP BY d.bookie

-- view bookie_logs
SELECT coalesce(l.bookie, '') AS bookie, count(*) AS logs, sum(l.bytes) AS log_bytes,
       min(l.mtime_ms) AS oldest_log_ms
FROM logs l GROUP BY coalesce(l.bookie, '')

-- view bookie_fragments
SELECT f.bookie, count(DISTINCT f.ledger) AS ledgers FROM fragments f GROUP BY f.bookie

-- view bookie_names
SELECT bookie FROM bookie_logs UNION SELECT bookie FROM bookie_fragments

-- view bookie_rows
SELECT n.bookie, coalesce(l.logs, 0) AS logs, coalesce(l.log_bytes, 0) AS log_bytes,
       coalesce(d.bytes, 0) AS entry_bytes, coalesce(d.ledgers, 0) AS ledgers_on_disk,
       coalesce(f.ledgers, 0) AS ledgers_in_metadata, l.oldest_log_ms, l.bookie IS NOT NULL AS examined
FROM bookie_names n
LEFT JOIN bookie_logs l ON l.bookie = n.bookie
LEFT JOIN bookie_disk d ON d.bookie = n.bookie
LEFT JOIN bookie_fragments f ON f.bookie = n.bookie

-- view mean_bytes
SELECT avg(CAST(b.log_bytes AS DOUBLE)) AS log_bytes FROM bookie_rows b WHERE b.examined

-- table bookie_skew
SELECT b.bookie, b.logs, b.log_bytes, b.entry_bytes, b.ledgers_on_disk, b.ledgers_in_metadata,
       b.oldest_log_ms,
       CASE WHEN b.examined AND m.log_bytes > 0 THEN CAST(b.log_bytes AS DOUBLE) / m.log_bytes END AS of_mean
FROM bookie_rows b CROSS JOIN mean_bytes m

-- view ledger_totals
SELECT count(*) AS ledgers, coalesce(sum(CASE WHEN s.state = 'CLOSED' THEN 0 ELSE 1 END),
       0) AS ledgers_not_closed,
       coalesce(sum(s.bytes), 0) AS bytes, max(s.bytes) AS largest_bytes, max(s.age_ms) AS oldest_ms
FROM sized s

-- view bookie_totals
SELECT count(*) AS bookies, coalesce(sum(b.log_bytes), 0) AS log_bytes, max(b.of_mean) AS fullest_of_mean,
       min(b.of_mean) AS emptiest_of_mean
FROM bookie_skew b

-- table summary
SELECT l.ledgers, l.ledgers_not_closed, l.bytes, l.largest_bytes, l.oldest_ms, b.bookies, b.log_bytes,
       b.fullest_of_mean,
       b.emptiest_of_mean
FROM ledger_totals l CROSS JOIN bookie_totals b
