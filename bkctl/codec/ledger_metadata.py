"""Ledger metadata as stored in a metadata store: a header line, then one of three formats.

========= =========================================================================================
offset    field
========= =========================================================================================
0         ``BookieMetadataFormatVersion``, TAB, version in decimal (at most ten digits), newline
30 or so  the body
========= =========================================================================================

======= ============================================================================================
version body
======= ============================================================================================
1       lines of text (``codec.ledger_metadata_text``), written before 4.0
2       protobuf text (``codec.ledger_metadata_text``), written before 4.9
3       varint length and a protobuf message (``codec.ledger_metadata_proto``), the default
other   damage, or from the future
======= ============================================================================================

A rewrite keeps the version that was read, so that old readers are not locked out:
``LedgerMetadata.metadata_version`` carries it. Metadata holds the ledger's password in clear; no error and
no repr made here shows it.

Source: ``org.apache.bookkeeper.meta.LedgerMetadataSerDe``.
"""

from __future__ import annotations

import re

from bkctl.codec import ledger_metadata_text
from bkctl.codec.ledger_metadata_values import METADATA_BYTES_MAX, NO_ENTRY, LedgerMetadata, Segment
from bkctl.errors import CorruptionError, UsageError

__all__ = [
    "METADATA_BYTES_MAX",
    "NO_ENTRY",
    "LedgerMetadata",
    "Segment",
    "decode_ledger_metadata",
    "encode_ledger_metadata",
]

_KEY = b"BookieMetadataFormatVersion\t"
_VERSION = re.compile(rb"([+-]?[0-9]{1,10})\n")


def decode_ledger_metadata(data: bytes) -> LedgerMetadata:
    """Return the metadata in a ledger's znode. Raises CorruptionError when it is not of format 1, 2 or 3."""
    if len(data) > METADATA_BYTES_MAX:
        raise CorruptionError(
            "ledger metadata",
            offset=METADATA_BYTES_MAX,
            expected=f"at most {METADATA_BYTES_MAX} bytes",
            found=f"{len(data)}",
        )
    if not data.startswith(_KEY):
        raise CorruptionError("ledger metadata", expected="BookieMetadataFormatVersion", found="other bytes")
    header = _VERSION.match(data, len(_KEY))
    if header is None:
        raise CorruptionError("ledger metadata", offset=len(_KEY), expected="a format version and a newline")
    version, base = int(header[1]), header.end()
    if version == 1:
        return ledger_metadata_text.decode_lines(data[base:], base)
    if version == 2:
        return ledger_metadata_text.decode_text(data[base:], base)
    if version == 3:
        from bkctl.codec import ledger_metadata_proto

        return ledger_metadata_proto.decode_binary(data[base:], base)
    raise CorruptionError(
        "ledger metadata", offset=len(_KEY), expected="format 1, 2 or 3", found=str(version)
    )


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """Return the bytes that Java writes for these values, in the format ``metadata_version`` names.

    Raises UsageError for another format, and for values that the format cannot hold.
    """
    if metadata.metadata_version == 1:
        body = ledger_metadata_text.encode_lines(metadata)
    elif metadata.metadata_version == 2:
        body = ledger_metadata_text.encode_text(metadata)
    elif metadata.metadata_version == 3:
        from bkctl.codec import ledger_metadata_proto

        body = ledger_metadata_proto.encode_binary(metadata)
    else:
        raise UsageError(f"there is no ledger metadata of format {metadata.metadata_version}")
    return _KEY + b"%d\n" % metadata.metadata_version + body
