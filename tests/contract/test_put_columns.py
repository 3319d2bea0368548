"""Rows put as two columns are the rows put one by one, in every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.kvstore.base import KeyValueStore, Put, Puts
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store


def open_kind(kind: str, folder: Path) -> KeyValueStore:
    return (
        MemoryStore() if kind == "memory" else open_store(str(folder / "db"), LOCATIONS_PROFILE, create=True)
    )


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
@pytest.mark.parametrize("rows", [0, 1, 2047, 2048, 2049, 5000])
def test_columns(tmp_path: Path, kind: str, rows: int) -> None:
    keys = [number.to_bytes(16, "big") for number in range(rows)]
    values = [number.to_bytes(8, "big") for number in range(rows)]
    store = open_kind(kind, tmp_path)
    try:
        store.write([Put(keys[0], b"older")] if rows else [], sync=False)
        store.write(Puts(keys, values), sync=True)
        assert list(store.iterate()) == list(zip(keys, values, strict=True))
    finally:
        store.close()


def test_an_iteration_gives_puts() -> None:
    assert list(Puts([b"a", b"b"], [b"1", b"2"])) == [Put(b"a", b"1"), Put(b"b", b"2")]
