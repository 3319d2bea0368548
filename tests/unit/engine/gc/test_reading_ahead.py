"""The next log of a compaction, which is read while the one before it is copied: what happens in between."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from bkctl.engine.engine_thread import EngineThread
from bkctl.engine.gc.copying import Piece
from bkctl.engine.gc.log_compactor import LogCompactor
from bkctl.engine.gc.log_copier import LogCopier
from bkctl.engine.gc.one_ahead import OneAhead
from bkctl.engine.gc.pace import StoppedError
from bkctl.errors import StorageError
from bkctl.vfs.faulty import FaultRule, FaultyFile
from tests.support.storage_rig import key_of
from tests.unit.engine.gc.gc_rig import MAJOR, TRANSACTIONAL, GcRig, opened

WAIT_S = 20


def half_dead(**changes: object) -> GcRig:
    """Several logs with 24 entries of each of two ledgers, the first of which is deleted."""
    rig = opened(**changes)
    rig.fill([1, 2], entries=24)
    rig.cluster.live.remove(1)
    return rig


def compactor_of(rig: GcRig) -> LogCompactor:
    return rig.collector._compactions._compactor


def next_is_read(rig: GcRig) -> int:
    """Wait until the first piece of the next log is there, and return the log's id."""
    reading = compactor_of(rig)._next
    assert reading is not None
    until_s = time.monotonic() + WAIT_S
    while reading.ahead._made.empty():
        assert time.monotonic() < until_s
        time.sleep(0.001)
    return reading.log_id


def at_first_copy(rig: GcRig, work: Callable[[], None]) -> None:
    """Have ``work`` done before the first piece of the first log is copied."""
    waits = rig.collector._compactions._copy_rate.wait_s
    works = [work]

    def before_copy(units: int, now_s: float) -> float:
        if works:
            works.pop()()
        return waits(units, now_s)

    rig.collector._compactions._copy_rate.wait_s = before_copy  # type: ignore[method-assign]


def entries_in(rig: GcRig, ledger: int, log_id: int, entries: int) -> list[int]:
    places = rig.storage.locations.get_many([key_of(ledger, entry) for entry in range(entries)])
    return [entry for entry, place in enumerate(places) if place is not None and place >> 32 == log_id]


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "ahead" in thread.name]


@TRANSACTIONAL
def test_a_flush_behind_the_reading_of_the_next_log_wins(transactional: bool) -> None:
    rig = half_dead(transactional=transactional)
    newer: dict[int, bytes] = {}

    def overwrite() -> None:
        of_next = entries_in(rig, 2, next_is_read(rig), 24)
        assert of_next
        newer.update(rig.write(2, of_next, tag="newer"))
        rig.storage.flush()

    at_first_copy(rig, overwrite)
    assert rig.collect(MAJOR).compacted_logs > 2
    rig.forget_read_cache()
    assert newer
    for entry, body in newer.items():
        assert rig.storage.read(2, entry) == body
    assert reading_threads() == []


@TRANSACTIONAL
def test_a_ledger_deleted_behind_the_reading_of_the_next_log_does_not_come_back(transactional: bool) -> None:
    rig = half_dead(transactional=transactional)

    def delete() -> None:
        next_is_read(rig)
        rig.delete(2)
        rig.storage.flush()

    at_first_copy(rig, delete)
    rig.collect(MAJOR)
    assert list(rig.storage.entries(2)) == []


@TRANSACTIONAL
def test_damage_in_the_next_log_sets_that_log_aside_and_no_other(transactional: bool) -> None:
    rig = half_dead(transactional=transactional)
    names = rig.log_names()
    rig.faulty.inject(FaultRule("open", f"/{names[1]}", error_number=errno.EIO))
    report = rig.collect(MAJOR)
    assert report.compacted_logs > 1
    assert names[1] in rig.log_names()
    assert names[0] not in rig.log_names()
    assert reading_threads() == []


@TRANSACTIONAL
def test_an_entry_overwritten_behind_the_reading_makes_up_for_none_that_is_lost(transactional: bool) -> None:
    """The rows into the next log are counted with an entry less than its first piece has."""
    rig = half_dead(transactional=transactional)
    # The log that is compacted second.
    settled = 2
    overwritten, *_, hurt = entries_in(rig, 2, settled, 24)
    with_another_ledger(rig, hurt)

    def overwrite() -> None:
        assert next_is_read(rig) == settled
        rig.write(2, [overwritten], tag="newer")
        rig.storage.flush()

    at_first_copy(rig, overwrite)
    report = rig.collect(MAJOR)
    assert report.compacted_logs > 2
    assert list(rig.collector.status().set_aside) == [settled]
    assert f"{settled}.log" in rig.log_names()
    assert entries_in(rig, 2, settled, 24)


