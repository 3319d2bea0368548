"""Random work for a whole engine, and a memory of what it promised.

``EngineModel`` knows what was sent and what was acknowledged; :meth:`EngineModel.check` holds a bookie that
was opened again against that. ``EngineWork`` makes the work; whatever the engine refuses is no promise.
``PowerRig`` is an :class:`EngineRig` whose stores stop at persistence points too.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.journal import parse_journal_name
from bkctl.codec.last_mark import LastMark, decode_last_mark, last_mark_name
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.add_run import AddRun, RecordRun, SingleAdd
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.settings import BookieSettings
from bkctl.errors import (
    BkctlError,
    BookieError,
    LedgerFencedError,
    LedgerLimboError,
    ReadOnlyBookieError,
    UnauthorizedError,
)
from bkctl.kvstore.base import Operation
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.profile import StoreProfile
from bkctl.scan.damage import Damage
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.journal import JournalScan, unsynced_from
from bkctl.vfs.faulty import CrashPointReached, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import (
    KEY,
    OTHER_KEY,
    Answers,
    EngineRig,
    entry_body,
    lac_packet,
    small_settings,
)
from tests.support.faulty_store import FaultyStore, StoreOperation
from tests.support.packed_run import packed

WAIT_S = 20.0


class PowerStore(FaultyStore):
    """A store whose writes are persistence points of the file system's machine."""

    def __init__(self, inner: MemoryStore, system: FaultyFileSystem) -> None:
        super().__init__(inner)
        self._memory = inner
        self._system = system

    @contextmanager
    def _faults(self, operation: StoreOperation) -> Iterator[None]:
        if self._system.crashed:
            raise CrashPointReached(f"{self.path}: the machine has stopped", path=self.path)
        with super()._faults(operation):
            yield

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        batch = list(operations)
        try:
            self._system.enter("sync", self.path)
        except CrashPointReached:
            # Whether the write-ahead log had it when the power went is for the cut to decide.
            self._memory.write(batch, sync=False)
            raise
        super().write(batch, sync=sync)

    def close(self) -> None:
        if not self._system.crashed:
            super().close()


class PowerRig(EngineRig):
    """See the module's docstring."""

    def _open(self, path: str, _: StoreProfile) -> FaultyStore:
        store = self.stores.setdefault(path, MemoryStore(path=path))
        faulty = self.faulty_stores[path] = PowerStore(store, self.system)
        return faulty

    def after_power_cut(self, chance: random.Random | None, crash_after: int | None = None) -> PowerRig:
        """As :meth:`EngineRig.cut_off`, also when the crash point was reached before."""
        self.system.crash_now()
        stores = {path: store.crash(chance) for path, store in self.stores.items()}
        self.bookie.abort()
        memory = self.memory.crash(chance)
        return PowerRig(self.settings, memory=memory, stores=stores, crash_after=crash_after)


def random_settings(chance: random.Random) -> BookieSettings:
    """A little bookie: caches of some entries, journals and logs of some kilobytes."""
    journal = JournalSettings(
        format_version=chance.choice((6, 6, 5, 4)),
        preallocation_bytes=chance.choice((0, 4096, 16384)),
        size_bytes_max=chance.choice((3_000, 12_000, 1 << 20)),
        backups_max=chance.choice((0, 1, 5)),
        group_wait_max_ms=chance.choice((None, None, 0)),
        flush_when_queue_empty=chance.choice((False, True)),
        buffered_bytes_max=chance.choice((512, 512 << 10)),
    )
    settings = small_settings(
        journals=chance.choice((1, 1, 2, 3)),
        directories=chance.choice((1, 1, 2, 3)),
        write_cache_bytes=chance.choice((6_000, 20_000, 1 << 20)),
        journal=journal,
    )
    return replace(
        settings,
        entry_log=replace(
            settings.entry_log,
            size_bytes_max=chance.choice((4_000, 20_000, 1 << 20)),
            per_ledger=chance.choice((False, False, True)),
            active_logs_max=chance.choice((1, 3)),
            force_bytes=chance.choice((0, 0, 2_000)),
            force_threads=1,
        ),
        storage=replace(settings.storage, retry_ms=1),
        descriptors_max=chance.choice((3, 100)),
    )


