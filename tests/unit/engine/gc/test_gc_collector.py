"""Passes of the collector: ledgers, logs, compaction, and everything that must not stop or mislead them."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from bkctl.codec.entrylog import HEADER_BYTES, MAGIC
from bkctl.config.server_keys.garbage import CompactionSettings
from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.log_reading import read_log
from bkctl.engine.gc.log_usage import LogUsage
from bkctl.engine.gc.policy import Kind, Request
from bkctl.errors import ConnectionFailedError, NoEntryError, StorageError
from bkctl.kvstore.base import Put
from bkctl.kvstore.memory import MemoryStore
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.faulty_store import StoreFaultRule
from tests.support.storage_rig import DIRECTORY, key_of
from tests.unit.engine.gc.gc_rig import MAJOR, MINOR, QUICK, Cluster, GcRig, opened

TRANSACTIONAL = pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])


def test_nothing_happens_while_everything_lives() -> None:
    rig = opened()
    rig.fill([1, 2])
    before = rig.disk.files
    report = rig.collect(MAJOR)
    assert (report.deleted_ledgers, report.deleted_logs, report.compacted_logs) == (0, 0, 0)
    assert report.ledgers == 2
    assert {name: data for name, data in rig.disk.files.items() if ".log" in name} == {
        name: data for name, data in before.items() if ".log" in name
    }


def test_a_deleted_ledger_goes_and_logs_that_held_nothing_else() -> None:
    rig = opened()
    rig.write(1, range(40))
    rig.storage.flush()
    rig.fill([2])
    logs = rig.log_names()
    rig.cluster.live.remove(1)
    report = rig.collect()
    assert rig.deleted == [1]
    assert report.deleted_logs >= 3
    assert report.freed_bytes == sum(r.file_bytes for r in rig.collector.status().results)
    assert len(rig.log_names()) == len(logs) - report.deleted_logs
    assert rig.storage.ledgers.get(1) is None
    with pytest.raises(NoEntryError):
        rig.storage.read(1, 0)
    assert not list(rig.location_rows.iterate(prefix=key_of(1, 0)[:8]))
    rig.check(2)


def test_a_listing_that_fails_deletes_nothing() -> None:
    rig = opened()
    rig.fill([1, 50])
    rig.cluster.live.clear()
    rig.cluster.listing_error = ConnectionFailedError("no answer")
    report = rig.collect(MAJOR)
    assert report.listing_failed == "no answer"
    assert rig.deleted == []
    rig.check(1)
    rig.check(50)


def test_a_partial_listing_deletes_nothing_that_a_read_finds() -> None:
    rig = opened()
    rig.fill([1, 2, 50])
    rig.cluster.hidden = {1, 50}
    rig.cluster.live.remove(2)
    report = rig.collect(MAJOR)
    assert rig.deleted == [2]
    assert report.spared_ledgers == 2
    rig.check(1)
    rig.check(50)


def test_a_read_that_fails_is_no_proof() -> None:
    rig = opened()
    rig.fill([1, 2])
    rig.cluster.live.clear()
    rig.cluster.read_error = ConnectionFailedError("no answer")
    report = rig.collect(MAJOR)
    assert rig.deleted == []
    assert report.listing_failed == "no answer"
    rig.check(1)
    rig.cluster.read_error = None
    assert rig.collect().deleted_ledgers == 2


def test_a_ledger_that_is_created_during_the_listing_stays() -> None:
    rig = opened()
    rig.fill([1])

    class Slow(Cluster):
        def ranges(self):  # type: ignore[no-untyped-def]
            parts = list(super().ranges())
            rig.fill([7])
            return iter(parts)

    slow = Slow([1])
    rig.collector._ledgers._cluster = slow
    report = rig.collect(MAJOR)
    assert report.deleted_ledgers == 0
    rig.check(7)


def test_a_ledger_that_is_written_right_now_waits_for_the_next_pass() -> None:
    rig = opened()
    rig.fill([1])
    rig.cluster.live.remove(1)

    class Late(Cluster):
        def exists(self, ledger: int) -> bool:
            rig.put(1, 99)
            return False

    rig.collector._ledgers._cluster = Late()
    assert rig.collect().spared_ledgers == 1
    rig.collector._ledgers._cluster = rig.cluster
    assert rig.collect().deleted_ledgers == 1


def test_too_many_deletions_wait_for_a_confirmation() -> None:
    rig = opened(deletions_ledgers_max=5)
    ledgers = range(10)
    rig.fill(ledgers, entries=2)
    rig.cluster.live -= set(range(6))
    report = rig.collect(MAJOR)
    assert report.held_deletions == 6
    assert rig.collector.meters.held_deletions == 6
    assert rig.deleted == []
    for ledger in ledgers:
        rig.check(ledger, 2)
    assert rig.collector.confirm_deletions() == 6
    # One more than was confirmed is held again.
    rig.cluster.live.remove(6)
    assert rig.collect().held_deletions == 7
    assert rig.collector.confirm_deletions() == 7
    assert rig.collect().deleted_ledgers == 7
    assert rig.collector.meters.held_deletions == 0
    for ledger in range(7, 10):
        rig.check(ledger, 2)


@TRANSACTIONAL
def test_compaction_keeps_what_lives_and_gives_the_rest_back(transactional: bool) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2, 3], entries=20)
    before = sum(len(data) for name, data in rig.disk.files.items() if ".log" in name)
    rig.cluster.live -= {1, 2}
    report = rig.collect(MAJOR)
    assert report.compaction is Kind.MAJOR
    assert report.compacted_logs > 2
    after = sum(len(data) for name, data in rig.disk.files.items() if ".log" in name)
    assert before - after > report.compacted_logs * 1500
    assert not [name for name in rig.log_names() if "compact" in name]
    rig.check(3, 20)
    # The log that was being written may be full now; then everything that was copied is alive as a whole.
    rig.collect(MAJOR)
    assert rig.collect(MAJOR).compacted_logs == 0
    rig.check(3, 20)
    crashed = rig.after_crash()
    crashed.check(3, 20)


@TRANSACTIONAL
def test_an_overwritten_entry_stays_the_newer_one(transactional: bool) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=12)
    newer = rig.write(2, [0, 5], tag="newer")
    rig.storage.flush()
    newest = rig.write(2, [5], tag="newest")
    rig.cluster.live.remove(1)
    # Entry 5's newest body is in the write cache when its log is compacted, and flushed later.
    rig.collector._flush = lambda: None  # type: ignore[method-assign]
    assert rig.collect(MAJOR).compacted_logs
    rig.forget_read_cache()
    assert rig.storage.read(2, 0) == newer[0]
    rig.storage.flush()
    rig.forget_read_cache()
    assert rig.storage.read(2, 5) == newest[5]


@TRANSACTIONAL
def test_a_flush_between_the_scan_and_the_move_wins(transactional: bool) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    newer: dict[int, bytes] = {}
    waits = rig.collector._copy_rate.wait_s

    def meanwhile(units: int, now_s: float) -> float:
        if not newer:
            newer.update(rig.write(2, range(12), tag="newer"))
            rig.storage.flush()
        return waits(units, now_s)

    rig.collector._copy_rate.wait_s = meanwhile  # type: ignore[method-assign]
    assert rig.collect(MAJOR).compacted_logs
    rig.forget_read_cache()
    for entry, body in newer.items():
        assert rig.storage.read(2, entry) == body


@TRANSACTIONAL
def test_a_ledger_deleted_while_its_log_is_compacted_does_not_come_back(transactional: bool) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    waits = rig.collector._copy_rate.wait_s

    def meanwhile(units: int, now_s: float) -> float:
        if rig.storage.ledgers.get(2) is not None:
            rig.delete(2)
            rig.storage.flush()
        return waits(units, now_s)

    rig.collector._copy_rate.wait_s = meanwhile  # type: ignore[method-assign]
    rig.collect(MAJOR)
    assert list(rig.storage.entries(2)) == []
    anew = rig.write(2, [3], tag="anew")
    rig.storage.flush()
    rig.collect(MAJOR)
    rig.forget_read_cache()
    assert list(rig.storage.entries(2)) == [3]
    assert rig.storage.read(2, 3) == anew[3]


@TRANSACTIONAL
def test_a_reader_that_was_sent_to_the_old_log_finds_the_entry(transactional: bool) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    rig.forget_read_cache()
    located = rig.storage._reader._locate([key_of(2, 0)])
    assert rig.collect(MAJOR).compacted_logs
    body = rig.storage._reader._read(key_of(2, 0), located[0], rig.storage.read_cache.generation)
    assert body is not None
    assert body[:16] == key_of(2, 0)


def test_logs_of_a_flush_under_way_are_no_candidates() -> None:
    """Between force and index update a rolled log looks dead entry by entry; its rows are still to come."""
    rig = opened()
    rig.fill([1], entries=2)
    rig.write(5, range(60))
    reached, go_on = threading.Event(), threading.Event()
    put_many = rig.locations.put_many

    def slow(keys, locations, **sync):  # type: ignore[no-untyped-def]
        reached.set()
        assert go_on.wait(20)
        put_many(keys, locations, **sync)

    rig.locations.put_many = slow  # type: ignore[method-assign]
    flush = threading.Thread(target=rig.storage.flush)
    flush.start()
    assert reached.wait(20)
    seen: list[list[int]] = []
    asking = threading.Thread(
        target=lambda: seen.append(rig.storage.while_quiet(rig.entry_logger.settled_log_ids))
    )
    asking.start()
    assert not seen
    go_on.set()
    flush.join(20)
    asking.join(20)
    assert seen
    rig.locations.put_many = put_many  # type: ignore[method-assign]
    rig.collect(MAJOR)
    rig.check(5, 60)


def damaged(rig: GcRig, log: str) -> None:
    """Flip bits in the middle of a log's map and of some records."""
    file = rig.disk.open_to_write(f"{DIRECTORY}/{log}")
    file.write_at(8, bytes(12))
    file.write_at(HEADER_BYTES + 304, b"\xff" * 700)
    file.close()


