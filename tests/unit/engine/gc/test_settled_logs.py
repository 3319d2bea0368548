"""What a collector knows of settled logs: damage, maps that lie, rows that are kept, and bounds of memory."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from bkctl.codec.entrylog import HEADER_BYTES, MAGIC
from bkctl.engine.gc.log_reading import read_log
from bkctl.engine.gc.log_usage import LogUsage
from bkctl.engine.gc.policy import Request
from bkctl.kvstore.base import Put
from bkctl.kvstore.memory import MemoryStore
from bkctl.vfs.faulty import FaultRule, FileOperation
from tests.support.storage_rig import DIRECTORY, key_of
from tests.unit.engine.gc.gc_rig import MAJOR, MINOR, QUICK, TRANSACTIONAL, GcRig, damaged, opened


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


@pytest.mark.parametrize("operation", ["open", "remove"])
@pytest.mark.parametrize("pairs_max", [0, 100])
def test_a_log_that_cannot_be_read_or_removed_does_not_stop_the_others(
    operation: FileOperation, pairs_max: int
) -> None:
    for first in (1, 2, 3):
        # With totals alone in memory a log is read once more, and may fail then.
        rig = opened(usages_pairs_max=pairs_max)
        for ledger in range(5):
            rig.write(ledger, range(12))
            rig.storage.flush()
        rig.cluster.live.clear()
        before = rig.log_names()
        rig.faulty.inject(FaultRule(operation, "/2.log", first=first))
        report = rig.collect()
        assert report.failure is None
        assert (report.set_aside_logs == 1) == ("2.log" in rig.log_names())
        assert "2.log" in rig.log_names() or first > 1
        assert len(set(before) - set(rig.log_names()) - {"2.log"}) >= 3
        rig.faulty.heal()
        rig.collect(Request())
        left = rig.log_names()
        assert "2.log" not in left
        # The room is free behind a power cut, too.
        assert set(rig.after_crash().log_names()) <= set(left)


def test_a_log_whose_name_cannot_be_read_does_not_stop_the_others() -> None:
    """Whether it is a link to a copy on another disk cannot be told: it is left alone."""
    rig = opened()
    for ledger in range(5):
        rig.write(ledger, range(12))
        rig.storage.flush()
    rig.cluster.live.clear()
    before = rig.log_names()
    rig.faulty.inject(FaultRule("list", "/2.log"))
    report = rig.collect()
    assert report.failure is None
    assert report.deleted_logs == len(set(before) - set(rig.log_names())) >= 3
    assert "2.log" in rig.log_names()
    assert list(rig.collector._compactions.unresolved) == [2]
    rig.faulty.heal()
    rig.collect()
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
    assert rig.collector._logs._usages.pairs <= 3
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
    held = [seen for seen in small.collector._logs.seen.values() if isinstance(seen, LogUsage)]
    assert 0 < sum(len(usage.ledgers) for usage in held) <= 3
    assert len(small.collector._logs.seen) == len(large.collector._logs.seen) > len(held)
    assert all(isinstance(seen, LogUsage) for seen in large.collector._logs.seen.values())
    assert small.collector.explain() == large.collector.explain()
    for rig in rigs:
        rig.cluster.live.remove(1)
    reports = [rig.collect() for rig in rigs]
    assert reports[0].deleted_ledgers == reports[1].deleted_ledgers == 1
    live = [
        {log_id: seen.remaining_bytes for log_id, seen in rig.collector._logs.seen.items()} for rig in rigs
    ]
    assert live[0] == live[1]
    reports = [rig.collect(MAJOR) for rig in rigs]
    assert reports[0].compacted_logs == reports[1].compacted_logs > 0
    assert reports[0].copied_bytes == reports[1].copied_bytes
    for rig in rigs:
        rig.cluster.live.clear()
        rig.cluster.live.add(99)
    assert rigs[0].collect().deleted_ledgers == rigs[1].collect().deleted_ledgers == 2


def test_a_pass_that_is_not_forced_does_not_read_a_damaged_log_again() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    damaged(rig, "1.log")
    assert rig.collect().set_aside_logs == 1
    assert rig.collect().set_aside_logs == 0
    assert list(rig.collector.status().set_aside) == [1]
    assert rig.collect(replace(MINOR)).set_aside_logs == 1
