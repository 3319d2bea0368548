-- view ledger_bounds
SELECT max(CASE WHEN ledger < 2147483648 THEN ledger END) AS short_max, max(ledger) AS long_max FROM ledgers

-- step ledger_fate
SELECT s.ledger,
       CASE WHEN b.ledger IS NOT NULL AND a.ledger IS NOT NULL THEN 'live'
            WHEN b.ledger IS NOT NULL THEN 'deleted_meanwhile'
            WHEN a.ledger IS NOT NULL THEN 'created_meanwhile'
            WHEN p.two_snapshots THEN 'gone'
            WHEN s.ledger <= CASE WHEN s.ledger < 2147483648 THEN m.short_max ELSE m.long_max END THEN 'gone'
            ELSE 'unknown' END AS fate
FROM seen_ledgers s
LEFT JOIN ledgers b ON b.ledger = s.ledger
LEFT JOIN ledgers_after a ON a.ledger = s.ledger
CROSS JOIN ledger_bounds m
CROSS JOIN parameters p
