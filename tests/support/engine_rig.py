"""A whole engine on the memory twins: made, loaded, cut off, opened again."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Sequence
from dataclasses import replace

from bkctl.codec import digest, entry
from bkctl.codec.digest import Digester
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.add_run import AddRun, RecordRun, SingleAdd
from bkctl.engine.bookie import Bookie
from bkctl.engine.gc.ports import LedgerDirectory
from bkctl.engine.held_adds import HeldAddsSettings
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.replay import ReplayReport
from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import OpenStorages
from bkctl.errors import BkctlError, BookieError
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.profile import StoreProfile
from bkctl.types import DigestType
from bkctl.vfs.faulty import FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.faulty_store import FaultyStore
from tests.support.manual_clock import ManualClock

KEY = digest.master_key(b"secret")
OTHER_KEY = digest.master_key(b"other")
WAIT_S = 60.0


def entry_body(ledger: int, number: int, payload: bytes = b"payload", lac: int | None = None) -> bytes:
    """An entry as a client sends it; its LAC is the one before it unless told."""
    header = entry.EntryHeader(ledger, number, number - 1 if lac is None else lac, len(payload))
    return entry.encode(header, payload, Digester(DigestType.CRC32C, b""))


def lac_packet(ledger: int, lac: int) -> bytes:
    """A WRITE_LAC body as a client of a CRC-32C ledger sends it."""
    ids = struct.pack(">qq", ledger, lac)
    return ids + Digester(DigestType.CRC32C).compute(ids, b"")


class Answers:
    """Takes answers of adds; contexts become answered ones in their order."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.good: list[object] = []
        self.bad: list[tuple[object, BkctlError]] = []
        self.again: list[AddRun | RecordRun] = []

    def journaled(self, batches: list[JournalBatch]) -> None:
        with self._changed:
            self.good += [batch.context for batch in batches]
            self._changed.notify_all()

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        with self._changed:
            self.bad += [(batch.context, error) for batch in batches]
            self._changed.notify_all()

    def add_again(self, run: AddRun | RecordRun) -> None:
        with self._changed:
            self.again.append(run)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Until so many answers of any kind are there."""
        with self._changed:
            enough = self._changed.wait_for(
                lambda: len(self.good) + len(self.bad) + len(self.again) >= count, WAIT_S
            )
        assert enough, (
            f"{len(self.good)} good, {len(self.bad)} bad, {len(self.again)} again of {count} answers"
        )


class Waiter:
    """A callback of one error or None, with something to wait for."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self.error: BookieError | None = None

    def __call__(self, error: BookieError | None) -> None:
        self.error = error
        self._done.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> BookieError | None:
        assert self._done.wait(WAIT_S), "no answer"
        return self.error


def add_numbered(bookie: Bookie, ledgers: Sequence[int], entries: range) -> dict[tuple[int, int], bytes]:
    """Add entries of several ledgers in turn, wait until all are acknowledged, and return their bodies."""
    answers, bodies = Answers(), {}
    for entry_id in entries:
        for ledger in ledgers:
            body = entry_body(ledger, entry_id, f"{ledger}-{entry_id}.".encode() * 8)
            bodies[ledger, entry_id] = body
            bookie.writes.add(SingleAdd(body, KEY, answers, entry_id))
    answers.wait(len(bodies))
    assert not answers.bad
    return bodies


def add_numbered_at_once(
    bookie: Bookie, ledgers: Sequence[int], entries: range
) -> dict[tuple[int, int], bytes]:
    """Add the same to the only journal in two groups, the first add and the rest, whatever the machine does.

    So does a machine that has nothing else to do.
    """
    first, *others = ((ledger, entry_id) for entry_id in entries for ledger in ledgers)
    (journal,) = bookie.journals
    queue, answers = journal._queue, Answers()
    bodies = {key: entry_body(*key, f"{key[0]}-{key[1]}.".encode() * 8) for key in (first, *others)}
    bookie.writes.add(SingleAdd(bodies[first], KEY, answers, first[1]))
    answers.wait(1)
    is_held_up = queue._is_held_up
    queue._is_held_up = lambda: True  # type: ignore[method-assign]
    try:
        for key in others:
            bookie.writes.add(SingleAdd(bodies[key], KEY, answers, key[1]))
    finally:
        queue._is_held_up = is_held_up  # type: ignore[method-assign]
        with queue._lock:
            queue._changed.notify()
    answers.wait(len(bodies))
    assert not answers.bad
    return bodies


def fence_ledger(bookie: Bookie, ledger: int) -> None:
    """Fence a ledger, and wait for the answer."""
    done = Waiter()
    bookie.fencing.fence(ledger, KEY, done)
    assert done.wait() is None


