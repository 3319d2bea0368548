"""A power cut at every persistence point of a journal: what was answered as durable is there, in order."""

from __future__ import annotations

import os
import random

import pytest

from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import Journal, JournalBatch
from bkctl.errors import StorageError
from bkctl.scan.damage import Damage
from bkctl.scan.journal import JournalScan, unsynced_from
from bkctl.vfs.faulty import FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.grades import times
from tests.support.journal_rig import (
    CURRENT,
    RecordingSink,
    batch_of,
    body,
    java_records,
    journals,
    memory,
    running,
)

SEEDS = times(1, 4, "BKCTL_SOAK")
FIRST_SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 1)
#: Points that are certainly passed by the load below, whatever the threads do.
POINTS = 48
BATCHES = 40


class Load:
    """Batches of random sizes, handed in until the machine stops."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.settings = JournalSettings(
            format_version=self.chance.choice([4, 5, 6]),
            preallocation_bytes=self.chance.choice([0, 4096, 16_384]),
            alignment_bytes=self.chance.choice([512, 4096]),
            size_bytes_max=self.chance.choice([3000, 20_000, 1 << 20]),
            buffered_bytes_max=self.chance.choice([0, 2000, 1 << 19]),
            sync_data=self.chance.random() < 0.8,
            flush_when_queue_empty=self.chance.random() < 0.5,
        )
        self.appended: list[list[bytes]] = []
        self.durable = 0
        self.mark = LastMark(0, 0)
        self.forced: dict[int, int] = {}

    def run(self, system: FaultyFileSystem) -> None:
        """Ends when all is handed in, or with the machine."""
        sink = RecordingSink()
        try:
            with running(system, self.settings) as journal:
                self._append_all(journal, sink)
                if self.chance.random() < 0.5:
                    journal.stop()
                self.mark = journal.mark
        except StorageError:
            assert system.crashed, "the start alone may fail"
        answers = [context for context in sink.journaled_contexts if isinstance(context, int)]
        assert answers == sorted(answers)
        # Without journalSyncData an answer says no more than that the records were written.
        self.durable = max(answers, default=-1) + 1 if self.settings.sync_data else 0
        forces = [context[1] for context in sink.journaled_contexts if isinstance(context, tuple)]
        # A force marker is answered when everything appended before it is durable.
        self.durable = max([self.durable, *forces])

    def _append_all(self, journal: Journal, sink: RecordingSink) -> None:
        for number in range(BATCHES):
            sizes = self.chance.choices([24, 100, 511, 512, 3000, 9000], k=self.chance.randint(1, 3))
            bodies = [body(number, entry, size) for entry, size in enumerate(sizes)]
            deferred = self.chance.random() < 0.2
            force = self.chance.random() < 0.1
            try:
                context = ("deferred", 0) if deferred else number
                batch = batch_of(bodies, sink, context, after_write=deferred)
                journal.append(batch, borrows=len(bodies) == 1 and journal.lends_its_turn)
                self.appended.append(bodies)
                journal.write_lent()
                if force:
                    journal.append(JournalBatch([], 0, 0, sink, ("force", number + 1)))
            except StorageError:
                return
            if self.chance.random() < 0.6:
                sink.wait_for(number + 1)

    def check(self, left: MemoryFileSystem) -> None:
        """Java's walk finds every durable record in order, and every file but the newest is whole."""
        promised = [record for bodies in self.appended[: self.durable] for record in bodies]
        everything = [record for bodies in self.appended for record in bodies]
        files = journals(left)
        found = [record for data in files.values() for _, record in java_records(data)]
        assert found[: len(promised)] == promised
        self._check_scan(left)
        older = [record for data in list(files.values())[:-1] for _, record in java_records(data)]
        assert older == everything[: len(older)]
        if self.mark.journal_id:
            marked = [
                record
                for journal_id, data in files.items()
                for offset, record in java_records(data)
                if LastMark(journal_id, offset) < self.mark
            ]
            assert marked == everything[: len(marked)]
            assert self.mark.journal_id in files

    def _check_scan(self, left: MemoryFileSystem) -> None:
        """Nothing that a power cut leaves is damage to the next start."""
        ids = list(journals(left))
        for journal_id in ids:
            path = f"{CURRENT}/{journal_name(journal_id)}"
            hole_from = unsynced_from(journal_id, ids[-1], self.mark)
            with JournalScan(left, path, unsynced_from=hole_from) as scan:
                damages = [item for item in (*scan.head.damage, *scan) if isinstance(item, Damage)]
            assert not [damage for damage in damages if not damage.unsynced], self.settings


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_power_cut_at_every_point_loses_nothing_answered(seed: int) -> None:
    for point in range(POINTS):
        load = Load(seed * 1000 + point)
        disk = memory()
        system = FaultyFileSystem(disk, crash_after=point)
        load.run(system)
        load.check(disk.crash())
        for chance in range(3):
            load.check(disk.crash(random.Random(chance)))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_journal_that_was_stopped_is_clean_to_the_scanner(seed: int) -> None:
    load = Load(seed)
    disk = memory()
    sink = RecordingSink()
    with running(disk, load.settings) as journal:
        load._append_all(journal, sink)
        journal.stop()
    left = disk.crash()
    found = []
    for journal_id in journals(left):
        with JournalScan(left, f"{CURRENT}/{journal_name(journal_id)}") as scan:
            for item in scan:
                assert not isinstance(item, Damage)
                if isinstance(item, EntryBatch):
                    found += [item.body(index) for index in range(len(item))]
    assert found == [record for bodies in load.appended for record in bodies]


def test_after_a_power_cut_the_next_journal_begins_behind_what_is_left() -> None:
    disk = memory()
    bodies = []
    for round_number in range(3):
        system = FaultyFileSystem(disk, crash_after=9)
        sink = RecordingSink()
        with running(system, JournalSettings(preallocation_bytes=0)) as journal:
            for entry in range(10):
                try:
                    journal.append(batch_of([body(round_number, entry)], sink, (round_number, entry)))
                except StorageError:
                    break
                sink.wait_for(entry + 1)
        bodies += [body(*context) for context in sink.journaled_contexts]
        disk = disk.crash(random.Random(round_number))
    found = [record for data in journals(disk).values() for _, record in java_records(data)]
    assert [record for record in found if record in bodies] == bodies
    assert len(journals(disk)) == 3
