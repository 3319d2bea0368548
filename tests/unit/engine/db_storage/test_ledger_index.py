"""The ledger index: what it loads, what it remembers, and what of that is durable when."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bkctl.codec.ledger_data import (
    FLAGS_ID,
    NEEDS_INTEGRITY_CHECK,
    LedgerData,
    encode_flags,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.engine.db_storage import ledgers as ledgers_module
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.errors import CorruptionError, StorageError
from bkctl.kvstore.base import KeyValueStore, Operation
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.scan.index_rows import LedgerRow
from bkctl.scan.ledger_index import LedgerIndex as LedgerScan
from tests.support.faulty_store import FaultyStore, StoreFaultRule
from tests.support.java_bookkeeper import copy_directory, sample_directory

KEY = bytes.fromhex("e793cbc379107648537183605cd361d3bb789a39")
LAC = bytes.fromhex("000000000000000500000000000000019aea0d92")
OPEN = LedgerData(False, KEY)
FENCED = LedgerData(True, KEY)
#: What Java's rebuild tool writes.
REBUILT = LedgerData(True, b"")


def rows() -> dict[bytes, bytes]:
    return {encode_ledger_key(ledger): encode_ledger_data(OPEN) for ledger in range(3)}


def rebuilt_key(ledger: int) -> bytes:
    return encode_ledger_key(ledger) + bytes(8)


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyValueStore]:
    in_memory = request.param == "memory"
    path = str(tmp_path / "rows")
    with closing(MemoryStore() if in_memory else open_store(path, LEDGERS_PROFILE, create=True)) as made:
        yield made


def test_rows_are_those_of_java(store: KeyValueStore) -> None:
    """formats.md 11.4."""
    index = LedgerIndex(store)
    index.set(5, LedgerData(True, KEY, LAC))
    index.set(7, OPEN)
    index.set(9, LedgerData(False, KEY, LAC, limbo=True))
    assert not list(store.iterate())
    assert index.has_pending
    index.flush()
    assert not index.has_pending
    assert [(key.hex(), value.hex()) for key, value in store.iterate()] == [
        ("0000000000000005", f"080110011a14{KEY.hex()}2214{LAC.hex()}"),
        ("0000000000000007", f"080110001a14{KEY.hex()}"),
        ("0000000000000009", f"080110001a14{KEY.hex()}2214{LAC.hex()}2801"),
    ]
    again = LedgerIndex(store)
    assert sorted(again.ledgers()) == [5, 7, 9]
    assert len(again) == 3
    assert [again.get(ledger) for ledger in (5, 6, 7, 9)] == [index.get(ledger) for ledger in (5, 6, 7, 9)]
    assert again.get(6) is None
    assert not again.has_pending


def test_memory_is_newer_than_the_store(store: KeyValueStore) -> None:
    index = LedgerIndex(store)
    index.set(5, OPEN)
    index.set(5, FENCED)
    assert index.get(5) == FENCED
    index.flush()
    index.delete(5)
    assert index.get(5) is None
    assert list(index.ledgers()) == []
    assert LedgerIndex(store).get(5) == FENCED
    index.flush()
    assert not list(store.iterate())
    index.delete(6)
    index.set(6, OPEN)
    index.flush()
    assert LedgerIndex(store).get(6) == OPEN


def test_the_row_of_8_bytes_wins_over_the_rebuilt_one() -> None:
    """Java takes the other, which comes later in key order: the key is empty again and the ledger fenced."""
    store = MemoryStore(
        {
            encode_ledger_key(5): encode_ledger_data(OPEN),
            rebuilt_key(5): encode_ledger_data(REBUILT),
            rebuilt_key(6): encode_ledger_data(REBUILT),
        }
    )
    index = LedgerIndex(store)
    assert index.get(5) == OPEN
    assert index.get(6) == REBUILT
    assert sorted(index.ledgers()) == [5, 6]


def test_a_rebuilt_row_goes_when_its_ledger_is_written_or_deleted() -> None:
    both = [
        {encode_ledger_key(each): encode_ledger_data(OPEN), rebuilt_key(each): b"\x08\x01\x10\x01\x1a\x00"}
        for each in (5, 6, 7)
    ]
    store = MemoryStore({key: value for part in both for key, value in part.items()})
    index = LedgerIndex(store)
    index.set(5, FENCED)
    index.delete(6)
    index.flush()
    assert sorted(store.iterate()) == sorted(
        [(encode_ledger_key(5), encode_ledger_data(FENCED)), *both[2].items()]
    )
    # Also one that came behind our back, as every deletion does.
    store = MemoryStore({rebuilt_key(8): encode_ledger_data(REBUILT)})
    index = LedgerIndex(store)
    index.delete(8)
    index.flush()
    assert not list(store.iterate())


def test_flags_and_other_negative_ids_are_no_ledgers() -> None:
    store = MemoryStore(
        {
            encode_ledger_key(5): encode_ledger_data(OPEN),
            encode_ledger_key(FLAGS_ID): encode_flags(NEEDS_INTEGRITY_CHECK),
            encode_ledger_key(-1): b"unknown",
        }
    )
    index = LedgerIndex(store)
    assert list(index.ledgers()) == [5]
    assert index.flags == NEEDS_INTEGRITY_CHECK
    assert index.strange_keys == 1
    index.set(5, FENCED)
    index.flush()
    assert store.get(encode_ledger_key(FLAGS_ID)) == encode_flags(NEEDS_INTEGRITY_CHECK)
    assert store.get(encode_ledger_key(-1)) == b"unknown"
    assert LedgerIndex(MemoryStore()).flags == 0


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        (encode_ledger_key(5), b"", "ledger 5"),
        (encode_ledger_key(5), b"\x08\x01\x10\x00", "ledger 5"),
        (encode_ledger_key(5), b"\x08\x01\x10\x00\x1a", "ledger 5"),
        (encode_ledger_key(5), b"\x08\x01\x10\x00\x1a\x05key", "ledger 5"),
        (encode_ledger_key(5), b"\x08\x01\x10\x00\x1a\x00\x22", "ledger 5"),
        (encode_ledger_key(5), b"\x08\x01\x10\x00\x1a\x00\x22\x05", "ledger 5"),
        (encode_ledger_key(5), b"\x08\x01\x10\x00\x1a\x00\x22\x00\x00", "ledger 5"),
        (encode_ledger_key(5), b"\x08\x01\x10\x00\x1a\x80", "ledger 5"),
        (rebuilt_key(6), b"\xff", "ledger 6"),
        (encode_ledger_key(5)[:7], encode_ledger_data(OPEN), "ledgers key"),
        (encode_ledger_key(5) + b"\0", encode_ledger_data(OPEN), "ledgers key"),
        (encode_ledger_key(5) * 2, encode_ledger_data(OPEN), "ledgers key"),
        (b"", encode_ledger_data(OPEN), "ledgers key"),
        (encode_ledger_key(FLAGS_ID), b"\0" * 7, "storage flags"),
        (encode_ledger_key(FLAGS_ID), encode_flags(2), "storage flags"),
    ],
)
def test_a_row_that_is_wrong_stops_the_start(key: bytes, value: bytes, what: str) -> None:
    with pytest.raises(CorruptionError, match=what) as caught:
        LedgerIndex(MemoryStore({key: value}, path="the/ledgers"))
    assert caught.value.path == "the/ledgers"


@pytest.mark.parametrize("key_bytes", [0, 1, 20, 127, 128, 300])
@pytest.mark.parametrize("lac", [None, b"", LAC, bytes(127), bytes(128), bytes(300)])
@pytest.mark.parametrize("limbo", [None, False, True])
def test_all_forms_of_rows_load(key_bytes: int, lac: bytes | None, limbo: bool | None) -> None:
    data = LedgerData(True, bytes(key_bytes), lac, limbo)
    row = encode_ledger_data(data)
    index = LedgerIndex(MemoryStore({encode_ledger_key(5): row, encode_ledger_key(6): row + b"\x30\x07"}))
    assert index.get(5) == data
    six = index.get(6)
    assert six is not None
    assert six.unknown == b"\x30\x07"
    assert encode_ledger_data(six) == row + b"\x30\x07"
    assert ledgers_module._is_plain(row) == (
        key_bytes < 128 and limbo is None and (lac is None or len(lac) < 128)
    )


def test_equal_rows_are_held_once() -> None:
    store = MemoryStore(
        {encode_ledger_key(each): bytes(bytearray(encode_ledger_data(OPEN))) for each in range(50)}
    )
    index = LedgerIndex(store)
    assert len({id(row) for part in index._rows for row in part.values()}) == 1


def test_a_flush_that_fails_loses_nothing() -> None:
    for error in ("storage", "after", "corruption"):
        store = MemoryStore()
        faulty = FaultyStore(store)
        index = LedgerIndex(faulty)
        index.set(5, OPEN)
        index.set(6, OPEN)
        index.delete(7)
        faulty.inject(StoreFaultRule("write", error=error))  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises((StorageError, CorruptionError)):
                index.flush()
            assert index.has_pending
            assert index.get(5) == OPEN
        faulty.heal()
        index.flush()
        assert sorted(LedgerIndex(store.crash()).ledgers()) == [5, 6]
        assert not index.has_pending


class MeddlingStore(MemoryStore):
    """Calls back in the middle of a write."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = lambda: None
        self.error: StorageError | None = None

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        batch = list(operations)
        self.meanwhile()
        if self.error is not None:
            raise self.error
        super().write(batch, sync=sync)


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_set_during_a_flush_stays_pending_and_is_newer(fails: bool) -> None:
    store = MeddlingStore()
    index = LedgerIndex(store)
    index.set(5, OPEN)
    index.set(6, OPEN)
    index.set(8, OPEN)

    def meddle() -> None:
        assert index.has_pending
        index.set(5, FENCED)
        index.delete(6)
        index.set(7, OPEN)

    store.meanwhile = meddle
    if fails:
        store.error = StorageError("disk gone")
        with pytest.raises(StorageError):
            index.flush()
    else:
        index.flush()
        assert sorted(LedgerIndex(store.crash()).ledgers()) == [5, 6, 8]
        assert LedgerIndex(store.crash()).get(5) == OPEN
    assert index.has_pending
    store.meanwhile = lambda: None
    store.error = None
    index.flush()
    after = LedgerIndex(store.crash())
    assert {each: after.get(each) for each in after.ledgers()} == {5: FENCED, 7: OPEN, 8: OPEN}
    assert not index.has_pending