@dataclass(slots=True)
class LedgerMemory:
    """What one ledger was sent and promised. ``bodies`` are all of an entry's, oldest first."""

    bodies: dict[int, list[bytes]] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    fence_sent: bool = False
    fenced: bool = False
    lacs_sent: list[int] = field(default_factory=list)
    lac: int | None = None

    def promised(self, *, lacs: bool) -> bool:
        """Whether the bookie must know it; an acknowledged LAC counts only with ``lacs``."""
        return bool(self.acknowledged) or self.fenced or (lacs and self.lac is not None)

    def __str__(self) -> str:
        places = {
            entry: f"{place + 1} of {len(self.bodies[entry])}" for entry, place in self.acknowledged.items()
        }
        return f"acknowledged {places}, fenced {self.fenced}, LAC {self.lac}"


class EngineModel:
    """Thread-safe memory of all ledgers.

    Formats before 6 have no record of an explicit LAC. ``torn``: of what was never acknowledged half a record
    may be there, unless its ledger is ``provable``: it has had entries whose digests were good.
    """

    def __init__(self, *, lacs_journaled: bool = True, torn: bool = False) -> None:
        self.torn = torn
        self.lock = threading.Lock()
        self.ledgers: dict[int, LedgerMemory] = {}
        self.lacs_journaled = lacs_journaled
        self.wrong: list[str] = []
        self.answered = 0
        self.provable: set[int] = set()

    def note_cut(self) -> None:
        """The power goes off for the first time: what was acknowledged by now is there at every start."""
        with self.lock:
            self.provable = {ledger for ledger, memory in self.ledgers.items() if memory.acknowledged}

    def of(self, ledger: int) -> LedgerMemory:
        return self.ledgers.setdefault(ledger, LedgerMemory())

    def sent(self, ledger: int, entry: int, body: bytes) -> int:
        """Note an add; its place among the bodies of that entry."""
        with self.lock:
            bodies = self.of(ledger).bodies.setdefault(entry, [])
            bodies.append(body)
            return len(bodies) - 1

    def acknowledge(self, adds: Iterable[tuple[int, int, int]]) -> None:
        """Adds (ledger, entry, place) are durable."""
        with self.lock:
            for ledger, entry, place in adds:
                acknowledged = self.of(ledger).acknowledged
                acknowledged[entry] = max(place, acknowledged.get(entry, 0))
                self.answered += 1

    def check(self, rig: EngineRig) -> None:
        """Everything that was promised is there, and nothing that was never sent."""
        assert not self.wrong, self.wrong
        for ledger, memory in sorted(self.ledgers.items()):
            known = rig.bookie.reads.is_known(ledger)
            assert known or not memory.promised(lacs=self.lacs_journaled), (
                f"ledger {ledger} is forgotten: {memory}"
            )
            if known:
                self._check_entries(rig, ledger, memory)
                self._check_lac(rig, ledger, memory)
                self._check_fence(rig, ledger, memory)

    def _check_entries(self, rig: EngineRig, ledger: int, memory: LedgerMemory) -> None:
        reads = rig.bookie.reads
        try:
            there = list(reads.entries(ledger))
        except LedgerLimboError:
            # A write that failed left half a record: its digest fails, and nothing proves whose it is. What
            # was acknowledged is read all the same.
            assert self.torn
            there = sorted(memory.acknowledged)
        assert there == sorted(set(there))
        lost = memory.acknowledged.keys() - set(there)
        assert not lost, f"ledger {ledger}: acknowledged and lost: {sorted(lost)}"
        keys = [ledger.to_bytes(8, "big") + entry.to_bytes(8, "big") for entry in there]
        for entry, body in zip(there, reads.read_many(keys), strict=True):
            assert isinstance(body, bytes), f"ledger {ledger}, entry {entry}: {body!r}"
            bodies = memory.bodies.get(entry, [])
            least = memory.acknowledged.get(entry)
            if least is None and self.torn and ledger not in self.provable:
                # Never promised. A record that a power cut left half written is known by the digests of the
                # ledger's other entries; without those the bookie cannot tell. The client does.
                continue
            # Of equal bodies the last one counts.
            place = len(bodies) - 1 - bodies[::-1].index(body) if body in bodies else -1
            assert place >= (least or 0), (
                f"ledger {ledger}, entry {entry}: body {place}, acknowledged is {least}"
            )

    def _check_lac(self, rig: EngineRig, ledger: int, memory: LedgerMemory) -> None:
        blob = rig.bookie.reads.explicit_lac(ledger)
        if memory.lac is not None and self.lacs_journaled:
            assert blob is not None, f"ledger {ledger}: explicit LAC {memory.lac} is lost"
        if blob is not None:
            lac = decode_explicit_lac(blob).lac
            assert lac in memory.lacs_sent
            if self.lacs_journaled and memory.lac is not None:
                assert lac >= memory.lac

    def _check_fence(self, rig: EngineRig, ledger: int, memory: LedgerMemory) -> None:
        descriptor = rig.bookie.table.get(ledger)
        assert descriptor is not None
        if memory.fenced:
            assert descriptor.fenced, f"ledger {ledger}: the fence is forgotten"
        if descriptor.fenced:
            assert memory.fence_sent, f"ledger {ledger} was never fenced"
        if not memory.promised(lacs=self.lacs_journaled):
            # Its key was perhaps lost with the rest of an unsynced group: the first one that comes will do.
            return
        try:
            add = SingleAdd(entry_body(ledger, 9_000_000), OTHER_KEY, Answers(), None)
            rig.bookie.writes.add(add)
        except UnauthorizedError:
            return
        except LedgerFencedError:
            pass
        raise AssertionError(f"ledger {ledger}: the master key is forgotten: {memory}")


