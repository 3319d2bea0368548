"""Collecting and compacting against a dictionary: any order of writes, deletions, passes, faults and crashes.

No live entry is lost or wrong, bytes of dead ledgers come back, no id of a log is used twice, and a metadata
store that errs, hides ledgers or answers no reads costs nothing that lives.
"""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bkctl.engine.gc.policy import Request
from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.vfs.faulty import FaultRule, FaultyWritableFile
from tests.support.grades import times
from tests.support.storage_rig import DIRECTORY, entry_of
from tests.unit.engine.gc.gc_rig import MAJOR, QUICK, GcRig

SOAK = "BKCTL_SOAK" in os.environ
#: On a disk of its own while the ledger directory's is full.
SCRATCH = "/s"
LEDGERS = st.integers(0, 5)
ENTRIES = st.integers(0, 9)
REQUESTS = st.sampled_from([Request(), MAJOR, Request(minor=True)])


class GcMachine(RuleBasedStateMachine):
    """``now`` is what must be read, ``durable`` what a crash leaves; ``serial`` makes ledger ids new."""

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[tuple[int, int], bytes] = {}
        self.durable: dict[tuple[int, int], bytes] = {}
        self.dropped: set[int] = set()
        self.serial = 0
        self.tags = 0
        self.ids: dict[int, int] = {}
        self.named: set[int] = set()

    @initialize(
        per_ledger=st.booleans(),
        transactional=st.booleans(),
        log_bytes=st.sampled_from([1500, 5000, 1 << 20]),
        pairs_max=st.sampled_from([0, 3, 1000]),
        unflushed=st.sampled_from([1, 4, 1000]),
    )
    def begin(
        self, per_ledger: bool, transactional: bool, log_bytes: int, pairs_max: int, unflushed: int
    ) -> None:
        settings = replace(
            QUICK,
            transactional=transactional,
            usages_pairs_max=pairs_max,
            entries_unflushed_max=unflushed,
            scratch_directories=(SCRATCH,),
        )
        self.rig = GcRig(settings, log_bytes_max=log_bytes, per_ledger=per_ledger)
        self.rig.disk.make_directories(SCRATCH)
        self.rig.open()
        self.watch_ids()

    def fill_the_disk(self, free_bytes: int) -> None:
        """So much is free on the ledger directory's disk; another one has room."""
        files = self.rig.disk.files
        used_bytes = sum(len(data) for name, data in files.items() if name.startswith("/l0/"))
        self.rig.disk.disks = {"/l0": used_bytes + free_bytes, SCRATCH: 1 << 30}

    def watch_ids(self) -> None:
        """No log is begun under an id that a row of the index has ever named."""
        create = self.rig.faulty.create

        def watched(path: str, *, mode_of: str | None = None) -> FaultyWritableFile:
            found = re.search(r"/([0-9a-f]+)\.log(\.compacting)?$", path)
            comes_home = self.rig.disk.link_target(path.removesuffix(".compacting")) is not None
            assert found is None or comes_home or int(found[1], 16) not in self.named, path
            return create(path, mode_of=mode_of)

        self.rig.faulty.create = watched  # type: ignore[method-assign]

    def ledger_of(self, number: int) -> int:
        """The newest ledger of a number that was not dropped."""
        ledger = self.ids.get(number)
        if ledger is None or ledger in self.dropped:
            self.serial += 1
            ledger = self.ids[number] = self.serial * 37 % 211
        return ledger

    @rule(number=LEDGERS, entries=st.lists(ENTRIES, min_size=1, max_size=6))
    def write(self, number: int, entries: list[int]) -> None:
        ledger = self.ledger_of(number)
        for entry in entries:
            self.tags += 1
            self.now[ledger, entry] = self.rig.write(ledger, [entry], self.tags, 200)[entry]

    @rule(numbers=st.lists(LEDGERS, min_size=2, max_size=4, unique=True), gone=st.integers(0, 2))
    def fill_logs_and_drop(self, numbers: list[int], gone: int) -> None:
        """Several logs with entries of all of these ledgers, some of which are deleted then."""
        for entry in range(8):
            for number in numbers:
                self.write(number, [entry])
            self.flush()
        for number in numbers[:gone]:
            self.drop(number)

    @rule()
    def flush(self) -> None:
        self.rig.storage.flush()
        self.durable = dict(self.now)

    @rule(seconds=st.sampled_from([1, 100, 400]))
    def time_goes_by(self, seconds: int) -> None:
        """Logs of single ledgers that are idle end at the next flush."""
        self.rig.clock.advance(seconds)

    @rule()
    def disk_is_full(self) -> None:
        self.rig.entry_logger.begin_new_logs()

    @rule(number=LEDGERS)
    def drop(self, number: int) -> None:
        ledger = self.ids.get(number)
        if ledger is not None:
            self.rig.cluster.live.discard(ledger)
            self.dropped.add(ledger)
            self._forget(ledger)

    def _forget(self, ledger: int) -> None:
        for known in (self.now, self.durable):
            for key in [key for key in known if key[0] == ledger]:
                del known[key]

    @rule(request=REQUESTS)
    def collect(self, request: Request) -> None:
        report = self.rig.collect(request)
        assert report.failure is None
        assert report.set_aside_logs == 0
        # A pass begins with a flush.
        self.durable = dict(self.now)
        left = self.dropped.intersection(self.rig.storage.ledgers.ledgers())
        assert not left
        if request.major:
            self._nothing_dead_is_left()

    def _nothing_dead_is_left(self) -> None:
        """In settled logs: what is left of them is alive."""
        passes = [self.rig.collect(MAJOR).compacted_logs for _ in range(3)]
        assert passes[-1] == 0
        settled = self.rig.entry_logger.settled_log_ids()
        names = {f"{DIRECTORY}/{log_id:x}.log" for log_id in settled}
        size_bytes = sum(len(data) for name, data in self.rig.disk.files.items() if name in names)
        # Older copies of live entries count as alive until their ledger goes, as in Java.
        assert size_bytes <= len(names) * 1200 + 204 * self.tags

    @rule(free_bytes=st.integers(100, 3000))
    def collect_on_a_disk_that_is_nearly_full(self, free_bytes: int) -> None:
        self.flush()
        self.fill_the_disk(free_bytes)
        self.rig.collect(MAJOR)
        self.rig.disk.disks = {}

    @rule(hidden=st.sets(LEDGERS), kind=st.sampled_from(["hidden", "listing", "read"]))
    def collect_with_a_store_that_errs(self, hidden: set[int], kind: str) -> None:
        cluster = self.rig.cluster
        if kind == "hidden":
            cluster.hidden = {self.ids[number] for number in hidden if number in self.ids}
        elif kind == "listing":
            cluster.listing_error = ConnectionFailedError("no answer")
        else:
            cluster.read_error = ConnectionFailedError("no answer")
            cluster.hidden = set(cluster.live)
        self.rig.collect(MAJOR)
        self.durable = dict(self.now)
        cluster.hidden, cluster.listing_error, cluster.read_error = set(), None, None

    @rule(seed=st.one_of(st.none(), st.integers(0, 1000)))
    def crash(self, seed: int | None) -> None:
        self.rig = self.rig.after_crash(None if seed is None else random.Random(seed))
        self.watch_ids()
        self._after_a_crash()

    @rule(
        point=st.integers(0, 60),
        seed=st.integers(0, 1000),
        free_bytes=st.one_of(st.none(), st.integers(100, 3000)),
    )
    def crash_while_collecting(self, point: int, seed: int, free_bytes: int | None) -> None:
        self.flush()
        if free_bytes is not None:
            self.fill_the_disk(free_bytes)
        self.rig.faulty.crash_after = self.rig.faulty.points + point
        try:
            self.rig.collect(MAJOR)
        except BkctlError:
            assert self.rig.faulty.crashed
        self.rig.faulty.crash_now()
        self.rig.disk.disks = {}
        self.rig = self.rig.after_crash(random.Random(seed))
        self.watch_ids()
        self._after_a_crash()

    def _after_a_crash(self) -> None:
        """Puts that were not flushed may be there or not; from here on what is there counts."""
        self.rig.forget_read_cache()
        for key, body in self.durable.items():
            assert self.rig.storage.read(*key)[:16] == body[:16]
        # What is not flushed lives in the caches and is gone; a newer body can only be a flushed one.
        self.now = {}
        for ledger in self.rig.storage.ledgers.ledgers():
            if ledger in self.rig.cluster.live:
                for entry in self.rig.storage.entries(ledger):
                    self.now[ledger, entry] = self.rig.storage.read(ledger, entry)
        for key, body in self.durable.items():
            assert self.now[key] == body
        self.durable = dict(self.now)

    @precondition(lambda self: self.now)
    @rule()
    def collect_on_a_disk_that_fails(self) -> None:
        self.rig.faulty.inject(FaultRule("remove", ".log"))
        self.rig.collect(MAJOR)
        self.rig.faulty.heal()
        self.durable = dict(self.now)

    @invariant()
    def everything_that_lives_is_read(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.forget_read_cache()
        for (ledger, entry), body in self.now.items():
            assert self.rig.storage.read(ledger, entry) == body
            assert body.startswith(entry_of(ledger, entry)[:16])
        self.named.update(int.from_bytes(place, "big") >> 32 for _, place in self.rig.location_rows.iterate())

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.storage.stop()


GcMachine.TestCase.settings = hypothesis_settings(
    max_examples=2000 if SOAK else times(25, 60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_gc_against_a_dictionary = pytest.mark.timeout(3600)(GcMachine.TestCase)
