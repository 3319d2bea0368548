"""The change of names of a conversion with a power cut at every step: what was not synced may be lost.

What is complete can be undone; what is not goes on, or is taken back.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from bkctl.admin.conversion.switch import DirectoryPlan, carry_out
from bkctl.admin.conversion.way_back import forget_way_back, note_way_back
from bkctl.admin.repairs.repair_chain import last_repair
from bkctl.admin.repairs.repair_journal import state_before
from bkctl.admin.repairs.repair_records import find_repairs
from bkctl.admin.repairs.repair_undo import undo
from bkctl.directories.half_converted import is_half_converted
from bkctl.errors import BkctlError
from bkctl.scan.directory import CONVERSION_NAME, REPAIRS_NAME
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.faulty import FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.grades import steps
from tests.support.manual_clock import ManualClock

HOMES = ("/l0/current", "/l1/current")
KEPT = "bkctl-old-index-db-x"
STEPS_MAX = 300
#: What goes, a log with a new id, and one that comes.
MOVES = (
    ("ledgers", f"{KEPT}/ledgers"),
    ("3.log", "13.log"),
    (f"{CONVERSION_NAME}/logs/14.log", "14.log"),
)
OLD = {"VERSION": b"cookie", "ledgers": b"old index", "lastId": b"3", "3.log": b"records"}
WORK = {f"{CONVERSION_NAME}/logs/14.log": b"copies"}
NEW = {
    "VERSION": b"cookie",
    f"{KEPT}/ledgers": b"old index",
    "lastId": b"13",
    "13.log": b"records",
    "14.log": b"copies",
}


def plans() -> dict[str, DirectoryPlan]:
    return {home: DirectoryPlan("db", "interleaved", KEPT, MOVES, {}, ("3", "13")) for home in HOMES}


def files(content: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{home}/{name}": data for home in HOMES for name, data in content.items()}


CLOCK = ManualClock()
BEFORE = state_before(MemoryFileSystem(files(OLD)), HOMES)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("first_back", [False, True])
@pytest.mark.parametrize("then_back", [False, True])
def test_a_power_cut_at_any_step_is_gone_on_from_or_taken_back(
    seed: int, first_back: bool, then_back: bool
) -> None:
    """``first_back``: what is cut off is the way back from half way on."""
    for step in steps(STEPS_MAX):
        chance = random.Random(f"{seed} {step}")
        memory = MemoryFileSystem(files({**OLD, **WORK}))
        if first_back:
            memory = cut(memory, first_cut(seed), back=False, chance=None)[0]
        memory, is_cut = cut(memory, step, back=first_back, chance=chance)
        has_all = all(memory.status(f"{home}/VERSION") is not None for home in HOMES)
        assert has_all != any(is_half_converted(memory, home) for home in HOMES)
        content = visible(memory)
        if has_all:
            assert content in (files(OLD), files(NEW))
        else:
            convert(memory, back=then_back)
            assert visible(memory) == files(OLD if then_back else NEW), step
        if visible(memory) == files(NEW):
            undo(memory, last_repair(memory, HOMES))
            assert visible(memory) == files(OLD), step
            assert not any(CONVERSION_NAME in name for name in memory.files), step
        assert find_repairs(memory, HOMES) == [], step
        if not is_cut:
            break
    else:
        pytest.fail("it never ends")
    assert step > 5


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_in_an_undo_of_what_was_complete_and_not_cleaned_up(seed: int) -> None:
    """With the cookies away, what is left of the work directories would pass for a conversion cut off."""
    complete = cut(MemoryFileSystem(files({**OLD, **WORK})), STEPS_MAX, back=False, chance=None)[0]
    for step in steps(STEPS_MAX):
        memory = complete.crash()
        faulty = FaultyFileSystem(memory, crash_after=step)
        with suppress(BkctlError):
            undo(faulty, last_repair(faulty, HOMES))
        if not faulty.crashed:
            break
        memory = memory.crash(random.Random(f"{seed} {step}"))
        assert not any(is_half_converted(memory, home) for home in HOMES), step
        if find_repairs(memory, HOMES):
            undo(memory, last_repair(memory, HOMES))
        assert visible(memory) == files(OLD), step
    assert step > 20


@pytest.mark.parametrize("first_back", [False, True])
@pytest.mark.parametrize("then_back", [False, True])
def test_a_power_cut_behind_a_kill_takes_nothing(first_back: bool, then_back: bool) -> None:
    """What the kill has left is visible and not durable, and the run behind it syncs other names."""
    for killed in range(STEPS_MAX):
        for step in range(killed % 4, STEPS_MAX, 4):
            memory = MemoryFileSystem(files({**OLD, **WORK}))
            if first_back:
                memory = cut(memory, first_cut(1), back=False, chance=None)[0]
            was_killed = not carried_out(memory, killed, back=first_back)
            if not is_half(memory):
                break
            is_whole = carried_out(memory, step, back=then_back)
            left = memory.crash()
            assert has_all(left) != is_half(left), (killed, step)
            if is_half(left):
                convert(left, back=then_back)
            assert visible(left) == files(OLD if then_back else NEW), (killed, step)
            if is_whole:
                break
        if not was_killed:
            break
    assert killed > 20


def first_cut(seed: int) -> int:
    """Steps before the first cut: among the moves, or where the way back is noted and cookies come back."""
    return (13, 45, 62, 73)[seed]


def convert(system: WritableFileSystem, *, back: bool) -> None:
    """Change the names as ``change_names`` and ``change_back`` do, but for the work directories."""
    if back:
        forget_way_back(system, HOMES, plans())
        carry_out(system, plans(), back=True)
    else:
        carry_out(system, plans(), note=lambda: note_way_back(system, CLOCK, BEFORE, HOMES, plans()))


def visible(memory: MemoryFileSystem) -> dict[str, bytes]:
    return {
        name: data
        for name, data in memory.files.items()
        if CONVERSION_NAME not in name and REPAIRS_NAME not in name and not name.endswith(".tmp")
    }


def has_all(memory: MemoryFileSystem) -> bool:
    return all(memory.status(f"{home}/VERSION") is not None for home in HOMES)


def is_half(memory: MemoryFileSystem) -> bool:
    return any(is_half_converted(memory, home) for home in HOMES)


def carried_out(memory: MemoryFileSystem, step: int, *, back: bool) -> bool:
    """Carry out so many steps; whether these were all."""
    faulty = FaultyFileSystem(memory, crash_after=step)
    try:
        convert(faulty, back=back)
    except BkctlError:
        assert faulty.crashed
    return not faulty.crashed


def cut(
    memory: MemoryFileSystem, step: int, *, back: bool, chance: random.Random | None
) -> tuple[MemoryFileSystem, bool]:
    """Carry out so many steps; what a power cut leaves, and whether there was one."""
    faulty = FaultyFileSystem(memory, crash_after=step)
    try:
        convert(faulty, back=back)
    except BkctlError:
        assert faulty.crashed
    return memory.crash(chance), faulty.crashed
