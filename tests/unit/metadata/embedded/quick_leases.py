"""Settings with which a lease runs out, and a change is noticed, soon."""

from __future__ import annotations

from bkctl.metadata.settings import MetadataSettings

SETTINGS = MetadataSettings(session_timeout_ms=1_000, operation_timeout_ms=10_000, watch_poll_ms=10)
PATIENCE_S = 20.0
