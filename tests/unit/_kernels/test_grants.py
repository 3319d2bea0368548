"""Ledgers by grant: both twins against a dictionary."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl._kernels._api import GRANT_BYTES
from bkctl.engine import ledger_descriptor
from bkctl.engine.ledger_descriptor import LAC_NONE, ledgers_of
from tests.support.kernel_twins import COMPILED, twin
from tests.support.no_memory import without_memory

I64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(params=["python", pytest.param("native", marks=COMPILED)])
def kernels(request: pytest.FixtureRequest) -> Iterator[Any]:
    with twin(request.param) as chosen:
        yield chosen


def grant(ledger: int, key: bytes = b"k" * 20) -> bytes:
    return ledger_descriptor.grant(ledger, key)


def column(*numbers: int) -> bytes:
    return array("q", numbers).tobytes()


def uses_of(kernels: Any, count: int, generation: int = 0) -> list[Any]:
    return [kernels.LedgerUse(kernels.LedgerCounter(0.0, generation)) for _ in range(count)]


def test_a_ledger_is_found_by_its_grant_alone(kernels: Any) -> None:
    table = kernels.GrantTable()
    first, second = uses_of(kernels, 2)
    assert table.get(grant(1)) is None
    assert table.find(grant(1)) is None
    table[grant(1)], table[grant(2)] = first, second
    assert (table.get(grant(1)), table.get(grant(2))) == (first, second)
    assert grant(1) in table
    assert grant(1, b"j" * 20) not in table
    assert table.find(grant(2) + grant(3)) is None
    assert table.find(b"") == b""
    assert len(table) == 2
    table[grant(1)] = second
    assert table.get(grant(1)) is second
    assert len(table) == 2
    assert table.pop(grant(1)) is second
    assert table.pop(grant(1)) is None
    assert table.get(grant(1)) is None
    assert table.get(grant(2)) is second


def test_a_grant_of_another_length_is_never_there(kernels: Any) -> None:
    """A ledger may have a longer key; its adds are no part of runs."""
    table = kernels.GrantTable()
    for wrong in (b"", grant(1)[1:], grant(1) + b"x"):
        assert wrong not in table
        assert table.get(wrong) is None
        assert table.pop(wrong) is None
        with pytest.raises(ValueError, match="a grant has 28 bytes"):
            table[wrong] = uses_of(kernels, 1)[0]
    with pytest.raises(ValueError, match="grants have 28 bytes each"):
        table.find(grant(1)[1:])
    assert len(table) == 0


def test_adds_are_noted_ledger_by_ledger(kernels: Any) -> None:
    mine, old = kernels.LedgerCounter(0.0, 3), kernels.LedgerCounter(0.0, 2)
    first, second, third = uses = [kernels.LedgerUse(counter) for counter in (mine, old, mine)]
    first.lac = 40
    third.watched = True
    table = kernels.GrantTable()
    for number, use in enumerate(uses):
        table[grant(number)] = use
    # The first one comes twice, and not with its highest LAC at last.
    places = table.find(b"".join(map(grant, (0, 1, 2, 0))))
    found = table.note(places, column(39, 8, 2**63 - 1, 41), column(1, 2, 3, 4), 1.5, 3)
    assert found == ([third], [(second, 2)])
    assert [use.lac for use in uses] == [41, 8, 2**63 - 1]
    assert all(use.used for use in uses)
    assert (mine.entries, mine.bytes) == (8, 12.0)
    assert (old.entries, old.bytes) == (0, 0.0)


@pytest.mark.parametrize(("lacs", "counts"), [((1,), (1, 1)), ((1, 1), (1,)), ((1, 1, 1), (1, 1))])
def test_columns_of_different_lengths_note_nothing(
    kernels: Any, lacs: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    table, uses = kernels.GrantTable(), uses_of(kernels, 2)
    table[grant(0)], table[grant(1)] = uses
    with pytest.raises(ValueError, match="columns of different lengths"):
        table.note(table.find(grant(0) + grant(1)), column(*lacs), column(*counts), 1.0, 0)
    assert [(use.lac, use.used, use.counter.entries) for use in uses] == [(LAC_NONE, False, 0)] * 2


@pytest.mark.parametrize("place", [-1, 1, 2, 16, 2**32, 2**63 - 1])
def test_a_place_without_a_ledger_notes_nothing(kernels: Any, place: int) -> None:
    table, (use, gone) = kernels.GrantTable(), uses_of(kernels, 2)
    table[grant(0)], table[grant(1)] = use, gone
    table.pop(grant(1))
    with pytest.raises(ValueError, match="no ledger has that place"):
        table.note(column(0, place), column(5, 5), column(1, 1), 1.0, 0)
    assert (use.lac, use.used, use.counter.entries) == (LAC_NONE, False, 0)


@pytest.mark.parametrize("adds", [-1, 2**31, 2**62, -(2**63)])
def test_what_is_no_number_of_adds_notes_nothing(kernels: Any, adds: int) -> None:
    """Two of them would have no sum in 64 bits: in C that is undefined, in Python a larger number."""
    table, (use, other) = kernels.GrantTable(), uses_of(kernels, 2)
    table[grant(0)], table[grant(1)] = use, other
    places = table.find(grant(0) + grant(1))
    with pytest.raises(ValueError, match="no number of adds"):
        table.note(places, column(5, 5), column(1, adds), 1.0, 0)
    assert (use.lac, use.used, use.counter.entries) == (LAC_NONE, False, 0)
    table.note(places, column(5, 5), column(0, 2**31 - 1), 1.0, 0)
    assert [each.counter.entries for each in (use, other)] == [0, 2**31 - 1]


def test_a_ledger_that_is_removed_is_let_go(kernels: Any) -> None:
    """Also the one that another takes the grant from."""
    gone: list[int] = []

    class Watched(kernels.LedgerUse):  # type: ignore[misc]
        def __del__(self) -> None:
            gone.append(self.lac)

    table = kernels.GrantTable()
    for lac in range(3):
        use = Watched(kernels.LedgerCounter(0.0, 0))
        use.lac = lac
        table[grant(lac // 2)] = use
        del use
    assert gone == [0]
    table.pop(grant(0))
    assert gone == [0, 1]
    del table
    assert gone == [0, 1, 2]


def test_rows_of_ledgers_that_are_gone_are_used_again(kernels: Any) -> None:
    """A bookie sees very many ledgers come and go, a bounded number at a time."""
    table, (use,) = kernels.GrantTable(), uses_of(kernels, 1)
    places = set()
    for ledger in range(1000):
        table[grant(ledger)] = use
        places.update(array("q", table.find(grant(ledger))))
        table.pop(grant(ledger - 5))
        assert len(table) == min(ledger + 1, 5)
    assert max(places) < 16


def test_without_memory_a_grant_has_its_ledger_or_is_not_there(kernels: Any) -> None:
    """Else adds pass by a grant of no ledger, whose LAC then stands still, or by that of another ledger."""
    table, uses = kernels.GrantTable(), uses_of(kernels, 600)
    for ledger, use in enumerate(uses):
        for allowed in range(6):
            without_memory(partial(table.__setitem__, grant(ledger), use), allowed)
            found = table.find(grant(ledger))
            assert (found is not None) == (table.get(grant(ledger)) is use)
            if found is not None:
                table.note(found, column(ledger), column(1), 1.0, 0)
                assert use.lac == ledger
            without_memory(partial(table.pop, grant(ledger)), allowed)
            assert table.get(grant(ledger)) in (None, use)
        # Python keeps the small numbers of the first rows, and makes those of later ones.
        table[grant(ledger)] = use


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "pop", "note"]), st.lists(st.integers(0, 60), min_size=1)),
    max_size=40,
)


@COMPILED
@given(STEPS, st.lists(I64, min_size=1, max_size=5), st.floats(0, 2**40))
def test_the_twins_are_a_dictionary(
    steps: list[tuple[str, list[int]]], lacs: list[int], entry_bytes: float
) -> None:
    seen = []
    for name in ("python", "native"):
        with twin(name) as kernels:
            uses = uses_of(kernels, 61)
            uses[3].watched, uses[5].counter.generation = True, 7
            table, model, answers = kernels.GrantTable(), {}, []
            for step, ledgers in steps:
                if step == "put":
                    for ledger in ledgers:
                        table[grant(ledger)] = model[grant(ledger)] = uses[ledger]
                elif step == "pop":
                    assert [table.pop(grant(ledger)) for ledger in ledgers] == [
                        model.pop(grant(ledger), None) for ledger in ledgers
                    ]
                else:
                    places = table.find(b"".join(map(grant, ledgers)))
                    assert (places is None) == any(grant(ledger) not in model for ledger in ledgers)
                    if places is not None:
                        columns = [(lacs * len(ledgers))[: len(ledgers)], [2] * len(ledgers)]
                        noted = table.note(places, *[column(*each) for each in columns], entry_bytes, 0)
                        at = {id(use): ledger for ledger, use in enumerate(uses)}
                        answers.append(
                            (
                                [at[id(use)] for use in noted[0]],
                                [(at[id(use)], adds) for use, adds in noted[1]],
                            )
                        )
                assert len(table) == len(model)
                assert all(table.get(grant(ledger)) is model.get(grant(ledger)) for ledger in range(61))
            answers.append([(use.lac, use.used, use.counter.entries, use.counter.bytes) for use in uses])
            seen.append(answers)
    assert seen[0] == seen[1]


def test_the_ledgers_of_grants() -> None:
    assert list(ledgers_of(b"")) == []
    assert list(ledgers_of(grant(1) + grant(2**40))) == [n.to_bytes(8, "big") for n in (1, 2**40)]
    assert len(grant(0)) == GRANT_BYTES
