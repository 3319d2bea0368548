"""What a power cut leaves of a key-value store in memory, and the store that fails where it is told to."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from bkctl.errors import BkctlError, CorruptionError, StorageError
from bkctl.kvstore.base import Delete, DeleteRange, Put
from bkctl.kvstore.memory import MemoryFiles, MemoryStore
from tests.support.faulty_store import FaultyStore, StoreFaultRule
from tests.support.memory_table_files import MemoryFileWriter

Rows = dict[bytes, bytes]


def rows_of(store: MemoryStore | FaultyStore) -> Rows:
    return dict(store.iterate())


def sawn(store: MemoryStore) -> set[bytes]:
    """The keys that are left for many chances."""
    return {b"".join(sorted(rows_of(store.crash(random.Random(seed))))) for seed in range(100)}


def test_a_batch_without_sync_is_lost() -> None:
    store = MemoryStore({b"k": b"before"})
    store.write([Put(b"k", b"after"), Put(b"n", b"new")], sync=False)
    assert store.get(b"k") == b"after"
    assert store.unsynced_batches == 1
    assert rows_of(store.crash()) == {b"k": b"before"}


@pytest.mark.parametrize("how", ["write", "flush", "close"])
def test_what_makes_earlier_batches_durable(how: str) -> None:
    store = MemoryStore()
    store.write([Put(b"a", b"1")], sync=False)
    store.write([Delete(b"a"), Put(b"b", b"2")], sync=False)
    if how == "write":
        store.write([], sync=True)
    elif how == "flush":
        store.flush()
    else:
        store.close()
    assert store.unsynced_batches == 0
    assert rows_of(store.crash()) == {b"b": b"2"}


@pytest.mark.parametrize("how", ["compact", "ingest"])
def test_what_does_not(how: str) -> None:
    store = MemoryStore()
    store.write([Put(b"a", b"1")], sync=False)
    if how == "compact":
        store.compact()
    else:
        store.ingest([])
    assert rows_of(store.crash()) == {}


def test_a_log_loses_its_tail_in_whole_batches() -> None:
    store = MemoryStore()
    store.write([Put(b"a", b"1"), Put(b"b", b"1")], sync=True)
    store.write([Put(b"c", b"1"), Put(b"d", b"1")], sync=False)
    store.write([DeleteRange(b"a", b"c")], sync=False)
    store.write([Put(b"e", b"1")], sync=False)
    assert sawn(store) == {b"ab", b"abcd", b"cd", b"cde"}


def test_ingested_files_stay_and_win_over_older_batches() -> None:
    files: MemoryFiles = {}
    store = MemoryStore(files=files)
    store.write([Put(b"a", b"log"), Put(b"b", b"log")], sync=False)
    writer = MemoryFileWriter(files, "1.sst")
    writer.put_many([(b"b", b"file"), (b"c", b"file")])
    writer.finish()
    store.ingest(["1.sst"])
    store.write([Put(b"c", b"log")], sync=False)
    assert store.unsynced_batches == 2
    assert rows_of(store.crash()) == {b"b": b"file", b"c": b"file"}
    left = [rows_of(store.crash(random.Random(seed))) for seed in range(100)]
    assert {row[b"b"] for row in left} == {b"file"}
    assert {(b"a" in row, row[b"c"]) for row in left} == {(False, b"file"), (True, b"file"), (True, b"log")}


def test_what_is_left_is_a_store_of_its_own() -> None:
    files: MemoryFiles = {"1.sst": {b"f": b"file"}}
    store = MemoryStore({b"a": b"1"}, files, path="x/locations")
    store.write([Put(b"b", b"2")], sync=False)
    left = store.crash()
    store.close()
    left.ingest(["1.sst"])
    left.write([Put(b"c", b"3")], sync=False)
    assert rows_of(left) == {b"a": b"1", b"c": b"3", b"f": b"file"}
    assert rows_of(left.crash()) == {b"a": b"1", b"f": b"file"}
    assert rows_of(store.crash()) == {b"a": b"1", b"b": b"2"}
    assert left.path == "x/locations"
    assert "1.sst" in files


def test_equal_chances_leave_equal_rows() -> None:
    store = MemoryStore()
    for number in range(20):
        store.write([Put(bytes([number]), b"")], sync=False)
    left = [len(rows_of(store.crash(random.Random(seed)))) for seed in range(200)]
    assert left == [len(rows_of(store.crash(random.Random(seed)))) for seed in range(200)]
    assert set(left) == set(range(21))


def test_readers_see_whole_batches_while_threads_write() -> None:
    """A reader between two writes finds keys and values of one of them."""
    store = MemoryStore()
    done = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        try:
            while not done.is_set():
                rows = rows_of(store)
                for number in range(4):
                    assert (bytes([number]) in rows) is (bytes([number, number]) in rows)
                store.floor(b"\xff")
                store.below(b"\xff")
        except (AssertionError, KeyError, IndexError, BkctlError) as error:
            errors.append(error)

    def write(number: int) -> None:
        key = bytes([number])
        for _ in range(300):
            store.write([Delete(key), Delete(key * 2)], sync=False)
            store.write([Put(key, b"1"), Put(key * 2, b"2")], sync=number % 2 == 0)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(number,)) for number in range(1, 4)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join(60)
    done.set()
    reader.join(60)
    assert not reader.is_alive()
    assert not errors
    assert len(rows_of(store)) == 6


# ---------------------------------------------------------------------------------------- faults by rule

CALLS: dict[str, list[Callable[[FaultyStore], object]]] = {
    "get": [
        lambda store: store.get(b"a"),
        lambda store: store.get_many([b"a"]),
        lambda store: store.floor(b"a"),
        lambda store: store.below(b"b"),
    ],
    "iterate": [lambda store: list(store.batches()), lambda store: list(store.iterate(prefix=b"a"))],
    "write": [lambda store: store.write([Put(b"n", b"new")], sync=True)],
    "flush": [lambda store: store.flush()],
    "compact": [lambda store: store.compact()],
    "ingest": [lambda store: store.ingest(["1.sst"])],
}


def made(*rules: StoreFaultRule) -> tuple[MemoryStore, FaultyStore]:
    inner = MemoryStore({b"a": b"1", b"b": b"2"}, {"1.sst": {b"f": b"file"}})
    return inner, FaultyStore(inner, rules)


def test_without_rules_it_is_the_store() -> None:
    inner, store = made()
    for calls in CALLS.values():
        for call in calls:
            call(store)
    assert rows_of(inner) == rows_of(store) == {b"a": b"1", b"b": b"2", b"f": b"file", b"n": b"new"}
    assert (store.path, store.damage, store.count_estimate()) == (inner.path, None, 4)
    assert (store.statistics(), store.tables()) == (inner.statistics(), [])
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.get(b"a")


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize(("error", "kind"), [("storage", StorageError), ("corruption", CorruptionError)])
def test_each_operation_fails_and_does_nothing(operation: str, error: str, kind: type[BkctlError]) -> None:
    inner, store = made(StoreFaultRule(operation, error=error))  # type: ignore[arg-type]
    for call in CALLS[operation]:
        with pytest.raises(kind, match=operation):
            call(store)
    assert rows_of(inner) == {b"a": b"1", b"b": b"2"}
    store.heal()
    for call in CALLS[operation]:
        call(store)


def test_a_failed_write_may_be_in_the_store() -> None:
    inner, store = made(StoreFaultRule("write", error="after", count=1))
    with pytest.raises(StorageError, match="Input/output error"):
        store.write([Put(b"n", b"new")], sync=True)
    assert inner.crash().get(b"n") == b"new"
    store.write([Put(b"m", b"more")], sync=True)


def test_an_iteration_fails_in_its_middle() -> None:
    _, store = made(StoreFaultRule("iterate", first=2, count=1))
    batches = store.batches(rows_max=1)
    assert next(batches) == [(b"a", b"1")]
    with pytest.raises(StorageError):
        next(batches)
    assert list(store.iterate()) == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize(
    ("first", "count", "expected"), [(1, None, "FFFFF"), (3, None, "..FFF"), (3, 1, "..F.."), (2, 2, ".FF..")]
)
def test_which_calls_are_hit(first: int, count: int | None, expected: str) -> None:
    _, store = made()
    store.get(b"a")
    store.inject(StoreFaultRule("get", first=first, count=count))
    found = ""
    for _ in range(5):
        try:
            store.get(b"a")
            found += "."
        except StorageError:
            found += "F"
        list(store.iterate())
    assert found == expected


def test_a_latency_is_waited_for() -> None:
    slept: list[float] = []
    rule = StoreFaultRule("write", latency_s=1.5, error=None)
    store = FaultyStore(MemoryStore(), [rule], sleep=slept.append)
    store.write([Put(b"a", b"1")], sync=True)
    store.get(b"a")
    assert slept == [1.5]
    assert rows_of(store) == {b"a": b"1"}
