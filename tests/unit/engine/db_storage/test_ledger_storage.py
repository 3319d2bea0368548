"""The storage of one ledger directory: puts, reads and flushes, alone and interleaved."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence

import pytest

from bkctl.codec.entrylog import log_name
from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.write_caches import AnyWriteCache, WriteCaches
from bkctl.engine.ledger_storage import LAST_ENTRY
from bkctl.errors import BookieIOError, NoEntryError, StorageError, SyncError, UsageError
from tests.support.faulty_store import StoreFaultRule
from tests.support.storage_rig import DIRECTORY, StorageRig, entry_of, key_of
from tests.support.write_cache_kinds import CHOSEN
from tests.unit.engine.db_storage.started_storage import SECONDS, running


def on_first_locate(rig: StorageRig, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Do ``then`` once, between a reader's look into the index and what it does with the answer."""
    original = rig.locations.places
    pending = [then]

    def places(keys: Sequence[bytes]) -> array[int]:
        answer = original(keys)
        if pending:
            pending.pop()()
        return answer

    monkeypatch.setattr(rig.locations, "places", places)


# --- put, flush, read -----------------------------------------------------------------------------------


def test_an_entry_is_read_from_the_cache_and_after_a_flush_from_the_log(rig: StorageRig) -> None:
    body = rig.put(1, 5, "payload")
    assert rig.storage.cached(key_of(1, 5)) == body
    assert rig.storage.read(1, 5) == body
    rig.storage.flush()
    assert rig.storage.cached(key_of(1, 5)) is None
    assert rig.storage.read(1, 5) == body
    assert rig.storage.cached(key_of(1, 5)) == body
    assert rig.storage.caches.active.size_bytes == 0
    assert rig.storage.caches.flushing is None


def test_what_no_tier_has_is_no_such_entry(rig: StorageRig) -> None:
    rig.put(1, 0)
    for _ in range(2):
        with pytest.raises(NoEntryError) as caught:
            rig.storage.read(1, 1)
        assert (caught.value.ledger, caught.value.entry) == (1, 1)
        with pytest.raises(NoEntryError):
            rig.storage.read(2, LAST_ENTRY)
        assert rig.storage.last_entry(2) is None
        rig.storage.flush()


def test_the_last_entry_is_the_highest_of_caches_and_index(rig: StorageRig) -> None:
    rig.put(1, 7, "seven")
    rig.storage.flush()
    rig.put(1, 3, "again")
    assert rig.storage.last_entry(1) == 7
    assert rig.storage.read(1, LAST_ENTRY) == entry_of(1, 7, "seven")
    rig.put(1, 9)
    assert rig.storage.last_entry(1) == 9
    with rig.lock:
        assert rig.storage.caches.swap(0.0)
    rig.put(1, 8)
    assert rig.storage.last_entry(1) == 9
    assert rig.storage.read(1, LAST_ENTRY) == entry_of(1, 9)
    assert list(rig.storage.entries(1)) == [3, 7, 8, 9]


def test_ids_are_listed_once_from_caches_and_index(rig: StorageRig) -> None:
    for entry in (0, 2, 4):
        rig.put(1, entry)
    rig.storage.flush()
    for entry in (1, 2, 9):
        rig.put(1, entry)
    with rig.lock:
        assert rig.storage.caches.swap(0.0)
    rig.put(1, 2)
    rig.put(2, 3)
    assert list(rig.storage.entries(1)) == [0, 1, 2, 4, 9]
    assert list(rig.storage.entries(3)) == []


def test_many_are_read_at_once(rig: StorageRig) -> None:
    for entry in range(10):
        rig.put(1, entry)
    rig.storage.flush()
    rig.put(1, 10)
    answers = rig.storage.read_many([key_of(1, entry) for entry in (10, 0, 1, 2, 11, 9)])
    assert answers[:4] == [entry_of(1, entry) for entry in (10, 0, 1, 2)]
    assert isinstance(answers[4], NoEntryError)
    assert answers[5] == entry_of(1, 9)


def test_entries_are_in_the_log_by_ledger_then_entry(rig: StorageRig) -> None:
    for entry in (3, 1, 2):
        for ledger in (9, 1):
            rig.put(ledger, entry)
    rig.storage.flush()
    order = [(1, 1), (1, 2), (1, 3), (9, 1), (9, 2), (9, 3)]
    places = rig.locations.get_many([key_of(*each) for each in order])
    assert places == sorted(place for place in places if place is not None)


