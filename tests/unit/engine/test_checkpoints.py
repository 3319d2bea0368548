"""Checkpoints over several ledger directories: flushed at a time, no mark moves before the last of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from bkctl.codec.last_mark import LastMark, decode_last_mark
from bkctl.engine.checkpoint import LastMarks
from bkctl.errors import BkctlError, CorruptionError, StorageError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import WAIT_S, EngineRig, entry_body, small_settings
from tests.support.twin_rig import TwinRig


def rig_of(directories: int) -> EngineRig:
    rig = EngineRig(small_settings(directories=directories))
    rig.start()
    for ledger in range(directories):
        rig.add(ledger, 0)
    return rig


def around(flush: Callable[[], None], before: Callable[[], object]) -> Callable[[], None]:
    def flushing() -> None:
        before()
        flush()

    return flushing


def test_directories_are_flushed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with rig_of(3) as rig:
        # Nobody passes until all of them are in their flush.
        together = threading.Barrier(3)
        for storage in rig.bookie.storages:
            monkeypatch.setattr(storage, "flush", around(storage.flush, lambda: together.wait(WAIT_S)))
        before = rig.bookie.marks.written(0)
        rig.bookie.checkpoint()
        assert rig.bookie.marks.written(0) != before
        assert [storage.caches.active.count for storage in rig.bookie.storages] == [0, 0, 0]


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([None, StorageError("second"), None], "second"),
        ([StorageError("first"), None, StorageError("third")], "first|third"),
        # Not one to be tried again, so that it must not hide behind one that is.
        ([StorageError("first"), None, CorruptionError("third")], "third"),
        ([MemoryError("unforeseen"), StorageError("second"), None], "unforeseen"),
    ],
)
def test_a_directory_that_fails_keeps_the_mark_and_not_the_others(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception | None], raised: str
) -> None:
    def fail(error: Exception) -> Callable[[], None]:
        def flush() -> None:
            raise error

        return flush

    with rig_of(3) as rig:
        before = rig.bookie.marks.written(0)
        for storage, error in zip(rig.bookie.storages, errors, strict=True):
            if error is not None:
                monkeypatch.setattr(storage, "flush", fail(error))
        with pytest.raises((BkctlError, MemoryError), match=raised):
            rig.bookie.checkpoint()
        assert rig.bookie.marks.written(0) == before
        flushed = [storage.caches.active.count == 0 for storage in rig.bookie.storages]
        assert flushed == [error is None for error in errors]
        monkeypatch.undo()
        rig.bookie.checkpoint()
        assert rig.bookie.marks.written(0) != before
        for ledger in range(3):
            assert rig.bookie.reads.read(ledger, 0) == entry_body(ledger, 0)


def test_without_threads_directories_are_flushed_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with rig_of(3) as rig:
        before = rig.bookie.marks.written(0)
        monkeypatch.setattr(ThreadPoolExecutor, "submit", no_thread)
        rig.bookie.checkpoint()
        assert rig.bookie.marks.written(0) != before


def test_a_storage_that_makes_no_room_by_itself_gets_a_checkpoint_when_it_is_full() -> None:
    """The timer is an hour away: adds that found no room are only taken because the storage asked."""
    rig = TwinRig(small_settings(write_cache_bytes=2_000))
    with rig:
        rig.start()
        for entry in range(20):
            rig.add(1, entry, payload=bytes(500))
        assert rig.bookie.storages[0].meters.flushes > 1
        assert rig.bookie.marks.written(0).offset > 0
    with rig.reopen() as after:
        after.start()
        assert list(after.bookie.reads.entries(1)) == list(range(20))


def test_the_mark_does_not_pass_what_was_added_during_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is in the journal alone: a mark taken behind the flush would have the next start leave it out."""
    with rig_of(1) as rig:
        flush = rig.bookie.storages[0].flush

        def flush_then_add() -> None:
            flush()
            rig.add(0, 1)

        before = rig.bookie.journals[0].mark
        monkeypatch.setattr(rig.bookie.storages[0], "flush", flush_then_add)
        rig.bookie.checkpoint()
        assert rig.bookie.marks.written(0) == before
        monkeypatch.undo()
        with rig.cut_off() as after:
            after.start()
            for entry in range(2):
                assert after.bookie.reads.read(0, entry) == entry_body(0, entry)


