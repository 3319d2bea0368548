"""Many entries found in tables by one call: the same as found one by one, whatever is asked for."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl import _kernels
from bkctl.engine.cache.record_batch import bodies_of
from tests.support.storage_rig import entry_of, key_of

IDS = st.tuples(st.integers(0, 2), st.integers(0, 40))
TABLES = st.lists(st.lists(IDS, max_size=60), max_size=5)


@pytest.mark.skipif(_kernels.gather_entries is None, reason="only compiled kernels have tables")
@given(
    newest=TABLES,
    others=TABLES,
    asked=st.lists(IDS, max_size=70),
    whole=st.booleans(),
    bytes_max=st.sampled_from([0, 1, 100, 700, 1 << 20]),
    removed=st.lists(IDS, max_size=10),
)
def test_tables_are_searched_in_their_order(
    newest: list[list[tuple[int, int]]],
    others: list[list[tuple[int, int]]],
    asked: list[tuple[int, int]],
    removed: list[tuple[int, int]],
    bytes_max: int,
    *,
    whole: bool,
) -> None:
    assert _kernels.gather_entries is not None
    assert _kernels.EntryTable is not None
    tables = []
    where: dict[tuple[int, int], tuple[int, bytes]] = {}
    for number, ids in enumerate([*newest, *others]):
        table = _kernels.EntryTable()
        bodies = [entry_of(*each, f"table {number}", 40 + each[1]) for each in ids]
        table.put_many([body[:16] for body in bodies], bodies)
        if number == 0:
            table.remove_many([key_of(*each) for each in removed])
        tables.append(table)
        for each, body in zip(ids, bodies, strict=True):
            if number or each not in removed:
                where.setdefault(each, (number, body))
    expected: list[bytes | None] = []
    hits = size_bytes = 0
    for each in asked:
        number, found = where.get(each, (0, None))
        if size_bytes >= bytes_max or (found is None and not whole):
            break
        expected.append(found)
        if found is not None:
            size_bytes += len(found)
            hits += number < len(newest)
    keys = b"".join([key_of(*each) for each in asked])
    split = len(newest)
    (records, column), counted = _kernels.gather_entries(
        tuple(tables[:split]), tuple(tables[split:]), keys, whole, bytes_max
    )
    assert bodies_of(records) == [body for body in expected if body is not None]
    assert list(array("q", column)) == [-1 if body is None else len(body) for body in expected]
    assert counted == hits
