"""The location index over a store in memory, one that fails, and RocksDB."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bkctl.codec.location import ID_MAX, encode_key
from bkctl.engine.db_storage import entry_locations
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.errors import CorruptionError, StorageError
from bkctl.kvstore.base import KeyValueStore
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from tests.support.faulty_store import FaultyStore, StoreFaultRule


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyValueStore]:
    in_memory = request.param == "memory"
    path = str(tmp_path / "rows")
    with closing(MemoryStore() if in_memory else open_store(path, LOCATIONS_PROFILE, create=True)) as made:
        yield made


def test_rows_are_those_of_java(store: KeyValueStore) -> None:
    """formats.md 11.4."""
    index = EntryLocationIndex(store)
    index.put_many([encode_key(5, 0), encode_key(7, 0)], [0x404, 0x1_0000_0404])
    assert [(key.hex(), value.hex()) for key, value in store.iterate()] == [
        ("00000000000000050000000000000000", "0000000000000404"),
        ("00000000000000070000000000000000", "0000000100000404"),
    ]
    assert index.get(encode_key(7, 0)) == 0x1_0000_0404
    assert index.get(encode_key(7, 1)) is None
    assert index.get_many([encode_key(7, 1), encode_key(5, 0)]) == [None, 0x404]
    assert index.get_many([]) == []


def test_against_a_dictionary(store: KeyValueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_locations, "OPERATIONS_MAX", 7)
    chance = random.Random(3)
    index = EntryLocationIndex(store)
    model: dict[tuple[int, int], int] = {}
    ledgers = (0, 1, 255, 256, 2**40, ID_MAX - 1, ID_MAX)
    for _ in range(12):
        rows = {
            (chance.choice(ledgers), chance.choice((chance.randrange(40), ID_MAX - 1))): chance.randrange(
                1028, 1 << 63
            )
            for _ in range(chance.randrange(40))
        }
        index.put_many([encode_key(*ids) for ids in rows], list(rows.values()))
        model |= rows
        gone = chance.sample(ledgers, chance.randrange(2))
        index.delete_ledgers(iter(gone))
        model = {ids: place for ids, place in model.items() if ids[0] not in gone}
        everything = [(ledger, entry) for ledger in ledgers for entry in (*range(40), ID_MAX - 1)]
        assert index.get_many([encode_key(*ids) for ids in everything]) == [
            model.get(ids) for ids in everything
        ]
        for ledger in ledgers:
            entries = sorted(entry for each, entry in model if each == ledger)
            assert list(index.entries(ledger)) == entries
            assert index.last_entry(ledger) == (entries[-1] if entries else None)
    assert len(list(store.iterate())) == len(model)


def test_the_newer_location_wins(store: KeyValueStore) -> None:
    index = EntryLocationIndex(store)
    key = encode_key(5, 0)
    index.put_many([key, key], [2000, 1028])
    assert index.get(key) == 1028
    index.put_many([key], [3000])
    assert index.get(key) == 3000


def test_entry_ids_that_java_does_not_see(store: KeyValueStore) -> None:
    """They are not reported, and a deletion takes them, unlike Java's."""
    index = EntryLocationIndex(store)
    odd = [encode_key(5, -1), encode_key(5, -(2**63)), encode_key(5, ID_MAX)]
    index.put_many([*odd, encode_key(5, 3), encode_key(6, 0)], [1028, 1029, 1030, 1031, 1032])
    assert index.last_entry(5) == 3
    assert list(index.entries(5)) == [3, ID_MAX]
    assert index.get(encode_key(5, ID_MAX)) == 1030
    index.delete_ledgers([5])
    assert [key for key, _ in store.iterate()] == [encode_key(6, 0)]
    assert index.last_entry(5) is None
    assert index.last_entry(6) == 0
    index.put_many([odd[0]], [1028])
    assert index.last_entry(5) is None


def test_a_location_of_zero_is_absent(store: KeyValueStore) -> None:
    index = EntryLocationIndex(store)
    index.put_many([encode_key(5, 0)], [0])
    assert index.get(encode_key(5, 0)) is None
    assert index.get_many([encode_key(5, 0)]) == [None]


