"""A power cut at every persistence point of collecting and compacting: what lives is there afterwards."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Container, Sequence

import pytest

from bkctl.engine.gc import compactions
from bkctl.engine.gc.compactor import Compactor
from bkctl.engine.gc.copying import Copied, Piece, still_there
from bkctl.engine.gc.policy import Request
from bkctl.engine.gc.rows_into_logs import RowCounts
from bkctl.errors import BkctlError
from tests.support.grades import times
from tests.support.storage_rig import entry_of
from tests.unit.engine.gc.gc_rig import MAJOR
from tests.unit.engine.gc.power_gc_rig import PowerGcRig

SOAK = "BKCTL_SOAK" in os.environ
ENTRIES = 8
SIZE_BYTES = 300


class Work:
    """Ledgers are written interleaved, every second one is deleted, everything is compacted; twice."""

    def __init__(self, rig: PowerGcRig) -> None:
        self.rig = rig
        #: Ledgers whose entries were flushed and that live.
        self.covered: dict[int, int] = {}
        self.finished = False
        self.ids: list[int] = []

    def run(self) -> None:
        try:
            self.rig.open()
            for first in (1, 101):
                ledgers = range(first, first + 4)
                for entry in range(ENTRIES):
                    for ledger in ledgers:
                        self.rig.write(ledger, [entry], size_bytes=SIZE_BYTES)
                    self.rig.storage.flush()
                    self.covered.update(dict.fromkeys(ledgers, entry + 1))
                for ledger in ledgers[::2]:
                    self.rig.cluster.live.remove(ledger)
                    del self.covered[ledger]
                self.rig.collect(MAJOR)
                if self.rig.faulty.crashed:
                    return
            self.finished = True
        except BkctlError:
            assert self.rig.faulty.crashed

    def check(self, rig: PowerGcRig) -> None:
        """On what is left, opened: whatever was flushed and lives can be read, before and after a pass."""
        rig.open()
        self._check_entries(rig)
        report = rig.collect(MAJOR)
        assert report.failure is None
        # A log with entries of which no row was flushed stays: their journal is not part of this.
        assert not rig.collector.status().set_aside
        self._check_entries(rig)
        # And its rows lead to their entries, without anything that is compacted.
        assert not [name for name in rig.log_names() if "compact" in name]
        for key, _ in list(rig.location_rows.iterate()):
            ledger = int.from_bytes(key[:8], "big")
            assert ledger in rig.cluster.live
            assert rig.storage.read(ledger, int.from_bytes(key[8:], "big"))[:16] == key

    def _check_entries(self, rig: PowerGcRig) -> None:
        rig.forget_read_cache()
        for ledger, entries in self.covered.items():
            for entry in range(entries):
                assert rig.storage.read(ledger, entry) == entry_of(ledger, entry, "", SIZE_BYTES)


def points_of(transactional: bool, per_ledger: bool = False) -> int:
    work = Work(PowerGcRig(transactional=transactional, per_ledger=per_ledger))
    work.run()
    assert work.finished
    return work.rig.faulty.points


def crash_at(transactional: bool, point: int, seed: int, per_ledger: bool = False) -> None:
    """One cut at ``point``, then up to two more while the rest is collected."""
    chance = random.Random(f"{point}:{seed}")
    work = Work(PowerGcRig(transactional=transactional, per_ledger=per_ledger, crash_after=point))
    work.run()
    rig = work.rig
    for _ in range(seed % 3):
        rig = rig.cut(chance.choice((None, chance)), crash_after=chance.randrange(30))
        try:
            rig.open()
            rig.collect(MAJOR)
        except BkctlError:
            assert rig.faulty.crashed
    work.check(rig.cut(chance.choice((None, chance))))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("per_ledger", [False, True], ids=["single", "per-ledger"])
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_a_cut_at_every_persistence_point_loses_nothing_that_lives(
    transactional: bool, per_ledger: bool
) -> None:
    points = points_of(transactional, per_ledger)
    assert points > 100
    chosen = (
        range(points) if SOAK else sorted(random.Random(7).sample(range(points), min(points, times(15, 40))))
    )
    for point in chosen:
        for seed in range(9 if SOAK else 2):
            try:
                crash_at(transactional, point, seed, per_ledger)
            except BaseException:
                print(f"failed: crash_at({transactional}, {point}, {seed}, {per_ledger})")
                raise


PHASES = [
    ("create", ".log.compacting"),
    ("write", ".log.compacting"),
    ("sync", ".log.compacting"),
    ("rename", ".compacted"),
    ("sync_directory", ""),
    ("link", ".compacted"),
    ("remove", ".compacted"),
    ("remove", "/0.log"),
]


@pytest.mark.parametrize(("operation", "suffix"), PHASES)
def test_recovery_in_each_phase_of_a_transactional_compaction(operation: str, suffix: str) -> None:
    """Stopped before each step of each kind, and recovered also by a bookie that compacts plainly."""
    for plain_afterwards in (False, True):
        for occurrence in range(3):
            rig = PowerGcRig(transactional=True)
            work = Work(rig)
            seen = stop_before(rig, operation, suffix, occurrence)
            work.run()
            assert rig.faulty.crashed or seen() <= occurrence
            for chance in (None, random.Random(occurrence)):
                left = rig.cut(chance)
                left = PowerGcRig(
                    transactional=not plain_afterwards,
                    cluster=left.cluster,
                    disk=left.disk,
                    locations=left.location_rows,
                    ledgers=left.ledger_rows,
                )
                work.check(left)


def stop_before(rig: PowerGcRig, operation: str, suffix: str, occurrence: int) -> Callable[[], int]:
    """Power off before such an operation; how many there were."""
    enter = rig.faulty.enter
    count = 0
    compacting = False

    def watched(what, *paths, doing="", offset=None):  # type: ignore[no-untyped-def]
        nonlocal count, compacting
        compacting = compacting or any("compact" in path for path in paths)
        if what == operation and compacting and any(path.endswith(suffix) for path in paths):
            if count == occurrence:
                rig.faulty.crash_now()
            count += 1
        enter(what, *paths, doing=doing, offset=offset)

    rig.faulty.enter = watched  # type: ignore[method-assign]
    return lambda: count


class HastyCompactor(Compactor):
    """Removes its source before the new locations are in the index."""

    def compact(
        self,
        log_id: int,
        dead: Container[int],
        holes: Sequence[tuple[int, int]] = (),
        *,
        rows: RowCounts | None = None,
    ) -> Copied:
        self.owed: list[tuple[list[bytes], list[int]]] = []
        copied = super().compact(log_id, dead, holes, rows=rows)
        for keys, locations in self.owed:
            self._storage.locations.put_many(keys, locations)
        return copied

    def _move(self, piece: Piece) -> Piece:
        piece = still_there(piece, self._storage.locations)
        if len(piece):
            for batch in piece.batches():
                places = self._storage.entry_logger.append_batch(batch)
                self.owed.append((batch.key_list(), list(places)))
            self._storage.entry_logger.force()
        return piece


def test_mutant_1534_loses_entries_at_some_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactions, "Compactor", HastyCompactor)
    for point in range(100, points_of(False)):
        try:
            crash_at(False, point, 0)
        except (AssertionError, BkctlError):
            return
    pytest.fail("no cut has shown it")


def test_a_request_after_a_cut_is_like_any_other() -> None:
    rig = PowerGcRig(transactional=True)
    work = Work(rig)
    work.run()
    left = rig.cut(random.Random(3))
    left.open()
    assert left.collect(Request()).failure is None
