-- view held_stripes
SELECT r.bookie, r.ledger, r.first AS low, r.last AS high, CAST(r.step AS BIGINT) AS step,
       CAST(r.width AS BIGINT) AS width, CAST(r.phase AS BIGINT) AS phase
FROM striped_runs r WHERE r.bookie IS NOT NULL
UNION ALL
SELECT u.bookie, u.ledger, u.entry AS low, u.entry AS high, CAST(1 AS BIGINT) AS step,
       CAST(1 AS BIGINT) AS width, CAST(0 AS BIGINT) AS phase
FROM unflushed u WHERE u.bookie IS NOT NULL

-- view given_bookies
SELECT b.bookie, sum(CASE WHEN b.holds_ledgers THEN 1 ELSE 0 END) AS ledger_dirs_given,
       sum(CASE WHEN b.holds_journals THEN 1 ELSE 0 END) AS journal_dirs_given,
       max(b.ledger_dirs) AS ledger_dirs, max(b.journal_dirs) AS journal_dirs
FROM bookies b WHERE b.bookie IS NOT NULL GROUP BY b.bookie

-- step bookie_roles
SELECT n.bookie,
       CASE WHEN e.bookie IS NOT NULL THEN 'gone'
            WHEN g.bookie IS NULL AND p.complete THEN 'gone'
            WHEN g.bookie IS NULL THEN 'not_examined'
            WHEN p.complete THEN 'examined'
            WHEN g.ledger_dirs_given < g.ledger_dirs OR g.journal_dirs_given < g.journal_dirs
            THEN 'partly_examined'
            ELSE 'examined' END AS role
FROM (SELECT bookie FROM fragments UNION SELECT bookie FROM given_bookies UNION SELECT bookie FROM
gone_bookies) n
LEFT JOIN given_bookies g ON g.bookie = n.bookie
LEFT JOIN gone_bookies e ON e.bookie = n.bookie
CROSS JOIN parameters p

-- view confirmed
SELECT r.ledger, CASE WHEN max(r.max_lac) > max(r.last) THEN max(r.last) ELSE max(r.max_lac) END AS lac
FROM striped_runs r GROUP BY r.ledger

-- view last_held
SELECT h.bookie, h.ledger, max(h.high) AS last_held FROM held_stripes h GROUP BY h.bookie, h.ledger

-- view placed
SELECT f.ledger, f.state, f.first_entry, f.last_entry, CAST(f.slot AS BIGINT) AS slot, f.bookie,
       CAST(f.ensemble_size AS BIGINT) AS ensemble_size, CAST(f.write_quorum AS BIGINT) AS write_quorum,
       CAST(f.ack_quorum AS BIGINT) AS ack_quorum, r.role,
       CASE WHEN l.ledger IS NULL THEN 'ledger deleted meanwhile'
            WHEN a.ledger IS NULL THEN 'replica moved meanwhile' END AS unknown_because,
       CASE WHEN f.last_entry IS NOT NULL THEN f.last_entry
            ELSE greatest(f.first_entry - 1,
                          least(coalesce(c.lac, f.first_entry - 1), coalesce(a.last_entry, c.lac, -1)))
            END AS confirmed_to,
       coalesce(t.last_held, -1) AS last_held
FROM fragments f
JOIN bookie_roles r ON r.bookie = f.bookie
LEFT JOIN ledgers_after l ON l.ledger = f.ledger
LEFT JOIN fragments_after a ON a.ledger = f.ledger AND a.first_entry = f.first_entry AND a.slot = f.slot
                               AND a.bookie = f.bookie
LEFT JOIN confirmed c ON c.ledger = f.ledger
LEFT JOIN last_held t ON t.ledger = f.ledger AND t.bookie = f.bookie

-- view bounded
SELECT p.ledger, p.state, p.first_entry, p.last_entry, p.slot, p.bookie, p.ensemble_size, p.write_quorum,
       p.ack_quorum, p.role, p.unknown_because, p.confirmed_to,
       CASE WHEN p.last_entry IS NOT NULL OR p.role = 'gone' THEN p.confirmed_to
            ELSE greatest(p.first_entry - 1, least(p.confirmed_to, p.last_held)) END AS judged_to
