"""A write cache against a dict, over tables and pieces so small that every boundary is met."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.engine.cache import compiled_write_cache, entry_table, sorting, write_cache
from bkctl.engine.cache.compiled_write_cache import RECORD_OVERHEAD_BYTES
from bkctl.engine.cache.write_caches import AnyWriteCache
from tests.support.storage_rig import entry_of, key_of
from tests.support.write_cache_kinds import KINDS, Kind, put_records

LEDGERS = (0, 1, 256, 2**63 - 1)
ENTRIES = st.one_of(st.integers(0, 20), st.sampled_from([255, 256, 65536, 2**63 - 1]))


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_cache, "TABLE_ENTRIES_MAX", 7)
        patch.setattr(compiled_write_cache, "TABLE_ENTRIES_MAX", 7)
        patch.setattr(write_cache, "_SMALL_LEDGER_ENTRIES", 3)
        for module in (write_cache, sorting, entry_table):
            patch.setattr(module, "PIECE_ENTRIES", 3)
        yield


Batch = list[tuple[int, int]]
batches = st.lists(st.tuples(st.sampled_from(LEDGERS), ENTRIES), min_size=1, max_size=12)
steps = st.lists(st.one_of(batches, st.sampled_from(LEDGERS), st.just("clear"), st.just("ask")), max_size=30)


@pytest.mark.parametrize("kind", KINDS)
@given(steps=steps, entries_max=st.integers(1, 20), bytes_max=st.integers(1, 300), seed=st.integers(0, 9))
def test_a_write_cache_is_a_dict(
    kind: Kind, steps: list[Batch | int | str], entries_max: int, bytes_max: int, seed: int
) -> None:
    chance = random.Random(seed)
    cache = kind(1 << 30)
    model: dict[bytes, bytes] = {}
    for number, step in enumerate(steps):
        if isinstance(step, list):
            bodies = [entry_of(*ids, tag=number, size_bytes=chance.choice((0, 40, 100))) for ids in step]
            keys = [body[:16] for body in bodies]
            if chance.random() < 0.5:
                put_records(cache, bodies)
            else:
                cache.put_many(keys, bodies, sum(map(len, bodies)))
            model.update(zip(keys, bodies, strict=True))
        elif isinstance(step, int):
            cache.delete_ledger(step)
            model = {key: body for key, body in model.items() if key[:8] != key_of(step, 0)[:8]}
        elif step == "clear":
            cache.clear()
            model = {}
            assert (cache.size_bytes, cache.count) == (0, 0)
        else:
            _check_ids(cache, model)
    _check_ids(cache, model)
    assert all(cache.get(key) == body for key, body in model.items())
    assert cache.size_bytes >= sum(map(len, model.values())) + len(model) * RECORD_OVERHEAD_BYTES
    found: list[bytes] = []
    for keys, bodies in cache.sorted_batches(entries_max, bytes_max):
        assert keys == [body[:16] for body in bodies]
        assert len(keys) <= entries_max
        assert len(keys) == 1 or sum(map(len, bodies)) <= bytes_max
        found += bodies
    assert found == [model[key] for key in sorted(model)]


def _check_ids(cache: AnyWriteCache, model: dict[bytes, bytes]) -> None:
    for ledger in LEDGERS:
        ids = [int.from_bytes(key[8:], "big") for key in sorted(model) if key[:8] == key_of(ledger, 0)[:8]]
        assert cache.entries(ledger) == ids
        assert cache.last_entry(ledger) == (ids[-1] if ids else None)