def test_a_flush_without_entries_makes_ledger_rows_durable(rig: StorageRig) -> None:
    """Java returns early here and loses fences of an idle directory."""
    row = LedgerData(fenced=True, master_key=b"k" * 20)
    rig.storage.ledgers.set(4, row)
    rig.storage.flush()
    assert rig.after_crash().storage.ledgers.get(4) == row


def test_counters_tell_what_a_flush_did(rig: StorageRig) -> None:
    for entry in range(10):
        rig.put(1, entry)
    rig.storage.flush()
    meters = rig.storage.meters
    assert (meters.puts, meters.flushes, meters.flush.done, meters.flush.failed) == (10, 1, 10, 0)
    assert meters.put_bytes == 10 * 32
    for step in (meters.log_write, meters.force, meters.locations, meters.ledger_rows, meters.flush.worked):
        assert step.count == 1


# --- room -----------------------------------------------------------------------------------------------


def test_a_full_cache_is_swapped_and_when_both_are_full_there_is_no_room() -> None:
    rig = StorageRig(StorageSettings(write_cache_bytes_max=10_000)).open()
    put = 0
    while rig.try_put([entry_of(1, put, size_bytes=300)]):
        put += 1
    caches = rig.storage.caches
    assert caches.flushing is not None
    assert caches.active.size_bytes + caches.flushing.size_bytes <= 10_000
    assert put == 2 * (5_000 // (300 + 192))
    assert rig.storage.meters.refused_puts == 1
    assert rig.storage.meters.flush.length == caches.flushing.size_bytes
    rig.storage.flush()
    assert rig.room.is_set()
    assert rig.storage.meters.flush.length == 0
    assert caches.active.size_bytes == 0
    assert rig.try_put([entry_of(1, put, size_bytes=300)])
    assert [rig.storage.read(1, entry) for entry in range(put)] == [
        entry_of(1, entry, size_bytes=300) for entry in range(put)
    ]


def test_a_batch_larger_than_a_cache_is_taken_by_an_empty_one() -> None:
    rig = StorageRig(StorageSettings(write_cache_bytes_max=1000)).open()
    batches = [[entry_of(ledger, entry, size_bytes=300) for entry in range(10)] for ledger in range(3)]
    assert rig.try_put(batches[0])
    assert rig.try_put(batches[1])
    assert not rig.try_put(batches[2])
    rig.storage.flush()
    assert rig.try_put(batches[2])
    for batch in batches:
        assert rig.storage.read_many([body[:16] for body in batch]) == batch


# --- interleavings --------------------------------------------------------------------------------------


def test_a_reader_that_had_the_cache_in_hand_when_it_was_flushed_finds_the_entry(
    rig: StorageRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has loaded ``active``; before it looks into it the cache is swapped, flushed and cleared."""
    body = rig.put(1, 0)
    original = CHOSEN.get
    pending = [rig.storage.flush]

    def get(cache: AnyWriteCache, key: bytes) -> bytes | None:
        if pending:
            pending.pop()()
        return original(cache, key)

    monkeypatch.setattr(CHOSEN, "get", get)
    assert rig.storage.read(1, 0) == body
    assert rig.storage.meters.flushes == 1


def test_a_reader_between_the_caches_finds_the_entry_after_the_flush(
    rig: StorageRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has missed the active cache; before it goes to the flushing one, that is dropped."""
    body = rig.put(1, 0)
    with rig.lock:
        rig.storage.caches.swap(0.0)
    original = CHOSEN.get
    pending = [rig.storage.flush]

    def get(cache: AnyWriteCache, key: bytes) -> bytes | None:
        found = original(cache, key)
        if pending:
            pending.pop()()
        return found

    monkeypatch.setattr(CHOSEN, "get", get)
    assert rig.storage.read(1, 0) == body


def test_a_swap_leaves_no_moment_in_which_an_entry_is_nowhere() -> None:
    class Watched(WriteCaches):
        """Looks for the entry after every single change."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name in ("active", "flushing") and self.__dict__.get("watching"):
                assert self.get(key_of(1, 0)) is not None

    caches = Watched(1000)
    caches.put_many([key_of(1, 0)], [entry_of(1, 0)], 32)
    caches.__dict__["watching"] = True
    assert caches.swap(0.0)
    assert not caches.swap(0.0)


@pytest.mark.parametrize("method", ["last_entry", "entries"])
def test_ids_survive_a_flush_between_the_tiers(
    rig: StorageRig, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    rig.put(1, 0)
    rig.put(1, 1)
    original = getattr(CHOSEN, method)
    pending = [rig.storage.flush]

    def looked_up(cache: AnyWriteCache, ledger: int) -> object:
        if pending:
            pending.pop()()
        return original(cache, ledger)

    monkeypatch.setattr(CHOSEN, method, looked_up)
    assert rig.storage.last_entry(1) == 1
    assert list(rig.storage.entries(1)) == [0, 1]


def test_during_a_flush_everything_is_read_and_the_newest_body_wins() -> None:
    gate = threading.Event()
    rig = StorageRig(gate=gate).open()
    rig.put(1, 0, "old")
    rig.put(1, 1)
    rig.location_store.inject(StoreFaultRule("write", count=1, latency_s=1.0, error=None))
    with running(rig.storage.flush):
        assert rig.waiting.wait(SECONDS)
        assert rig.storage.read(1, 0) == entry_of(1, 0, "old")
        rig.put(1, 0, "new")
        assert rig.storage.read(1, 0) == entry_of(1, 0, "new")
        assert list(rig.storage.entries(1)) == [0, 1]
        gate.set()
    assert rig.storage.read(1, 0) == entry_of(1, 0, "new")
    rig.storage.flush()
    assert rig.storage.read(1, 0) == entry_of(1, 0, "new")
    assert rig.after_crash().storage.read(1, 0) == entry_of(1, 0, "new")


# --- the read cache never answers with what was replaced ------------------------------------------------


def test_a_copy_in_the_read_cache_goes_when_the_entry_was_put_once_more(rig: StorageRig) -> None:
    rig.put(1, 0, "old")
    rig.put(1, 1)
    rig.storage.flush()
    assert rig.storage.read(1, 0) == entry_of(1, 0, "old")
    rig.put(1, 0, "new")
    assert rig.storage.read(1, 0) == entry_of(1, 0, "new")
    rig.storage.flush()
    assert rig.storage.cached(key_of(1, 0)) is None
    assert rig.storage.read(1, 0) == entry_of(1, 0, "new")


def test_a_reader_that_was_overtaken_stores_nothing(rig: StorageRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.put(1, 0, "old")
    rig.storage.flush()

    def overtake() -> None:
        rig.put(1, 0, "new")
        rig.storage.flush()

    on_first_locate(rig, monkeypatch, overtake)
    assert rig.storage.read(1, 0) in (entry_of(1, 0, "old"), entry_of(1, 0, "new"))
    assert rig.storage.read(1, 0) == entry_of(1, 0, "new")


def test_read_ahead_does_not_bring_older_records_of_an_entry(rig: StorageRig) -> None:
    for entry in range(5):
        rig.put(1, entry, "old")
    rig.storage.flush()
    # Read-ahead ends at another ledger, so it does not come to the newer record.
    rig.put(0, 0)
    rig.put(1, 3, "new")
    rig.storage.flush()
    for entry in (0, 1):
        rig.storage.read(1, entry)
    assert rig.storage.cached(key_of(1, 2)) == entry_of(1, 2, "old")
    assert rig.storage.cached(key_of(1, 3)) is None
    assert rig.storage.meters.read_ahead_stale == 1
    assert rig.storage.read(1, 3) == entry_of(1, 3, "new")
    assert rig.storage.read(1, 4) == entry_of(1, 4, "old")


# --- deletion -------------------------------------------------------------------------------------------

ROW = LedgerData(fenced=False, master_key=b"m" * 20)


def rows_of(rig: StorageRig, ledger: int) -> list[bytes]:
    prefix = key_of(ledger, 0)[:8]
    return [key for key, _ in rig.location_rows.iterate(prefix=prefix)]


def assert_gone(rig: StorageRig, ledger: int, entries: int) -> None:
    for entry in range(entries):
        assert rig.storage.cached(key_of(ledger, entry)) is None
        with pytest.raises(NoEntryError):
            rig.storage.read(ledger, entry)
    answers = rig.storage.read_many([key_of(ledger, entry) for entry in range(entries)])
    assert all(isinstance(answer, NoEntryError) for answer in answers)
    assert rig.storage.last_entry(ledger) is None
    assert list(rig.storage.entries(ledger)) == []


def test_a_deleted_ledger_is_gone_at_once_and_its_rows_with_the_next_flush(rig: StorageRig) -> None:
    rig.storage.ledgers.set(1, ROW)
    rig.put(1, 0)
    rig.put(2, 0)
    rig.storage.flush()
    rig.storage.read(1, 0)
    rig.put(1, 1)
    with rig.lock:
        rig.storage.caches.swap(0.0)
    rig.put(1, 2)
    rig.delete(1)
    assert rig.storage.ledgers.get(1) is None
    assert_gone(rig, 1, 3)
    assert rows_of(rig, 1)
    rig.storage.flush()
    assert_gone(rig, 1, 3)
    assert rows_of(rig, 1) == []
    assert rig.ledger_rows.get(key_of(1, 0)[:8]) is None
    assert not rig.storage.caches.marks
    assert rig.entry_logger.entries_appended == 2, "entries in the write caches were not written"
    assert rig.storage.read(2, 0) == entry_of(2, 0)
    assert_gone(rig.after_crash(), 1, 3)


@pytest.mark.parametrize("flush_between", [False, True])
def test_a_ledger_made_anew_has_its_new_entries_and_none_of_the_old(
    rig: StorageRig, flush_between: bool
) -> None:
    rig.put(1, 0, "old")
    rig.put(1, 1, "old")
    rig.storage.flush()
    rig.storage.read(1, 1)
    rig.put(1, 2, "old")
    rig.delete(1)
    if flush_between:
        rig.storage.flush()
    rig.storage.ledgers.set(1, ROW)
    rig.put(1, 0, "new")
    for _ in range(3):
        assert rig.storage.read(1, 0) == entry_of(1, 0, "new")
        assert list(rig.storage.entries(1)) == [0]
        assert rig.storage.last_entry(1) == 0
        for entry in (1, 2):
            with pytest.raises(NoEntryError):
                rig.storage.read(1, entry)
        rig.storage.flush()
    crashed = rig.after_crash()
    assert list(crashed.storage.entries(1)) == [0]
    assert crashed.storage.ledgers.get(1) == ROW


def test_a_ledger_may_be_deleted_and_made_anew_while_it_is_flushed() -> None:
    gate = threading.Event()
    rig = StorageRig(gate=gate).open()
    rig.put(1, 0, "old")
    rig.put(1, 1, "old")
    rig.location_store.inject(StoreFaultRule("write", count=1, latency_s=1.0, error=None))
    with running(rig.storage.flush):
        assert rig.waiting.wait(SECONDS)
        rig.delete(1)
        rig.put(1, 1, "new")
        gate.set()
    for _ in range(2):
        assert list(rig.storage.entries(1)) == [1]
        assert rig.storage.read(1, 1) == entry_of(1, 1, "new")
        rig.storage.flush()
    assert rows_of(rig, 1) == [key_of(1, 1)]


def test_the_row_of_a_ledger_does_not_go_before_its_locations() -> None:
    """Deleted while a flush removes the locations of another one, whose turn that is.

    A power cut between the two would leave locations that a new ledger under the id would serve.
    """
    gate = threading.Event()
    rig = StorageRig(gate=gate).open()
    for ledger in (1, 2):
        rig.storage.ledgers.set(ledger, ROW)
        rig.put(ledger, 0)
    rig.storage.flush()
    rig.delete(1)
    rig.location_store.inject(StoreFaultRule("write", count=1, latency_s=1.0, error=None))
    with running(rig.storage.flush):
        assert rig.waiting.wait(SECONDS)
        rig.delete(2)
        gate.set()
    crashed = rig.after_crash()
    assert crashed.storage.ledgers.get(1) is None
    assert rows_of(crashed, 1) == []
    assert rows_of(crashed, 2) == [key_of(2, 0)]
    assert crashed.storage.ledgers.get(2) == ROW
    rig.storage.flush()
    crashed = rig.after_crash()
    assert crashed.storage.ledgers.get(2) is None
    assert rows_of(crashed, 2) == []


def test_a_second_deletion_during_a_flush_is_not_lifted_with_the_first() -> None:
    gate = threading.Event()
    rig = StorageRig(gate=gate).open()
    rig.put(1, 0)
    rig.storage.flush()
    rig.delete(1)
    rig.put(1, 1)
    rig.ledger_store.inject(StoreFaultRule("write", count=1, latency_s=1.0, error=None))
    with running(rig.storage.flush):
        assert rig.waiting.wait(SECONDS), "the new entry is in the index, the first mark not lifted yet"
        rig.delete(1)
        assert_gone(rig, 1, 2)
        gate.set()
    assert_gone(rig, 1, 2)
    rig.storage.flush()
    assert_gone(rig, 1, 2)
    assert rows_of(rig, 1) == []


def test_a_reader_overtaken_by_a_deletion_leaves_nothing_for_the_next_ledger(
    rig: StorageRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put(1, 0, "old")
    rig.storage.flush()

    def overtake() -> None:
        rig.delete(1)
        rig.storage.flush()
        rig.put(1, 7, "new")

    on_first_locate(rig, monkeypatch, overtake)
    assert rig.storage.read(1, 0) == entry_of(1, 0, "old")
    with pytest.raises(NoEntryError):
        rig.storage.read(1, 0)


# --- failures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["storage", "after", "corruption"])
@pytest.mark.parametrize("store", ["location_store", "ledger_store"])
def test_a_flush_that_an_index_failed_is_done_again_as_a_whole(
    rig: StorageRig, store: str, error: str
) -> None:
    rig.storage.ledgers.set(1, ROW)
    rig.put(1, 0)
    getattr(rig, store).inject(StoreFaultRule("write", count=1, error=error))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="write"):
        rig.storage.flush()
    assert rig.failures == []
    assert rig.storage.meters.flush_failures == 1
    assert rig.storage.read(1, 0) == entry_of(1, 0)
    rig.put(1, 1)
    rig.storage.flush()
    crashed = rig.after_crash()
    assert [crashed.storage.read(1, entry) for entry in (0, 1)] == [entry_of(1, 0), entry_of(1, 1)]
    assert crashed.storage.ledgers.get(1) == ROW


def test_a_sync_that_fails_while_logs_are_retired_ends_the_storage(
    rig: StorageRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log without its map is no loss; after a failed sync it is not known what the disk has lost."""
    errors: list[StorageError] = [StorageError("no map"), SyncError("lost")]

    def retire(_deleted: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(rig.entry_logger, "retire", retire)
    rig.put(1, 0)
    rig.storage.flush()
    assert rig.storage.meters.flush_failures == 0
    rig.put(1, 1)
    with pytest.raises(StorageError, match="could not be made durable: lost"):
        rig.storage.flush()
    assert len(rig.failures) == 1
    with pytest.raises(StorageError, match="failed"):
        rig.storage.flush()


@pytest.mark.parametrize("error", ["storage", "corruption"])
def test_an_index_that_cannot_be_read_is_not_a_missing_entry(rig: StorageRig, error: str) -> None:
    rig.put(1, 0)
    rig.storage.flush()
    for operation in ("get", "iterate"):
        rig.location_store.inject(StoreFaultRule(operation, error=error))  # type: ignore[arg-type]
    for read in (
        lambda: rig.storage.read(1, 0),
        lambda: rig.storage.read(1, 5),
        lambda: rig.storage.read(1, LAST_ENTRY),
        lambda: rig.storage.last_entry(1),
        lambda: list(rig.storage.entries(1)),
    ):
        with pytest.raises(BookieIOError, match="ledger 1"):
            read()
    assert isinstance(rig.storage.read_many([key_of(1, 0), key_of(1, 1)])[0], BookieIOError)


def test_a_record_that_cannot_be_read_names_log_and_offset(rig: StorageRig) -> None:
    for entry in range(3):
        rig.put(1, entry)
    rig.storage.flush()
    (location, *_) = rig.locations.get_many([key_of(1, 1)])
    assert location is not None
    log, offset = log_name(location >> 32), location & 0xFFFFFFFF
    with rig.disk.lock:
        rig.disk.open_to_write(f"{DIRECTORY}/{log}").write_at(offset - 4, b"\0" * 36)
    with pytest.raises(BookieIOError, match=f"{log}, offset {offset}"):
        rig.storage.read(1, 1)
    answers = rig.storage.read_many([key_of(1, entry) for entry in range(3)])
    assert answers[0] == entry_of(1, 0)
    assert isinstance(answers[1], BookieIOError)
    assert answers[2] == entry_of(1, 2)


def test_an_entry_that_moves_while_it_is_read_is_found_in_its_new_place(
    rig: StorageRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction copies an entry, sets its location and removes the log."""
    body = rig.put(1, 0)
    rig.storage.flush()

    def compact() -> None:
        (location,) = rig.entry_logger.append([body[:16]], [body])
        rig.entry_logger.force()
        (old,) = original([body[:16]])
        rig.locations.put_many([body[:16]], [location])
        assert old is not None
        with rig.disk.lock:
            rig.disk.open_to_write(f"{DIRECTORY}/{log_name(old >> 32)}").write_at(
                old & 0xFFFFFFFF, b"\xff" * 32
            )

    original = rig.locations.get_many
    on_first_locate(rig, monkeypatch, compact)
    assert rig.storage.read(1, 0) == body


# --- life -----------------------------------------------------------------------------------------------


def test_settings_have_bounds() -> None:
    for wrong in (
        {"write_cache_bytes_max": 0},
        {"read_cache_bytes_max": -1},
        {"read_ahead_entries_max": -1},
        {"read_ahead_bytes_max": 0},
        {"retry_ms": 0},
    ):
        with pytest.raises(UsageError):
            StorageSettings(**wrong)  # type: ignore[arg-type]
