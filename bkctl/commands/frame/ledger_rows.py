"""A ledger's metadata as a row, for ``bkctl ledger`` and ``bkctl metadata``."""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING, Any

from bkctl.codec.pulsar_names import ledger_owner
from bkctl.commands.frame.output import Key, Schema

if TYPE_CHECKING:
    from bkctl.codec.ledger_metadata import LedgerMetadata

#: Whose a ledger is, as its custom metadata say.
OWNER_KEYS: Schema = (
    Key("application", "string or null", "who made it, as its custom metadata say: pulsar, ...", wide=True),
    Key(
        "component",
        "string or null",
        "what for: managed-ledger, cursor, schema, compacted-ledger, ...",
        wide=True,
    ),
    Key("topic", "string or null", "the topic of Pulsar's that it belongs to"),
    Key("cursor", "string or null", "the subscription whose position it keeps", wide=True),
)

LEDGER_KEYS: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED"),
    Key("digest", "string or null", "crc32c, crc32, mac or dummy; null when not stored", wide=True),
    Key("ensemble_size", "int", "bookies of an ensemble", wide=True),
    Key("write_quorum", "int", "bookies that an entry is written to", wide=True),
    Key("ack_quorum", "int", "bookies that must have it before it counts as written", wide=True),
    Key("length", "int", "payload bytes, 0 until the ledger is closed"),
    Key("last_entry", "int", "last entry, -1 until the ledger is closed, or when it was closed empty"),
    Key(
        "ctime_ms",
        "int or null",
        "when it was made, milliseconds since 1970: as its metadata says, else when its node was made",
    ),
    Key("ensembles", "array of objects", "first_entry, and from there on bookies, in their order", wide=True),
    Key("custom_metadata", "object", "names and values, base64", wide=True),
    Key("version", "int", "how often the metadata was rewritten", wide=True),
    *OWNER_KEYS,
)

SECRET_KEY = Key("password", "string or null", "the ledger's password as hexadecimal, with --show-secrets")


def ledger_row(
    ledger: int,
    metadata: LedgerMetadata,
    version: int,
    *,
    created_ms: int | None = None,
    secrets: bool = False,
) -> dict[str, Any]:
    """Return the row of one ledger; ``created_ms`` is when it was made, None for what its metadata says."""
    row: dict[str, Any] = {
        "ledger": ledger,
        "state": metadata.state.value,
        "digest": None if metadata.digest_type is None else metadata.digest_type.value,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "length": metadata.length,
        "last_entry": metadata.last_entry,
        "ctime_ms": metadata.ctime_ms if created_ms is None else created_ms,
        "ensembles": [
            {"first_entry": segment.first_entry, "bookies": list(segment.bookies)}
            for segment in metadata.segments
        ],
        "custom_metadata": {
            name: base64.b64encode(value).decode("ascii") for name, value in metadata.custom_metadata
        },
        "version": version,
        **dataclasses.asdict(ledger_owner(metadata.custom_metadata)),
    }
    if secrets:
        row["password"] = None if metadata.password is None else metadata.password.hex()
    return row
