"""The file of an embedded store: its mode, its durability, foreign and damaged files."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.errors import CorruptionError, StorageError
from bkctl.metadata.embedded.tree import SqliteTree
from tests.unit.metadata.embedded.quick_leases import SETTINGS


def test_the_file_is_for_its_owner_only(tree: SqliteTree, path: str) -> None:
    tree.create("/a", b"secret")
    for name in os.listdir(os.path.dirname(path)):
        assert stat.S_IMODE(os.stat(os.path.join(os.path.dirname(path), name)).st_mode) == 0o600
    assert sorted(os.listdir(os.path.dirname(path))) == [
        "metadata.db",
        "metadata.db-shm",
        "metadata.db-wal",
    ]


def test_every_commit_is_synced_and_the_log_is_written_ahead(tree: SqliteTree) -> None:
    tree.create("/a")
    assert tree._connection is not None
    assert tree._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert tree._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("content", [b"this is no database, but it is long enough" * 50, b"", bytes(8192)])
def test_a_foreign_file_is_refused_and_left_alone(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    tree = SqliteTree(path, SETTINGS, SystemClock())
    for ask in (lambda: tree.get("/"), lambda: tree.create("/a")):
        with pytest.raises(CorruptionError, match=r"metadata.db"):
            ask()
    tree.close()
    assert Path(path).read_bytes() == content


def test_another_programs_database_is_refused(path: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE nodes (path TEXT)")
    connection.close()
    tree = SqliteTree(path, SETTINGS, SystemClock())
    with pytest.raises(CorruptionError, match=r"a metadata store of format 1"):
        tree.create("/a")
    tree.close()


def test_damage_is_damage_and_not_an_empty_store(path: str) -> None:
    tree = SqliteTree(path, SETTINGS, SystemClock())
    for number in range(200):
        tree.create(f"/n{number}", bytes(200))
    tree.close()
    size = os.path.getsize(path)
    with Path(path).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    tree = SqliteTree(path, SETTINGS, SystemClock())
    with pytest.raises(CorruptionError, match=r"metadata.db"):
        tree.children("/")
    tree.close()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    tree = SqliteTree(f"{tmp_path}/absent/metadata.db", SETTINGS, SystemClock())
    assert tree.get("/") is None
    with pytest.raises(StorageError, match=r"absent/metadata.db"):
        tree.create("/a")
    tree.close()


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    tree = SqliteTree(f"{tmp_path}/a b?c=d#e%20.db", SETTINGS, SystemClock())
    tree.create("/a")
    tree.close()
    assert os.listdir(tmp_path) == ["a b?c=d#e%20.db"]
