"""A store whose disk was full: it refuses, and goes on by itself when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bkctl.errors import NoSpaceError, StorageError
from bkctl.kvstore.base import Put
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.reopening import ReopeningStore


class Stuck(MemoryStore):
    """As RocksDB: after one write without room it refuses all of them."""

    full = False
    stuck = False

    def write(self, operations, *, sync):  # type: ignore[no-untyped-def]
        self.stuck = self.stuck or type(self).full
        if self.stuck:
            raise NoSpaceError("memory: no room")
        super().write(operations, sync=sync)


def test_a_write_after_the_disk_has_room_again_opens_the_store_anew() -> None:
    Stuck.full = False
    opened: list[Stuck] = []

    def open_store() -> Stuck:
        opened.append(Stuck(opened[-1].crash().__dict__["_view"][0] if opened else {}))
        return opened[-1]

    store = ReopeningStore(open_store)
    store.write([Put(b"a", b"1")], sync=True)
    Stuck.full = True
    with pytest.raises(NoSpaceError):
        store.write([Put(b"b", b"2")], sync=True)
    with pytest.raises(NoSpaceError):
        store.write([Put(b"b", b"2")], sync=True)
    assert store.get(b"a") == b"1"
    Stuck.full = False
    store.write([Put(b"c", b"3")], sync=True)
    assert len(opened) >= 2
    assert (store.get(b"a"), store.get(b"b"), store.get(b"c")) == (b"1", None, b"3")
    store.close()
    with pytest.raises(StorageError):
        store.get(b"a")


_IN_A_SMALL_MOUNT = """
import os, sys
from bkctl.errors import NoSpaceError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.reopening import ReopeningStore
from bkctl.kvstore.rocksdb_store import open_store

mount = sys.argv[1]
store = ReopeningStore(lambda: open_store(mount + "/db", LOCATIONS_PROFILE, create=True))
filler = open(mount + "/filler", "wb")
filler.write(bytes(20 << 20))
filler.close()
written = 0
try:
    while True:
        rows = [Put((written * 20000 + n).to_bytes(16, "big"), os.urandom(8)) for n in range(20000)]
        store.write(rows, sync=True)
        written += 1
except NoSpaceError:
    pass
assert written > 5
os.remove(mount + "/filler")
store.write([Put(b"later", b"1")], sync=True)
assert store.get(b"later") == b"1"
for batch in range(written):
    assert store.get((batch * 20000 + 19999).to_bytes(16, "big")) is not None, batch
store.close()
print("went on after", written)
"""


def test_rocksdb_in_a_small_mount_goes_on_when_there_is_room(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(_IN_A_SMALL_MOUNT))
    command = f"mount -t tmpfs -o size=40m tmpfs {mount} && exec {sys.executable} {program} {mount}"
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    if result.returncode and ("unshare" in result.stderr or "mount" in result.stderr.splitlines()[:1]):
        pytest.skip(f"no user namespaces here: {result.stderr.strip()}")
    assert result.stdout.startswith("went on after"), result.stderr
