"""The entry logger against a dictionary and the scan, over any sequence of flushes, failures and restarts."""

from __future__ import annotations

import errno
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.errors import StorageError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.unit.engine.entrylog.entry_logging import (
    append,
    body_of,
    empty_directory,
    key,
    ledgers_map,
    opened,
    read_ahead,
    scanned,
)

LEDGERS = st.sampled_from([0, 1, 5, 2**40, 2**63 - 1])
SIZES = st.one_of(st.integers(0, 200), st.sampled_from([3900, 4059, 4060, 4061, 9000]))
BATCHES = st.lists(st.tuples(LEDGERS, SIZES, st.integers(1, 9)), min_size=1, max_size=12)
FAULTS = st.sampled_from([("write", ".log"), ("create", ".log"), ("rename", ""), ("write", ".tmp")])


class EntryLoggerMachine(RuleBasedStateMachine):
    """``forced`` must survive everything; ``appended`` is readable until a failure or a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: MemoryFileSystem = empty_directory()
        self.faulty = FaultyFileSystem(self.memory)
        self.logger: EntryLogger = opened(self.faulty)
        self.limit = 1 << 20
        self.files_open_max = 4
        self.bodies: dict[bytes, bytes] = {}
        self.forced: dict[bytes, int] = {}
        self.appended: dict[bytes, int] = {}
        self.next_entry = 0
        self.highest_log = -1

    @initialize(limit=st.integers(1, 20_000), files_open_max=st.integers(1, 3))
    def start(self, limit: int, files_open_max: int) -> None:
        self.limit, self.files_open_max = limit, files_open_max
        self.reopen(self.memory)

    def reopen(self, memory: MemoryFileSystem) -> None:
        self.logger.close()
        self.memory = memory
        self.faulty = FaultyFileSystem(memory)
        self.logger = opened(
            self.faulty,
            self.limit,
            files_open_max=self.files_open_max,
        )

    def batch(self, runs: list[tuple[int, int, int]]) -> list[bytes]:
        bodies = []
        for ledger, size, count in runs:
            for _ in range(count):
                bodies.append(body_of(ledger, self.next_entry, size))
                self.next_entry += 1
        return bodies

    def remember(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.bodies[body[:16]] = body

    @rule(runs=BATCHES)
    def append(self, runs: list[tuple[int, int, int]]) -> None:
        bodies = self.batch(runs)
        self.remember(bodies)
        before = self.logger.current_log_id
        places = append(self.logger, bodies)
        logs = [place >> 32 for place in places.values()]
        assert logs == sorted(logs)
        assert logs[-1] == self.logger.current_log_id
        # An id never comes again, whatever was removed or lost.
        assert logs[0] == before or logs[0] > self.highest_log
        self.highest_log = logs[-1]
        self.appended.update(places)

    @rule(
        runs=BATCHES, fault=FAULTS, first=st.integers(1, 4), number=st.sampled_from([errno.ENOSPC, errno.EIO])
    )
    def append_and_fail(
        self, runs: list[tuple[int, int, int]], fault: tuple[str, str], first: int, number: int
    ) -> None:
        """The flush is void then; what is read of it before is nobody's."""
        self.faulty.inject(FaultRule(fault[0], fault[1], first=first, error_number=number))  # type: ignore[arg-type]
        bodies = self.batch(runs)
        self.remember(bodies)
        try:
            self.appended.update(append(self.logger, bodies))
        except StorageError:
            self.appended.clear()
            assert self.logger.current_log_id is None
        self.faulty.heal()
        self.highest_log = max(self.highest_log, *self.logger.log_ids(), -1)

    @rule()
    def force(self) -> None:
        self.logger.force()
        self.forced.update(self.appended)
        self.appended.clear()

    @rule()
    def restart(self) -> None:
        # No index knows them, and the next process does not sync what this one has written.
        self.appended.clear()
        self.reopen(self.memory)

    @rule(seed=st.integers(0, 2**32))
    def power_cut(self, seed: int) -> None:
        self.appended.clear()
        chance = random.Random(seed)
        self.reopen(self.memory.crash(chance if chance.random() < 0.8 else None))

    @precondition(lambda self: self.forced and not self.appended)
    @rule(data=st.data())
    def remove_a_log(self, data: st.DataObject) -> None:
        log_id = data.draw(st.sampled_from(sorted({place >> 32 for place in self.forced.values()})))
        if log_id == self.logger.current_log_id:
            return
        self.logger.force()  # one that was rolled for a flush that failed is being written until then
        self.logger.remove(log_id)
        self.forced = {each: place for each, place in self.forced.items() if place >> 32 != log_id}

    @rule(data=st.data(), entries_max=st.integers(0, 20), bytes_max=st.integers(0, 20_000))
    def read_ahead(self, data: st.DataObject, entries_max: int, bytes_max: int) -> None:
        known = {**self.forced, **self.appended}
        if not known:
            return
        start = data.draw(st.sampled_from(sorted(known)))
        found = read_ahead(self.logger, start, known, entries_max, bytes_max)
        assert len(found) <= entries_max
        assert sum(len(body) for _, body in found) <= bytes_max
        assert all(each[:8] == start[:8] and self.bodies[each] == body for each, body in found)

    @invariant()
    def everything_known_is_readable(self) -> None:
        for known in (self.forced, self.appended):
            for each, place in known.items():
                assert self.logger.read(place, each) == self.bodies[each]

    @invariant()
    def logs_are_as_java_would_leave_them(self) -> None:
        found: dict[bytes, set[int]] = {}
        for log_id in self.logger.log_ids():
            entries, damage, tail = scanned(self.memory, log_id)
            totals: dict[int, int] = {}
            for (ledger, entry), body in entries.items():
                found.setdefault(key(ledger, entry), set()).add(log_id)
                totals[ledger] = totals.get(ledger, 0) + 4 + len(body)
            noted = ledgers_map(self.memory, log_id)
            if noted is not None:
                # A rolled log: it is whole, and its map is right.
                assert (damage, tail, noted) == ([], "end", totals)
                first = HEADER_BYTES + 4 + len(next(iter(entries.values())))
                assert HEADER_BYTES + sum(totals.values()) <= max(self.limit, first)
        for each, place in self.forced.items():
            assert place >> 32 in found[each]

    def teardown(self) -> None:
        self.logger.close()


TestEntryLogger = EntryLoggerMachine.TestCase
TestEntryLogger.settings = settings(stateful_step_count=14)
