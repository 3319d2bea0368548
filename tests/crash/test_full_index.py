"""The disk is full for the index alone, while clients read: read-only until there is room, nothing ends."""

from __future__ import annotations

import random
import struct
import threading
from collections import Counter
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.bookie import Bookie
from bkctl.engine.settings import BookieSettings
from bkctl.errors import ReadOnlyBookieError
from bkctl.kvstore.base import KeyValueStore
from bkctl.kvstore.profile import LOCATIONS_PROFILE, StoreProfile
from bkctl.kvstore.reopening import ReopeningStore
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.vfs import PosixFileSystem
from tests.support.engine_rig import KEY, Answers, entry_body
from tests.support.faulty_store import FaultyStore, StoreFaultRule
from tests.support.waiting import until

ENTRIES = 2000
PAYLOAD = bytes(500)


class RealBookie:
    """An engine over RocksDB and files, whose databases can be made to find no room."""

    def __init__(self, path: Path, *, flush_interval_ms: int) -> None:
        for name in ("journal", "ledgers"):
            (path / name / "current").mkdir(parents=True)
        self.opened: dict[str, list[FaultyStore]] = {}
        self.modes: list[bool] = []
        settings = BookieSettings(
            (str(path / "journal"),),
            (str(path / "ledgers"),),
            # Without a read cache every read is one of the index; a small write cache is often flushed.
            storage=StorageSettings(write_cache_bytes_max=1 << 20, read_cache_bytes_max=0, retry_ms=20),
            disks=DiskSettings(
                usage_max=0.9999, usage_low=0.9999, usage_warn=0.9999, check_interval_ms=50, free_bytes_min=0
            ),
            entry_log=EntryLogSettings(flush_interval_ms=flush_interval_ms),
        )
        self.bookie = Bookie(
            settings,
            filesystem=PosixFileSystem(),
            clock=SystemClock(),
            open_store=self._open,
            on_read_only=self.modes.append,
        )
        self.bookie.start()

    def _open(self, path: str, profile: StoreProfile) -> ReopeningStore:
        opened = self.opened.setdefault(Path(path).name, [])

        def open_faulty() -> KeyValueStore:
            opened.append(FaultyStore(open_store(path, profile, create=True)))
            return opened[-1]

        return ReopeningStore(open_faulty)

    def write(self, ledger: int) -> None:
        """Add a ledger's entries, those that are refused again and again until they are durable."""
        missing = set(range(ENTRIES))

        def write_missing() -> bool:
            answers, taken = Answers(), 0
            for entry in sorted(missing):
                try:
                    self.bookie.writes.add(SingleAdd(entry_body(ledger, entry, PAYLOAD), KEY, answers, entry))
                    taken += 1
                except ReadOnlyBookieError:
                    break
            answers.wait(taken)
            missing.difference_update(answers.good)  # type: ignore[arg-type]
            return not missing

        until(write_missing, f"{len(missing)} entries were never taken: {self.bookie.failure}")


class Reading:
    """Threads that read entries of the index until they are stopped; what they got."""

    def __init__(self, bookie: Bookie) -> None:
        self.seen: Counter[str] = Counter()
        self._bookie = bookie
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._ended.is_set():
            numbers = [chance.randrange(ENTRIES) for _ in range(100)]
            try:
                found = self._bookie.reads.read_many([struct.pack(">qq", 0, each) for each in numbers])
            except Exception as error:  # noqa: BLE001 - the top of a thread: the test tells
                found = [error] * len(numbers)  # type: ignore[list-item]
            for number, body in zip(numbers, found, strict=True):
                good = body == entry_body(0, number, PAYLOAD)
                self.seen["good" if good else repr(body)] += 1

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("store", ["locations", "ledgers"])
@pytest.mark.parametrize("turn", ["the checkpoint's", "the flush thread's"])
def test_a_bookie_is_read_only_and_recovers_while_clients_read(tmp_path: Path, store: str, turn: str) -> None:
    by_checkpoint = turn == "the checkpoint's"
    rig = RealBookie(tmp_path, flush_interval_ms=30 if by_checkpoint else 3_600_000)
    bookie = rig.bookie
    reading = None
    try:
        rig.write(0)
        bookie.checkpoint()
        reading = Reading(bookie)
        until(lambda: reading is not None and reading.seen["good"] > 1000, "nobody reads")
        for ledger in range(1, 4):
            opened = len(rig.opened[store])
            rig.opened[store][-1].inject(StoreFaultRule("write", count=2, error="no_space"))
            rig.write(ledger)
            until(lambda opened=opened: len(rig.opened[store]) > opened, "the store is not opened again")  # type: ignore[misc]
            until(lambda: not bookie.read_only, f"{bookie.failure} {rig.modes}")
        before = reading.seen["good"]
        until(lambda: reading is not None and reading.seen["good"] > before + 1000, "nobody reads any more")
    finally:
        if reading is not None:
            reading.end()
        bookie.stop()
    assert bookie.failure is None
    assert set(reading.seen) == {"good"}
    assert True in rig.modes
    assert rig.modes[-1] is False
    # Everything that was acknowledged has a row.
    index = tmp_path / "ledgers" / "current" / "locations"
    with open_store(str(index), LOCATIONS_PROFILE, create=False) as rows:
        found = [key for key, _ in rows.iterate(struct.pack(">qq", 0, 0))]
    assert found == [struct.pack(">qq", ledger, entry) for ledger in range(4) for entry in range(ENTRIES)]