@TRANSACTIONAL
def test_one_damaged_log_of_twenty_leaves_nineteen_collected(transactional: bool) -> None:
    rig = opened(transactional=transactional)
    while len(rig.log_names()) < 21:
        number = len(rig.storage.ledgers)
        rig.fill([100 + number, 200 + number], entries=7)
    logs = rig.log_names()
    settled = rig.entry_logger.settled_log_ids()
    victim = sorted(logs, key=lambda name: int(name.partition(".")[0], 16))[9]
    damaged(rig, victim)
    rig.cluster.live = {ledger for ledger in rig.cluster.live if ledger < 200}
    report = rig.collect(MAJOR)
    assert len(settled) == 20
    assert report.set_aside_logs == 1
    assert report.compacted_logs + report.deleted_logs == 19
    assert victim in rig.log_names()
    (reason,) = rig.collector.status().set_aside.values()
    assert victim in reason
    assert rig.collect().compacted_logs == 0


def test_a_log_that_cannot_be_read_or_removed_does_not_stop_the_others() -> None:
    rig = opened()
    for ledger in range(5):
        rig.write(ledger, range(12))
        rig.storage.flush()
    rig.cluster.live.clear()
    rig.faulty.inject(FaultRule("remove", "/2.log"))
    report = rig.collect()
    assert report.set_aside_logs == 1
    assert "2.log" in rig.log_names()
    rig.faulty.heal()
    rig.collect(Request())
    assert "2.log" not in rig.log_names()


