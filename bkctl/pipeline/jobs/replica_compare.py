"""``replica-compare``: whether the replicas of every entry are the same bytes."""

from __future__ import annotations

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable
from bkctl.pipeline.jobs.sql_files import sql_text

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
    sql=sql_text("replica_compare"),
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
