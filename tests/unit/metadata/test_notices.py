"""The thread that listeners are called from."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator

import pytest

from bkctl.clock import SystemClock
from bkctl.errors import ConnectionFailedError
from bkctl.metadata import notices
from bkctl.metadata.memory import MemoryCluster, MemoryTree
from bkctl.metadata.notices import NoticeThread
from bkctl.metadata.tree import sequence_name

PATIENCE_S = 20.0


@pytest.fixture
def thread() -> Iterator[NoticeThread]:
    made = NoticeThread("test-notices", SystemClock())
    yield made
    made.close()
    assert "test-notices" not in {found.name for found in threading.enumerate()}


def test_actions_of_one_key_that_wait_are_one(thread: NoticeThread) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ran: queue.Queue[str] = queue.Queue()

    def hold() -> None:
        begun.set()
        go_on.wait(PATIENCE_S)

    thread.post("first", hold)
    assert begun.wait(PATIENCE_S)
    for number in range(5):
        thread.post("same", lambda number=number: ran.put(f"same {number}"))
    thread.post("other", lambda: ran.put("other"))
    thread.post("cancelled", lambda: ran.put("cancelled"))
    thread.cancel("cancelled")
    go_on.set()
    assert [ran.get(timeout=PATIENCE_S), ran.get(timeout=PATIENCE_S)] == ["same 4", "other"]
    thread.post("last", lambda: ran.put("last"))
    assert ran.get(timeout=PATIENCE_S) == "last"


def test_an_action_without_a_connection_is_tried_again(
    thread: NoticeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_RETRY_DELAY_S", 0.01)
    attempts: queue.Queue[int] = queue.Queue()

    def attempt() -> None:
        attempts.put(attempts.qsize())
        if attempts.qsize() < 3:
            raise ConnectionFailedError("not now")

    thread.post("attempt", attempt)
    while attempts.qsize() < 3:
        threading.Event().wait(0.005)
    done = threading.Event()
    thread.post("done", done.set)
    assert done.wait(PATIENCE_S)
    assert attempts.qsize() == 3


def test_a_listener_with_a_bug_does_not_silence_the_others(
    thread: NoticeThread, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()
    with caplog.at_level(logging.ERROR):
        thread.post("bug", lambda: [].pop())
        thread.post("other", done.set)
        assert done.wait(PATIENCE_S)
    assert "a listener failed" in caplog.text


def test_an_action_may_close_its_own_thread_and_nothing_runs_after_that(thread: NoticeThread) -> None:
    closed = threading.Event()

    def close() -> None:
        thread.close()
        closed.set()

    thread.post("later", lambda: pytest.fail("ran"), delay_s=60)
    thread.post("close", close)
    assert closed.wait(PATIENCE_S)
    thread.post("late", lambda: pytest.fail("ran"))


def test_a_tree_in_memory_fails_during_an_outage_and_knows_everything_after_it() -> None:
    cluster = MemoryCluster()
    tree = MemoryTree(cluster)
    tree.create("/a", b"data")
    cluster.outage = True
    for ask in (lambda: tree.get("/a"), lambda: tree.children("/"), lambda: tree.create("/b"), tree.session):
        with pytest.raises(ConnectionFailedError):
            ask()
    cluster.outage = False
    assert tree.children("/") == ["a"]
    tree.close()
    with pytest.raises(ConnectionFailedError):
        tree.get("/a")


def test_a_sequence_wraps_as_zookeepers_does() -> None:
    assert sequence_name("/ID-", 0) == "/ID-0000000000"
    assert sequence_name("/ID-", 2**31 - 1) == "/ID-2147483647"
    assert sequence_name("/ID-", 2**31) == "/ID--2147483648"
