"""Changes that are noticed by reading again and again."""

from __future__ import annotations

import queue

from bkctl.clock import SystemClock
from bkctl.metadata.embedded.tree import SqliteTree
from bkctl.metadata.settings import MetadataSettings
from tests.unit.metadata.embedded.quick_leases import PATIENCE_S, SETTINGS


def test_a_child_that_came_and_went_between_two_looks_is_noticed(path: str) -> None:
    """Another watch may have seen it: a bookie that turned read-only and left at once stayed in the list."""
    # The looks come so seldom that both changes lie between two of them.
    slow = MetadataSettings(session_timeout_ms=1_000, operation_timeout_ms=10_000, watch_poll_ms=500)
    watching, other = SqliteTree(path, slow, SystemClock()), SqliteTree(path, SETTINGS, SystemClock())
    try:
        other.create("/folder", b"")
        told: queue.Queue[None] = queue.Queue()
        watching.watch_children("/folder", lambda: told.put(None))
        told.get(timeout=PATIENCE_S)
        other.create("/folder/child", b"")
        other.delete("/folder/child", 0)
        assert watching.children("/folder") == []
        told.get(timeout=PATIENCE_S)
    finally:
        watching.close()
        other.close()
