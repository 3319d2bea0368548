-- view held_once
SELECT h.bookie, h.ledger, h.low, max(h.high) AS high FROM held h GROUP BY h.bookie, h.ledger, h.low

-- view held_marked
SELECT h.bookie, h.ledger, h.low, h.high,
       CASE WHEN h.low <= 1 + max(h.high) OVER (
                PARTITION BY h.bookie, h.ledger ORDER BY h.low
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            THEN 0 ELSE 1 END AS begins
FROM held_once h

-- view held_numbered
SELECT m.bookie, m.ledger, m.low, m.high,
       sum(m.begins) OVER (
           PARTITION BY m.bookie, m.ledger ORDER BY m.low
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS stretch
FROM held_marked m

-- step stretches
SELECT n.bookie, n.ledger, min(n.low) AS low, max(n.high) AS high
FROM held_numbered n GROUP BY n.bookie, n.ledger, n.stretch