@pytest.mark.parametrize("pointed_at", [False, True])
def test_a_log_that_a_power_cut_left_without_a_header(pointed_at: bool) -> None:
    """Nobody points into it if it was never forced: then it is garbage; otherwise it is damaged."""
    rig = opened()
    rig.fill([1, 2])
    file = rig.disk.create(f"{DIRECTORY}/7f.log")
    file.write_at(1024, b"\0\0\1\7 half a record")
    file.sync()
    if pointed_at:
        rig.locations.put_many([key_of(1, 99)], [0x7F << 32 | 1028])
    report = rig.collect(MAJOR)
    assert report.set_aside_logs == pointed_at
    assert ("7f.log" in rig.log_names()) == pointed_at
    if pointed_at:
        assert 0x7F in rig.collector.status().set_aside


def test_a_file_that_is_no_log_is_set_aside() -> None:
    rig = opened()
    rig.fill([1, 2])
    file = rig.disk.create(f"{DIRECTORY}/7f.log")
    file.write_at(0, b"minutes of a meeting" * 100)
    file.sync()
    assert rig.collect(MAJOR).set_aside_logs == 1
    assert "7f.log" in rig.log_names()


def test_a_half_lost_ledger_index_does_not_cost_the_logs() -> None:
    """The rows of live ledgers are gone: their entries stay, whatever Java does then."""
    rig = opened()
    rig.fill([1, 2, 3], entries=12)
    for ledger in (1, 2):
        rig.storage.ledgers.delete(ledger)
    rig.cluster.elsewhere = {2}
    report = rig.collect(MAJOR)
    assert report.unindexed_ledgers == 1
    assert report.compacted_logs
    rig.check(1, 12)
    rig.check(3, 12)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_full_disk_that_has_no_room_for_a_note_is_given_room(transactional: bool) -> None:
    """What is synced of the index is noted before a log goes; the log goes all the same."""
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    rig.location_store.inject(StoreFaultRule("flush", error="no_space"))
    report = rig.collect(MAJOR)
    assert (report.failure, report.set_aside_logs) == (None, 0)
    assert report.compacted_logs
    rig.check(2, 12)