def test_the_steps_of_a_checkpoint_have_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with rig_of(1) as rig:
        steps: list[str] = []

        def traced(of: object, name: str) -> None:
            original = getattr(of, name)

            def step(*arguments: object) -> object:
                steps.append(name)
                return original(*arguments)

            monkeypatch.setattr(of, name, step)

        traced(rig.bookie.storages[0], "flush")
        traced(rig.bookie.storages[0], "note_synced")
        traced(rig.bookie.marks, "write")
        traced(rig.bookie.journals[0], "retire")
        rig.bookie.checkpoint()
        assert steps == ["flush", "note_synced", "write", "retire"]
        monkeypatch.undo()


def marked(system: FaultyFileSystem) -> LastMarks:
    """The marks as a start finds them."""
    marks = LastMarks(system, ["/l0", "/l1"], 1)
    marks.read(0)
    return marks


def test_a_mark_counts_that_one_of_two_directories_has_taken() -> None:
    disk = MemoryFileSystem()
    for directory in ("/l0", "/l1"):
        disk.make_directories(directory)
    system = FaultyFileSystem(disk)
    marks = marked(system)
    marks.write(0, LastMark(4, 2048))
    system.inject(FaultRule("create", lambda path: path.startswith("/l1/")))
    marks.write(0, LastMark(5, 1024))
    assert marks.written(0) == marked(FaultyFileSystem(disk.crash())).written(0) == LastMark(5, 1024)
    # Neither an older one nor one further back in the same journal takes its place.
    for older in (LastMark(4, 4096), LastMark(5, 512)):
        marks.write(0, older)
    assert marked(FaultyFileSystem(disk.crash())).written(0) == LastMark(5, 1024)
    system.inject(FaultRule("create", lambda path: path.startswith("/l0/")))
    with pytest.raises(StorageError):
        marks.write(0, LastMark(6, 512))
    assert marks.written(0) == LastMark(5, 1024)
    system.heal()
    # What no directory has taken is written at the next turn.
    marks.write(0, LastMark(6, 512))
    marks_left = [disk.crash().files[f"{directory}/lastMark"] for directory in ("/l0", "/l1")]
    assert [decode_last_mark(each) for each in marks_left] == [LastMark(6, 512)] * 2


@pytest.mark.parametrize("behind", ["/l0", "/l1"])
def test_of_two_marks_in_one_journal_the_one_further_on_counts(behind: str) -> None:
    disk = MemoryFileSystem()
    for directory in ("/l0", "/l1"):
        disk.make_directories(directory)
    system = FaultyFileSystem(disk)
    marks = marked(system)
    marks.write(0, LastMark(6, 512))
    system.inject(FaultRule("create", lambda path: path.startswith(behind)))
    marks.write(0, LastMark(6, 1024))
    assert marked(FaultyFileSystem(disk.crash())).written(0) == LastMark(6, 1024)
    # One that is cut off says nothing, and does not keep the other from being read.
    system.heal()
    system.replace(f"{behind}/lastMark", b"short")
    assert marked(FaultyFileSystem(disk.crash())).written(0) == LastMark(6, 1024)


def test_checkpoints_come_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of the one that began first would be written behind the journals that the other removed."""
    with rig_of(1) as rig:
        flush = rig.bookie.storages[0].flush
        entered, left = threading.Semaphore(0), threading.Event()

        def wait_then_flush() -> None:
            entered.release()
            assert left.wait(WAIT_S)
            flush()

        monkeypatch.setattr(rig.bookie.storages[0], "flush", wait_then_flush)
        threads = [threading.Thread(target=rig.bookie.checkpoint) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert entered.acquire(timeout=WAIT_S)
        assert not entered.acquire(timeout=0.1), "the other one waits"
        left.set()
        for thread in threads:
            thread.join(WAIT_S)
        assert entered.acquire(timeout=0)
        monkeypatch.undo()
