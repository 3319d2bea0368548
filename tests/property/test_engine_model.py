"""A whole engine over twins that fail: whatever was acknowledged stays true, and an error is never "no".

Random work goes on while operations of journals, entry logs, marks and stores fail, once or from then on.
A bookie that cannot go on says so and stops; one that can, goes on by itself when the disk does.
"""

from __future__ import annotations

import errno
import random
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkctl.errors import BkctlError, NoEntryError, NoLedgerError, StorageError
from bkctl.vfs.faulty import FaultRule, FileOperation
from tests.support.engine_model import EngineModel, EngineWork, PowerRig, random_settings
from tests.support.engine_rig import Answers, EngineRig, small_settings
from tests.support.faulty_store import StoreFaultRule
from tests.support.grades import times
from tests.support.index_files_rig import IndexFilesRig
from tests.support.twin_rig import TwinRig

WAIT_S = 20.0
#: (operation, what the path ends in) of every kind of file that an engine changes or reads.
FILE_FAULTS: list[tuple[FileOperation, str]] = [
    ("write", ".txn"),
    ("sync", ".txn"),
    ("create", ".txn"),
    ("remove", ".txn"),
    ("sync_directory", "/journal0/current"),
    ("write", ".log"),
    ("sync", ".log"),
    ("create", ".log"),
    ("read", ".log"),
    ("open", ".log"),
    ("write", ".tmp"),
    ("sync", ".tmp"),
    ("create", ".tmp"),
    ("rename", "lastMark"),
    ("sync_directory", "/ledgers0/current"),
    ("sync", "/ledgers0/current"),  # a flush of the twin
    ("list", ""),
]
STORE_FAULTS = ("get", "iterate", "write")


def file_rules() -> st.SearchStrategy[FaultRule]:
    return st.builds(
        lambda fault, first, count, number: FaultRule(
            fault[0], fault[1], first=first, count=count, error_number=number
        ),
        st.sampled_from(FILE_FAULTS),
        st.integers(1, 6),
        st.sampled_from([1, 3, None]),
        st.sampled_from([errno.EIO, errno.ENOSPC]),
    )


def store_rules() -> st.SearchStrategy[tuple[str, StoreFaultRule]]:
    return st.tuples(
        st.sampled_from(["locations", "ledgers"]),
        st.builds(
            StoreFaultRule,
            st.sampled_from(STORE_FAULTS),
            first=st.integers(1, 4),
            count=st.sampled_from([1, 3, None]),
            error=st.sampled_from(["storage", "after", "corruption"]),
        ),
    )


def check_reads(rig: EngineRig, model: EngineModel) -> None:
    """While the disk fails: the right bytes or an error, never "no such entry" or "no such ledger"."""
    for ledger, memory in model.ledgers.items():
        for entry, least in list(memory.acknowledged.items()):
            try:
                body = rig.bookie.reads.read(ledger, entry)
            except (NoEntryError, NoLedgerError) as error:
                raise AssertionError(f"ledger {ledger}, entry {entry}: {error}") from error
            except BkctlError:
                continue
            assert body in memory.bodies[entry][least:]


