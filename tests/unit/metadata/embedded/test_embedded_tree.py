"""What only the embedded tree can get wrong: leases and processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from bkctl.clock import SystemClock
from bkctl.errors import ConnectionFailedError
from bkctl.metadata.embedded.tree import SqliteTree
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.tree import NodeExistsError, SessionCallbacks
from bkctl.metadata.uri import open_metadata_store
from tests.support.manual_clock import ManualClock
from tests.unit.metadata.embedded.quick_leases import PATIENCE_S, SETTINGS

#: Makes sequence nodes and says each only when it is acknowledged.
WRITER = """
import sys
from bkctl.clock import SystemClock
from bkctl.metadata.embedded.tree import SqliteTree
from bkctl.metadata.settings import MetadataSettings
tree = SqliteTree(sys.argv[1], MetadataSettings(), SystemClock())
for _ in range(int(sys.argv[2])):
    print(tree.create("/n-", b"data", sequence=True), flush=True)
tree.close()
"""


def test_processes_that_begin_at_the_same_time_share_one_sequence(path: str) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, "20"], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    made = [line for writer in writers for line in writer.communicate(timeout=60)[0].split()]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert sorted(made) == [f"/n-{number:010d}" for number in range(60)]
    assert os.listdir(os.path.dirname(path)) == ["metadata.db"]


def test_what_a_killed_process_had_acknowledged_is_there(path: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path, "100000"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().strip() for _ in range(20)]
    writer.kill()
    acknowledged += writer.stdout.read().split("\n")[:-1]
    writer.stdout.close()
    writer.wait()
    with open_metadata_store(f"embedded://{path}") as store:
        assert not store.layout.cluster_exists()
    tree = SqliteTree(path, SETTINGS, SystemClock())
    names = {f"/{name}" for name in tree.children("/") or ()}
    tree.close()
    assert set(acknowledged) <= names
    assert len(names) <= len(acknowledged) + 1


def test_a_lease_runs_out_for_everybody_at_its_time(path: str) -> None:
    clock = ManualClock()
    long = MetadataSettings(session_timeout_ms=3_600_000)  # the thread does not come to renew it
    holder, other = SqliteTree(path, long, clock), SqliteTree(path, long, clock)
    try:
        holder.create("/mine", b"", ephemeral=True)
        clock.advance(3_599)
        assert other.get("/mine") is not None
        assert other.children("/") == ["mine"]
        with pytest.raises(NodeExistsError):
            other.create("/mine")
        clock.advance(1)
        assert other.get("/mine") is None
        assert other.children("/") == []
        assert other.create("/mine", b"theirs", ephemeral=True) == "/mine"
        with pytest.raises(ConnectionFailedError, match=r"lease has run out"):
            holder.create("/more", b"", ephemeral=True)
        node = holder.get("/mine")
        assert node is not None
        assert node.data == b"theirs"
    finally:
        holder.close()
        other.close()


def test_a_lease_that_ran_out_unnoticed_lives_on(path: str) -> None:
    """A machine that slept, alone with its store."""
    clock = ManualClock()
    long = MetadataSettings(session_timeout_ms=3_600_000)
    holder, other = SqliteTree(path, long, clock), SqliteTree(path, long, clock)
    try:
        holder.create("/mine", b"", ephemeral=True)
        session = holder.session()
        clock.advance(100_000)
        assert other.get("/mine") is None
        assert holder.get("/mine") is not None
        assert holder.children("/") == ["mine"]
        holder.create("/more")
        assert other.children("/") == ["mine", "more"]
        assert holder.session() == session
    finally:
        holder.close()
        other.close()


def test_a_lease_is_renewed_as_long_as_its_process_lives(tree: SqliteTree, path: str) -> None:
    tree.create("/mine", b"", ephemeral=True)
    session = tree.session()
    watcher = SqliteTree(path, SETTINGS, SystemClock())
    assert not watcher.wait_until_gone("/mine", 2.5 * SETTINGS.session_timeout_ms / 1000)
    watcher.close()
    assert tree.session() == session


def test_a_lease_that_ran_out_is_replaced_and_told(tree: SqliteTree, path: str) -> None:
    lost, restored = threading.Event(), threading.Event()
    tree.set_session_callbacks(SessionCallbacks(lost.set, restored.set))
    before = tree.session()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM sessions")
    connection.close()
    assert lost.wait(PATIENCE_S)
    assert restored.wait(PATIENCE_S)
    assert tree.session() != before


def test_a_store_that_another_process_holds_for_too_long_is_busy_not_broken(path: str) -> None:
    quick = MetadataSettings(operation_timeout_ms=100)
    tree = SqliteTree(path, quick, SystemClock())
    tree.create("/a")
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConnectionFailedError, match=r"nothing was changed"):
        tree.create("/b")
    assert tree.children("/") == ["a"]  # readers are not in the way
    blocker.execute("ROLLBACK")
    blocker.close()
    tree.create("/b")
    tree.close()
