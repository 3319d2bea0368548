-- view totals
SELECT count(*) AS records, coalesce(sum(CASE WHEN r.payload_crc IS NULL THEN 1 ELSE 0 END), 0) AS uncompared
FROM replicas r

-- step suspects
SELECT r.ledger, r.entry
FROM replicas r WHERE r.payload_crc IS NOT NULL
GROUP BY r.ledger, r.entry
HAVING min(r.payload_crc) <> max(r.payload_crc) OR min(r.payload_bytes) <> max(r.payload_bytes)
    OR min(r.lac) <> max(r.lac) OR min(r.ledger_length) <> max(r.ledger_length)

-- view ranked
SELECT coalesce(r.bookie, r.dir) AS holder, coalesce(r.bookie, '') AS bookie, r.dir, r.log_id,
       r.offset AS log_offset,
       r.ledger, r.entry, r.lac, r.ledger_length, r.payload_bytes, r.payload_crc, r.digest_ok,
       row_number() OVER (PARTITION BY coalesce(r.bookie, r.dir), r.ledger, r.entry
                          ORDER BY r.log_id DESC, r.offset DESC, r.dir) AS age
FROM replicas r JOIN suspects s ON s.ledger = r.ledger AND s.entry = r.entry
WHERE r.payload_crc IS NOT NULL

-- step newest
SELECT * FROM ranked WHERE age = 1

-- step kinds
SELECT n.ledger, n.entry, count(*) AS replicas,
       CASE WHEN min(n.payload_crc) <> max(n.payload_crc) OR min(n.payload_bytes) <> max(n.payload_bytes)
            THEN 'payload' ELSE 'header' END AS kind
FROM newest n GROUP BY n.ledger, n.entry
HAVING min(n.payload_crc) <> max(n.payload_crc) OR min(n.payload_bytes) <> max(n.payload_bytes)
    OR min(n.lac) <> max(n.lac) OR min(n.ledger_length) <> max(n.ledger_length)

-- view details
SELECT k.kind, n.ledger, n.entry, n.bookie, n.dir, n.log_id, n.log_offset, n.payload_bytes, n.payload_crc,
       n.lac,
       n.ledger_length, n.digest_ok
FROM newest n JOIN kinds k ON k.ledger = n.ledger AND k.entry = n.entry

-- table divergent
SELECT * FROM details d WHERE d.kind = 'payload'

-- table header_differences
SELECT * FROM details d WHERE d.kind = 'header'

-- table ledger_divergence
SELECT k.ledger, sum(CASE WHEN k.kind = 'payload' THEN 1 ELSE 0 END) AS payload_differs,
       sum(CASE WHEN k.kind = 'header' THEN 1 ELSE 0 END) AS header_differs,
       min(k.entry) AS first_entry, max(k.entry) AS last_entry
FROM kinds k GROUP BY k.ledger

-- view counts
SELECT coalesce(sum(CASE WHEN k.kind = 'payload' THEN 1 ELSE 0 END), 0) AS payload_differs,
       coalesce(sum(CASE WHEN k.kind = 'header' THEN 1 ELSE 0 END), 0) AS header_differs,
       count(DISTINCT CASE WHEN k.kind = 'payload' THEN k.ledger END) AS ledgers_divergent
FROM kinds k

-- view copy_counts
SELECT count(*) AS entries, coalesce(sum(CASE WHEN e.holders > 1 THEN 1 ELSE 0 END), 0) AS entries_compared
FROM (SELECT r.ledger, r.entry, count(DISTINCT coalesce(r.bookie, r.dir)) AS holders
      FROM replicas r WHERE r.payload_crc IS NOT NULL GROUP BY r.ledger, r.entry) e

-- table summary
SELECT t.records, e.entries, e.entries_compared, c.payload_differs, c.header_differs, c.ledgers_divergent,
       t.uncompared
FROM totals t CROSS JOIN copy_counts e CROSS JOIN counts c
