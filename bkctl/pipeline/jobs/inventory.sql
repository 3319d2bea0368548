-- view held
SELECT coalesce(r.bookie, '') AS bookie, r.ledger AS ledger, r.first AS low, r.last AS high FROM runs r

-- include stretches

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