def with_another_ledger(rig: GcRig, entry: int) -> None:
    """Flip one bit of the ledger id of the record of an entry of ledger 2."""
    (place,) = rig.locations.places([key_of(2, entry)])
    file = rig.disk.open_to_write(compactor_of(rig)._path(place >> 32))
    file.write_at(place & 0xFFFF_FFFF, (2 ^ 0x100).to_bytes(8, "big"))
    file.sync()
    file.close()


@pytest.mark.parametrize("piece_entries", [5, 1], ids=["few pieces", "many pieces"])
def test_without_a_thread_each_log_is_read_in_its_turn(
    piece_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = half_dead(entries_unflushed_max=piece_entries)
    refused: list[EngineThread] = []

    def refuse(thread: EngineThread) -> None:
        refused.append(thread)
        raise StorageError("no thread")

    monkeypatch.setattr(EngineThread, "start", refuse)
    assert rig.collect(MAJOR).compacted_logs > 2
    assert len(refused) > 2
    rig.check(2, 24)


def test_a_reading_that_an_unforeseen_error_begins_with_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = half_dead()
    begin = OneAhead.begin

    def begin_and_fail(ahead: OneAhead[Piece]) -> None:
        begin(ahead)
        raise MemoryError

    monkeypatch.setattr(OneAhead, "begin", begin_and_fail)
    with pytest.raises(MemoryError):
        rig.collect(MAJOR)
    assert reading_threads() == []
    rig.check(2, 24)


def test_a_compaction_that_ends_early_leaves_no_reading_behind() -> None:
    rig = half_dead()
    compactions = rig.collector._compactions
    # Behind the first log.
    at_first_copy(rig, lambda: compactions.suspend(list(compactions._last_s)))
    report = rig.collect(MAJOR)
    assert report.compacted_logs == 1
    assert "suspended" in report.compaction_reason
    assert compactor_of(rig)._next is None
    assert reading_threads() == []
    rig.check(2, 24)


def test_a_log_without_room_is_left_out_and_the_one_behind_it_is_read_anew() -> None:
    rig = half_dead()
    compactions = rig.collector._compactions
    way_of, left = compactions._way_of, []

    def no_room_once(usage):  # type: ignore[no-untyped-def]
        if not left and compactor_of(rig)._next is not None:
            left.append(usage.log_id)
            return None, "no room"
        return way_of(usage)

    compactions._way_of = no_room_once  # type: ignore[method-assign]
    report = rig.collect(MAJOR)
    assert left
    assert report.compacted_logs > 1
    assert compactor_of(rig)._path(left[0]).rsplit("/", 1)[1] in rig.log_names()
    rig.check(2, 24)


def test_a_reading_that_was_given_up_with_an_error_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pass begins with the log that was read ahead when the one before it ended."""
    # Behind its first piece the log is still open.
    rig = half_dead(entries_unflushed_max=2)
    compactions = rig.collector._compactions
    given_up: list[int] = []
    close = FaultyFile.close

    def closing(file: FaultyFile) -> None:
        close(file)
        if given_up and file.path.endswith(f"/{given_up[0]:x}.log"):
            raise StorageError("closing", path=file.path)

    def suspend() -> None:
        given_up.append(next_is_read(rig))
        compactions.suspend(list(compactions._last_s))

    monkeypatch.setattr(FaultyFile, "close", closing)
    at_first_copy(rig, suspend)
    report = rig.collect(MAJOR)
    assert (report.failure, report.compacted_logs) == (None, 1)
    monkeypatch.setattr(FaultyFile, "close", close)
    compactions.resume(list(compactions._last_s))
    begun = threading.Thread(target=rig.collect, args=(MAJOR,), daemon=True)
    begun.start()
    begun.join(WAIT_S)
    assert not begun.is_alive()
    assert f"{given_up[0]:x}.log" not in rig.log_names()
    rig.check(2, 24)


def test_a_stop_does_not_wait_until_all_rows_of_a_copy_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first log is read before its rows are counted, so that all of its copy is asked for again."""
    rig = half_dead(transactional=True)
    still_named, stopped = LogCopier._still_named, []

    def stop_before(copier: LogCopier, source: int, copies: Sequence[str]) -> int:
        rig.collector._pace.stop()
        try:
            return still_named(copier, source, copies)
        except StoppedError:
            stopped.append(source)
            raise

    monkeypatch.setattr(LogCopier, "_still_named", stop_before)
    with pytest.raises(StoppedError):
        rig.collect(MAJOR)
    assert stopped
    assert not [name for name in rig.log_names() if "compact" in name]
    rig.check(2, 24)
