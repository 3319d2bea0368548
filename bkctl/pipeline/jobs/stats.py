"""``stats``: sizes, ages, settings and owners of ledgers, and how evenly bookies are filled.

Of a log with a ledgers map only the map counts, and journals not at all: what cannot be read of its records,
or of a journal, changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, Snapshot
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import number, sentence, size

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
    """Return the rows of (rank, label, low, high), high not included and null for the last."""
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


def stats_sentence(counts: Mapping[str, Any]) -> str:
    """Say how much the ledgers hold, and how evenly the bookies are filled."""
    opened, bookies, fullest = counts["ledgers_not_closed"], counts["bookies"], counts["fullest_of_mean"]
    return sentence(
        (
            f"{number(counts['ledgers'], 'ledger')}, {size(counts['bytes'] or 0)} in those that are closed",
            f"{opened:,} {'is' if opened == 1 else 'are'} not" if opened else "",
            f"the fullest of {bookies:,} bookies holds {fullest:.2f} times the mean"
            if fullest is not None and bookies > 1
            else "",
        )
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
                "application",
                "topic",
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
            sql_text("stats"),
        )
    ),
    sentence=stats_sentence,
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
                Column("application", "STRING", "application that its custom metadata name"),
                Column("topic", "STRING", "topic of Apache Pulsar's that it belongs to"),
            ),
            order="rank",
        ),
        ResultTable(
            "ledger_owners",
            "ledgers by the application and topic that their custom metadata name",
            (
                Column("application", "STRING", "application; null where none is named"),
                Column("topic", "STRING", "topic of Apache Pulsar's; null for ledgers of none"),
                Column("ledgers", "BIGINT", "ledgers"),
                Column("ledgers_not_closed", "BIGINT", "open or in recovery"),
                Column("bytes", "BIGINT", "length of those that are closed"),
                Column("disk_bytes", "BIGINT", "bytes in all logs that were given"),
            ),
            order="disk_bytes DESC, bytes DESC, application, topic",
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
