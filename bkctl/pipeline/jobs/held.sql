-- view held
SELECT r.bookie AS bookie, r.ledger AS ledger, r.first AS low, r.last AS high
FROM runs r WHERE r.bookie IS NOT NULL
UNION ALL
SELECT u.bookie AS bookie, u.ledger AS ledger, u.entry AS low, u.entry AS high
FROM unflushed u WHERE u.bookie IS NOT NULL
