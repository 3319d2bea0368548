"""Read-ahead: for whom, how far, and what of it counts."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.db_storage import ledger_readings
from bkctl.errors import StorageError
from tests.support.storage_rig import StorageRig, entry_of, key_of


@pytest.fixture
def rig() -> StorageRig:
    return StorageRig().open()


def flushed_ledgers(rig: StorageRig, count: int, step: int = 1) -> None:
    for ledger in (1, 2):
        for entry in range(0, count * step, step):
            rig.put(ledger, entry, size_bytes=100)
    rig.storage.flush()


def test_a_sequential_reader_is_read_ahead_for_up_to_the_next_ledger(rig: StorageRig) -> None:
    flushed_ledgers(rig, 250)
    for entry in range(250):
        assert rig.storage.read(1, entry) == entry_of(1, entry, size_bytes=100)
    meters = rig.storage.meters
    # 0; 1 and a hundred. Who asks for 102 or 202 finds that the part there is to be read ahead, and reads it.
    assert meters.disk_reads == 2
    assert meters.read_ahead_entries == 250 - 2
    assert rig.storage.cached(key_of(2, 0)) is None


def read_on(rig: StorageRig, entries: range) -> None:
    """Read as a port does: what a cache gives may say that more is to be read ahead."""
    for entry in entries:
        key = key_of(1, entry)
        body = rig.storage.cached(key)
        if body is None:
            body = rig.storage.read(1, entry)
        elif rig.storage.claim_next(key):
            rig.storage.read_next(1)
        assert body == entry_of(1, entry, size_bytes=100)


def test_the_next_part_is_read_before_the_reader_gets_there(rig: StorageRig) -> None:
    flushed_ledgers(rig, 1000)
    read_on(rig, range(1000))
    meters = rig.storage.meters
    # Two entries by themselves; nobody waits for what is behind them.
    assert meters.disk_reads == 2
    assert meters.read_ahead_entries == 1000 - 2
    assert rig.storage.cached(key_of(2, 0)) is None


def parts_of(rig: StorageRig, entries: int, *, between_s: float) -> list[int]:
    """Return the entries of each part that a reader of ledger 1 has read ahead, which needs them so late."""
    meters = rig.storage.meters
    parts: list[int] = []
    known = meters.read_ahead_entries
    for entry in range(entries):
        key = key_of(1, entry)
        if rig.storage.cached(key) is None:
            rig.storage.read(1, entry)
        elif rig.storage.claim_next(key):
            rig.clock.advance(between_s)
            rig.storage.read_next(1)
        if meters.read_ahead_entries > known:
            parts.append(meters.read_ahead_entries - known)
            known = meters.read_ahead_entries
    return parts


#: With room for two runs of 4,000 entries.
ROOMY = StorageSettings(write_cache_bytes_max=4 << 20)


def test_parts_grow_for_a_fast_reader_to_half_of_what_the_run_has_given() -> None:
    rig = StorageRig(ROOMY).open()
    flushed_ledgers(rig, 4000)
    # The first part stands behind the second entry; for the last one no more than 118 entries are left.
    assert parts_of(rig, 4000, between_s=0.01) == [100, 100, 100, 150, 225, 338, 507, 760, 800, 800, 118]


def test_parts_stay_small_for_a_slow_reader_and_become_so_again(rig: StorageRig) -> None:
    flushed_ledgers(rig, 1000)
    assert parts_of(rig, 700, between_s=0.3) == [100] * 8
    grown = StorageRig().open()
    flushed_ledgers(grown, 1000)
    assert parts_of(grown, 550, between_s=0.01) == [100, 100, 100, 150, 225]
    grown.clock.advance(1)
    grown.storage.read_next(1)
    last = 1 + 100 + 100 + 100 + 150 + 225 + 100
    assert grown.storage.cached(key_of(1, last)) is not None
    assert grown.storage.cached(key_of(1, last + 1)) is None


def test_parts_do_not_grow_beyond_their_share_of_the_cache() -> None:
    rig = StorageRig(StorageSettings(read_cache_bytes_max=64 * 20_000)).open()
    flushed_ledgers(rig, 1000)
    # Entries of 100 bytes, each with a size of 4 in front of it.
    assert max(parts_of(rig, 1000, between_s=0.01)) == 20_000 // 104
    bounded = StorageRig(StorageSettings(read_ahead_bytes_max=15_000)).open()
    flushed_ledgers(bounded, 1000)
    assert max(parts_of(bounded, 1000, between_s=0.01)) == 15_000 // 104


def test_the_next_part_is_claimed_once_and_in_the_middle_of_the_last_one(rig: StorageRig) -> None:
    flushed_ledgers(rig, 500)
    for entry in (0, 1):
        rig.storage.read(1, entry)
    claims = [entry for entry in range(102) if rig.storage.claim_next(key_of(1, entry))]
    assert claims == [51]
    rig.storage.read_next(1)
    assert rig.storage.cached(key_of(1, 201)) is not None
    assert rig.storage.cached(key_of(1, 202)) is None
    # What nobody has claimed is not read either.
    calls = rig.storage.meters.read_ahead_calls
    rig.storage.read_next(2)
    assert rig.storage.meters.read_ahead_calls == calls


def test_the_next_part_has_no_older_records_and_nothing_of_a_deleted_ledger(rig: StorageRig) -> None:
    flushed_ledgers(rig, 500)
    rig.put(1, 120, "new", size_bytes=100)
    rig.storage.flush()
    for entry in (0, 1):
        rig.storage.read(1, entry)
    rig.storage.read_next(1)
    assert rig.storage.cached(key_of(1, 119)) == entry_of(1, 119, size_bytes=100)
    assert rig.storage.cached(key_of(1, 120)) is None
    assert rig.storage.meters.read_ahead_stale == 1
    assert rig.storage.read(1, 120) == entry_of(1, 120, "new", size_bytes=100)
    rig.delete(1)
    calls = rig.storage.meters.read_ahead_calls
    rig.storage.read_next(1)
    assert rig.storage.meters.read_ahead_calls == calls
    assert rig.storage.cached(key_of(1, 250)) is None


def test_what_is_read_next_while_the_index_changes_is_not_kept(
    rig: StorageRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed_ledgers(rig, 500)
    for entry in (0, 1):
        rig.storage.read(1, entry)

    original = rig.locations.places

    def overtaken(keys: Sequence[bytes]) -> array[int]:
        answer = original(keys)
        monkeypatch.undo()
        rig.put(1, 150, "new", size_bytes=100)
        rig.storage.flush()
        return answer

    monkeypatch.setattr(rig.locations, "places", overtaken)
    rig.storage.read_next(1)
    assert rig.storage.cached(key_of(1, 149)) is None
    assert rig.storage.read(1, 150) == entry_of(1, 150, "new", size_bytes=100)


def test_a_next_part_that_cannot_be_read_is_left_to_who_asks_for_it(
    rig: StorageRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed_ledgers(rig, 500)
    for entry in (0, 1):
        rig.storage.read(1, entry)

    def fail(_: object) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(rig.storage.locations, "places", fail)
        rig.storage.read_next(1)
    assert rig.storage.cached(key_of(1, 150)) is None
    read_on(rig, range(500))
    assert rig.storage.meters.disk_reads == 3


def test_entries_of_a_striped_ledger_are_sequential_too(rig: StorageRig) -> None:
    flushed_ledgers(rig, 50, step=3)
    for entry in range(0, 150, 3):
        rig.storage.read(1, entry)
    assert rig.storage.meters.disk_reads == 2


@pytest.fixture
def blocked(rig: StorageRig, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Entries from 102 on are being read ahead by a thread that goes on when the event is set."""
    flushed_ledgers(rig, 500)
    for entry in (0, 1):
        rig.storage.read(1, entry)
    original = rig.locations.places
    is_there, go_on = threading.Event(), threading.Event()

    def slow(keys: Sequence[bytes]) -> array[int]:
        if threading.current_thread() is thread:
            is_there.set()
            assert go_on.wait(10)
        return original(keys)

    thread = threading.Thread(target=rig.storage.read_next, args=(1,))
    monkeypatch.setattr(rig.locations, "places", slow)
    thread.start()
    assert is_there.wait(10)
    yield go_on
    go_on.set()
    thread.join(10)
    assert not thread.is_alive()


