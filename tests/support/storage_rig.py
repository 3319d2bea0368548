"""A ledger storage over twins in memory, and entries to put into it."""

from __future__ import annotations

import errno
import random
import struct
import threading
from typing import Any

from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.cache.compiled_read_cache import CompiledReadCache
from bkctl.engine.db_storage.db_ledger_storage import DbLedgerStorage
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.errors import BkctlError
from bkctl.kvstore.memory import MemoryStore
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.faulty_store import FaultyStore, StoreFaultRule
from tests.support.manual_clock import ManualClock

DIRECTORY = "/l0/current"


def key_of(ledger: int, entry: int) -> bytes:
    return struct.pack(">qq", ledger, entry)


def entry_of(ledger: int, entry: int, tag: object = "", size_bytes: int = 0) -> bytes:
    """An entry's body with ``tag`` as payload, filled up to ``size_bytes``."""
    body = struct.pack(">qqqq", ledger, entry, entry - 1, 0) + str(tag).encode()
    return body + b"." * (size_bytes - len(body))


class StorageOperations:
    """What tests do with a storage under its lock."""

    lock: Any
    storage: LedgerStorage

    def put(self, ledger: int, entry: int, tag: object = "", size_bytes: int = 0) -> bytes:
        """Put one entry; there must be room."""
        body = entry_of(ledger, entry, tag, size_bytes)
        assert self.try_put([body]), "no room"
        return body

    def try_put(self, bodies: list[bytes]) -> bool:
        size_bytes = sum(map(len, bodies))
        with self.lock:
            if not self.storage.has_room(size_bytes, len(bodies)):
                return False
            self.storage.put_many([body[:16] for body in bodies], bodies, size_bytes)
            return True

    def delete(self, ledger: int) -> None:
        with self.lock:
            self.storage.delete_ledger(ledger)


class StorageRig(StorageOperations):
    """A storage without a flush thread until ``start``; ``failures`` is what it told ``on_failure``."""

    def __init__(
        self,
        settings: StorageSettings | None = None,
        *,
        disk: MemoryFileSystem | None = None,
        locations: MemoryStore | None = None,
        ledgers: MemoryStore | None = None,
        crash_after: int | None = None,
        gate: threading.Event | None = None,
        log_bytes_max: int = 1 << 30,
        per_ledger: bool = False,
        lock: Any = None,
    ) -> None:
        self.per_ledger = per_ledger
        self.clock = ManualClock()
        self.settings = settings or StorageSettings(write_cache_bytes_max=1 << 20, retry_ms=1)
        self.log_bytes_max = log_bytes_max
        self.disk = disk or MemoryFileSystem()
        if disk is None:
            self.disk.make_directories(DIRECTORY)
            self.disk.sync_directory("/l0")
        # A latency is waited for at the gate: who opens it decides how long it is.
        sleep = (lambda seconds: None) if gate is None else self._at_the_gate
        self.gate = gate
        self.waiting = threading.Event()
        self.faulty = FaultyFileSystem(self.disk, crash_after=crash_after, sleep=sleep)
        self.location_rows = locations or MemoryStore(path="locations")
        self.ledger_rows = ledgers or MemoryStore(path="ledgers")
        self.location_store = FaultyStore(self.location_rows, sleep=sleep)
        self.ledger_store = FaultyStore(self.ledger_rows, sleep=sleep)
        self.lock = lock or threading.Lock()
        self.failures: list[BkctlError] = []
        self.room = threading.Event()
        # One thread, so that equal runs have equal persistence points; few logs, so that some are evicted.
        logs = EntryLogSettings(
            size_bytes_max=log_bytes_max, per_ledger=per_ledger, active_logs_max=3, force_threads=1
        )
        self.entry_logger = EntryLogger(DIRECTORY, self.faulty, logs, self.clock)
        self.locations = EntryLocationIndex(self.location_store)
        self.storage = DbLedgerStorage(
            DIRECTORY,
            lock=self.lock,
            entry_logger=self.entry_logger,
            locations=self.locations,
            ledgers=LedgerIndex(self.ledger_store),
            clock=self.clock,
            settings=self.settings,
            on_failure=self.failures.append,
        )
        self.storage.on_room = self.room.set

    def _at_the_gate(self, seconds: float) -> None:
        assert self.gate is not None
        self.waiting.set()
        assert self.gate.wait(20), "nobody opened the gate"

    def open(self) -> StorageRig:
        """Ready for use, without a flush thread."""
        self.entry_logger.open()
        return self

    def fill_disk(self) -> None:
        """Let flushes find no room, until :meth:`heal`."""
        self.faulty.inject(FaultRule("write", path=".log", error_number=errno.ENOSPC))
        for store in (self.location_store, self.ledger_store):
            store.inject(StoreFaultRule("write", error="no_space"))

    def break_disk(self) -> None:
        """Let the next flush fail for good."""
        self.faulty.inject(FaultRule("sync", path=".log"))

    def heal(self) -> None:
        for part in (self.faulty, self.location_store, self.ledger_store):
            part.heal()

    def after_crash(self, chance: random.Random | None = None) -> StorageRig:
        """What a power cut leaves, opened."""
        return StorageRig(
            self.settings,
            disk=self.disk.crash(chance),
            locations=self.location_rows.crash(chance),
            ledgers=self.ledger_rows.crash(chance),
            log_bytes_max=self.log_bytes_max,
            per_ledger=self.per_ledger,
        ).open()

    def forget_read_cache(self) -> None:
        """Let every lookup that the write caches do not answer go to the disk."""
        cache = self.storage.read_cache
        cache.next_generation()
        if isinstance(cache, CompiledReadCache):
            for table in cache.tables:
                table.clear(len(table))
            return
        for rows in cache._lookups:
            cache.remove_many(sorted(rows))
