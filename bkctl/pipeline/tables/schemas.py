"""Columns of the tables: names as in the JSON of the command line, in the order of the files.

``payload`` stands last and is only there when it is asked for; the default columns of a table are the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

PAYLOAD = "payload"
#: CRC-32C of the payload alone, for comparing replicas whose headers may differ; only when asked for.
PAYLOAD_CRC = "payload_crc"
ON_DEMAND = (PAYLOAD_CRC, PAYLOAD)

_PLACE = [("bookie", pa.string()), ("dir", pa.string())]
_ENTRY = [
    ("ledger", pa.int64()),
    ("entry", pa.int64()),
    ("lac", pa.int64()),
    ("ledger_length", pa.int64()),
    ("payload_bytes", pa.int32()),
    ("digest", pa.string()),
    ("digest_ok", pa.bool_()),
]
_ENSEMBLE = pa.struct([("first_entry", pa.int64()), ("bookies", pa.list_(pa.string()))])
_QUORUMS = [("ensemble_size", pa.int32()), ("write_quorum", pa.int32()), ("ack_quorum", pa.int32())]

ENTRIES = pa.schema(
    [
        *_PLACE,
        ("log_id", pa.int64()),
        ("offset", pa.int64()),
        ("size", pa.int32()),
        *_ENTRY,
        (PAYLOAD_CRC, pa.int64()),
        (PAYLOAD, pa.binary()),
    ]
)
RUNS = pa.schema(
    [
        *_PLACE,
        ("log_id", pa.int64()),
        ("ledger", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("entries", pa.int64()),
        ("bytes", pa.int64()),
        ("min_lac", pa.int64()),
        ("max_lac", pa.int64()),
        ("bad_digests", pa.int64()),
        ("ids_hash", pa.int64()),
    ]
)
CHECKS = pa.schema(
    [
        *_PLACE,
        ("log_id", pa.int64()),
        ("ledger", pa.int64()),
        ("digest", pa.string()),
        ("digest_ok", pa.bool_()),
        ("bad_entry", pa.int64()),
        ("bad_offset", pa.int64()),
        ("entries", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
LOGS = pa.schema(
    [
        *_PLACE,
        ("log_id", pa.int64()),
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("version", pa.int32()),
        ("has_ledgers_map", pa.bool_()),
        ("ledgers", pa.int64()),
        ("mtime_ms", pa.int64()),
        ("damaged", pa.bool_()),
    ]
)
LOG_LEDGERS = pa.schema(
    [
        *_PLACE,
        ("log_id", pa.int64()),
        ("ledger", pa.int64()),
        ("bytes", pa.int64()),
        ("source", pa.string()),
    ]
)
JOURNAL = pa.schema(
    [
        *_PLACE,
        ("journal_id", pa.int64()),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int32()),
        ("kind", pa.string()),
        *_ENTRY,
        ("after_mark", pa.bool_()),
        (PAYLOAD, pa.binary()),
    ]
)
INDEX_LOCATIONS = pa.schema(
    [
        *_PLACE,
        ("ledger", pa.int64()),
        ("entry", pa.int64()),
        ("log_id", pa.int64()),
        ("offset", pa.int64()),
    ]
)
INDEX_RUNS = pa.schema(
    [
        *_PLACE,
        ("ledger", pa.int64()),
        ("log_id", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("entries", pa.int64()),
        ("ids_hash", pa.int64()),
    ]
)
INDEX_LEDGERS = pa.schema(
    [
        *_PLACE,
        ("ledger", pa.int64()),
        ("fenced", pa.bool_()),
        ("master_key", pa.string()),
        ("explicit_lac", pa.int64()),
        ("limbo", pa.bool_()),
    ]
)
LEDGERS = pa.schema(
    [
        ("ledger", pa.int64()),
        ("state", pa.string()),
        ("digest", pa.string()),
        *_QUORUMS,
        ("length", pa.int64()),
        ("last_entry", pa.int64()),
        ("ctime_ms", pa.int64()),
        ("ensembles", pa.list_(_ENSEMBLE)),
        ("custom_metadata", pa.map_(pa.string(), pa.string())),
        ("version", pa.int32()),
        ("application", pa.string()),
        ("topic", pa.string()),
    ]
)
FRAGMENTS = pa.schema(
    [
        ("ledger", pa.int64()),
        ("first_entry", pa.int64()),
        ("last_entry", pa.int64()),
        ("slot", pa.int32()),
        ("bookie", pa.string()),
        *_QUORUMS,
        ("state", pa.string()),
    ]
)
DAMAGE = pa.schema(
    [
        *_PLACE,
        ("path", pa.string()),
        ("kind", pa.string()),
        ("id", pa.int64()),
        ("offset", pa.int64()),
        ("bytes", pa.int64()),
        ("reason", pa.string()),
    ]
)
#: Rows of ``checks`` and of ``damage``, which ``part`` distinguishes; columns that a part lacks are null.
VERIFICATION = pa.schema(
    [
        *_PLACE,
        ("part", pa.string()),
        *(field for field in CHECKS if field.name not in dict(_PLACE)),
        *(field for field in DAMAGE if field.name not in CHECKS.names),
    ]
)


def default_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that are read unless others are asked for."""
    return [name for name in schema.names if name not in ON_DEMAND]


def chosen(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of ``columns``, in their order."""
    return pa.schema([schema.field(name) for name in columns])
