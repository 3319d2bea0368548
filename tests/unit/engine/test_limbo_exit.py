"""A ledger leaves limbo only with every entry that it should have here, fenced, and durably with a flush."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bkctl.engine.limbo import NAMED_MAX
from bkctl.errors import LedgerLimboError, NoEntryError, NoLedgerError, RefusedError
from tests.support.engine_rig import EngineRig, add_numbered, fence_ledger

LEDGER = 5


def in_limbo(*entries: int, fenced: bool = True) -> EngineRig:
    """A bookie with these entries of a ledger in limbo, beside whole ledgers on both sides of it."""
    rig = EngineRig()
    rig.start()
    for ledger in (LEDGER - 1, LEDGER + 1):
        add_numbered(rig.bookie, [ledger], range(30))
    for entry in entries:
        rig.add(LEDGER, entry)
    if fenced:
        fence_ledger(rig.bookie, LEDGER)
    rows = rig.bookie.table.storage_of(LEDGER).ledgers
    row = rows.get(LEDGER)
    assert row is not None
    rows.set(LEDGER, replace(row, limbo=True))
    rig.bookie.checkpoint()
    return rig


def test_a_whole_ledger_leaves_limbo_and_says_again_that_an_entry_is_absent() -> None:
    with in_limbo(0, 2, 3) as rig:
        limbo = rig.bookie.limbo
        assert limbo.is_limbo(LEDGER)
        with pytest.raises(LedgerLimboError):
            rig.bookie.reads.read(LEDGER, 1)
        # Entry 2 is here besides those that are asked for.
        assert limbo.leave(LEDGER, [0, 3])
        assert not limbo.is_limbo(LEDGER)
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(LEDGER, 1)
        # It is not in limbo, so that nothing is asked of it.
        assert not limbo.leave(LEDGER, [1])
        rig.bookie.checkpoint()
        with rig.cut_off() as after:
            after.start()
            assert not after.bookie.limbo.is_limbo(LEDGER)
            assert after.fence(LEDGER) is None


@pytest.mark.parametrize(
    ("expected", "missing"), [([0, 1], "1"), ([1, 2], "1"), ([2, 4], "4"), ([4, 5], "4, 5")]
)
def test_a_missing_entry_keeps_a_ledger_in_limbo(expected: list[int], missing: str) -> None:
    with in_limbo(0, 2, 3) as rig:
        with pytest.raises(RefusedError, match=f"entries are not here: {missing}$"):
            rig.bookie.limbo.leave(LEDGER, expected)
        assert rig.bookie.limbo.is_limbo(LEDGER)
        # The entries of its neighbours are not its own.
        with pytest.raises(RefusedError, match=r"\.\.\.$"):
            rig.bookie.limbo.leave(LEDGER, range(30))


def test_of_many_missing_entries_the_first_are_named() -> None:
    asked: list[int] = []

    def expected() -> Iterator[int]:
        for entry in range(1000):
            asked.append(entry)
            yield entry

    with in_limbo(0) as rig:
        named = ", ".join(map(str, range(1, NAMED_MAX + 1)))
        with pytest.raises(RefusedError, match=rf": {named} \.\.\.$"):
            rig.bookie.limbo.leave(LEDGER, expected())
        # The others are not looked for.
        assert len(asked) == NAMED_MAX + 1


def test_a_ledger_that_is_not_fenced_stays_in_limbo() -> None:
    """What was lost may have been an acknowledged fence."""
    with in_limbo(0, 1, fenced=False) as rig:
        with pytest.raises(RefusedError, match="it is not fenced here"):
            rig.bookie.limbo.leave(LEDGER, range(2))
        assert rig.bookie.limbo.is_limbo(LEDGER)
        fence_ledger(rig.bookie, LEDGER)
        assert rig.bookie.limbo.leave(LEDGER, range(2))


def test_a_ledger_that_is_not_known_has_no_limbo_to_leave() -> None:
    with in_limbo(0, 1) as rig:
        for ask in (rig.bookie.limbo.is_limbo, lambda ledger: rig.bookie.limbo.leave(ledger, ())):
            with pytest.raises(NoLedgerError, match="ledger 77"):
                ask(77)

        def deleted_meanwhile() -> Iterator[int]:
            yield 0
            rig.bookie.table.storage_of(LEDGER).ledgers.delete(LEDGER)

        with pytest.raises(NoLedgerError, match=f"ledger {LEDGER}"):
            rig.bookie.limbo.leave(LEDGER, deleted_meanwhile())