FROM placed p

-- step slots
SELECT b.ledger, b.state, b.first_entry, b.last_entry, b.slot, b.bookie, b.ensemble_size, b.write_quorum,
       b.ack_quorum, b.role, b.unknown_because, b.judged_to, b.confirmed_to,
       CASE WHEN b.judged_to < b.first_entry THEN 0
            ELSE entries_on_slot(b.judged_to + 1, b.slot, b.ensemble_size, b.write_quorum)
                 - entries_on_slot(b.first_entry, b.slot, b.ensemble_size, b.write_quorum) END AS expected,
       CASE WHEN b.confirmed_to <= b.judged_to THEN 0
            ELSE entries_on_slot(b.confirmed_to + 1, b.slot, b.ensemble_size, b.write_quorum)
                 - entries_on_slot(b.judged_to + 1, b.slot, b.ensemble_size, b.write_quorum) END AS not_judged
FROM bounded b

-- view of_slot
SELECT s.ledger, s.first_entry, s.slot, s.bookie, s.ensemble_size, s.write_quorum, s.judged_to,
       h.low, h.high, h.step, h.width, h.phase,
       h.step = 1 OR (h.step = s.ensemble_size AND h.width = s.write_quorum
                      AND remainder(s.slot - h.phase, s.ensemble_size) = s.write_quorum - 1) AS whole
FROM slots s
JOIN held_stripes h ON h.bookie = s.bookie AND h.ledger = s.ledger
WHERE s.role IN ('examined', 'partly_examined') AND h.high >= s.first_entry AND h.low <= s.judged_to

-- view taken_apart
SELECT o.*,
       greatest(o.low, o.first_entry) - remainder(greatest(o.low, o.first_entry) - o.phase, o.step) AS begins_at,
       least(o.high, o.judged_to) AS ends_at
FROM of_slot o WHERE NOT o.whole

-- view apart
SELECT t.*, each_of(steps_between(t.begins_at, t.ends_at, t.step)) AS begins FROM taken_apart t

-- view slot_runs
SELECT o.ledger, o.first_entry, o.slot, o.bookie, o.ensemble_size, o.write_quorum, o.judged_to, o.low, o.high
FROM of_slot o WHERE o.whole
UNION ALL
SELECT a.ledger, a.first_entry, a.slot, a.bookie, a.ensemble_size, a.write_quorum, a.judged_to,
       greatest(a.low, a.begins) AS low, least(a.high, a.begins + a.width - 1) AS high
FROM apart a
WHERE greatest(a.low, a.begins, a.first_entry) <= least(a.high, a.begins + a.width - 1, a.judged_to)

-- view slot_spans
SELECT r.ledger, r.first_entry, r.slot, r.bookie, r.ensemble_size, r.write_quorum,
       greatest(r.first_entry, last_on_slot(r.low - 1, r.slot, r.ensemble_size, r.write_quorum) + 1) AS low,
       least(r.judged_to, next_on_slot(r.high + 1, r.slot, r.ensemble_size, r.write_quorum) - 1) AS high
FROM slot_runs r

-- view spans_once
SELECT p.ledger, p.first_entry, p.slot, p.bookie, p.ensemble_size, p.write_quorum, p.low, max(p.high) AS high
FROM slot_spans p
GROUP BY p.ledger, p.first_entry, p.slot, p.bookie, p.ensemble_size, p.write_quorum, p.low