def test_a_log_stays_when_it_cannot_be_noted_that_its_copies_are_synced() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    before = set(rig.log_names())
    rig.cluster.live.remove(1)
    rig.location_store.inject(StoreFaultRule("flush", error="storage"))
    assert not rig.collect(MAJOR).compacted_logs
    assert before <= set(rig.log_names())
    rig.check(2, 12)


def test_suspended_compactions_do_not_run_and_resumed_ones_do() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    rig.collector.suspend([Kind.MAJOR])
    report = rig.collect(MAJOR)
    assert report.compaction is None
    assert "suspended" in report.compaction_reason
    assert rig.collector.status().major_suspended
    rig.collector.resume([Kind.MAJOR])
    assert rig.collect(MAJOR).compacted_logs


def test_compactions_come_when_they_are_due() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    assert rig.collect().compaction is None
    rig.clock.advance(3600)
    assert rig.collect().compaction is Kind.MINOR
    rig.clock.advance(86_400)
    assert rig.collect().compaction is Kind.MAJOR
    status = rig.collector.status()
    assert (status.minor_compactions, status.major_compactions) == (1, 1)
    assert status.last_major_ms == status.last_minor_ms == rig.clock.time_ms()
    assert rig.collect().compaction is None


def test_a_run_ends_when_its_time_is_over() -> None:
    rig = opened(major=CompactionSettings(0.99, 86_400_000, time_max_ms=1000))
    rig.fill([1, 2], entries=30)
    rig.cluster.live.remove(1)
    rig.collector._copy_rate.wait_s = lambda *_: rig.clock.advance(0.6) or 0.0  # type: ignore[method-assign,func-returns-value]
    report = rig.collect(MAJOR)
    assert report.compacted_logs == 2
    assert "ended after 1000 ms" in report.compaction_reason
    rig.check(2, 30)


def test_a_copy_that_does_not_fit_is_not_begun() -> None:
    rig = opened(free_bytes_min=1000)
    rig.fill([1, 2, 3], entries=12)
    rig.disk.capacity_bytes = sum(map(len, rig.disk.files.values())) + 2300
    rig.cluster.live.remove(1)
    report = rig.collect(MAJOR)
    assert report.compacted_logs == 0
    assert {result.action for result in rig.collector.status().results} == {"left"}
    # A whole log goes without any room, and what it gives back is room for the others.
    rig.cluster.live.remove(2)
    report = rig.collect(MAJOR)
    assert report.compacted_logs
    rig.check(3, 12)


