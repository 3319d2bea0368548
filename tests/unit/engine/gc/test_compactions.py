"""Compactions: what they copy, when they run, and what other threads do at the same time."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.config.server_keys.garbage import CompactionSettings
from bkctl.engine.gc import log_copier
from bkctl.engine.gc.pace import StoppedError
from bkctl.engine.gc.policy import Kind
from bkctl.errors import NoSpaceError, StorageError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem, FileOperation
from tests.support.faulty_store import StoreFaultRule
from tests.support.storage_rig import key_of
from tests.unit.engine.gc.gc_rig import MAJOR, QUICK, TRANSACTIONAL, GcRig, opened


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
    waits = rig.collector._compactions._copy_rate.wait_s

    def meanwhile(units: int, now_s: float) -> float:
        if not newer:
            newer.update(rig.write(2, range(12), tag="newer"))
            rig.storage.flush()
        return waits(units, now_s)

    rig.collector._compactions._copy_rate.wait_s = meanwhile  # type: ignore[method-assign]
    assert rig.collect(MAJOR).compacted_logs
    rig.forget_read_cache()
    for entry, body in newer.items():
        assert rig.storage.read(2, entry) == body


@TRANSACTIONAL
def test_a_ledger_deleted_while_its_log_is_compacted_does_not_come_back(transactional: bool) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    waits = rig.collector._compactions._copy_rate.wait_s

    def meanwhile(units: int, now_s: float) -> float:
        if rig.storage.ledgers.get(2) is not None:
            rig.delete(2)
            rig.storage.flush()
        return waits(units, now_s)

    rig.collector._compactions._copy_rate.wait_s = meanwhile  # type: ignore[method-assign]
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


def test_a_log_stays_when_it_cannot_be_noted_that_its_copies_are_synced() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    before = set(rig.log_names())
    rig.cluster.live.remove(1)
    rig.location_store.inject(StoreFaultRule("flush", error="storage"))
    assert not rig.collect(MAJOR).compacted_logs
    assert before <= set(rig.log_names())
    rig.check(2, 12)


@TRANSACTIONAL
@pytest.mark.parametrize("operation", ["open", "remove"])
def test_a_log_that_cannot_be_opened_or_removed_does_not_keep_the_others(
    transactional: bool, operation: FileOperation
) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2], entries=40)
    rig.cluster.live.remove(1)
    rig.collect()
    rig.faulty.inject(FaultRule(operation, "/0.log", error_number=errno.EACCES))
    report = rig.collect(MAJOR)
    assert report.failure is None
    assert (report.set_aside_logs, report.compacted_logs > 2) == (1, True)
    assert "0.log" in rig.log_names()
    rig.faulty.heal()
    assert rig.collect(MAJOR).compacted_logs
    assert "0.log" not in rig.log_names()
    rig.check(2, 40)


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
    rig.collector._compactions._copy_rate.wait_s = lambda *_: rig.clock.advance(0.6) or 0.0  # type: ignore[method-assign,func-returns-value]
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
    before = steps[: steps.index("remove 0.log")]
    moved = max(at for at, step in enumerate(before) if step == "rows unsynced")
    # A copy is on disk before a row names it, and all rows are before the log goes.
    assert any(step.startswith("sync ") for step in before[:moved])
    assert "rows" in before[moved:]


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


@TRANSACTIONAL
def test_a_stop_does_not_wait_for_a_log_in_which_little_lives(transactional: bool) -> None:
    """No piece of it is copied for a long time, and the log may have gigabytes."""
    rig = GcRig(replace(QUICK, transactional=transactional), log_bytes_max=12 << 20)
    rig.open()
    for entry in range(100):
        rig.write(1, [entry], size_bytes=100_000)
        rig.storage.flush()
    for entry in range(20):
        rig.write(2, [entry], size_bytes=200_000)
        rig.storage.flush()
    rig.cluster.live.remove(1)
    rig.collect()
    reads: list[str] = []

    def stopping(path: str) -> bool:
        if path.endswith("/0.log"):
            reads.append(path)
            if len(reads) == 4:
                rig.collector._pace.stop()
        return False

    rig.faulty.inject(FaultRule("read", stopping))
    with pytest.raises(StoppedError):
        rig.collect(MAJOR)
    assert 4 <= len(reads) <= 6


def test_a_log_whose_rows_were_moved_goes_only_when_that_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain compaction is cut off in front of its sync; then the log is compacted by another way."""
    rig = opened()
    rig.fill([1, 2], entries=12)
    log_id = rig.entry_logger.settled_log_ids()[0]
    compactions = rig.collector._compactions

    def no_space() -> None:
        raise NoSpaceError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(rig.locations, "sync", no_space)
        with pytest.raises(NoSpaceError):
            compactions._compactor.compact(log_id, (), rows=None)
    rig.location_store.inject(StoreFaultRule("flush", error="no_space"))
    assert compactions._transactional.compact(log_id, (), rows=None).entries == 0
    assert log_id not in rig.entry_logger.log_ids()
    crashed = rig.after_crash()
    for ledger in (1, 2):
        crashed.check(ledger, 12)


def break_copy(rig: GcRig, how: str) -> None:
    """Break each copy before its name is that of a log."""
    enter = rig.faulty.enter

    def watched(operation: FileOperation, *paths: str, **more: Any) -> None:
        if operation == "link":
            content = rig.disk.files[paths[0]]
            if how == "records":
                at = HEADER_BYTES + 310
                content = content[:at] + b"\xff" * 600 + content[at + 600 :]
            else:
                content = content[: content.index(b"\xff" * 8, HEADER_BYTES) - 100]
            rig.disk.replace(paths[0], content)
        enter(operation, *paths, **more)

    rig.faulty.enter = watched  # type: ignore[method-assign]


@pytest.mark.parametrize("how", ["records", "end"])
def test_a_copy_that_is_not_whole_on_the_disk_never_takes_the_place_of_its_log(how: str) -> None:
    rig = opened(transactional=True)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    sources = rig.entry_logger.settled_log_ids()
    break_copy(rig, how)
    assert rig.collect(MAJOR).compacted_logs == 0
    rig.check(2, 12)
    # Nor does a pass that finds the remains, which leaves both logs alone.
    del rig.faulty.enter
    assert rig.collect(MAJOR).compacted_logs == 0
    unresolved = rig.collector._compactions.unresolved
    assert set(sources) <= {*unresolved, *rig.collector.status().set_aside}
    assert set(sources) <= set(rig.entry_logger.log_ids())
    rig.check(2, 12)
    rig.after_crash().check(2, 12)


def test_a_copy_that_would_be_too_large_for_a_log_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_copier, "OFFSET_MAX", HEADER_BYTES + 700)
    rig = opened(transactional=True)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    assert rig.collect(MAJOR).compacted_logs == 0
    assert not [name for name in rig.log_names() if "compact" in name]
    rig.check(2, 12)


def test_a_copy_that_finds_no_room_for_its_header_is_removed() -> None:
    rig = opened(transactional=True)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(1)
    rig.faulty.inject(FaultRule("write", path=".compacting", error_number=errno.ENOSPC))
    assert rig.collect(MAJOR).compacted_logs == 0
    assert rig.collector.meters.compaction_failures > 1
    assert not [name for name in rig.log_names() if "compact" in name]
    rig.check(2, 12)
