"""``stats``: sizes, ages, settings and owners of ledgers, and how evenly bookies are filled."""

from __future__ import annotations

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, Snapshot

_SIZES = ((0, "empty"), (1, "to 1 KiB"), *((1 << (10 + 2 * step), "") for step in range(12)))
_DAY_MS = 86_400_000
_AGES = (
    (0, "to 1 hour"),
    (3_600_000, "to 1 day"),
    (_DAY_MS, "to 7 days"),
    (7 * _DAY_MS, "to 30 days"),
    (30 * _DAY_MS, "to 90 days"),
    (90 * _DAY_MS, "to 1 year"),
    (365 * _DAY_MS, "above 1 year"),
)


def _size_label(upper: int) -> str:
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        upper //= 1024
        if upper < 1024:
            return f"to {upper} {unit}"
    return f"to {upper // 1024} PiB"


def _buckets(bounds: tuple[tuple[int, str], ...]) -> str:
    """Rows of (rank, label, low, high), high not included and null for the last."""
    rows = []
    for rank, (low, label) in enumerate(bounds):
        high = bounds[rank + 1][0] if rank + 1 < len(bounds) else None
        name = label or (_size_label(high) if high is not None else "above all")
        bound = "CAST(NULL AS BIGINT)" if high is None else f"CAST({high} AS BIGINT)"
        rows.append(
            f"SELECT {rank} AS rank, '{name}' AS label, CAST({low} AS BIGINT) AS low, {bound} AS high"
        )
    return "\nUNION ALL ".join(rows)


_BUCKET = (
    Column("rank", "BIGINT", "place in the order"),
    Column("label", "STRING", "the bucket"),
    Column("ledgers", "BIGINT", "ledgers in it"),
    Column("bytes", "BIGINT", "bytes of their entries' payloads, once"),
)

