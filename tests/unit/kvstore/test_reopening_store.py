"""A store whose disk was full: it refuses, and goes on by itself when there is room."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.errors import NoSpaceError, RefusedError, StorageError
from bkctl.kvstore import rocksdb_rows, rocksdb_store
from bkctl.kvstore.base import KeyValueStore, Put, Puts, StoreInUseError
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.reopening import ReopeningStore
from bkctl.kvstore.rocksdb_store import open_store
from tests.support.faulty_store import FaultyStore, StoreFaultRule
from tests.support.waiting import until

KEYS = [struct.pack(">qq", 1, number) for number in range(20_000)]


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
    )
    if result.returncode and ("unshare" in result.stderr or "mount" in result.stderr.splitlines()[:1]):
        pytest.skip(f"no user namespaces here: {result.stderr.strip()}")
    assert result.stdout.startswith("went on after"), result.stderr


class Readers:
    """Threads that do nothing but look things up, and what came of it."""

    def __init__(self, looks: list[Callable[[], object]]) -> None:
        self.seen: Counter[str] = Counter()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(look,)) for look in looks]
        for thread in self._threads:
            thread.start()

    def _run(self, look: Callable[[], object]) -> None:
        while not self._ended.is_set():
            try:
                look()
                self.seen["good"] += 1
            except Exception as error:  # noqa: BLE001 - the top of a thread: the test tells
                self.seen[repr(error)] += 1

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def full_once(path: Path) -> tuple[ReopeningStore, list[FaultyStore]]:
    """A store with rows in RocksDB; a write that is wanted to fail finds no room."""
    opened: list[FaultyStore] = []

    def open_faulty() -> KeyValueStore:
        opened.append(FaultyStore(open_store(str(path / "locations"), LOCATIONS_PROFILE, create=True)))
        return opened[-1]

    store = ReopeningStore(open_faulty)
    store.write(Puts(KEYS, [b"v" * 8] * len(KEYS)), sync=True)
    return store, opened


def test_a_store_is_opened_again_while_threads_look_things_up(tmp_path: Path) -> None:
    store, opened = full_once(tmp_path)
    chance = random.Random(1)

    def look_up() -> None:
        assert None not in store.get_many(chance.sample(KEYS, 2000))

    def look_below() -> None:
        assert store.below(KEYS[-1]) is not None
        assert store.floor(KEYS[-1]) == (KEYS[-1], b"v" * 8)

    def walk() -> None:
        try:
            assert sum(len(rows) for rows in store.batches(rows_max=500)) >= len(KEYS)
        except StorageError as error:
            # An iteration is of one state of one database, so that it cannot go on in the next one.
            assert "closed" in str(error)  # noqa: PT017

    readers = Readers([look_up, look_up, look_up, look_below, walk])
    try:
        for turn in range(10):
            opened[-1].inject(StoreFaultRule("write", count=1, error="no_space"))
            with pytest.raises(NoSpaceError):
                store.write([Put(b"refused", b"")], sync=True)
            store.write([Put(struct.pack(">qq", 2, turn), b"v")], sync=True)
            before = readers.seen["good"]
            until(lambda before=before: readers.seen["good"] > before + 5, "nobody reads")  # type: ignore[misc]
    finally:
        readers.end()
        store.close()
    assert set(readers.seen) == {"good"}
    assert len(opened) == 11
    with open_store(str(tmp_path / "locations"), LOCATIONS_PROFILE, create=False) as after:
        assert [after.get(struct.pack(">qq", 2, turn)) for turn in range(10)] == [b"v"] * 10
        assert after.get(b"refused") is None


class Slow:
    """A look-up that is inside the database until it is let go."""

    def __init__(self, store: rocksdb_store.RocksStore) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()
        self._store = store
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self.inside.wait(20)

    def _run(self) -> None:
        def wait() -> None:
            self.inside.set()
            self.go.wait(20)

        self._store._guarded(wait)

    def end(self) -> None:
        self.go.set()
        self.thread.join()


def test_a_database_in_use_is_not_closed_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_rows, "CLOSE_WAIT_S", 0.05)
    store = open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True)
    store.write([Put(b"a", b"1")], sync=True)
    slow = Slow(store)
    with pytest.raises(StoreInUseError, match="1 thread"):
        store.close()
    # The lock is not forgotten while the database is open: this process would look into its own database.
    with pytest.raises(RefusedError, match="in use by"):
        open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True)
    assert store.get(b"a") == b"1"
    slow.end()
    store.close()
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True) as again:
        assert again.get(b"a") == b"1"


def test_a_close_waits_for_who_is_inside(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True)
    slow = Slow(store)
    closing = threading.Thread(target=store.close)
    closing.start()

    def is_refused() -> bool:
        try:
            store.get(b"a")
        except StorageError:
            return True
        return False

    until(is_refused, "the store does not close")
    assert closing.is_alive()
    slow.end()
    closing.join(20)
    assert not closing.is_alive()


def test_a_store_that_stays_in_use_serves_reads_and_is_opened_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_rows, "CLOSE_WAIT_S", 0.05)
    store, opened = full_once(tmp_path)
    inner = opened[0]._inner
    assert isinstance(inner, rocksdb_store.RocksStore)
    slow = Slow(inner)
    opened[0].inject(StoreFaultRule("write", count=1, error="no_space"))
    with pytest.raises(NoSpaceError):
        store.write([Put(b"a", b"1")], sync=True)
    with pytest.raises(StoreInUseError):
        store.write([Put(b"a", b"1")], sync=True)
    assert store.get_many(KEYS[:2]) == [b"v" * 8] * 2
    slow.end()
    store.write([Put(b"a", b"1")], sync=True)
    assert store.get(b"a") == b"1"
    assert len(opened) == 2
    store.close()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OSError("No space left on device (os error 28)"), NoSpaceError),
        (OSError(28, "No space left on device"), NoSpaceError),
        (OSError("Input/output error (os error 5)"), StorageError),
        (
            Exception("IO error: While open a file for appending: 12.log: Too many open files"),
            NoSpaceError,
        ),
        (RuntimeError("Already borrowed"), StorageError),
    ],
)
def test_what_the_binding_raises_while_it_opens_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[StorageError]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True).close()
    with monkeypatch.context() as patched:
        patched.setattr(rocksdb_store.rocksdict, "Rdict", fail)
        with pytest.raises(StorageError) as caught:
            open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True)
    assert type(caught.value) is expected
    open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True).close()


def test_a_store_that_finds_no_room_to_open_is_opened_by_a_later_write(tmp_path: Path) -> None:
    opened: list[KeyValueStore] = []
    full = [False]

    def open_faulty() -> KeyValueStore:
        if full[0]:
            raise NoSpaceError("no room")
        inner = open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True)
        opened.append(FaultyStore(inner, [] if opened else [StoreFaultRule("write", 2, 1, error="no_space")]))
        return opened[-1]

    store = ReopeningStore(open_faulty)
    store.write([Put(b"a", b"1")], sync=True)
    full[0] = True
    for _ in range(3):
        with pytest.raises(NoSpaceError):
            store.write([Put(b"b", b"2")], sync=True)
    with pytest.raises(StorageError):
        store.get(b"a")
    full[0] = False
    store.write([Put(b"b", b"2")], sync=True)
    assert store.get_many([b"a", b"b"]) == [b"1", b"2"]
    store.close()