def is_well_again(rig: EngineRig) -> bool:
    """Whether the bookie takes adds again when its disks do, with a little time and a look at them."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.005)):
        if rig.bookie.failure is not None:
            return False
        rig.bookie.disks.check()
        if not rig.bookie.read_only and not any(journal.suspended for journal in rig.bookie.journals):
            return True
        pause.wait(0.005)
    raise AssertionError("the bookie stays read-only and names no failure")


@pytest.mark.parametrize("make", [PowerRig, TwinRig, IndexFilesRig], ids=["db", "memory", "idx"])
@settings(max_examples=max(times(25, 60), settings().max_examples // 10))
@given(
    seed=st.integers(0, 1 << 30),
    files=st.lists(file_rules(), min_size=1, max_size=2),
    stores=st.lists(store_rules(), max_size=1),
    cut=st.booleans(),
)
@example(  # a journal that found no room cannot be removed, and the next one is begun
    seed=0,
    files=[
        FaultRule("write", ".txn", first=3, count=1, error_number=errno.ENOSPC),
        FaultRule("remove", ".txn", count=1),
    ],
    stores=[],
    cut=True,
)
def test_acknowledged_stays_true_whatever_fails(
    make: type[PowerRig],
    seed: int,
    files: list[FaultRule],
    stores: list[tuple[str, StoreFaultRule]],
    cut: bool,
) -> None:
    chance = random.Random(seed)
    rig = make(random_settings(chance))
    # A write that failed has written its first half.
    model = EngineModel(lacs_journaled=rig.settings.journal.format_version >= 6, torn=True)
    rig.start()
    EngineWork(rig, model, chance).run(15)
    rig.system.inject(*files)
    for name, rule in stores:
        for path, store in rig.faulty_stores.items():
            if path.endswith(name):
                store.inject(rule)
    EngineWork(rig, model, chance).run(25)
    check_reads(rig, model)
    rig.system.heal()
    for store in rig.faulty_stores.values():
        store.heal()
    if is_well_again(rig):
        EngineWork(rig, model, chance).run(15)
        # Rules were healed, but a sync that failed late may still end it, also while this looks.
        if is_well_again(rig):
            try:
                model.check(rig)
            except BkctlError:
                assert rig.bookie.failure is not None
    assert len(rig.failures) <= 1
    if cut:
        rig = rig.after_power_cut(None)
    else:
        try:
            rig.stop()
        except BkctlError:
            assert rig.bookie.failure is not None
        rig = rig.after_power_cut(None)
    with rig:
        rig.start()
        model.check(rig)


@settings(max_examples=max(times(10, 25), settings().max_examples // 20))
@given(
    seed=st.integers(0, 1 << 30),
    room=st.lists(st.integers(0, 12_000), min_size=1, max_size=4),
    torn=st.booleans(),
)
def test_a_disk_that_fills_up_again_and_again_loses_nothing(seed: int, room: list[int], torn: bool) -> None:
    chance = random.Random(seed)
    settings = random_settings(chance)
    model = EngineModel(lacs_journaled=settings.journal.format_version >= 6, torn=torn)
    first = PowerRig(settings)
    # Its threads end here, also when a check fails: the tests behind this one look for threads.
    with first:
        first.start()
        EngineWork(first, model, chance).run(15)
        for left in room:
            first.memory.capacity_bytes = sum(map(len, first.memory.files.values())) + left
            EngineWork(first, model, chance).run(20)
            check_reads(first, model)
            first.memory.capacity_bytes = None
            assert is_well_again(first), first.bookie.failure
            EngineWork(first, model, chance).run(10)
            # A write that failed before there was room may be known only now.
            assert is_well_again(first), first.bookie.failure
            model.check(first)
        if chance.random() < 0.5:
            first.memory.capacity_bytes = sum(map(len, first.memory.files.values())) + chance.randrange(4000)
            EngineWork(first, model, chance).run(10)
        rig = first.after_power_cut(chance if torn else None)
    rig.memory.capacity_bytes = None
    with rig:
        rig.start()
        model.check(rig)
        EngineWork(rig, model, chance).run(10)
        rig = rig.after_power_cut(None)
    with rig:
        rig.start()
        model.check(rig)


def test_a_fence_whose_record_failed_is_not_acknowledged_by_the_next_one() -> None:
    with EngineRig() as rig:
        rig.start()
        rig.add(5, 0)
        rig.system.inject(FaultRule("sync", ".txn"))
        assert rig.fence(5) is not None
        with pytest.raises(StorageError):
            rig.fence(5)


def test_a_run_over_two_failing_journals_is_answered_once() -> None:
    """One journal has failed, the other fails with the run in it."""
    with EngineRig(small_settings(journals=2)) as rig:
        rig.start()
        rig.add(4, 0)
        rig.add(5, 0)
        rig.system.inject(FaultRule("sync", lambda path: "/journal1/" in path))
        with pytest.raises(BkctlError):
            rig.add(5, 1)
        rig.bookie.writes.set_read_only(False)
        rig.system.inject(FaultRule("sync", lambda path: "/journal0/" in path))
        answers = Answers()
        assert rig.bookie.writes.add_run(rig.run_of([(4, 1), (5, 2)], answers, "run"))
        answers.wait(1)
        rig.bookie.journals[0].stop()
        assert [context for context, _ in answers.bad] == ["run"]
        assert answers.good == []
