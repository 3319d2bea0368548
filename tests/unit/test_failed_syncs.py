"""A sync that fails is a SyncError, on a full disk too: the bytes may be gone, and nobody tries it again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.admin.index.rebuild.state import sync_directory, sync_file
from bkctl.clock import SystemClock
from bkctl.errors import SyncError
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import sorted_file_writer
from bkctl.metadata.embedded.tree import SqliteTree
from bkctl.metadata.settings import MetadataSettings


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def fill(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(os, "fsync", fill)


def test_of_a_rebuilds_files(tmp_path: Path, full_disk: Callable[[], None]) -> None:
    (tmp_path / "run").write_bytes(b"rows")
    full_disk()
    with pytest.raises(SyncError, match="No space left"):
        sync_directory(str(tmp_path))
    with pytest.raises(SyncError, match="No space left"):
        sync_file(str(tmp_path / "run"))


def test_of_the_name_of_a_table(tmp_path: Path, full_disk: Callable[[], None]) -> None:
    table = sorted_file_writer(str(tmp_path / "0001.sst"), LOCATIONS_PROFILE)
    table.put(bytes(16), bytes(8))
    full_disk()
    with pytest.raises(SyncError, match="No space left"):
        table.finish()


def test_of_the_name_of_an_embedded_metadata_store(tmp_path: Path, full_disk: Callable[[], None]) -> None:
    tree = SqliteTree(str(tmp_path / "metadata.db"), MetadataSettings(), SystemClock())
    full_disk()
    with pytest.raises(SyncError, match="No space left"):
        tree.create("/ledgers", b"")
