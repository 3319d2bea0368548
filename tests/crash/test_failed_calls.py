"""Any call of the file system or of a store fails: in a start, adds, flushes, a collection, a stop.

Whatever call it is and whatever the system says, every add gets an answer, no thread stays, a read that fails
is never "no such entry", and what was acknowledged is there after the next start, also behind a power cut.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest

from bkctl.clock import SystemClock
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.bookie import Bookie
from bkctl.engine.gc.policy import Request
from bkctl.engine.settings import BookieSettings
from bkctl.errors import BkctlError, NoEntryError, NoLedgerError, storage_error
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.profile import StoreProfile
from bkctl.storage_kinds import DB, IDX, StorageKind
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import KEY, Answers, entry_body, small_settings
from tests.support.failing_steps import SteppedFileSystem, SteppedStore, Steps
from tests.unit.engine.gc.gc_rig import QUICK, Cluster

LIVE, DELETED = (1, 2, 3, 4, 5), (8, 9)
#: Of all steps every so-manieth is one that fails.
STRIDE = 67


class Failing(Steps):
    """Steps of which some fail as a system call does."""

    def __init__(self, number: int = 0, fails_at: int | None = None, count: int = 1) -> None:
        super().__init__()
        self._number = number
        self._range = range(fails_at, fails_at + count) if fails_at is not None else range(0)

    def step(self, what: str) -> None:
        super().step(what)
        if self.taken in self._range:
            self.failed = True
            operation, _, path = what.partition(" ")
            error = OSError(self._number, os.strerror(self._number))
            raise storage_error(error, path, operation, syncing=operation in ("sync", "sync_directory"))


class Machine:
    """Disks of a bookie, and what was acknowledged; ``bookie`` is one on them."""

    def __init__(self, kind: StorageKind) -> None:
        settings = small_settings(directories=2)
        self.settings: BookieSettings = replace(
            settings,
            entry_log=EntryLogSettings(size_bytes_max=4000, flush_interval_ms=3_600_000),
            storage=replace(settings.storage, storage_class=kind.classes[0], read_cache_bytes_max=4000),
            gc=replace(QUICK, wait_ms=10**9, metadata_cache=True),
        )
        self.disk = MemoryFileSystem()
        self.stores: dict[str, MemoryStore] = {}
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.errors: list[BkctlError] = []
        self.cluster = Cluster((*LIVE, *DELETED))
        self.cluster.upcoming = 100
        for path in (*self.settings.journal_directories, *self.settings.ledger_directories):
            self.disk.make_directories(f"{path}/current")

    def copy(self, kind: StorageKind, *, power_cut: bool = True) -> Machine:
        made = Machine(kind)
        made.disk = self.disk.crash(None) if power_cut else self.disk
        made.stores = {path: store.crash(None) for path, store in self.stores.items()}
        made.acknowledged = dict(self.acknowledged)
        return made

    def bookie(self, steps: Steps) -> Bookie:
        def opened(path: str, _: StoreProfile) -> SteppedStore:
            steps.step(f"open {path}")
            return SteppedStore(self.stores.setdefault(path, MemoryStore(path=path)), steps)

        return Bookie(
            self.settings,
            filesystem=SteppedFileSystem(self.disk, steps),
            clock=SystemClock(),
            open_store=opened,  # type: ignore[arg-type]
            cluster=self.cluster,
        )

    def add(self, bookie: Bookie, ledgers: Iterable[int], entries: range) -> None:
        answers, bodies = Answers(), {}
        for ledger in ledgers:
            for entry in entries:
                body = bodies[ledger, entry] = entry_body(ledger, entry, f"{ledger}-{entry}".encode() * 60)
                try:
                    bookie.writes.add(SingleAdd(body, KEY, answers, (ledger, entry)))
                except BkctlError as error:
                    answers.bad.append(((ledger, entry), error))
        answers.wait(len(bodies))
        self.acknowledged |= {key: bodies[key] for key in answers.good}  # type: ignore[index]

    def attempt(self, call: object, *arguments: object) -> None:
        try:
            call(*arguments)  # type: ignore[operator]
        except BkctlError as error:
            self.errors.append(error)

    def live(self, steps: Steps) -> None:
        """Start, take adds, flush, collect and compact, and stop, whatever fails."""
        try:
            bookie = self.bookie(steps)
        except BkctlError as error:
            self.errors.append(error)
            return
        self.attempt(bookie.start)
        if not self.errors:
            self.add(bookie, (*LIVE, *DELETED), range(20, 24))
            self.attempt(bookie.checkpoint)
            self.add(bookie, LIVE, range(24, 28))
            self.check(bookie)
            self.attempt(bookie.checkpoint)
            self.cluster.live -= set(DELETED)
            for collector in bookie.collectors:
                self.attempt(collector.collect, Request(major=True))
            self.attempt(bookie.checkpoint)
            self.check(bookie)
            self.add(bookie, LIVE, range(28, 30))
        self.attempt(bookie.stop)

    def check(self, bookie: Bookie, *, may_fail: bool = True) -> None:
        """Read what was acknowledged of living ledgers; with ``may_fail`` errors are answers, too."""
        for (ledger, entry), body in self.acknowledged.items():
            if ledger in LIVE:
                try:
                    found = bookie.reads.read(ledger, entry)
                except (NoEntryError, NoLedgerError):
                    raise
                except BkctlError:
                    if not may_fail:
                        raise
                else:
                    assert found == body

    def start_again(self) -> None:
        self.cluster.live -= set(DELETED)
        bookie = self.bookie(Steps())
        try:
            bookie.start()
            self.check(bookie, may_fail=False)
        finally:
            bookie.stop()


def cut_off(kind: StorageKind) -> Machine:
    """A machine whose bookie has flushed twice, and has adds in its journal alone."""
    made = Machine(kind)
    bookie = made.bookie(Steps())
    bookie.start()
    for ledgers, entries in (((*LIVE, *DELETED), range(10)), (LIVE, range(10, 20))):
        made.add(bookie, ledgers, entries)
        bookie.checkpoint()
    made.add(bookie, LIVE, range(18, 20))
    left = made.copy(kind)
    bookie.abort()
    return left


@pytest.mark.parametrize(
    ("number", "count"), [(errno.EIO, 1), (errno.ENOSPC, 3), (errno.EACCES, 1), (errno.EIO, 10**9)]
)
@pytest.mark.parametrize("kind", [DB, IDX], ids=["db", "idx"])
def test_whatever_call_fails_nothing_acknowledged_is_lost(kind: StorageKind, number: int, count: int) -> None:
    base = cut_off(kind)
    counted = base.copy(kind)
    steps = Failing()
    counted.live(steps)
    assert counted.errors == []
    assert steps.taken > 7 * STRIDE
    failures = 0
    for fails_at in range(1 + number % STRIDE, steps.taken + 1, STRIDE):
        machine, failing = base.copy(kind), Failing(number, fails_at, count)
        before = set(threading.enumerate())
        machine.live(failing)
        assert set(threading.enumerate()) <= before, fails_at
        assert all("/" in str(error) for error in machine.errors), machine.errors
        failures += bool(machine.errors)
        machine.copy(kind).start_again()
        machine.copy(kind, power_cut=False).start_again()
    assert failures