def test_a_full_disk_is_freed_though_nothing_can_be_flushed() -> None:
    rig = opened()
    rig.write(1, range(40))
    rig.storage.flush()
    rig.fill([2])
    rig.write(2, range(10, 20))
    rig.cluster.live.remove(1)
    rig.disk.capacity_bytes = sum(map(len, rig.disk.files.values()))
    report = rig.collect()
    assert report.deleted_ledgers == 1
    assert report.deleted_logs >= 3
    rig.storage.flush()
    rig.check(2, 20)


@TRANSACTIONAL
def test_no_log_id_is_used_twice(transactional: bool) -> None:
    rig = opened(transactional=transactional)
    used: list[int] = []
    create = FaultyFileSystem.create

    def noted(self: FaultyFileSystem, path: str, **how: Any):  # type: ignore[no-untyped-def]
        name = path.rpartition("/")[2]
        if ".log" in name:
            used.append(int(name.partition(".")[0], 16))
        return create(self, path, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFileSystem, "create", noted)
        for round_number in range(4):
            rig.fill([1 + 10 * round_number, 2 + 10 * round_number], entries=12)
            rig.cluster.live.discard(1 + 10 * round_number)
            rig.collect(MAJOR)
            rig = rig.after_crash()
    assert len(used) == len(set(used)) > 4


@pytest.mark.parametrize("transactional", [False, True])
def test_mutant_1534_that_removes_the_log_before_the_new_locations_are_durable(transactional: bool) -> None:
    """The order of all persistence steps of a compaction, as the twins see them."""
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    steps: list[str] = []
    enter, write = rig.faulty.enter, rig.location_store.write

    def traced(operation, *paths, doing="", offset=None):  # type: ignore[no-untyped-def]
        if operation in ("sync", "remove"):
            steps.append(f"{operation} {paths[0].rpartition('/')[2]}")
        enter(operation, *paths, doing=doing, offset=offset)

    def traced_write(operations, *, sync):  # type: ignore[no-untyped-def]
        steps.append("rows" if sync else "rows unsynced")
        write(operations, sync=sync)

    rig.faulty.enter = traced  # type: ignore[method-assign]
    rig.location_store.write = traced_write  # type: ignore[method-assign]
    assert rig.collect(MAJOR).compacted_logs
    assert "rows unsynced" not in steps
    first = steps.index("remove 0.log")
    rows = max(at for at, step in enumerate(steps[:first]) if step == "rows")
    assert any(step.startswith("sync ") for step in steps[:rows])


def test_mutant_4607_a_header_that_names_no_ledger_or_foreign_ones() -> None:
    """Map fields left over from another log: the log is scanned, and nothing of it is lost."""
    rig = opened()
    rig.fill([1, 2], entries=12)
    path = f"{DIRECTORY}/0.log"
    true = read_log(rig.disk, path, 0).usage
    assert true.source == "map"
    content = rig.disk.files[path]
    map_offset = content[8:16]
    for stale in (
        (HEADER_BYTES + 304).to_bytes(8, "big") + (1).to_bytes(4, "big"),
        map_offset + bytes(4),
        map_offset + (7).to_bytes(4, "big"),
        (1 << 40).to_bytes(8, "big") + (2).to_bytes(4, "big"),
        (-1).to_bytes(8, "big", signed=True) + (2).to_bytes(4, "big"),
    ):
        file = rig.disk.open_to_write(path)
        file.write_at(8, stale)
        file.close()
        usage = read_log(rig.disk, path, 0).usage
        assert usage.source == "scan"
        assert dict(zip(usage.ledgers, usage.sizes, strict=True)) == dict(
            zip(true.ledgers, true.sizes, strict=True)
        )
    rig.collect(MAJOR)
    rig.check(1, 12)


