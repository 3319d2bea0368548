"""A synced write of a RocksDB store: a write and a sync of its own, which lets other threads run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import StorageError, SyncError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import RocksStore, open_store


class Watched:
    """A database whose writes and syncs are noted, and whose syncs fail when they are told to."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.calls: list[str] = []
        self.failing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self, batch: Any, *options: Any) -> None:
        # The binding lets no other thread run during a write: it must not be the one that syncs.
        assert not options
        self.calls.append("write")
        self._database.write(batch)

    def flush_wal(self, sync: bool) -> None:
        self.calls.append(f"sync {sync}")
        if self.failing:
            raise RuntimeError("IO error: While fsync: 000007.log: Input/output error")
        self._database.flush_wal(sync)


@pytest.fixture
def store(tmp_path: Path) -> RocksStore:
    return open_store(str(tmp_path / "rows"), LOCATIONS_PROFILE, create=True)


def watched(store: RocksStore) -> Watched:
    database: Any = Watched(store._database)
    store._database = database
    assert isinstance(database, Watched)
    return database


def test_the_sync_follows_the_write(store: RocksStore) -> None:
    database = watched(store)
    store.write([Put(b"a", b"1")], sync=False)
    store.write([Put(b"b", b"2")], sync=True)
    assert database.calls == ["write", "write", "sync True"]
    assert store.get(b"b") == b"2"
    store.close()


def test_nothing_is_taken_and_nothing_noted_as_synced_after_a_failed_sync(store: RocksStore) -> None:
    store.note_synced()
    database = watched(store)
    database.failing = True
    with pytest.raises(SyncError, match="Input/output error"):
        store.write([Put(b"a", b"1")], sync=True)
    # The next one would succeed, and would say nothing of what the failed one has lost.
    database.failing = False
    database.calls.clear()
    for sync in (False, True):
        with pytest.raises(SyncError, match="since a sync failed"):
            store.write([Put(b"b", b"2")], sync=sync)
    with pytest.raises(SyncError, match="since a sync failed"):
        store.note_synced()
    with pytest.raises(StorageError, match="since a sync failed"):
        store.close()
    assert database.calls == []
    # It is closed all the same, and its lock is free.
    open_store(store.path, LOCATIONS_PROFILE, create=False).close()
