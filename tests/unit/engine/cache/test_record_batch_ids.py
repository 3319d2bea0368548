"""Entry ids of whole records: the same answer whether they are looked at column by column or one by one."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from bkctl.engine.cache.record_batch import has_entry_from

IDS = st.one_of(
    st.integers(0, 300), st.sampled_from([(1 << 37) - 1, 1 << 37, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)])
)


def record(entry: int, length: int) -> bytes:
    return struct.pack(">iqq", 16 + length, 7, entry) + b"\xff" * length


@given(st.lists(IDS, max_size=5), st.lists(st.integers(0, 9), min_size=5, max_size=5), st.booleans())
def test_an_entry_of_2_to_the_37_or_more_is_found(ids: list[int], lengths: list[int], alike: bool) -> None:
    sizes = [lengths[0]] * 5 if alike else lengths
    records = b"".join(map(record, ids, sizes))
    beyond = any(not 0 <= each < 1 << 37 for each in ids)
    assert has_entry_from(records, len(ids), 37) is beyond
