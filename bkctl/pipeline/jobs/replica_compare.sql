-- view block_steps
SELECT b.ledger, coalesce(max(CASE WHEN b.step < 60 THEN b.step END), 60) AS step FROM blocks b GROUP BY b.ledger

-- step block_sums
SELECT coalesce(b.bookie, b.dir) AS holder, b.ledger, b.block,
       CASE WHEN b.step % s.step = 0 THEN b.residue % s.step ELSE -1 END AS residue,
       CAST(sum(b.entries) AS BIGINT) AS entries, CAST(sum(b.digest) AS BIGINT) % 17592186044416 AS digest
FROM blocks b JOIN block_steps s ON s.ledger = b.ledger
GROUP BY coalesce(b.bookie, b.dir), b.ledger, b.block,
         CASE WHEN b.step % s.step = 0 THEN b.residue % s.step ELSE -1 END

-- view most_entries
SELECT b.ledger, b.block, b.residue, max(b.entries) AS entries, count(*) AS holders
FROM block_sums b GROUP BY b.ledger, b.block, b.residue

-- step block_groups
SELECT b.ledger, b.block, b.residue, m.entries, m.holders,
       min(CASE WHEN b.entries = m.entries THEN b.digest END) AS low_digest,
       max(CASE WHEN b.entries = m.entries THEN b.digest END) AS high_digest,
       CAST(sum(CASE WHEN b.entries < m.entries THEN b.entries ELSE 0 END) AS BIGINT) AS part_entries,
       CAST(sum(CASE WHEN b.entries < m.entries THEN b.digest ELSE 0 END) AS BIGINT) % 17592186044416
           AS part_digest
FROM block_sums b
JOIN most_entries m ON m.ledger = b.ledger AND m.block = b.block AND m.residue = b.residue
GROUP BY b.ledger, b.block, b.residue, m.entries, m.holders

-- view block_verdicts
SELECT g.ledger, g.block, g.residue, g.entries, g.holders,
       CASE WHEN g.residue < 0 THEN 'undecided'
            WHEN g.holders = 1 THEN 'alone'
            WHEN g.low_digest <> g.high_digest THEN 'undecided'
            WHEN g.part_entries = 0 THEN 'same'
            WHEN g.part_entries % g.entries = 0
                 AND (quotient(g.part_entries, g.entries) * g.low_digest) % 17592186044416 = g.part_digest
            THEN 'same'
            ELSE 'undecided' END AS verdict
FROM block_groups g

-- view block_holders
SELECT DISTINCT b.ledger, b.block, b.holder FROM block_sums b

-- view undecided_blocks
SELECT DISTINCT v.ledger, v.block FROM block_verdicts v WHERE v.verdict = 'undecided'

-- view expanded
SELECT DISTINCT x.bookie, x.ledger, x.block FROM expanded_blocks x

-- view expanded_anywhere
SELECT DISTINCT x.ledger, x.block FROM expanded_blocks x

-- step unexpanded
SELECT h.ledger, h.block
FROM block_holders h
JOIN undecided_blocks u ON u.ledger = h.ledger AND u.block = h.block
LEFT JOIN expanded x ON x.ledger = h.ledger AND x.block = h.block AND x.bookie = h.holder
GROUP BY h.ledger, h.block
HAVING sum(CASE WHEN x.ledger IS NULL THEN 1 ELSE 0 END) > 0 AND count(*) > 1

-- table blocks_to_compare
SELECT h.holder AS bookie, h.ledger, h.block, h.block * 1024 AS first_entry, h.block * 1024 + 1023 AS last_entry
FROM block_holders h JOIN unexpanded u ON u.ledger = h.ledger AND u.block = h.block

-- view block_counts
SELECT coalesce(sum(v.entries), 0) AS entries,
       coalesce(sum(CASE WHEN v.verdict = 'same' THEN v.entries ELSE 0 END), 0) AS entries_compared
FROM block_verdicts v LEFT JOIN expanded_anywhere x ON x.ledger = v.ledger AND x.block = v.block
WHERE v.verdict <> 'undecided' AND x.ledger IS NULL

-- view block_totals
SELECT coalesce(sum(b.entries), 0) AS records FROM block_sums b

-- view blocks_count
SELECT count(*) AS blocks FROM (SELECT DISTINCT b.ledger, b.block FROM block_sums b) d

-- view unexpanded_count
SELECT count(*) AS blocks_undecided FROM unexpanded u

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
SELECT CASE WHEN n.blocks = 0 THEN t.records ELSE r.records END AS records, e.entries + b.entries AS entries,
       e.entries_compared + b.entries_compared AS entries_compared, c.payload_differs, c.header_differs,
       c.ledgers_divergent, t.uncompared, n.blocks, u.blocks_undecided,
       CASE WHEN n.blocks > 0 THEN CAST(u.blocks_undecided AS DOUBLE) / CAST(n.blocks AS DOUBLE)
            WHEN t.records = 0 THEN CAST(0 AS DOUBLE)
            ELSE CAST(t.uncompared AS DOUBLE) / CAST(t.records AS DOUBLE) END AS share_not_judged
FROM totals t CROSS JOIN copy_counts e CROSS JOIN counts c CROSS JOIN block_counts b CROSS JOIN block_totals r
CROSS JOIN blocks_count n CROSS JOIN unexpanded_count u
