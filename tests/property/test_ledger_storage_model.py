"""A ledger storage against a dict: any order of puts, flushes, failures, crashes, reads and deletions.

And under threads: whatever the interleaving, a reader finds what was put before it started.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.record_batch import bodies_of
from bkctl.engine.ledger_storage import ABSENT_SIZE, LAST_ENTRY
from bkctl.errors import BkctlError, NoEntryError, NoSpaceError
from bkctl.vfs.faulty import FaultRule
from tests.support.faulty_store import StoreFaultRule
from tests.support.grades import times
from tests.support.interleaved_storage_rig import InterleavedStorageRig
from tests.support.memory_storage_rig import MemoryStorageRig
from tests.support.storage_rig import StorageRig, entry_of, key_of

LEDGERS = st.integers(0, 3)
ENTRIES = st.integers(0, 12)


class StorageMachine(RuleBasedStateMachine):
    """``now`` is what must be read; ``durable`` what a crash leaves: the state at the last flush."""

    rig: StorageRig | MemoryStorageRig | InterleavedStorageRig

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[tuple[int, int], bytes] = {}
        self.durable: dict[tuple[int, int], bytes] = {}
        self.rows: dict[int, bytes] = {}
        self.durable_rows: dict[int, bytes] = {}
        self.puts = 0

    @rule(ledger=LEDGERS, entries=st.lists(ENTRIES, min_size=1, max_size=8))
    def put(self, ledger: int, entries: list[int]) -> None:
        self.puts += 1
        bodies = [entry_of(ledger, entry, f"{self.puts}.{at}") for at, entry in enumerate(entries)]
        if not self.rig.try_put(bodies):
            self.flush()
            assert self.rig.try_put(bodies), "a flush makes room"
        self.now.update(((ledger, entry), body) for entry, body in zip(entries, bodies, strict=True))

    @rule(ledger=LEDGERS)
    def set_row(self, ledger: int) -> None:
        self.puts += 1
        key = str(self.puts).encode()
        self.rig.storage.ledgers.set(ledger, LedgerData(fenced=False, master_key=key))
        self.rows[ledger] = key

    @rule()
    def flush(self) -> None:
        self.rig.storage.flush()
        self.durable = dict(self.now)
        self.durable_rows = dict(self.rows)
        assert self.rig.storage.levels().active_bytes == 0

    @rule(ledger=LEDGERS)
    def delete(self, ledger: int) -> None:
        self.rig.delete(ledger)
        self.now = {key: body for key, body in self.now.items() if key[0] != ledger}
        self.rows.pop(ledger, None)

    @rule(seed=st.integers(0, 1 << 16))
    def crash(self, seed: int) -> None:
        self.rig = self.rig.after_crash(random.Random(seed))
        self.now = dict(self.durable)
        self.rows = dict(self.durable_rows)

    @rule(ledger=LEDGERS, entry=ENTRIES)
    def read(self, ledger: int, entry: int) -> None:
        expected = self.now.get((ledger, entry))
        if expected is None:
            with pytest.raises(NoEntryError):
                self.rig.storage.read(ledger, entry)
        else:
            assert self.rig.storage.read(ledger, entry) == expected

    @rule(ledger=LEDGERS)
    def read_in_order(self, ledger: int) -> None:
        for entry in sorted(entry for each, entry in self.now if each == ledger):
            assert self.rig.storage.read(ledger, entry) == self.now[ledger, entry]

    @rule(ledger=LEDGERS)
    def read_last(self, ledger: int) -> None:
        ids = sorted(entry for each, entry in self.now if each == ledger)
        assert self.rig.storage.last_entry(ledger) == (ids[-1] if ids else None)
        if ids:
            assert self.rig.storage.read(ledger, LAST_ENTRY) == self.now[ledger, ids[-1]]

    @rule()
    def nothing_is_lost(self) -> None:
        keys = [(ledger, entry) for ledger in range(4) for entry in range(13)]
        answers = self.rig.storage.read_many([key_of(*key) for key in keys])
        found = {key: answer for key, answer in zip(keys, answers, strict=True) if isinstance(answer, bytes)}
        assert found == self.now
        assert all(isinstance(answer, bytes | NoEntryError) for answer in answers)
        there = [key for key in keys if key in self.now]
        joined = b"".join([key_of(*key) for key in there])
        records, count = self.rig.storage.read_records(joined, 9_000) or (b"", 0)
        assert bodies_of(records) == [self.now[key] for key in there[:count]]

    @rule()
    def ids_and_rows_are_right(self) -> None:
        for ledger in range(4):
            ids = sorted(entry for each, entry in self.now if each == ledger)
            assert list(self.rig.storage.entries(ledger)) == ids
            row = self.rig.storage.ledgers.get(ledger)
            assert (None if row is None else row.master_key) == self.rows.get(ledger)

    @invariant()
    def what_is_cached_is_right(self) -> None:
        if not hasattr(self, "rig"):
            return
        for ledger in range(4):
            for entry in range(13):
                body = self.rig.storage.cached(key_of(ledger, entry))
                assert body is None or body == self.now.get((ledger, entry))
        keys = [key_of(ledger, entry) for ledger in range(4) for entry in range(13)]
        cached = list(map(self.rig.storage.cached, keys))
        together = self.rig.storage.cached_records(b"".join(keys), 1 << 20, whole=True)
        if together is not None:
            records, sizes = together
            assert bodies_of(records) == [body for body in cached if body is not None]
            assert list(sizes) == [ABSENT_SIZE if body is None else len(body) for body in cached]


class DbStorageMachine(StorageMachine):
    """DbLedgerStorage, with steps between a swap and its flush, and with flushes that fail anywhere."""

    rig: StorageRig

    @initialize(
        ahead=st.sampled_from([0, 2, 100]),
        read_cache=st.sampled_from([0, 8 * 600, 1 << 20]),
        log_bytes=st.sampled_from([1500, 1 << 30]),
    )
    def begin(self, ahead: int, read_cache: int, log_bytes: int) -> None:
        settings = StorageSettings(
            write_cache_bytes_max=12_000, read_cache_bytes_max=read_cache, read_ahead_entries_max=ahead
        )
        self.rig = StorageRig(settings, log_bytes_max=log_bytes).open()

    @rule()
    def swap(self) -> None:
        with self.rig.lock:
            if self.rig.storage.caches.active.count:
                self.rig.storage.caches.swap(0.0)

    @rule(store=st.sampled_from(["location_store", "ledger_store"]), entry_log=st.booleans())
    def failed_flush_then_a_good_one(self, store: str, entry_log: bool) -> None:
        if entry_log:
            self.rig.faulty.inject(FaultRule("write", path=".log", count=1))
        else:
            getattr(self.rig, store).inject(StoreFaultRule("write", count=1, error="after"))
        try:
            self.rig.storage.flush()
        except BkctlError:
            self.nothing_is_lost()
        self.rig.faulty.heal()
        getattr(self.rig, store).heal()
        assert not self.rig.failures
        self.flush()


class InterleavedStorageMachine(StorageMachine):
    """The storage over index files, with moves of files, and with flushes that fail anywhere."""

    rig: InterleavedStorageRig

    @initialize(
        directories=st.integers(1, 3), log_bytes=st.sampled_from([1500, 1 << 30]), per_ledger=st.booleans()
    )
    def begin(self, directories: int, log_bytes: int, per_ledger: bool) -> None:
        settings = StorageSettings(write_cache_bytes_max=12_000, read_cache_bytes_max=8 * 600)
        self.rig = InterleavedStorageRig(
            settings, directories=directories, indexes=2, log_bytes_max=log_bytes, per_ledger=per_ledger
        ).open()

    @rule(ledger=LEDGERS, place=st.integers(0, 1))
    def move(self, ledger: int, place: int) -> None:
        if self.rig.files.path(ledger) is not None:
            self.rig.files.move(ledger, place)

    @rule(path=st.sampled_from([".log", ".idx", ".tmp"]), first=st.integers(1, 12))
    def failed_flush_then_a_good_one(self, path: str, first: int) -> None:
        self.rig.faulty.inject(FaultRule("write", path=path, first=first, count=1))
        try:
            self.rig.storage.flush()
        except BkctlError:
            self.nothing_is_lost()
        self.rig.heal()
        assert not self.rig.failures
        self.flush()


class MemoryStorageMachine(StorageMachine):
    """The twin."""

    rig: MemoryStorageRig

    @initialize()
    def begin(self) -> None:
        self.rig = MemoryStorageRig(12_000)

    @rule()
    def failed_flush_then_a_good_one(self) -> None:
        self.rig.fill_disk()
        with pytest.raises(NoSpaceError):
            self.rig.storage.flush()
        self.nothing_is_lost()
        self.rig.heal()
        self.flush()


TestDbStorageMachine = DbStorageMachine.TestCase
TestInterleavedStorageMachine = InterleavedStorageMachine.TestCase
TestMemoryStorageMachine = MemoryStorageMachine.TestCase
TestInterleavedStorageMachine.settings = hypothesis_settings(
    max_examples=times(15, 40), stateful_step_count=40
)
TestDbStorageMachine.settings = TestMemoryStorageMachine.settings = hypothesis_settings(
    max_examples=max(times(15, 40), hypothesis_settings().max_examples // 4), stateful_step_count=40
)


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads change often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


ROUNDS = 150
WIDTH = 8


class Load:
    """Entry e of round r has the tag r; entries of ledger 1 are put once more in every round."""

    def __init__(self, rig: StorageRig) -> None:
        self.rig = rig
        self.round = 0
        self.done = threading.Event()
        self.errors: list[BaseException] = []

    def put(self) -> None:
        for number in range(1, ROUNDS + 1):
            bodies = [entry_of(1, entry, number, 60) for entry in range(WIDTH)]
            bodies += [entry_of(2, number * WIDTH + entry, number, 60) for entry in range(WIDTH)]
            while not self.rig.try_put(bodies):
                assert self.rig.room.wait(20)
                self.rig.room.clear()
            self.round = number

    def flush(self) -> None:
        while not self.done.is_set():
            self.rig.storage.flush()

    def read(self, seed: int) -> None:
        chance = random.Random(seed)
        storage = self.rig.storage
        while not self.done.is_set():
            known = self.round
            if known:
                entry = chance.randrange(WIDTH)
                body = storage.read(1, entry)
                assert int(body[32:].rstrip(b".")) >= known, "older than what was put before the read"
                number = chance.randint(max(1, known - 20), known)
                ids = [number * WIDTH + each for each in range(WIDTH)]
                answers = storage.read_many([key_of(2, each) for each in ids])
                assert answers == [entry_of(2, each, number, 60) for each in ids]
                last = storage.last_entry(2)
                assert last is not None
                assert last >= known * WIDTH + WIDTH - 1

    def run(self, *works: object) -> None:
        def guarded(work: object) -> None:
            assert callable(work)
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the test fails with it
                self.errors.append(error)
                self.done.set()

        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        guarded(self.put)
        self.done.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert not self.errors, self.errors


@pytest.mark.parametrize("cache_bytes", [12_000, 60_000])
def test_a_reader_finds_what_was_put_before_it_started(cache_bytes: int) -> None:
    settings = StorageSettings(
        write_cache_bytes_max=cache_bytes, read_cache_bytes_max=50_000, read_ahead_entries_max=5, retry_ms=1
    )
    rig = StorageRig(settings)
    rig.storage.start()
    load = Load(rig)
    try:
        with short_turns():
            load.run(load.flush, lambda: load.read(1), lambda: load.read(2))
        assert len(list(rig.storage.entries(2))) == ROUNDS * WIDTH
    finally:
        rig.storage.stop()
    assert rig.storage.meters.flushes > 3
    assert not rig.failures