def small_settings(
    *,
    journals: int = 1,
    directories: int = 1,
    write_cache_bytes: int = 1 << 20,
    journal: JournalSettings | None = None,
    writes: HeldAddsSettings | None = None,
    throttle_ms_max: int = 10_000,
) -> BookieSettings:
    """Settings of a little bookie whose timers never fire by themselves."""
    return BookieSettings(
        journal_directories=tuple(f"/journal{number}" for number in range(journals)),
        ledger_directories=tuple(f"/ledgers{number}" for number in range(directories)),
        journal=journal or JournalSettings(preallocation_bytes=4096, size_bytes_max=1 << 20),
        entry_log=EntryLogSettings(size_bytes_max=1 << 20, flush_interval_ms=3_600_000),
        storage=StorageSettings(
            write_cache_bytes_max=write_cache_bytes,
            read_cache_bytes_max=1 << 20,
            throttle_ms_max=throttle_ms_max,
        ),
        writes=writes or HeldAddsSettings(),
        disks=DiskSettings(check_interval_ms=3_600_000, free_bytes_min=0),
    )


class EngineRig:
    """Memory twins, and the bookie on them. ``system`` None makes an empty one."""

    def __init__(
        self,
        settings: BookieSettings | None = None,
        *,
        memory: MemoryFileSystem | None = None,
        stores: dict[str, MemoryStore] | None = None,
        capacity_bytes: int | None = None,
        crash_after: int | None = None,
        cluster: LedgerDirectory | None = None,
    ) -> None:
        self.settings = settings or small_settings()
        self.memory = memory or MemoryFileSystem(capacity_bytes=capacity_bytes)
        self.stores = stores if stores is not None else {}
        self.clock = ManualClock()
        if memory is None:
            for path in (*self.settings.journal_directories, *self.settings.ledger_directories):
                self.memory.make_directories(f"{path}/current")
        self.system = FaultyFileSystem(self.memory, crash_after=crash_after)
        self.faulty_stores: dict[str, FaultyStore] = {}
        self.failures: list[BkctlError] = []
        self._failed = threading.Event()
        self.modes: list[bool] = []
        self.bookie = Bookie(
            self.settings,
            filesystem=self.system,
            clock=self.clock,
            open_store=self._open,
            on_failure=self._note_failure,
            on_read_only=self.modes.append,
            cluster=cluster,
            open_storages=self._open_storages(),
        )

    def _open_storages(self) -> OpenStorages | None:
        """Other storages than those of the settings."""
        return None

    def _note_failure(self, error: BkctlError) -> None:
        self.failures.append(error)
        self._failed.set()

    def wait_failure(self) -> None:
        """Until the bookie has told that it cannot go on."""
        assert self._failed.wait(WAIT_S), "the bookie goes on"

    def _open(self, path: str, _: StoreProfile) -> FaultyStore:
        store = self.stores.setdefault(path, MemoryStore(path=path))
        faulty = self.faulty_stores[path] = FaultyStore(store)
        return faulty

    def start(self, *, accept_loss: bool = False) -> ReplayReport:
        return self.bookie.start(accept_loss=accept_loss)

    def add(self, ledger: int, number: int, *, payload: bytes = b"payload", key: bytes = KEY) -> None:
        """Add one entry and wait until it is durable. Raises what refuses it."""
        answers = Answers()
        self.bookie.writes.add(SingleAdd(entry_body(ledger, number, payload), key, answers, number))
        answers.wait(1)
        if answers.bad:
            raise answers.bad[0][1]

    def run_of(
        self, ledgers: Sequence[tuple[int, int]], answers: Answers, context: object = None, key: bytes = KEY
    ) -> AddRun:
        """A run of plain adds of (ledger, entry)."""
        bodies = [entry_body(ledger, number) for ledger, number in ledgers]
        grants = [key + ledger.to_bytes(8, "big") for ledger, _ in ledgers]
        keys = [body[:16] for body in bodies]
        return AddRun(grants, keys, bodies, sum(map(len, bodies)), answers, context)

    def fence(self, ledger: int, key: bytes = KEY) -> BookieError | None:
        """Fence and wait; the error of the answer."""
        waiter = Waiter()
        self.bookie.fencing.fence(ledger, key, waiter)
        return waiter.wait()

    def write_lac(self, ledger: int, lac: int) -> BookieError | None:
        """Write an explicit LAC and wait."""
        waiter = Waiter()
        self.bookie.explicit_lacs.write(lac_packet(ledger, lac), KEY, waiter)
        return waiter.wait()

    def cut_off(
        self, chance: random.Random | None = None, *, cluster: LedgerDirectory | None = None
    ) -> EngineRig:
        """Stop as a power cut does; a rig on what is left, with the bookie not started yet."""
        self.system.crash_now()
        # Before the threads end: closing a store would make its last batches durable.
        stores = {path: store.crash(chance) for path, store in self.stores.items()}
        self.bookie.abort()
        memory = self.memory.crash(chance)
        return EngineRig(self.settings, memory=memory, stores=stores, cluster=cluster)

    def reopen(self) -> EngineRig:
        """After a clean stop: a rig on the same directories."""
        stores = {path: store.crash(None) for path, store in self.stores.items()}
        return EngineRig(self.settings, memory=self.memory, stores=stores)

    def stop(self) -> None:
        self.bookie.stop()

    def __enter__(self) -> EngineRig:
        return self

    def __exit__(self, *_: object) -> None:
        self.bookie.abort()


def with_journal(settings: BookieSettings, **changes: object) -> BookieSettings:
    """The settings with some of the journal's changed."""
    return replace(settings, journal=replace(settings.journal, **changes))  # type: ignore[arg-type]
