"""The read caches of both kinds against a dict: what is found was put last, and nothing that was removed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl import _kernels
from bkctl.engine.cache import compiled_read_cache
from bkctl.engine.cache.compiled_read_cache import AnyReadCache, CompiledReadCache
from bkctl.engine.cache.entry_table import ENTRY_OVERHEAD_BYTES
from bkctl.engine.cache.read_cache import ReadCache
from bkctl.engine.cache.record_batch import RecordBatch
from tests.support.storage_rig import entry_of, key_of

KINDS = [ReadCache] if _kernels.EntryTable is None else [ReadCache, CompiledReadCache]
LEDGERS = (0, 1, 256, 2**63 - 1)
IDS = st.tuples(st.sampled_from(LEDGERS), st.integers(0, 12))


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_read_cache, "PIECE_ENTRIES", 3)
        patch.setattr(compiled_read_cache, "_BODIES_FREED", 1)
        yield


def in_one_piece(rows: list[tuple[bytes, bytes]]) -> RecordBatch:
    records = [len(body).to_bytes(4, "big") + body for _, body in rows]
    ends = array("q", accumulate(map(len, records)))
    return RecordBatch(b"".join([key for key, _ in rows]), b"".join(records), ends)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(IDS, max_size=12)),
        st.tuples(st.just("put in one piece"), st.lists(IDS, max_size=12)),
        st.tuples(st.just("remove"), st.lists(IDS, max_size=5)),
        st.tuples(st.just("delete"), st.lists(st.sampled_from(LEDGERS), max_size=2)),
    ),
    max_size=20,
)


@pytest.mark.parametrize("kind", KINDS)
@given(steps=steps, size=st.sampled_from([0, 3_000, 8_000, 1 << 20]))
def test_a_read_cache_is_a_dict_that_forgets(
    kind: Callable[[int], AnyReadCache], steps: list[tuple[str, list[Any]]], size: int
) -> None:
    cache = kind(size)
    now: dict[bytes, bytes] = {}
    for number, (what, chosen) in enumerate(steps):
        if what.startswith("put"):
            rows = [
                # Of one size each time, so that a segment takes all bodies of a key or none.
                (key_of(*ids), entry_of(*ids, f"{number}-{place}", size_bytes=60 + 33 * ids[1]))
                for place, ids in enumerate(chosen)
            ]
            if what == "put":
                cache.put_many(rows, cache.generation)
            else:
                cache.put_batch(in_one_piece(rows), cache.generation)
            now.update(rows)
        elif what == "remove":
            cache.next_generation()
            keys = sorted({key_of(*ids) for ids in chosen})
            cache.remove_many(keys)
            now = {key: body for key, body in now.items() if key not in keys}
        else:
            cache.next_generation()
            ledgers = {key_of(ledger, 0)[:8] for ledger in chosen}
            cache.remove_ledgers(ledgers)
            now = {key: body for key, body in now.items() if key[:8] not in ledgers}
        found = {}
        for ledger in LEDGERS:
            for entry in range(13):
                key = key_of(ledger, entry)
                body = cache.get(key)
                if body is not None:
                    found[key] = body
        assert found.items() <= now.items()
        if size == 1 << 20:
            assert found == now
        assert 0 <= cache.size_bytes <= size
        assert len(found) <= cache.count
        held = sum(map(len, found.values())) + len(found) * ENTRY_OVERHEAD_BYTES
        assert cache.size_bytes >= held
    cache.remove_ledgers({key_of(ledger, 0)[:8] for ledger in LEDGERS})
    assert cache.count == 0
