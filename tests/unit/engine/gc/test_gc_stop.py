"""A stop in the middle of a collection: it waits for nobody, and what it cuts off is no error."""

from __future__ import annotations

import logging
import threading

import pytest

from bkctl.errors import ConnectionFailedError
from tests.unit.engine.gc.gc_rig import MAJOR, Cluster, opened


@pytest.mark.parametrize("error", [ConnectionFailedError("closed"), RuntimeError("no loop is running")])
def test_a_store_that_is_closed_under_a_stop_is_no_error(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    rig = opened(wait_ms=3_600_000)
    rig.fill([1, 2])
    asked, closed = threading.Event(), threading.Event()

    class Closing(Cluster):
        def ranges(self):  # type: ignore[no-untyped-def]
            asked.set()
            assert closed.wait(20)
            raise error

    rig.collector._ledgers._cluster = Closing()
    rig.collector.start()
    rig.collector.request(MAJOR)
    assert asked.wait(20)
    rig.collector.stop()
    closed.set()
    rig.collector._thread.join(20)
    report = rig.collector.status().last_pass
    assert report is not None
    assert (report.failure, report.listing_failed) == ("stopped", None)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_stop_does_not_wait_for_a_store_that_is_slow() -> None:
    rig = opened(wait_ms=3_600_000)
    rig.fill([1, 2])
    asked, answer = threading.Event(), threading.Event()

    class Slow(Cluster):
        def ranges(self):  # type: ignore[no-untyped-def]
            asked.set()
            assert answer.wait(20)
            return super().ranges()

    rig.collector._ledgers._cluster = Slow()
    rig.collector.start()
    rig.collector.request(MAJOR)
    assert asked.wait(20)
    rig.collector.stop()
    rig.storage.stop()
    answer.set()
    rig.collector._thread.join(20)
    assert not rig.collector._thread.is_alive
    assert rig.deleted == []


def test_a_failure_that_is_final_may_stop_the_collector_on_its_own_thread() -> None:
    rig = opened(wait_ms=3_600_000)
    rig.fill([1, 2])
    rig.cluster.live.remove(1)
    stopped = threading.Event()

    def stop(_: object) -> None:
        rig.collector.stop()
        stopped.set()

    rig.storage._turns._on_failure = stop
    rig.break_disk()
    rig.collector.start()
    rig.collector.request(MAJOR)
    try:
        assert stopped.wait(30), "it waits for itself"
        rig.collector._thread.join(20)
        assert not rig.collector._thread.is_alive
    finally:
        # Or the thread would be busy for ever.
        rig.collector._pace._asking.set()
