"""What the block cache keeps: also the filter of a large table (ADR 0028)."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store

_KEY = struct.Struct(">qq")
ROWS = 600_000
#: Ten bits for each key.
FILTER_BYTES = ROWS * 10 // 8
LOOKUPS = 100


def bytes_read() -> int:
    """Return how many bytes this process has had from files until now."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def key_of(number: int) -> bytes:
    return _KEY.pack(7, number)


def test_a_filter_that_is_larger_than_a_shard_of_an_lru_cache_is_read_once(tmp_path: Path) -> None:
    """A cache of 32 MiB of the older kind has 64 shards of 512 KiB, and the filter has 750 KB."""
    profile = replace(LOCATIONS_PROFILE, block_cache_bytes=32 << 20)
    store = open_store(str(tmp_path / "db"), profile, create=True)
    try:
        for first in range(0, ROWS, 20_000):
            store.write(
                [Put(key_of(number), bytes(8)) for number in range(first, first + 20_000)], sync=False
            )
        store.flush()
    finally:
        store.close()
    (table,) = (tmp_path / "db").glob("*.sst")
    assert table.stat().st_size > FILTER_BYTES, "the filter is in it"
    for opened in (
        open_store(str(tmp_path / "db"), profile, create=False),
        open_read_only(str(tmp_path / "db")),
    ):
        try:
            assert opened.get(key_of(5)) == bytes(8)
            before = bytes_read()
            for number in range(LOOKUPS):
                assert opened.get(key_of(number)) == bytes(8)
                assert opened.get(key_of(ROWS + number)) is None
            assert bytes_read() - before < FILTER_BYTES
        finally:
            opened.close()