def test_who_is_faster_than_what_is_read_ahead_waits_for_it(
    rig: StorageRig, blocked: threading.Event
) -> None:
    reads = rig.storage.meters.disk_reads
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(rig.storage.read, 1, 102)
        many = pool.submit(rig.storage.read_many, [key_of(1, entry) for entry in range(103, 130)])
        assert not wait([one, many], timeout=0.05).done
        blocked.set()
        assert one.result(10) == entry_of(1, 102, size_bytes=100)
        assert many.result(10) == [entry_of(1, entry, size_bytes=100) for entry in range(103, 130)]
    assert rig.storage.meters.disk_reads == reads


def test_nobody_waits_for_what_is_read_ahead_of_others_or_for_ever(
    rig: StorageRig, blocked: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_readings, "AHEAD_WAIT_MAX_S", 60.0)
    # Another ledger, what was read already, and what is beyond this part.
    assert rig.storage.read(2, 102) == entry_of(2, 102, size_bytes=100)
    assert rig.storage.read(1, 0) == entry_of(1, 0, size_bytes=100)
    assert rig.storage.read(1, 300) == entry_of(1, 300, size_bytes=100)
    monkeypatch.setattr(ledger_readings, "AHEAD_WAIT_MAX_S", 0.01)
    reads = rig.storage.meters.disk_reads
    assert rig.storage.read_many([key_of(1, 102)]) == [entry_of(1, 102, size_bytes=100)]
    assert rig.storage.meters.disk_reads == reads + 1


def test_a_random_reader_gets_just_its_entry(rig: StorageRig) -> None:
    flushed_ledgers(rig, 250)
    for entry in (200, 10, 100, 50, 0, 249):
        rig.storage.read(1, entry)
    assert rig.storage.meters.read_ahead_calls == 0
    assert rig.storage.read_cache.count == 6


def test_read_ahead_keeps_to_its_bounds() -> None:
    settings = StorageSettings(read_ahead_entries_max=10, read_ahead_bytes_max=350)
    rig = StorageRig(settings).open()
    flushed_ledgers(rig, 50)
    rig.storage.read(1, 0)
    rig.storage.read(1, 1)
    assert rig.storage.read_cache.count == 2 + 3
    off = StorageRig(StorageSettings(read_ahead_entries_max=0)).open()
    flushed_ledgers(off, 50)
    for entry in range(50):
        off.storage.read(1, entry)
    assert off.storage.meters.disk_reads == 50


def test_only_so_many_sequential_readers_are_remembered() -> None:
    rig = StorageRig(StorageSettings(sequential_ledgers_max=1)).open()
    flushed_ledgers(rig, 50)
    for entry in range(5):
        rig.storage.read(1, entry)
        rig.storage.read(2, entry)
    assert rig.storage.meters.read_ahead_calls == 0


def test_a_read_without_read_cache_works() -> None:
    rig = StorageRig(StorageSettings(read_cache_bytes_max=0)).open()
    flushed_ledgers(rig, 5)
    assert [len(rig.storage.read(1, entry)) for entry in range(5)] == [100] * 5
