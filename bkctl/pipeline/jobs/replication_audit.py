"""``replication-audit``: every fragment of every ledger against what each bookie really holds.

What a slot of an ensemble should hold is counted in closed form, what it does hold from stretches of entries;
only where the two differ are gaps looked for. How many copies are left of an entry is then a matter of the
pieces between gaps' ends and of the entry's remainder modulo the ensemble size, so that losing a whole bookie
costs as many rows as it had fragments, not entries.

The last fragment of an open ledger is judged up to the last add confirmed that the entry logs show (in the
entries' headers; never beyond the last entry that any bookie holds). A bookie lacks an entry of it for sure
only when it holds a later one, because it is sent the entries in their order; what is lacking behind the last
entry that it holds may be on its way, or may have been flushed after its files were read, and is unknown.
"""

from __future__ import annotations

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, Snapshot
from bkctl.pipeline.jobs.held_entries import HELD, RUNS, STRETCHES, UNFLUSHED

_FRAGMENT = (
    Column("ledger", "BIGINT", "ledger"),
    Column("state", "STRING", "its state"),
    Column("first_entry", "BIGINT", "first entry of the fragment"),
    Column("last_entry", "BIGINT", "last entry of the fragment; null for the open tail"),
)

REPLICATION_AUDIT = Job(
    name="replication-audit",
    summary="Every fragment of every ledger against what each bookie really holds.",
    inputs=(
        RUNS,
        UNFLUSHED,
        Input("bookies", "bookies"),
        Input("ledgers_after", "ledgers", ("ledger",), snapshot=Snapshot.AFTER),
        Input("fragments", "fragments", snapshot=Snapshot.BEFORE),
        Input("fragments_after", "fragments", snapshot=Snapshot.AFTER),
    ),
    sql="".join(
        (
            HELD,
            STRETCHES,
            """
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
FROM runs r GROUP BY r.ledger

-- view last_held
SELECT h.bookie, h.ledger, max(h.high) AS last_held FROM stretches h GROUP BY h.bookie, h.ledger

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

-- view held_parts
SELECT s.ledger, s.first_entry, s.slot, s.bookie, s.ensemble_size, s.write_quorum,
       greatest(s.first_entry, h.low) AS low, least(s.judged_to, h.high) AS high
FROM slots s
JOIN stretches h ON h.bookie = s.bookie AND h.ledger = s.ledger
WHERE s.role IN ('examined', 'partly_examined') AND h.high >= s.first_entry AND h.low <= s.judged_to

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
       g.missing, g.why
FROM gaps g

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

-- table short_entries
SELECT c.ledger, c.state, c.low AS first_entry, c.high AS last_entry, sum(c.entries) AS entries,
       c.write_quorum - c.missing - c.unknown AS copies, c.missing, c.unknown AS unknown_copies,
       c.write_quorum, c.ack_quorum
FROM piece_copies c WHERE c.missing > 0
GROUP BY c.ledger, c.state, c.low, c.high, c.missing, c.unknown, c.write_quorum, c.ack_quorum

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
""",
        )
    ),
    results=(
        ResultTable(
            "missing",
            "entries that a bookie should hold and does not",
            (
                *_FRAGMENT,
                Column("slot", "BIGINT", "place in the ensemble"),
                Column("bookie", "STRING", "bookie that should hold them"),
                Column("first_missing", "BIGINT", "first of these entries"),
                Column("last_missing", "BIGINT", "last; with striping not all between are meant"),
                Column("missing", "BIGINT", "how many"),
                Column("why", "STRING", "whether the bookie is gone, has none or lacks a part"),
            ),
            order="ledger, first_missing, slot",
            shown=True,
        ),
        ResultTable(
            "short_entries",
            "how many copies are left of what misses some",
            (
                Column("ledger", "BIGINT", "ledger"),
                Column("state", "STRING", "its state"),
                Column("first_entry", "BIGINT", "first entry of the stretch"),
                Column("last_entry", "BIGINT", "last; with striping not all between are meant"),
                Column("entries", "BIGINT", "how many"),
                Column("copies", "BIGINT", "copies that were found"),
                Column("missing", "BIGINT", "copies that are missing"),
                Column("unknown_copies", "BIGINT", "copies on bookies that were not examined"),
                Column("write_quorum", "BIGINT", "copies that there should be"),
                Column("ack_quorum", "BIGINT", "copies that an acknowledged entry had"),
            ),
            order="copies, ledger, first_entry",
        ),
        ResultTable(
            "bookie_audit",
            "by bookie",
            (
                Column("bookie", "STRING", "bookie"),
                Column(
                    "role",
                    "STRING",
                    "examined, partly_examined (directories are lacking), not_examined, gone",
                ),
                Column("slots", "BIGINT", "places in fragments' ensembles"),
                Column("expected", "BIGINT", "entries that it should hold; of open tails those judged"),
                Column("held", "BIGINT", "of these, entries that it holds"),
                Column("missing", "BIGINT", "entries that it lacks"),
                Column("slots_ok", "BIGINT", "places where it holds all it should"),
                Column("slots_missing", "BIGINT", "places where it lacks some"),
                Column("slots_not_examined", "BIGINT", "places not judged, its directories were not given"),
                Column("slots_unknown", "BIGINT", "places not judged, open tails and changes meanwhile"),
                Column("not_judged", "BIGINT", "confirmed entries of open tails that may be on their way"),
            ),
            order="missing DESC, bookie",
            shown=True,
        ),
        ResultTable(
            "audit",
            "every place of every fragment",
            (
                *_FRAGMENT,
                Column("slot", "BIGINT", "place in the ensemble"),
                Column("bookie", "STRING", "bookie"),
                Column("ensemble_size", "BIGINT", "ensemble size"),
                Column("write_quorum", "BIGINT", "write quorum"),
                Column("ack_quorum", "BIGINT", "ack quorum"),
                Column("expected", "BIGINT", "entries that it should hold; of an open tail those judged"),
                Column("held", "BIGINT", "entries of these that it holds"),
                Column("status", "STRING", "ok, missing, not_examined, unknown"),
                Column("why", "STRING", "why it is not ok"),
                Column("judged_to", "BIGINT", "last entry up to which it was judged"),
                Column(
                    "not_judged", "BIGINT", "confirmed entries behind that, which may be on their way to it"
                ),
            ),
            order="status, ledger, first_entry, slot",
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("ledgers", "BIGINT", "ledgers with a fragment"),
                Column("slots", "BIGINT", "places of all fragments"),
                Column("slots_ok", "BIGINT", "that hold all they should"),
                Column("slots_missing", "BIGINT", "that lack entries"),
                Column(
                    "slots_not_examined",
                    "BIGINT",
                    "of bookies whose directories, or some of them, were not given",
                ),
                Column("slots_unknown", "BIGINT", "open tails, and what changed meanwhile"),
                Column(
                    "slots_not_judged",
                    "BIGINT",
                    "places that could not be judged, or not up to the last add confirmed: bookies that were "
                    "not given, replicas that moved, open tails; without ledgers that were deleted meanwhile",
                ),
                Column("share_not_judged", "DOUBLE", "their share of all places"),
                Column("copies_missing", "BIGINT", "copies of entries that are missing"),
                Column("ledgers_short", "BIGINT", "ledgers with a missing copy"),
                Column("entries_short", "BIGINT", "entries with a missing copy"),
                Column("entries_below_ack_quorum", "BIGINT", "entries with fewer copies than ack quorum"),
                Column("entries_lost", "BIGINT", "entries without any copy"),
                Column("bookies_examined", "BIGINT", "bookies whose directories were read"),
                Column("bookies_gone", "BIGINT", "bookies that count as holding nothing"),
                Column(
                    "bookies_not_examined",
                    "BIGINT",
                    "bookies that could not be judged for want of directories",
                ),
                Column(
                    "dirs_without_cookie", "BIGINT", "directories that belong to no known bookie; left out"
                ),
            ),
            order="ledgers",
        ),
    ),
    found=("slots_missing",),
    unexamined=("bookies_not_examined", "dirs_without_cookie", "slots_not_judged"),
    trusts_absence=True,
    advice="'bkctl ledger doctor ID' says of a ledger whether it can be read and what to run; job "
    "journal-forensics whether a journal still has what is missing",
    parameters=("complete", "bookies_gone"),
    one_snapshot_notes=(
        "metadata was read once: where the ensemble of an open ledger changed afterwards, entries count as "
        "missing that belong to a later fragment",
    ),
    notes=(
        "entries that are only in a journal after the mark count as held: the next start flushes them",
        "a ledger deleted and a replica moved between the snapshots are unknown",
        "an open ledger is judged up to the last add confirmed that the entry logs show; confirmed entries "
        "behind the last one that a bookie holds may be on their way to it and are unknown",
        "an entry counts as held when its record is in a log; 'verify' and 'index-audit' ask for more",
    ),
    plots=(
        Plot("Entries missing", "bookie_audit", ("bookie",), ("missing",), "bookie", meanings=("bad",)),
        Plot(
            "Places by bookie",
            "bookie_audit",
            ("bookie",),
            ("slots_ok", "slots_missing", "slots_not_examined", "slots_unknown"),
            "bookie",
            meanings=("good", "bad", "unknown", "unknown"),
        ),
    ),
)
