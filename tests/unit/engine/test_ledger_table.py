"""Which descriptors stay in memory, and what it costs to forget one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bkctl.engine.ledger_descriptor import LedgerDescriptor
from bkctl.engine.ledger_table import LedgerTable
from tests.support.engine_rig import KEY, Answers, EngineRig, small_settings

DESCRIPTORS_MAX = 1000
#: Descriptors that one more may cost a look at.
LOOKS_MAX = 40


@pytest.fixture
def rig() -> Iterator[EngineRig]:
    with EngineRig(replace(small_settings(), descriptors_max=DESCRIPTORS_MAX)) as rig:
        rig.start()
        yield rig


def held(table: LedgerTable) -> set[int]:
    return {descriptor.ledger for descriptor in table.descriptors()}


def test_one_descriptor_too_many_costs_a_look_at_a_few(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def idle(descriptor: LedgerDescriptor) -> bool:
        looks.append(descriptor.ledger)
        return True

    table = rig.bookie.table
    for ledger in range(DESCRIPTORS_MAX):
        table.open(ledger, KEY)
    monkeypatch.setattr(LedgerDescriptor, "idle", property(idle))
    most = 0
    for ledger in range(DESCRIPTORS_MAX, 3 * DESCRIPTORS_MAX):
        looks.clear()
        before = len(table)
        table.open(ledger, KEY)
        most = max(most, len(looks), before - len(table))
        assert len(table) <= DESCRIPTORS_MAX
    assert most <= LOOKS_MAX


def test_a_ledger_that_is_written_all_the_time_stays(rig: EngineRig) -> None:
    """It came first. Forgotten, it would lose its grant and write its key to the journal again."""
    table = rig.bookie.table
    rig.add(0, 0)
    for ledger in range(1, 5 * DESCRIPTORS_MAX):
        table.open(ledger, KEY)
        if ledger % 100 == 0:
            assert rig.bookie.writes.add_run(rig.run_of([(0, ledger)], Answers()))
    assert 0 in held(table)
    assert len(table.grants) == 1
    assert 1 not in held(table)


@pytest.mark.parametrize("look_at", ["reads", "open"])
def test_any_use_counts(rig: EngineRig, look_at: str) -> None:
    table = rig.bookie.table
    for ledger in range(3 * DESCRIPTORS_MAX):
        table.open(ledger, KEY)
        if ledger % 50 == 0:
            if look_at == "reads":
                rig.bookie.reads.known_lac(7)
            else:
                table.open(8, KEY)
    assert (7 if look_at == "reads" else 8) in held(table)
    assert 9 not in held(table)


def test_the_bound_is_hardly_exceeded_when_all_were_used(rig: EngineRig) -> None:
    table = rig.bookie.table
    for ledger in range(2 * DESCRIPTORS_MAX):
        table.open(ledger, KEY)
        table.open(ledger, KEY)
        assert len(table) <= DESCRIPTORS_MAX * 1.05 + LOOKS_MAX
    for ledger in range(2 * DESCRIPTORS_MAX, 2 * DESCRIPTORS_MAX + 200):
        table.open(ledger, KEY)
    assert len(table) <= DESCRIPTORS_MAX


def test_ledgers_that_somebody_waits_for_are_not_forgotten(rig: EngineRig) -> None:
    table = rig.bookie.table
    for ledger in range(50):
        table.open(ledger, KEY)
        assert rig.bookie.reads.watch(ledger, 5, lambda *_: None) is not None
    for ledger in range(50, 4 * DESCRIPTORS_MAX):
        table.open(ledger, KEY)
    assert held(table) >= set(range(50))
    assert len(table) <= DESCRIPTORS_MAX