STATS = Job(
    name="stats",
    summary="Sizes, ages and settings of ledgers, the largest ones, and how evenly bookies are filled.",
    inputs=(
        Input(
            "ledgers",
            "ledgers",
            (
                "ledger",
                "state",
                "digest",
                "ensemble_size",
                "write_quorum",
                "ack_quorum",
                "length",
                "last_entry",
                "ctime_ms",
            ),
            snapshot=Snapshot.BEFORE,
        ),
        Input("fragments", "fragments", ("ledger", "bookie"), snapshot=Snapshot.BEFORE),
        Input("logs", "logs", may_lack=True),
        Input("log_ledgers", "log_ledgers", may_lack=True),
    ),
    sql="\n".join(
        (
            "-- view size_buckets",
            _buckets(_SIZES),
            "-- view age_buckets",
            _buckets(_AGES),
            """
-- view disk_ledgers
SELECT coalesce(l.bookie, '') AS bookie, l.ledger, sum(l.bytes) AS bytes
FROM log_ledgers l GROUP BY coalesce(l.bookie, ''), l.ledger

-- view disk_bytes
SELECT d.ledger, sum(d.bytes) AS bytes, count(*) AS bookies FROM disk_ledgers d GROUP BY d.ledger

-- step sized
SELECT l.ledger, l.state, l.digest, l.ensemble_size, l.write_quorum, l.ack_quorum, l.ctime_ms, l.last_entry,
       greatest(coalesce(l.length, 0), 0) AS bytes, coalesce(d.bytes, 0) AS disk_bytes,
       CASE WHEN l.ctime_ms >= 0 THEN greatest(p.now_ms - l.ctime_ms, 0) END AS age_ms
FROM ledgers l LEFT JOIN disk_bytes d ON d.ledger = l.ledger CROSS JOIN parameters p

-- table size_histogram
SELECT b.rank, b.label, count(s.ledger) AS ledgers, coalesce(sum(s.bytes), 0) AS bytes
FROM size_buckets b LEFT JOIN sized s ON s.bytes >= b.low AND (b.high IS NULL OR s.bytes < b.high)
     AND s.state = 'CLOSED'
GROUP BY b.rank, b.label

-- table age_histogram
SELECT b.rank, b.label, count(s.ledger) AS ledgers, coalesce(sum(s.bytes), 0) AS bytes
FROM age_buckets b LEFT JOIN sized s ON s.age_ms >= b.low AND (b.high IS NULL OR s.age_ms < b.high)
GROUP BY b.rank, b.label

-- table ledger_settings
SELECT s.state, s.digest, s.ensemble_size, s.write_quorum, s.ack_quorum, count(*) AS ledgers,
       sum(s.bytes) AS bytes
FROM sized s GROUP BY s.state, s.digest, s.ensemble_size, s.write_quorum, s.ack_quorum

-- view by_size
SELECT s.*, row_number() OVER (ORDER BY s.disk_bytes DESC, s.bytes DESC, s.ledger) AS rank FROM sized s

-- table largest_ledgers
SELECT b.rank, b.ledger, b.state, b.bytes, b.disk_bytes, b.last_entry, b.ctime_ms, b.age_ms
FROM by_size b CROSS JOIN parameters p WHERE b.rank <= p.top

-- view bookie_disk
SELECT d.bookie, sum(d.bytes) AS bytes, count(*) AS ledgers FROM disk_ledgers d GROUP BY d.bookie

-- view bookie_logs
SELECT coalesce(l.bookie, '') AS bookie, count(*) AS logs, sum(l.bytes) AS log_bytes,
       min(l.mtime_ms) AS oldest_log_ms
FROM logs l GROUP BY coalesce(l.bookie, '')

-- view bookie_fragments
SELECT f.bookie, count(DISTINCT f.ledger) AS ledgers FROM fragments f GROUP BY f.bookie

-- view bookie_names
SELECT bookie FROM bookie_logs UNION SELECT bookie FROM bookie_fragments

-- view bookie_rows
SELECT n.bookie, coalesce(l.logs, 0) AS logs, coalesce(l.log_bytes, 0) AS log_bytes,
       coalesce(d.bytes, 0) AS entry_bytes, coalesce(d.ledgers, 0) AS ledgers_on_disk,
       coalesce(f.ledgers, 0) AS ledgers_in_metadata, l.oldest_log_ms, l.bookie IS NOT NULL AS examined
FROM bookie_names n
LEFT JOIN bookie_logs l ON l.bookie = n.bookie
LEFT JOIN bookie_disk d ON d.bookie = n.bookie
LEFT JOIN bookie_fragments f ON f.bookie = n.bookie

-- view mean_bytes
SELECT avg(CAST(b.log_bytes AS DOUBLE)) AS log_bytes FROM bookie_rows b WHERE b.examined

-- table bookie_skew
SELECT b.bookie, b.logs, b.log_bytes, b.entry_bytes, b.ledgers_on_disk, b.ledgers_in_metadata,
       b.oldest_log_ms,
       CASE WHEN b.examined AND m.log_bytes > 0 THEN CAST(b.log_bytes AS DOUBLE) / m.log_bytes END AS of_mean
FROM bookie_rows b CROSS JOIN mean_bytes m

-- view ledger_totals
SELECT count(*) AS ledgers, coalesce(sum(CASE WHEN s.state = 'CLOSED' THEN 0 ELSE 1 END),
       0) AS ledgers_not_closed,
       coalesce(sum(s.bytes), 0) AS bytes, max(s.bytes) AS largest_bytes, max(s.age_ms) AS oldest_ms
FROM sized s

-- view bookie_totals
SELECT count(*) AS bookies, coalesce(sum(b.log_bytes), 0) AS log_bytes, max(b.of_mean) AS fullest_of_mean,
       min(b.of_mean) AS emptiest_of_mean
FROM bookie_skew b

-- table summary
SELECT l.ledgers, l.ledgers_not_closed, l.bytes, l.largest_bytes, l.oldest_ms, b.bookies, b.log_bytes,
       b.fullest_of_mean,
       b.emptiest_of_mean
FROM ledger_totals l CROSS JOIN bookie_totals b
""",
        )
    ),
    results=(
        ResultTable("size_histogram", "closed ledgers by length", _BUCKET, order="rank"),
        ResultTable("age_histogram", "ledgers by age, as far as metadata tells it", _BUCKET, order="rank"),
        ResultTable(
            "ledger_settings",
            "ledgers by state and settings",
            (
                Column("state", "STRING", "OPEN, IN_RECOVERY, CLOSED"),
                Column("digest", "STRING", "digest type"),
                Column("ensemble_size", "BIGINT", "ensemble size"),
                Column("write_quorum", "BIGINT", "write quorum"),
                Column("ack_quorum", "BIGINT", "ack quorum"),
                Column("ledgers", "BIGINT", "ledgers"),
                Column("bytes", "BIGINT", "their length"),
            ),
            order="ledgers DESC, state, digest, ensemble_size, write_quorum, ack_quorum",
        ),
        ResultTable(
            "largest_ledgers",
            "the largest on disk, or by length where no log was given",
            (
                Column("rank", "BIGINT", "place"),
                Column("ledger", "BIGINT", "ledger"),
                Column("state", "STRING", "its state"),
                Column("bytes", "BIGINT", "its length in metadata; 0 while it is open"),
                Column("disk_bytes", "BIGINT", "bytes in all logs that were given"),
                Column("last_entry", "BIGINT", "last entry in metadata"),
                Column("ctime_ms", "BIGINT", "when it was made, milliseconds since 1970"),
                Column("age_ms", "BIGINT", "milliseconds since then"),
            ),
            order="rank",
        ),
        ResultTable(
            "bookie_skew",
            "how full each bookie is",
            (
                Column("bookie", "STRING", "bookie"),
                Column("logs", "BIGINT", "entry logs; 0 where none were given"),
                Column("log_bytes", "BIGINT", "bytes of these"),
                Column("entry_bytes", "BIGINT", "bytes of the entries in them"),
                Column("ledgers_on_disk", "BIGINT", "ledgers in its logs"),
                Column("ledgers_in_metadata", "BIGINT", "ledgers whose ensembles name it"),
                Column("oldest_log_ms", "BIGINT", "when its oldest log was last written"),
                Column("of_mean", "DOUBLE", "log_bytes over the mean of the bookies that were given"),
            ),
            order="log_bytes DESC, bookie",
            shown=True,
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("ledgers", "BIGINT", "ledgers in metadata"),
                Column("ledgers_not_closed", "BIGINT", "open or in recovery"),
                Column("bytes", "BIGINT", "length of all closed ledgers"),
                Column("largest_bytes", "BIGINT", "length of the longest"),
                Column("oldest_ms", "BIGINT", "age of the oldest"),
                Column("bookies", "BIGINT", "bookies in metadata or on disk"),
                Column("log_bytes", "BIGINT", "bytes of their logs"),
                Column("fullest_of_mean", "DOUBLE", "the fullest bookie over the mean"),
                Column("emptiest_of_mean", "DOUBLE", "the emptiest over the mean"),
            ),
            order="ledgers",
        ),
    ),
    parameters=("top", "now_ms"),
    notes=("the length of a ledger that is not closed is not in metadata",),
    plots=(
        Plot("Closed ledgers by length", "size_histogram", ("label",), ("ledgers",), "rank"),
        Plot("Ledgers by age", "age_histogram", ("label",), ("ledgers",), "rank"),
        Plot("Bytes by bookie", "bookie_skew", ("bookie",), ("log_bytes",), "bookie", bytes_axis=True),
    ),
)
