-- view checks
SELECT v.bookie, v.dir, v.log_id, v.ledger, v.digest, v.digest_ok, v.bad_entry, v.bad_offset, v.entries,
       v.bytes
FROM verification v WHERE v.part = 'checks'

-- view damage
SELECT v.kind, v.bookie, v.dir, v.path, v.offset, v.bytes, v.reason
FROM verification v WHERE v.part = 'damage'

-- table bad_entries
SELECT coalesce(c.bookie, '') AS bookie, c.dir, c.log_id, c.bad_offset AS bad_offset, c.ledger,
       c.bad_entry AS entry,
       c.digest, c.bytes AS bytes
FROM checks c WHERE c.digest_ok = FALSE

-- table log_checks
SELECT coalesce(c.bookie, '') AS bookie, c.dir, c.log_id, sum(c.entries) AS entries,
       sum(CASE WHEN c.digest_ok THEN c.entries ELSE 0 END) AS well,
       sum(CASE WHEN c.digest_ok = FALSE THEN c.entries ELSE 0 END) AS bad,
       sum(CASE WHEN c.digest_ok IS NULL THEN c.entries ELSE 0 END) AS unchecked, sum(c.bytes) AS bytes
FROM checks c GROUP BY coalesce(c.bookie, ''), c.dir, c.log_id

-- table unchecked_ledgers
SELECT c.ledger, sum(c.entries) AS entries, count(DISTINCT c.bookie) AS bookies
FROM checks c WHERE c.digest_ok IS NULL GROUP BY c.ledger

-- table damages
SELECT d.kind, coalesce(d.bookie, '') AS bookie, d.dir, d.path, d.offset AS damage_offset, d.bytes, d.reason
FROM damage d

-- view damage_count
SELECT count(*) AS damages FROM damages

-- view totals
SELECT count(*) AS logs, coalesce(sum(l.entries), 0) AS entries, coalesce(sum(l.well), 0) AS well,
       coalesce(sum(l.bad), 0) AS bad_entries, coalesce(sum(l.unchecked), 0) AS unchecked,
       coalesce(sum(l.bytes), 0) AS bytes
FROM log_checks l

-- table summary
SELECT t.logs, t.entries, t.bytes, t.well, t.bad_entries, t.unchecked, d.damages,
       CASE WHEN t.entries = 0 THEN CAST(0 AS DOUBLE)
            ELSE CAST(t.unchecked AS DOUBLE) / CAST(t.entries AS DOUBLE) END AS share_not_judged
FROM totals t CROSS JOIN damage_count d