class EngineWork:
    """Random requests to one bookie; answers come from its threads."""

    def __init__(self, rig: EngineRig, model: EngineModel, chance: random.Random, ledgers: int = 6) -> None:
        self._rig = rig
        self._model = model
        self._chance = chance
        self._ledgers = range(1, ledgers + 1)
        self._next: dict[int, int] = {
            ledger: max(memory.bodies, default=-1) + 1 for ledger, memory in model.ledgers.items()
        }
        self._changed = threading.Condition()
        self._outstanding = 0
        self._deferred: dict[int, list[tuple[int, int, int]]] = {}

    def run(self, steps: int) -> None:
        """Do so much, then wait for all answers that the bookie still gives."""
        actions = (
            [self._add] * 6
            + [self._run_of_adds] * 6
            + [self._recovery_add, self._deferred_add, self._add_again, self._fence, self._write_lac]
            + [self._force, self._checkpoint, self._settle, self._settle]
        )
        for _ in range(steps):
            if self._rig.system.crashed or self._rig.bookie.failure is not None:
                break
            try:
                self._chance.choice(actions)()
            except BkctlError:
                continue
        self._settle()

    # --- answers

    def journaled(self, batches: list[JournalBatch]) -> None:
        self._model.acknowledge(add for batch in batches for add in _adds_of(batch))
        self._ended(len(batches))

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        self._ended(len(batches))

    def add_again(self, run: AddRun | RecordRun) -> None:
        self._ended(1)

    def _begun(self) -> None:
        with self._changed:
            self._outstanding += 1

    def _ended(self, count: int = 1) -> None:
        with self._changed:
            self._outstanding -= count
            if self._outstanding < 0:
                self._model.wrong.append("a request was answered twice")
            self._changed.notify_all()

    def _settle(self) -> None:
        """Wait for all answers; a bookie that has stopped gives none any more, and owes none."""
        with self._changed:
            for turn in range(int(WAIT_S / 0.02)):
                stopped = self._rig.system.crashed or self._rig.bookie.failure is not None
                if self._changed.wait_for(lambda: not self._outstanding, 0.02) or stopped:
                    return
                if turn % 10 == 9:
                    # Adds that are held because nothing can be flushed are rejected in time.
                    self._rig.clock.advance(11)
                    self._rig.bookie.writes.poke()
        raise AssertionError(f"{self._outstanding} requests were not answered")

    # --- requests

    def _ledger(self) -> int:
        return self._chance.choice(self._ledgers)

    def _new_body(self, ledger: int, entry: int) -> tuple[bytes, int]:
        size = self._chance.choice((0, 10, 100, 700, 700, 2500))
        payload = self._chance.randbytes(4) * (size // 4)
        body = entry_body(ledger, entry, payload)
        return body, self._model.sent(ledger, entry, body)

    def _next_entry(self, ledger: int) -> int:
        entry = self._next.get(ledger, 0)
        self._next[ledger] = entry + 1
        return entry

    def _add(self, *, recovery: bool = False, deferred: bool = False, entry: int | None = None) -> None:
        ledger = self._ledger()
        entry = self._next_entry(ledger) if entry is None else entry
        fenced = self._model.of(ledger).fenced
        body, place = self._new_body(ledger, entry)
        add = (ledger, entry, place)
        sink = _Deferred(self, add) if deferred else self
        self._begun()
        try:
            self._rig.bookie.writes.add(
                SingleAdd(body, KEY, sink, [add], recovery=recovery, deferred_sync=deferred)
            )
        except BkctlError as error:
            self._ended()
            # It may have been read-only for a moment.
            other = not isinstance(error, LedgerFencedError | ReadOnlyBookieError)
            if fenced and not recovery and other and self._alive:
                self._model.wrong.append(f"ledger {ledger} is fenced, the answer is {error!r}")
            return
        if fenced and not recovery:
            self._model.wrong.append(f"ledger {ledger} is fenced and takes entry {entry}")

    @property
    def _alive(self) -> bool:
        return not (self._rig.system.crashed or self._rig.bookie.failure or self._rig.bookie.read_only)

    def _recovery_add(self) -> None:
        self._add(recovery=True)

    def _deferred_add(self) -> None:
        self._add(deferred=True)

    def _add_again(self) -> None:
        ledger = self._ledger()
        entries = list(self._model.of(ledger).bodies)
        if entries:
            self._add(recovery=True, entry=self._chance.choice(entries))

    def _run_of_adds(self) -> None:
        grants, keys, bodies, adds = [], [], [], []
        for _ in range(self._chance.randint(1, 6)):
            ledger = self._ledger()
            entry = self._next_entry(ledger)
            body, place = self._new_body(ledger, entry)
            grants.append(KEY + ledger.to_bytes(8, "big"))
            keys.append(body[:16])
            bodies.append(body)
            adds.append((ledger, entry, place))
        fenced = [ledger for ledger, _, _ in adds if self._model.of(ledger).fenced]
        # A run behind others that are held is held with them before anybody looks at its ledgers, and perhaps
        # was looked at by the time that this goes on. None is added meanwhile.
        held = self._rig.bookie.writes.meter.length
        self._begun()
        try:
            run = AddRun(grants, keys, bodies, sum(map(len, bodies)), self, adds)
            taken = self._rig.bookie.writes.add_run(packed(run) if self._chance.random() < 0.5 else run)
        except BkctlError:
            self._ended()
            return
        if not taken:
            self._ended()
        elif fenced and not held:
            self._model.wrong.append(f"ledgers {fenced} are fenced and take a run")

    def _fence(self) -> None:
        ledger = self._chance.choice((*self._ledgers, 50, 51))
        if self._chance.random() < 0.5:
            # Most ledgers stay open for long.
            return
        self._model.of(ledger).fence_sent = True
        self._answered_by(
            lambda done: self._rig.bookie.fencing.fence(ledger, KEY, done), self._fenced(ledger)
        )

    def _fenced(self, ledger: int) -> object:
        def note() -> None:
            self._model.of(ledger).fenced = True

        return note

    def _write_lac(self) -> None:
        ledger = self._chance.choice((*self._ledgers, 60))
        memory = self._model.of(ledger)
        lac = max(memory.lacs_sent, default=-1) + self._chance.randint(1, 5)
        memory.lacs_sent.append(lac)

        def note() -> None:
            memory.lac = max(lac, -1 if memory.lac is None else memory.lac)

        write = self._rig.bookie.explicit_lacs.write
        self._answered_by(lambda done: write(lac_packet(ledger, lac), KEY, done), note)

    def _force(self) -> None:
        ledger = self._ledger()
        covered = self._deferred.pop(ledger, [])
        self._answered_by(
            lambda done: self._rig.bookie.force_ledger(ledger, done),
            lambda: self._model.acknowledge(covered),
        )

    def _answered_by(self, request: object, promise: object) -> None:
        assert callable(request)
        assert callable(promise)

        def done(error: BookieError | None) -> None:
            if error is None:
                promise()
            self._ended()

        self._begun()
        try:
            request(done)
        except BkctlError:
            self._ended()

    def _checkpoint(self) -> None:
        self._rig.bookie.checkpoint()

    def deferred(self, add: tuple[int, int, int]) -> None:
        """A deferred add was answered: a force after this makes it durable."""
        self._deferred.setdefault(add[0], []).append(add)


class _Deferred:
    """Takes the answers of deferred adds, which promise nothing before a force."""

    def __init__(self, work: EngineWork, add: tuple[int, int, int]) -> None:
        self._work = work
        self._add = add

    def journaled(self, batches: list[JournalBatch]) -> None:
        self._work.deferred(self._add)
        self._work._ended()

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        self._work._ended()


def _adds_of(batch: JournalBatch) -> list[tuple[int, int, int]]:
    assert isinstance(batch.context, list)
    return batch.context


def damages(rig: EngineRig) -> list[Damage]:
    """Damage of journals behind the last mark, and of logs where an index row points at it.

    What a flush had written and not forced may have holes after a power cut; no row names those records.
    """
    settings, memory = rig.settings, rig.memory
    found: list[Damage] = []
    journals = len(settings.journal_directories)
    for number, directory in enumerate(settings.journal_directories):
        ids = sorted(filter(None, map(parse_journal_name, memory.names(f"{directory}/current"))))
        mark = _mark(memory, settings, last_mark_name(number, journals))
        for journal in ids:
            hole_from = unsynced_from(journal, ids[-1], mark)
            path = f"{directory}/current/{journal:x}.txn"
            with JournalScan(memory, path, unsynced_from=hole_from) as scan:
                holes = [item for item in (*scan.head.damage, *scan) if isinstance(item, Damage)]
                # What a power cut left stays in the file when the replay has put the mark behind it.
                passed = (mark.journal_id, mark.offset)
                found += [hole for hole in holes if (journal, hole.offset) >= passed]
    for directory in settings.ledger_directories:
        found += _damaged_entries(rig, f"{directory}/current")
    return [damage for damage in found if not damage.unsynced]


def _damaged_entries(rig: EngineRig, directory: str) -> list[Damage]:
    store = rig.stores.get(f"{directory}/locations")
    rows = [] if store is None else [int.from_bytes(value, "big") for _, value in store.iterate()]
    named = [(location >> 32, location & 0xFFFF_FFFF) for location in rows]
    found: list[Damage] = []
    for name in rig.memory.names(directory):
        if not name.endswith(".log"):
            continue
        log_id = int(name.removesuffix(".log"), 16)
        with EntryLogScan(rig.memory, f"{directory}/{name}") as log:
            holes = [item for item in log if isinstance(item, Damage)]
            found += [hole for hole in holes if any(_is_in(hole, log_id, row) for row in named)]
    return found


def _is_in(hole: Damage, log_id: int, row: tuple[int, int]) -> bool:
    return row[0] == log_id and hole.offset <= row[1] < hole.end


def _mark(memory: MemoryFileSystem, settings: BookieSettings, name: str) -> LastMark:
    marks = [LastMark(0, 0)]
    for directory in settings.ledger_directories:
        content = memory.files.get(f"{directory}/current/{name}")
        if content is not None:
            marks.append(decode_last_mark(content))
    return max(marks, key=lambda mark: (mark.journal_id, mark.offset))


__all__ = ["EngineModel", "EngineWork", "PowerRig", "damages", "random_settings"]