@pytest.mark.parametrize("value", [b"", bytes(7), bytes(9), b"\x80" + bytes(7), b"\xff" * 8])
def test_a_value_that_is_no_location_is_corruption(value: bytes) -> None:
    index = EntryLocationIndex(MemoryStore({encode_key(5, 0): value}, path="the/locations"))
    for call in (
        lambda: index.get(encode_key(5, 0)),
        lambda: index.get_many([encode_key(5, 0)]),
        lambda: list(index.batches()),
    ):
        with pytest.raises(CorruptionError) as caught:
            call()
        assert caught.value.path == "the/locations"
        assert encode_key(5, 0).hex() in str(caught.value)


def test_values_that_make_up_for_each_other_are_corruption() -> None:
    rows = {encode_key(5, 0): bytes(7), encode_key(5, 1): bytes(9)}
    index = EntryLocationIndex(MemoryStore(rows))
    for call in (lambda: index.get_many(list(rows)), lambda: list(index.batches())):
        with pytest.raises(CorruptionError, match=encode_key(5, 0).hex()):
            call()


def test_all_rows_in_their_order(store: KeyValueStore) -> None:
    index = EntryLocationIndex(store)
    assert list(index.batches()) == []
    index.put_many([encode_key(7, 0), encode_key(5, 0)], [0x1_0000_0404, 0])
    columns = [(list(keys), list(locations)) for keys, locations in index.batches()]
    assert columns == [([encode_key(5, 0), encode_key(7, 0)], [0, 0x1_0000_0404])]


@pytest.mark.parametrize(
    "key", [encode_key(5, 1 << 40)[:12], encode_key(5, 3) + b"\0", encode_key(5, 3)[:8] + b"\1"]
)
def test_a_key_of_another_length_is_corruption(key: bytes) -> None:
    index = EntryLocationIndex(MemoryStore({encode_key(5, 0): bytes(8), key: bytes(8)}))
    with pytest.raises(CorruptionError, match="locations key"):
        list(index.entries(5))
    with pytest.raises(CorruptionError, match="locations key"):
        index.last_entry(5)


def test_large_changes_are_cut_into_batches_and_the_last_one_makes_all_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry_locations, "OPERATIONS_MAX", 10)
    store = MemoryStore()
    index = EntryLocationIndex(store)
    keys = [encode_key(5, entry) for entry in range(25)]
    faulty = EntryLocationIndex(FaultyStore(store, [StoreFaultRule("write", first=3)]))
    with pytest.raises(StorageError):
        faulty.put_many(keys, range(1028, 1053))
    assert store.unsynced_batches == 2
    index.put_many(keys, range(1028, 1053))
    assert store.unsynced_batches == 0
    assert EntryLocationIndex(store.crash()).get_many(keys) == list(range(1028, 1053))
    index.delete_ledgers(range(25))
    assert not list(store.crash().iterate())
    index.put_many([], [])
    index.delete_ledgers([])
    with pytest.raises(ValueError, match="1 keys for 0"):
        index.put_many(keys[:1], [])


CALLS: list[Callable[[EntryLocationIndex], object]] = [
    lambda index: index.get(encode_key(5, 0)),
    lambda index: index.get_many([encode_key(5, 0)]),
    lambda index: index.last_entry(5),
    lambda index: list(index.entries(5)),
    lambda index: index.put_many([encode_key(5, 0)], [1028]),
    lambda index: index.delete_ledgers([5]),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_fails_is_never_an_absent_entry(call: Callable[[EntryLocationIndex], object]) -> None:
    for error, kind in (("storage", StorageError), ("corruption", CorruptionError)):
        rules = [StoreFaultRule(name, error=error) for name in ("get", "iterate", "write")]  # type: ignore[arg-type]
        with pytest.raises(kind):
            call(EntryLocationIndex(FaultyStore(MemoryStore(), rules)))
    index = EntryLocationIndex(MemoryStore())
    index.close()
    with pytest.raises(StorageError, match="closed"):
        call(index)
