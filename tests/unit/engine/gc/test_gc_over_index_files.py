"""Collectors of several ledger directories over one index: nothing alive is lost, dead bytes come back."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.log_reading import read_log
from bkctl.errors import BkctlError
from tests.support.grades import times
from tests.support.interleaved_storage_rig import InterleavedStorageRig
from tests.support.storage_rig import entry_of, key_of
from tests.unit.engine.gc.gc_rig import MAJOR, QUICK, SMALL, Cluster

ENTRIES = 12
SIZE = 300

#: Every point with ``BKCTL_SOAK``, some of them without.
STEP = 1 if os.environ.get("BKCTL_SOAK") else times(31, 11)


class Rig(InterleavedStorageRig):
    """With a collector for each of two ledger directories."""

    def __init__(self, cluster: Cluster, transactional: bool, **options: object) -> None:
        super().__init__(SMALL, directories=2, indexes=2, log_bytes_max=2500, **options)  # type: ignore[arg-type]
        self.cluster = cluster
        self.collectors = [
            Collector(
                keeper,
                cluster,
                filesystem=self.faulty,
                clock=self.clock,
                settings=replace(QUICK, transactional=transactional),
                delete_ledger=self.delete_unless_written,
            )
            for keeper in self.storage.collected
        ]

    def delete_unless_written(self, ledger: int) -> bool:
        with self.lock:
            if self.storage.has_unflushed(ledger):
                return False
            self.storage.delete_ledger(ledger)
        return True

    def fill(self, ledgers: range) -> None:
        """Entries of all ledgers in every log."""
        for ledger in ledgers:
            self.cluster.live.add(ledger)
            self.storage.ledgers.set(ledger, LedgerData(fenced=False, master_key=b"key"))
        for entry in range(ENTRIES):
            for ledger in ledgers:
                self.put(ledger, entry, "", SIZE)
            self.storage.flush()

    def check(self, ledgers: list[int]) -> None:
        """Every entry is there, from the disk."""
        for ledger in ledgers:
            assert ledger in self.storage.ledgers
            assert list(self.storage.entries(ledger)) == list(range(ENTRIES))
            for entry in range(ENTRIES):
                assert self.storage.read(ledger, entry) == entry_of(ledger, entry, "", SIZE)

    def in_settled_logs(self) -> set[int]:
        """The ledgers with records in logs that are not written any more."""
        loggers = [keeper.entry_logger for keeper in self.storage.collected]
        return {
            ledger
            for logger in loggers
            for log_id in logger.settled_log_ids()
            for ledger in read_log(self.faulty, logger.path(log_id), log_id).usage.ledgers
        }


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_dead_bytes_come_back_in_every_directory(transactional: bool) -> None:
    rig = Rig(Cluster(), transactional)
    rig.open()
    rig.fill(range(4))
    logs = [set(rig.disk.names(path)) for path in rig.storage.directories]
    assert all(any(name.endswith(".log") for name in names) for names in logs)
    assert rig.in_settled_logs() == {0, 1, 2, 3}
    rig.cluster.live -= {1, 3}
    rig.storage.begin_new_logs()
    # A log that is written while others are copied to it is for the pass after that.
    for collector in 3 * rig.collectors:
        collector.collect(MAJOR)
    assert not rig.failures
    assert rig.in_settled_logs() == {0, 2}
    assert rig.files.path(1) is None
    rig.check([0, 2])
    names = [name for path in rig.storage.directories for name in rig.disk.names(path) if ".log" in name]
    assert len(names) == len(set(names)), "a log id is in two directories"


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_a_power_cut_at_any_point_of_a_collection_costs_nothing_alive(transactional: bool) -> None:
    cluster = Cluster()
    origin = Rig(cluster, transactional)
    origin.open()
    origin.fill(range(4))
    cluster.live -= {1, 3}
    chance = random.Random(7)
    for point in range(0, 2000, STEP):
        rig = Rig(cluster, transactional, disk=origin.disk.crash(None), crash_after=point)
        try:
            rig.open()
            for collector in rig.collectors:
                collector.collect(MAJOR)
        except BkctlError:
            pass
        finished = not rig.faulty.crashed
        left = Rig(cluster, transactional, disk=rig.disk.crash(chance))
        left.open()
        left.check([0, 2])
        for collector in left.collectors:
            assert collector.collect(MAJOR).failure is None
        left.check([0, 2])
        assert 1 not in left.storage.ledgers
        if finished:
            assert point > 2 * STEP
            return
    raise AssertionError("the collection has no end")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 4)),
        st.tuples(st.just("drop"), st.integers(0, 4)),
        st.tuples(st.sampled_from(["flush", "collect", "end logs"]), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 150)),
    ),
    min_size=5,
    max_size=30,
)


@given(steps=STEPS, transactional=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=2000 if os.environ.get("BKCTL_SOAK") else times(15, 40), deadline=None)
def test_any_order_of_writes_deletions_passes_and_cuts_loses_nothing(
    steps: list[tuple[str, int]], transactional: bool, seed: int
) -> None:
    """A dictionary says what must be read. A power cut comes in a pass, at a point of the file system."""
    cluster = Cluster()
    rig = Rig(cluster, transactional)
    rig.open()
    written: dict[tuple[int, int], bytes] = {}
    newest = {number: number for number in range(5)}
    for step, number in steps:
        if step == "write":
            ledger = newest[number]
            cluster.live.add(ledger)
            rig.storage.ledgers.set(ledger, LedgerData(fenced=False, master_key=b"key"))
            for entry in range(ENTRIES // 2):
                written[ledger, entry] = rig.put(ledger, entry, len(written), SIZE)
        elif step == "drop":
            cluster.live.discard(newest[number])
            written = {key: body for key, body in written.items() if key[0] != newest[number]}
            newest[number] += 5
        elif step == "end logs":
            rig.storage.begin_new_logs()
        else:
            rig.storage.flush()
        if step == "cut":
            rig.faulty.crash_after = rig.faulty.points + number
        if step in ("collect", "cut"):
            for collector in rig.collectors:
                try:
                    collector.collect(MAJOR)
                except BkctlError:
                    assert rig.faulty.crashed
        if step == "cut":
            rig = Rig(cluster, transactional, disk=rig.disk.crash(random.Random(seed)))
            rig.open()
        rig.storage.read_cache.remove_many([key_of(*key) for key in sorted(written)])
        for (ledger, entry), body in written.items():
            assert rig.storage.read(ledger, entry) == body