def test_a_large_flush_is_cut_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers_module, "OPERATIONS_MAX", 10)
    sizes: list[int] = []

    class SizingStore(MemoryStore):
        def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
            batch = list(operations)
            sizes.append(len(batch))
            super().write(batch, sync=sync)

    store = SizingStore()
    index = LedgerIndex(store)
    for ledger in range(25):
        index.set(ledger, OPEN)
    index.flush()
    assert sizes == [10, 10, 5]
    assert len(LedgerIndex(store.crash())) == 25, "the last one makes all durable"
    index.flush()
    assert len(sizes) == 3, "nothing was pending"


def test_no_batch_is_so_large_that_its_write_takes_long() -> None:
    """The store takes a batch in one call that lets no other thread run: 50 ms for 100,000 deletions."""
    sizes: list[int] = []

    class SizingStore(MemoryStore):
        def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
            batch = list(operations)
            sizes.append(len(batch))
            super().write(batch, sync=sync)

    index = LedgerIndex(SizingStore())
    for ledger in range(10_000):
        index.delete(ledger)
    index.flush()
    EntryLocationIndex(SizingStore()).delete_ledgers(range(10_000))
    assert max(sizes) <= 4096


def test_threads_that_set_while_another_flushes(store: KeyValueStore) -> None:
    index = LedgerIndex(store)
    done = threading.Event()
    failures: list[BaseException] = []

    def keep_flushing() -> None:
        try:
            while not done.is_set():
                index.flush()
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            failures.append(error)

    flushing = threading.Thread(target=keep_flushing)
    flushing.start()
    last: dict[int, LedgerData | None] = {}

    def change(thread: int) -> None:
        chance = random.Random(thread)
        for round_number in range(300):
            ledger = thread * 100 + chance.randrange(20)
            if chance.random() < 0.2:
                index.delete(ledger)
                last[ledger] = None
            else:
                last[ledger] = LedgerData(bool(round_number % 2), KEY, b"%d" % round_number)
                index.set(ledger, last[ledger])  # type: ignore[arg-type]
            assert index.get(ledger) == last[ledger]

    changing = [threading.Thread(target=change, args=(thread,)) for thread in range(3)]
    for thread in changing:
        thread.start()
    for thread in changing:
        thread.join(60)
    done.set()
    flushing.join(60)
    index.flush()
    assert not failures
    expected = {ledger: data for ledger, data in last.items() if data is not None}
    assert len(last) == 60
    for found in (index, LedgerIndex(store)):
        assert {ledger: found.get(ledger) for ledger in found.ledgers()} == expected


