"""``replica-compare``: whether the replicas of every entry are the same bytes."""

from __future__ import annotations

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable

_REPLICA = (
    Column("kind", "STRING", "payload or header"),
    Column("ledger", "BIGINT", "ledger"),
    Column("entry", "BIGINT", "entry"),
    Column("bookie", "STRING", "bookie of this replica"),
    Column("dir", "STRING", "its ledger directory"),
    Column("log_id", "BIGINT", "its entry log"),
    Column("log_offset", "BIGINT", "offset of the body"),
    Column("payload_bytes", "BIGINT", "length of the payload"),
    Column("payload_crc", "BIGINT", "CRC-32C of the payload"),
    Column("lac", "BIGINT", "last add confirmed in the header"),
    Column("ledger_length", "BIGINT", "running length in the header"),
    Column("digest_ok", "BOOLEAN", "whether this replica's digest agrees; null when not known"),
)

REPLICA_COMPARE = Job(
    name="replica-compare",
    summary="Whether the replicas of every entry are the same bytes.",
    inputs=(
        Input(
            "replicas",
            "entries",
            (
                "bookie",
                "dir",
                "log_id",
                "offset",
                "ledger",
                "entry",
                "lac",
                "ledger_length",
                "payload_bytes",
                "payload_crc",
                "digest_ok",
            ),
            digest=True,
        ),
    ),
    sql="""
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
""",
    results=(
        ResultTable(
            "divergent",
            "replicas with different payloads",
            _REPLICA,
            order="ledger, entry, bookie",
            shown=True,
        ),
        ResultTable(
            "header_differences",
            "replicas with the same payload under different headers",
            _REPLICA,
            order="ledger, entry, bookie",
        ),
        ResultTable(
            "ledger_divergence",
            "by ledger",
            (
                Column("ledger", "BIGINT", "ledger"),
                Column("payload_differs", "BIGINT", "entries whose payloads differ"),
                Column("header_differs", "BIGINT", "entries of which only headers differ"),
                Column("first_entry", "BIGINT", "the lowest of these"),
                Column("last_entry", "BIGINT", "the highest"),
            ),
            order="payload_differs DESC, header_differs DESC, ledger",
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("records", "BIGINT", "records read"),
                Column("entries", "BIGINT", "entries among them"),
                Column("entries_compared", "BIGINT", "entries on more than one bookie"),
                Column("payload_differs", "BIGINT", "entries whose payloads differ"),
                Column("header_differs", "BIGINT", "entries of which only headers differ"),
                Column("ledgers_divergent", "BIGINT", "ledgers with different payloads"),
                Column(
                    "uncompared", "BIGINT", "records whose digest type is not known, so nor is their payload"
                ),
            ),
            order="records",
        ),
    ),
    found=("payload_differs",),
    advice="job verify says which of the replicas fail their digest; 'bkctl ledger doctor ID' what a reader "
    "of the ledger gets",
    needs_metadata=False,
    trusts_absence=True,
    notes=(
        "of several records of an entry on a bookie the one with the largest location counts",
        "headers carry the last add confirmed of their writing, which a recovery may change: no finding",
    ),
    plots=(
        Plot(
            "Entries that differ",
            "ledger_divergence",
            ("ledger",),
            ("payload_differs", "header_differs"),
            "payload_differs DESC, header_differs DESC, ledger",
            meanings=("bad", "warning"),
        ),
    ),
)
