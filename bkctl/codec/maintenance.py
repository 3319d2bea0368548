r"""``underreplication/bkctl-maintenance``: who began a maintenance of the cluster, and what was set before.

A node of this project's own beside those that Java's autorecovery keeps; Java reads none that it does not
know. JSON, an object::

    {
        "version": 1,
        "by": "ops@host",
        "reason": "rolling restart",
        "begun_ms": 1700000000000,
        "enabled_before": true,
        "delay_before_s": 0,
        "delay_s": 3600,
    }

``delay_before_s`` and ``delay_s`` are null where no delay was stored when the maintenance began: it is not
touched then.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from bkctl.errors import CorruptionError

VERSION = 1
_WHAT = "record of a maintenance"
_DELAY_S_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A maintenance that somebody has begun; times are milliseconds since 1970."""

    by: str
    reason: str
    begun_ms: int
    enabled_before: bool
    delay_before_s: int | None
    delay_s: int | None


def encode_maintenance(maintenance: Maintenance) -> bytes:
    """Return the bytes of the record."""
    return json.dumps({"version": VERSION, **asdict(maintenance)}).encode()


def decode_maintenance(data: bytes) -> Maintenance:
    """Return the record. Raises CorruptionError, also for one of a later version of bkctl."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptionError(_WHAT, expected="JSON") from None
    if not isinstance(found, dict):
        raise CorruptionError(_WHAT, expected="an object")
    if found.get("version") != VERSION:
        raise CorruptionError(_WHAT, expected=f"version {VERSION}")
    by, reason, enabled = found.get("by"), found.get("reason"), found.get("enabled_before")
    if not (isinstance(by, str) and isinstance(reason, str) and isinstance(enabled, bool)):
        raise CorruptionError(_WHAT, expected="by, reason and enabled_before")
    begun_ms = found.get("begun_ms")
    if not isinstance(begun_ms, int) or isinstance(begun_ms, bool):
        raise CorruptionError(_WHAT, expected="begun_ms, a number")
    return Maintenance(
        by, reason, begun_ms, enabled, _delay(found, "delay_before_s"), _delay(found, "delay_s")
    )


def _delay(found: dict[str, object], key: str) -> int | None:
    value = found.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _DELAY_S_LIMIT:
        raise CorruptionError(_WHAT, expected=f"{key}, a number of seconds or null")
    return value
