"""A storage whose flush thread runs, and threads beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.storage_rig import StorageRig

SECONDS = 20.0


@contextmanager
def started(rig: StorageRig) -> Iterator[StorageRig]:
    rig.storage.start()
    try:
        yield rig
    finally:
        if rig.gate is not None:
            rig.gate.set()
        rig.storage.stop()
        assert not any(thread.name == "DbStorage flush thread" for thread in threading.enumerate())


@contextmanager
def running(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """``work`` in a thread that has ended, without an error, when the block is left."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(SECONDS)
    assert not thread.is_alive()
    assert not errors, errors
