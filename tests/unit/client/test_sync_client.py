"""The synchronous facade against bookies of ours."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from bkctl.client.errors import HandleFencedError, NoSuchLedgerError
from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.errors import NotFoundError, UsageError
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from bkctl.types import LedgerState


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path_factory.mktemp("sync-client")) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeperSync]:
    with BookKeeperSync(cluster.metadata_uri) as running:
        yield running


def test_write_and_read(client: BookKeeperSync) -> None:
    with client.create(3, 2, 2, password=b"pw") as writer:
        assert writer.append(b"first") == 0
        assert writer.append_all(b"%d" % number for number in range(2000)) == 2000
        assert writer.last_add_confirmed == 2000
        assert writer.read(0, 0)[0].payload == b"first"
    assert writer.metadata.state is LedgerState.CLOSED
    reader = client.open(writer.ledger)
    assert (reader.closed, reader.last_add_confirmed, reader.length) == (True, 2000, writer.length)
    assert [entry.payload for entry in reader.entries(1)] == [b"%d" % number for number in range(2000)]
    assert [entry.entry for entry in reader.read(7, 9)] == [7, 8, 9]


def test_large_entries_are_read_in_bounded_batches(client: BookKeeperSync) -> None:
    with client.create(1, 1, 1) as writer:
        writer.append_all(bytes(1 << 20) for _ in range(24))
    assert sum(len(entry.payload) for entry in client.open(writer.ledger).entries()) == 24 << 20


def test_an_iteration_that_is_left_early_is_closed(client: BookKeeperSync) -> None:
    with client.create(1, 1, 1) as writer:
        writer.append_all([b"x"] * 100)
    entries = client.open(writer.ledger).entries()
    assert next(entries).entry == 0
    entries.close()  # type: ignore[attr-defined]


def test_an_interrupt_at_the_door_of_the_loop_leaves_nothing_unstarted(
    client: BookKeeperSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between asking for a batch and its start: no coroutine is there that is never awaited."""
    with client.create(1, 1, 1) as writer:
        writer.append_all([b"x"] * 3)
    entries = client.open(writer.ledger).entries()
    loop = client._thread._loop
    hand_in = loop.call_soon_threadsafe
    calls: list[object] = []

    def interrupted(*words: Any, **more: Any) -> Any:
        calls.append(words)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return hand_in(*words, **more)

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        patch.setattr(loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(entries)
        gc.collect()
    assert not warned
    assert len(calls) > 1, "the iterator was closed"


def test_an_input_that_fails_leaves_a_closed_ledger(client: BookKeeperSync) -> None:
    def lines() -> Iterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), client.create(3, 2, 2) as writer:
        writer.append_all(lines())
    assert client.read_metadata(writer.ledger).metadata.state is LedgerState.CLOSED


def test_append_all_tells_that_the_ledger_was_fenced(client: BookKeeperSync) -> None:
    writer = client.create(3, 2, 2)
    writer.append(b"x")
    client.recover(writer.ledger)
    with pytest.raises(HandleFencedError):
        writer.append_all([b"y"] * 3)


def test_tail_ends_with_the_ledger(client: BookKeeperSync) -> None:
    writer = client.create(3, 2, 2)
    reader = client.open_without_recovery(writer.ledger)
    timer = threading.Thread(target=lambda: (writer.append_all([b"a", b"b"]), writer.close()))
    timer.start()
    assert [entry.payload for entry in reader.tail()] == [b"a", b"b"]
    timer.join()


def test_errors_come_as_they_are(client: BookKeeperSync) -> None:
    with pytest.raises(NoSuchLedgerError, match="ledger 4711"):
        client.open(4711)
    with client.create(1, 1, 1) as writer:
        pass
    client.delete(writer.ledger)
    with pytest.raises(NoSuchLedgerError):
        client.read_metadata(writer.ledger)


def test_from_several_threads(client: BookKeeperSync) -> None:
    found: list[int] = []

    def work() -> None:
        with client.create(3, 2, 2) as writer:
            found.append(writer.append_all([b"x"] * 50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [50] * 4


def test_a_store_that_was_passed_stays_open(cluster: LocalCluster) -> None:
    with open_metadata_store(cluster.metadata_uri) as store:
        with (
            BookKeeperSync(store, ClientSettings(metadata_threads=1)) as client,
            client.create(1, 1, 1) as writer,
        ):
            pass
        assert store.ledgers.ledger_exists(writer.ledger)


def test_closing_ends_the_thread() -> None:
    before = set(threading.enumerate())
    client = BookKeeperSync("memory://closing")
    client.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(UsageError, match="closed"):
        client.open(1)
    with pytest.raises(NotFoundError), BookKeeperSync("memory://no-cluster") as other:
        other.open(1)