def test_a_map_that_does_not_account_for_every_byte_is_not_believed() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    path = f"{DIRECTORY}/0.log"
    content = rig.disk.files[path]
    map_offset = int.from_bytes(content[8:16], "big")
    for at in range(map_offset + 24, len(content)):
        file = rig.disk.open_to_write(path)
        file.write_at(0, content)
        file.write_at(at, bytes([content[at] ^ 0x10]))
        file.close()
        in_size = (at - map_offset - 24) % 16 >= 8
        if in_size:
            assert read_log(rig.disk, path, 0).usage.source == "scan"


def test_logs_without_a_record_are_garbage() -> None:
    rig = opened()
    rig.fill([1], entries=12)
    for name, content in (
        ("50.log", b""),
        ("51.log", MAGIC + bytes(HEADER_BYTES - 4)),
        ("52.log", bytes(2000)),
    ):
        file = rig.disk.create(f"{DIRECTORY}/{name}")
        file.write_at(0, content)
        file.close()
    file = rig.disk.create(f"{DIRECTORY}/53.log")
    file.write_at(0, b"something else" * 100)
    file.close()
    report = rig.collect()
    assert report.deleted_logs == 3
    assert report.set_aside_logs == 1
    assert "53.log" in rig.log_names()


def test_mutant_3998_a_request_is_never_lost() -> None:
    """A request that comes while a pass runs is followed by a pass of its own."""
    rig = opened(wait_ms=3_600_000)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    collect = Collector.collect
    seen: list[Request | None] = []

    def watched(request: Request | None = None):  # type: ignore[no-untyped-def]
        seen.append(request)
        begun.set()
        assert go_on.wait(20)
        report = collect(rig.collector, request)
        if len(seen) == 2:
            done.set()
        return report

    rig.collector.collect = watched  # type: ignore[method-assign]
    rig.collector.start()
    try:
        rig.collector.request(Request())
        assert begun.wait(20)
        assert rig.collector.in_force
        rig.collector.request(MINOR)
        rig.collector.request(MAJOR)
        go_on.set()
        assert done.wait(20)
    finally:
        rig.collector.stop()
    assert seen == [Request(), Request(major=True, minor=True)]
    assert not rig.collector.in_force
    last = rig.collector.status().last_pass
    assert last is not None
    assert last.compaction is Kind.MAJOR
    assert last.compacted_logs


def test_a_collector_stops_in_the_middle_of_a_slow_copy() -> None:
    rig = opened(entries_per_s=1, wait_ms=3_600_000)
    rig.fill([1, 2], entries=30)
    rig.cluster.live.remove(1)
    slow = threading.Event()
    pause = rig.collector._pace.wait

    def noticed(seconds: float) -> None:
        if seconds:
            slow.set()
        pause(seconds)

    rig.collector._pace.wait = noticed  # type: ignore[method-assign]
    rig.collector.start()
    rig.collector.request(MAJOR)
    assert slow.wait(20)
    rig.collector.stop()
    rig.check(2, 30)


def test_a_bug_in_a_pass_does_not_end_collecting() -> None:
    rig = opened(wait_ms=3_600_000)
    passes = threading.Semaphore(0)

    def broken(request: Request | None = None) -> None:
        passes.release()
        raise IndexError("a bug")

    rig.collector.collect = broken  # type: ignore[assignment,method-assign]
    rig.collector.start()
    try:
        for _ in range(3):
            rig.collector.request(Request())
            assert passes.acquire(timeout=20)
    finally:
        rig.collector.stop()
    assert rig.collector.meters.failed_passes == 3


def test_what_is_known_of_logs_is_kept_in_memory_and_over_a_restart() -> None:
    rows = MemoryStore(path="metadata-cache")
    rig = GcRig(QUICK, rows=rows)
    rig.open()
    rig.fill([1, 2], entries=12)
    first = rig.collect()
    assert first.logs_read == first.logs > 1
    assert rig.collect().logs_read == 0
    rig.cluster.live.remove(1)
    rig.collect()
    # The log that was being written becomes one of those to be read.
    again = GcRig(
        QUICK,
        cluster=rig.cluster,
        disk=rig.disk,
        locations=rig.location_rows,
        ledgers=rig.ledger_rows,
        rows=rows,
    )
    again.open()
    report = again.collect()
    assert report.logs_read == 1
    assert report.logs == first.logs + 1
    assert again.collect(MAJOR).compacted_logs == report.logs
    again.check(2, 12)
    assert {int.from_bytes(key, "big") for key, _ in rows.iterate()} == set()


