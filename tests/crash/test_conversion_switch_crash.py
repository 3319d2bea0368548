"""The change of names of a conversion with a power cut at every step: what was not synced may be lost."""

from __future__ import annotations

import random

import pytest

from bkctl.admin.conversion.switch import DirectoryPlan, carry_out
from bkctl.directories.half_converted import is_half_converted
from bkctl.errors import BkctlError
from bkctl.scan.directory import CONVERSION_NAME
from bkctl.vfs import FaultyFileSystem, MemoryFileSystem

HOMES = ("/l0/current", "/l1/current")
KEPT = "bkctl-old-index-db-x"
STEPS_MAX = 300
#: What goes, what comes, and a log with a new id.
MOVES = (
    ("ledgers", f"{KEPT}/ledgers"),
    ("3.log", "13.log"),
    (f"{CONVERSION_NAME}/tree/0", "0"),
)
OLD = {"VERSION": b"cookie", "ledgers": b"old index", "lastId": b"3", "3.log": b"records"}
WORK = {f"{CONVERSION_NAME}/tree/0": b"new index"}
NEW = {
    "VERSION": b"cookie",
    f"{KEPT}/ledgers": b"old index",
    "lastId": b"13",
    "13.log": b"records",
    "0": b"new index",
}


def plans() -> dict[str, DirectoryPlan]:
    return {home: DirectoryPlan("db", "interleaved", KEPT, MOVES, {}, ("3", "13")) for home in HOMES}


def files(content: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{home}/{name}": data for home in HOMES for name, data in content.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("first_back", [False, True])
@pytest.mark.parametrize("then_back", [False, True])
def test_a_power_cut_at_any_step_is_gone_on_from_or_taken_back(
    seed: int, first_back: bool, then_back: bool
) -> None:
    """``first_back``: what is cut off is the way back from half way on."""
    for step in range(STEPS_MAX):
        chance = random.Random(f"{seed} {step}")
        memory = MemoryFileSystem(files({**OLD, **WORK}))
        if first_back:
            memory = cut(memory, 9, back=False, chance=None)[0]
        memory, is_cut = cut(memory, step, back=first_back, chance=chance)
        if not is_cut:
            break
        has_all = all(memory.status(f"{home}/VERSION") is not None for home in HOMES)
        assert has_all != any(is_half_converted(memory, home) for home in HOMES)
        content = visible(memory)
        if has_all:
            assert content in (files(OLD), files(NEW))
            continue
        carry_out(memory, plans(), back=then_back)
        assert visible(memory) == files(OLD if then_back else NEW), step
    else:
        pytest.fail("it never ends")
    assert step > 5


def visible(memory: MemoryFileSystem) -> dict[str, bytes]:
    return {
        name: data
        for name, data in memory.files.items()
        if CONVERSION_NAME not in name and not name.endswith(".tmp")
    }


def cut(
    memory: MemoryFileSystem, step: int, *, back: bool, chance: random.Random | None
) -> tuple[MemoryFileSystem, bool]:
    """Carry out so many steps; what a power cut leaves, and whether there was one."""
    faulty = FaultyFileSystem(memory, crash_after=step)
    try:
        carry_out(faulty, plans(), back=back)
    except BkctlError:
        assert faulty.crashed
    return memory.crash(chance), faulty.crashed
