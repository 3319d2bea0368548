"""The manifest of an entry log in quarantine, ``bkctl-quarantine/<hex id>.json`` beside the log, as JSON.

::

    {
        "kind": "bkctl quarantine",
        "version": 1,
        "log_id": 28,
        "bytes": 1073741824,
        "reason": "sectors that cannot be read",
        "time_ms": 1795411200000,
        "salvaged": false,
        "salvaged_to": null,
    }

While it is not ``salvaged``, rows of the index name the log, and every read of an entry in it fails as
unknown. Of one that is, what could be read was copied to ``salvaged_to`` (null where that was nothing): rows
of the index name that one, what is lost is listed and in limbo, and the log in quarantine is only kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bkctl.codec.json_document import DocumentKind
from bkctl.codec.location import LOG_ID_MAX

KIND = "bkctl quarantine"
VERSION = 1
_DOCUMENT = DocumentKind("manifest of a log in quarantine", KIND, VERSION)
_expect = _DOCUMENT.expect


@dataclass(frozen=True, slots=True)
class QuarantineManifest:
    """One log in quarantine; see the module."""

    log_id: int
    size_bytes: int
    reason: str
    time_ms: int
    salvaged: bool = False
    salvaged_to: int | None = None


def manifest_name(log_id: int) -> str:
    """Return the file name of a log's manifest."""
    return f"{log_id:x}.json"


def encode_manifest(manifest: QuarantineManifest) -> bytes:
    """Return the manifest as a JSON document."""
    document = {
        "kind": KIND,
        "version": VERSION,
        "log_id": manifest.log_id,
        "bytes": manifest.size_bytes,
        "reason": manifest.reason,
        "time_ms": manifest.time_ms,
        "salvaged": manifest.salvaged,
        "salvaged_to": manifest.salvaged_to,
    }
    return json.dumps(document).encode() + b"\n"


def decode_manifest(data: bytes) -> QuarantineManifest:
    """Return the manifest in a document.

    Raises CorruptionError for anything that :func:`encode_manifest` never writes; fields of later versions
    are left out.
    """
    document = _DOCUMENT.members(data)
    reason, salvaged, salvaged_to = (document.get(name) for name in ("reason", "salvaged", "salvaged_to"))
    _expect(isinstance(salvaged, bool), "salvaged, true or false", salvaged)
    _expect(isinstance(reason, str) and reason.isprintable(), "a reason", reason)
    return QuarantineManifest(
        _number(document.get("log_id"), LOG_ID_MAX),
        _number(document.get("bytes"), 2**63 - 1),
        str(reason),
        _number(document.get("time_ms"), 2**63 - 1),
        salvaged is True,
        None if salvaged_to is None else _number(salvaged_to, LOG_ID_MAX),
    )


def _number(value: Any, largest: int) -> int:
    _expect(type(value) is int and 0 <= value <= largest, f"a number up to {largest}", value)
    return int(value)
