"""Checkpoints over several ledger directories: flushed at a time, no mark moves before the last of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from bkctl.errors import BkctlError, CorruptionError, StorageError
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