-- view spans_marked
SELECT p.*,
       CASE WHEN p.low <= 1 + max(p.high) OVER (
                PARTITION BY p.ledger, p.first_entry, p.slot ORDER BY p.low
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            THEN 0 ELSE 1 END AS begins
FROM spans_once p

-- view spans_numbered
SELECT m.*,
       sum(m.begins) OVER (
           PARTITION BY m.ledger, m.first_entry, m.slot ORDER BY m.low
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS stretch
FROM spans_marked m

-- step held_parts
SELECT n.ledger, n.first_entry, n.slot, n.bookie, n.ensemble_size, n.write_quorum, min(n.low) AS low,
       max(n.high) AS high
FROM spans_numbered n
GROUP BY n.ledger, n.first_entry, n.slot, n.bookie, n.ensemble_size, n.write_quorum, n.stretch

-- view held_counts
SELECT h.ledger, h.first_entry, h.slot,
       sum(entries_on_slot(h.high + 1, h.slot, h.ensemble_size, h.write_quorum)
           - entries_on_slot(h.low, h.slot, h.ensemble_size, h.write_quorum)) AS held
FROM held_parts h GROUP BY h.ledger, h.first_entry, h.slot

-- table audit
SELECT s.ledger, s.state, s.first_entry, s.last_entry, s.slot, s.bookie, s.ensemble_size, s.write_quorum,
       s.ack_quorum,
       s.expected, coalesce(h.held, 0) AS held,
       CASE WHEN s.unknown_because IS NOT NULL THEN 'unknown'
            WHEN s.last_entry IS NULL AND s.role = 'not_examined' THEN 'not_examined'
            WHEN s.expected <= coalesce(h.held, 0) AND s.not_judged = 0 THEN 'ok'
            WHEN s.role IN ('not_examined', 'partly_examined') THEN 'not_examined'
            WHEN s.expected <= coalesce(h.held, 0) THEN 'unknown'
            ELSE 'missing' END AS status,
       CASE WHEN s.unknown_because IS NOT NULL THEN s.unknown_because
            WHEN s.last_entry IS NULL AND s.role = 'not_examined' THEN 'its directories were not given'
            WHEN s.expected <= coalesce(h.held, 0) AND s.not_judged = 0 THEN NULL
            WHEN s.role = 'not_examined' THEN 'its directories were not given'
            WHEN s.role = 'partly_examined' THEN 'not all of its directories were given'
            WHEN s.expected <= coalesce(h.held, 0) THEN 'open tail'
            WHEN s.role = 'gone' THEN 'the bookie is gone'
            WHEN h.held IS NULL THEN 'it has none of the fragment'
            ELSE 'it lacks a part' END AS why,
       CASE WHEN s.not_judged = 0 THEN s.confirmed_to ELSE s.judged_to END AS judged_to, s.not_judged
FROM slots s
LEFT JOIN held_counts h ON h.ledger = s.ledger AND h.first_entry = s.first_entry AND h.slot = s.slot

-- view marked_parts
SELECT a.ledger, a.first_entry, a.slot, h.low, h.high
FROM audit a
JOIN held_parts h ON h.ledger = a.ledger AND h.first_entry = a.first_entry AND h.slot = a.slot
WHERE a.status = 'missing'
UNION ALL
SELECT a.ledger, a.first_entry, a.slot, a.judged_to + 1 AS low, a.judged_to + 1 AS high
FROM audit a WHERE a.status = 'missing'

-- view between_parts
SELECT m.ledger, m.first_entry, m.slot,
       coalesce(lag(m.high) OVER (PARTITION BY m.ledger, m.first_entry, m.slot ORDER BY m.low) + 1,
       m.first_entry)
           AS low,
       m.low - 1 AS high
FROM marked_parts m

-- step gaps
SELECT g.ledger, g.first_entry, g.slot, a.state, a.last_entry, a.bookie, a.why, a.ensemble_size,
       a.write_quorum,
       next_on_slot(g.low, a.slot, a.ensemble_size, a.write_quorum) AS low,
       last_on_slot(g.high, a.slot, a.ensemble_size, a.write_quorum) AS high,
       entries_on_slot(g.high + 1, a.slot, a.ensemble_size, a.write_quorum)
           - entries_on_slot(g.low, a.slot, a.ensemble_size, a.write_quorum) AS missing
FROM between_parts g
JOIN audit a ON a.ledger = g.ledger AND a.first_entry = g.first_entry AND a.slot = g.slot
WHERE g.low <= g.high
  AND entries_on_slot(g.high + 1, a.slot, a.ensemble_size, a.write_quorum)
      > entries_on_slot(g.low, a.slot, a.ensemble_size, a.write_quorum)

-- table missing
SELECT g.ledger, g.state, g.first_entry, g.last_entry, g.slot, g.bookie, g.low AS first_missing,
       g.high AS last_missing,
       g.missing, g.why, l.application, l.topic
FROM gaps g LEFT JOIN ledgers l ON l.ledger = g.ledger

-- view cuts
SELECT DISTINCT c.ledger, c.first_entry, c.cut
FROM (SELECT g.ledger, g.first_entry, g.low AS cut FROM gaps g
      UNION ALL SELECT g.ledger, g.first_entry, g.high + 1 AS cut FROM gaps g
      UNION ALL SELECT a.ledger, a.first_entry, a.judged_to + 1 AS cut FROM audit a WHERE a.not_judged > 0) c

-- view pieces_and_end
SELECT c.ledger, c.first_entry, c.cut AS low,
       lead(c.cut) OVER (PARTITION BY c.ledger, c.first_entry ORDER BY c.cut) - 1 AS high
FROM cuts c

-- step pieces
SELECT p.ledger, p.first_entry, p.low, p.high, a.slot AS residue, a.ensemble_size, a.write_quorum,
       a.ack_quorum, a.state,
       entries_of_residue(p.low, p.high, a.slot, a.ensemble_size) AS entries
FROM pieces_and_end p
JOIN audit a ON a.ledger = p.ledger AND a.first_entry = p.first_entry
WHERE p.high IS NOT NULL AND entries_of_residue(p.low, p.high, a.slot, a.ensemble_size) > 0

-- view piece_copies
SELECT p.ledger, p.first_entry, p.low, p.high, p.residue, p.entries, p.state, p.write_quorum, p.ack_quorum,
       sum(CASE WHEN g.ledger IS NOT NULL THEN 1 ELSE 0 END) AS missing,
       sum(CASE WHEN g.ledger IS NULL AND (a.status = 'not_examined' OR a.judged_to < p.low
                                           OR a.status = 'unknown' AND a.why <> 'open tail')
                THEN 1 ELSE 0 END) AS unknown
FROM pieces p
JOIN audit a ON a.ledger = p.ledger AND a.first_entry = p.first_entry
            AND remainder(a.slot - p.residue, p.ensemble_size) < p.write_quorum
LEFT JOIN gaps g ON g.ledger = p.ledger AND g.first_entry = p.first_entry AND g.slot = a.slot
                AND g.low <= p.low AND g.high >= p.high
GROUP BY p.ledger, p.first_entry, p.low, p.high, p.residue, p.entries, p.state, p.write_quorum, p.ack_quorum

-- view short_pieces
SELECT c.ledger, c.state, c.low AS first_entry, c.high AS last_entry, sum(c.entries) AS entries,
       c.write_quorum - c.missing - c.unknown AS copies, c.missing, c.unknown AS unknown_copies,
       c.write_quorum, c.ack_quorum
FROM piece_copies c WHERE c.missing > 0
GROUP BY c.ledger, c.state, c.low, c.high, c.missing, c.unknown, c.write_quorum, c.ack_quorum

-- table short_entries
SELECT p.*, l.application, l.topic FROM short_pieces p LEFT JOIN ledgers l ON l.ledger = p.ledger

-- table owners_short
SELECT s.application, s.topic, count(DISTINCT s.ledger) AS ledgers, sum(s.entries) AS entries,
       sum(CASE WHEN s.copies + s.unknown_copies = 0 THEN s.entries ELSE 0 END) AS entries_lost,
       min(s.copies) AS fewest_copies
FROM short_entries s GROUP BY s.application, s.topic

-- table bookie_audit
SELECT r.bookie, r.role, count(a.ledger) AS slots, coalesce(sum(a.expected), 0) AS expected,
       coalesce(sum(a.held), 0) AS held,
       coalesce(sum(CASE WHEN a.status = 'missing' THEN a.expected - a.held ELSE 0 END), 0) AS missing,
       coalesce(sum(CASE WHEN a.status = 'ok' THEN 1 ELSE 0 END), 0) AS slots_ok,
       coalesce(sum(CASE WHEN a.status = 'missing' THEN 1 ELSE 0 END), 0) AS slots_missing,
       coalesce(sum(CASE WHEN a.status = 'not_examined' THEN 1 ELSE 0 END), 0) AS slots_not_examined,
       coalesce(sum(CASE WHEN a.status = 'unknown' THEN 1 ELSE 0 END), 0) AS slots_unknown,
       coalesce(sum(a.not_judged), 0) AS not_judged
FROM bookie_roles r LEFT JOIN audit a ON a.bookie = r.bookie
GROUP BY r.bookie, r.role

-- view slot_counts
SELECT count(DISTINCT a.ledger) AS ledgers, count(*) AS slots,
       coalesce(sum(CASE WHEN a.status = 'ok' THEN 1 ELSE 0 END), 0) AS slots_ok,
       coalesce(sum(CASE WHEN a.status = 'missing' THEN 1 ELSE 0 END), 0) AS slots_missing,
       coalesce(sum(CASE WHEN a.status = 'not_examined' THEN 1 ELSE 0 END), 0) AS slots_not_examined,
       coalesce(sum(CASE WHEN a.status = 'unknown' THEN 1 ELSE 0 END), 0) AS slots_unknown,
       coalesce(sum(CASE WHEN a.status = 'not_examined' OR a.not_judged > 0 AND a.status <> 'unknown'
                           OR a.status = 'unknown' AND a.why <> 'ledger deleted meanwhile' THEN 1 ELSE 0 END),
                           0)
           AS slots_not_judged,
       coalesce(sum(CASE WHEN a.status = 'missing' THEN a.expected - a.held ELSE 0 END), 0) AS copies_missing,
       count(DISTINCT CASE WHEN a.status = 'missing' THEN a.ledger END) AS ledgers_short
FROM audit a

-- view entry_counts
SELECT coalesce(sum(e.entries), 0) AS entries_short,
       coalesce(sum(CASE WHEN e.copies + e.unknown_copies < e.ack_quorum THEN e.entries ELSE 0 END), 0)
           AS entries_below_ack_quorum,
       coalesce(sum(CASE WHEN e.copies + e.unknown_copies = 0 THEN e.entries ELSE 0 END), 0) AS entries_lost
FROM short_entries e

-- view role_counts
SELECT coalesce(sum(CASE WHEN r.role IN ('examined', 'partly_examined') THEN 1 ELSE 0 END), 0)
           AS bookies_examined,
       coalesce(sum(CASE WHEN r.role = 'gone' THEN 1 ELSE 0 END), 0) AS bookies_gone,
       count(DISTINCT CASE WHEN a.bookie IS NOT NULL THEN r.bookie END)
           AS bookies_not_examined
FROM (SELECT bookie, role FROM bookie_roles) r
LEFT JOIN (SELECT DISTINCT q.bookie FROM audit q WHERE q.status = 'not_examined') a ON a.bookie = r.bookie

-- view nameless
SELECT count(*) AS dirs_without_cookie FROM bookies b WHERE b.bookie IS NULL

-- table summary
SELECT s.ledgers, s.slots, s.slots_ok, s.slots_missing, s.slots_not_examined, s.slots_unknown,
       s.slots_not_judged,
       CASE WHEN s.slots = 0 THEN CAST(0 AS DOUBLE)
            ELSE CAST(s.slots_not_judged AS DOUBLE) / CAST(s.slots AS DOUBLE) END AS share_not_judged,
       s.copies_missing,
       s.ledgers_short, e.entries_short, e.entries_below_ack_quorum, e.entries_lost,
       r.bookies_examined, r.bookies_gone, r.bookies_not_examined, n.dirs_without_cookie
FROM slot_counts s CROSS JOIN entry_counts e CROSS JOIN role_counts r CROSS JOIN nameless n