def test_a_cache_that_fails_or_lies_costs_time_only() -> None:
    rows = MemoryStore(path="metadata-cache")
    rig = GcRig(QUICK, rows=rows)
    rig.open()
    rig.fill([1, 2], entries=12)
    logs = rig.collect().logs
    for key, value in list(rows.iterate()):
        # Live bytes that the ledgers do not add up to.
        rows.write([Put(key, value[:25] + bytes([value[25] ^ 1]) + value[26:])], sync=False)
    again = GcRig(
        QUICK,
        cluster=rig.cluster,
        disk=rig.disk,
        locations=rig.location_rows,
        ledgers=rig.ledger_rows,
        rows=rows,
    )
    again.open()
    assert again.collect().logs_read == logs + 1
    again.check(1, 12)


def test_memory_of_logs_is_bounded() -> None:
    rig = opened(usages_pairs_max=3)
    rig.fill([1, 2], entries=12)
    logs = rig.collect().logs
    assert rig.collector._usages.pairs <= 3
    assert rig.collect().logs_read == logs - 1
    rig.cluster.live.remove(1)
    assert rig.collect(MAJOR).compacted_logs == logs
    rig.check(2, 12)


def test_a_pass_holds_no_more_ledgers_of_logs_than_memory_is_bounded_to() -> None:
    """What a bounded collector finds, explains and does is what one does that holds everything."""
    rigs = [opened(usages_pairs_max=3), opened()]
    for rig in rigs:
        rig.fill([1, 2, 3], entries=12)
        rig.collect()
    small, large = rigs
    held = [seen for seen in small.collector._seen.values() if isinstance(seen, LogUsage)]
    assert 0 < sum(len(usage.ledgers) for usage in held) <= 3
    assert len(small.collector._seen) == len(large.collector._seen) > len(held)
    assert all(isinstance(seen, LogUsage) for seen in large.collector._seen.values())
    assert small.collector.explain() == large.collector.explain()
    for rig in rigs:
        rig.cluster.live.remove(1)
    reports = [rig.collect() for rig in rigs]
    assert reports[0].deleted_ledgers == reports[1].deleted_ledgers == 1
    live = [{log_id: seen.remaining_bytes for log_id, seen in rig.collector._seen.items()} for rig in rigs]
    assert live[0] == live[1]
    reports = [rig.collect(MAJOR) for rig in rigs]
    assert reports[0].compacted_logs == reports[1].compacted_logs > 0
    assert reports[0].copied_bytes == reports[1].copied_bytes
    for rig in rigs:
        rig.cluster.live.clear()
        rig.cluster.live.add(99)
    assert rigs[0].collect().deleted_ledgers == rigs[1].collect().deleted_ledgers == 2


def test_a_disk_that_fails_ends_the_pass_and_the_next_one_goes_on() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    rig.location_store.inject(StoreFaultRule("get", error="storage"))
    report = rig.collect(MAJOR)
    assert report.failure
    assert rig.collector.meters.failed_passes == 1
    rig.location_store.heal()
    assert rig.collect(MAJOR).compacted_logs
    rig.check(2, 12)


def test_a_sync_that_fails_while_compacting_stops_the_storage() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    rig.collect()
    rig.faulty.inject(FaultRule("sync", ".log"))
    report = rig.collect(MAJOR)
    assert report.failure
    assert rig.failures
    with pytest.raises(StorageError):
        rig.storage.flush()


def test_a_pass_that_is_not_forced_does_not_read_a_damaged_log_again() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    damaged(rig, "1.log")
    assert rig.collect().set_aside_logs == 1
    assert rig.collect().set_aside_logs == 0
    assert list(rig.collector.status().set_aside) == [1]
    assert rig.collect(replace(MINOR)).set_aside_logs == 1
