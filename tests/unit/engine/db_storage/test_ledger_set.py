"""Sets of very many ledgers: what they hold, and that no part of them is large."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.gc import ledger_sweep, policy
from bkctl.kvstore.memory import MemoryStore
from bkctl.ledger_set import LedgerSet, LedgerTotals
from tests.unit.engine.gc.gc_rig import GcRig

COUNT = 50_000
#: Ids that one call may take when there are so many.
PART_MAX = 5000
ROW = LedgerData(fenced=False, master_key=b"key")


def some(chance: random.Random) -> set[int]:
    return {chance.choice((-1, 1)) * chance.randrange(1 << chance.randrange(1, 63)) for _ in range(300)}


@pytest.mark.parametrize("seed", range(5))
def test_against_a_set(seed: int) -> None:
    chance = random.Random(seed)
    one, other = some(chance), some(chance)
    other |= set(chance.sample(sorted(one), 100))
    first, second = LedgerSet(one), LedgerSet(other)
    assert len(first) == len(one)
    assert set(first) == one
    assert list(first.in_order()) == sorted(one)
    assert set(first | second) == one | other
    assert set(first & second) == one & other
    assert set(first - second) == one - other
    assert first.issuperset(first & second)
    assert first.issuperset(second) == one.issuperset(other)
    assert all((each in first) == (each in one) for each in one | other)
    copied = first.copy()
    copied.discard_all(other)
    assert set(copied) == one - other
    copied.add(7)
    copied.discard(8)
    assert 7 in copied
    copied.clear()
    assert not copied
    assert set(first) == one
    assert "7" not in first


@pytest.mark.parametrize("seed", range(3))
def test_totals_against_a_counter(seed: int) -> None:
    chance = random.Random(seed)
    ledgers = sorted(some(chance)) * 3
    pairs = [(ledger, chance.randrange(1, 1000)) for ledger in ledgers]
    expected: Counter[int] = Counter()
    for ledger, number in pairs:
        expected[ledger] += number
    totals = LedgerTotals(pairs[:400])
    totals.add_all(iter(pairs[400:]))
    assert totals == expected
    assert len(totals) == len(expected)
    assert set(totals) == set(expected)
    assert sum(totals.values()) == expected.total()
    assert ledgers[0] in totals
    assert totals.get(1 << 63) is None
    assert not LedgerTotals()


def test_one_that_is_let_go_of_is_freed_part_by_part() -> None:
    for kind in (LedgerSet, lambda ledgers: LedgerTotals((ledger, 1) for ledger in ledgers)):
        made = kind(range(COUNT))
        parts = made._parts
        assert all(parts)
        del made
        assert not any(parts)


@pytest.mark.parametrize("stride", [1, 2, 3, 8, 10, 16, 24, 64, 100, 256, 1000])
def test_no_part_is_large_whatever_the_stride_of_the_ids(stride: int) -> None:
    """A directory has every n-th ledger, and a bookie those of its write sets."""
    ledgers = LedgerSet(range(5, 5 + COUNT * stride, stride))
    assert max(map(len, ledgers._parts)) <= 2 * COUNT / 100


def test_the_cyclic_collector_goes_through_no_part() -> None:
    ledgers = LedgerSet(range(COUNT))
    other = LedgerSet(range(0, COUNT, 3))
    for made in (ledgers, other, ledgers | other, ledgers & other, ledgers - other, ledgers.copy()):
        assert len(made) > 1000
        assert not any(map(gc.is_tracked, made._parts))


def largest_calls(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> list[int]:
    """Sizes of what is given to calls of C code that take all of it at once."""
    sizes = [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **named: Any) -> Any:
            whole = [each for each in given if hasattr(each, "__len__") and not isinstance(each, LedgerSet)]
            sizes.extend(map(len, whole))
            return call(*given, **named)

        return counting

    for module in modules:
        for name, call in (("set", set), ("frozenset", frozenset), ("sorted", sorted)):
            monkeypatch.setattr(module, name, counted(call), raising=False)
    return sizes


def test_a_pass_over_many_ledgers_takes_them_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set of a million ids that is made or sorted in one call keeps all other threads waiting for 0.3 s."""
    rig = GcRig().open()
    for ledger in range(COUNT):
        rig.storage.ledgers.set(ledger, ROW)
    rig.cluster.live = set(range(3, COUNT))
    sizes = largest_calls(monkeypatch, ledger_sweep, policy)
    report = rig.collect()
    assert report.failure is None
    assert report.ledgers == COUNT
    assert report.deleted_ledgers == 3
    assert max(sizes) <= PART_MAX


def test_the_ledgers_of_an_index_are_listed_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part under a lock that adds wait for as well."""
    index = LedgerIndex(MemoryStore())
    for ledger in range(COUNT):
        index.set(ledger, ROW)
    listed: list[int] = []
    original = LedgerIndex._ids

    def counted(its: LedgerIndex, rows: dict[int, bytes]) -> dict[int, None]:
        listed.append(len(rows))
        if len(listed) == 100:
            # Nobody waits for the listing: the lock is free between its parts.
            its.set(COUNT + 1, ROW)
            its.delete(7)
        return original(its, rows)

    monkeypatch.setattr(LedgerIndex, "_ids", counted)
    found = index.ledgers()
    assert max(listed) <= PART_MAX
    assert sum(listed) >= COUNT - 1
    assert len(found - LedgerSet([7, COUNT + 1])) == COUNT - 1
    assert COUNT - 1 in index
    assert COUNT not in index