def test_a_store_that_fails_stops_the_start() -> None:
    with pytest.raises(StorageError):
        LedgerIndex(FaultyStore(MemoryStore(rows()), [StoreFaultRule("iterate")]))


def test_close_closes_the_store() -> None:
    store = MemoryStore(rows())
    index = LedgerIndex(store)
    index.close()
    index.close()
    index.set(5, OPEN)
    with pytest.raises(StorageError, match="closed"):
        index.flush()
    assert index.has_pending


@pytest.mark.parametrize("sample", ["a/l", "g/l", "b/l", "s/l", "m/i1", "m/i2"])
def test_real_ledgers(corpora: Callable[[str], Path], tmp_path: Path, sample: str) -> None:
    """As the scan reads them; written back they are the same bytes."""
    current = copy_directory(sample_directory(sample, corpora), tmp_path / "l") / "current"
    path = str(current / "ledgers")
    reader = open_read_only(path)
    before = dict(reader.iterate())
    expected = {row.ledger: row.data for row in LedgerScan(reader).rows() if isinstance(row, LedgerRow)}
    reader.close()
    assert expected
    with open_store(path, LEDGERS_PROFILE, create=False) as store:
        index = LedgerIndex(store)
        assert {ledger: index.get(ledger) for ledger in index.ledgers()} == expected
        for ledger, data in expected.items():
            index.set(ledger, data)
        index.flush()
        after = dict(store.iterate())
    assert after == {
        key[:8] if len(key) == 16 else key: value for key, value in sorted(before.items(), reverse=True)
    }
