"""Recovery with real processes: a writer and bookies that are killed, or hang, at known moments.

Three bookies, ours or Java's, and a writer are processes of their own. Which bookies have the writer's last
entry is decided, not left to luck: the others are stopped (SIGSTOP) while it is sent, and where they must not
get it later they are killed and started again. Ensemble and write quorum are three, the ack quorum is two.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bkctl.client.errors import RecoveryFailedError
from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.errors import BkctlError
from bkctl.metadata.uri import open_metadata_store
from bkctl.protocol.messages import ReadRequest, ReadResponse
from bkctl.types import LedgerState, ResultCode
from tests.support.java_client import PASSWORD, payload
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, BookieProcess, new_cluster
from tests.support.ledger_writer import ENTRY_BYTES, LedgerWriterProcess
from tests.support.zookeeper import zookeeper_server  # noqa: F401 - a fixture

pytestmark = pytest.mark.timeout(280)

#: Short enough for bookies that hang, long enough for a slow machine.
TIMEOUT_MS = 10_000
#: What a recovery may take in which bookies hang: some time-outs one after the other.
BOUND_S = 100
WAIT_S = 60

#: What is acknowledged before the moment that matters; the entry that matters is the next one.
ACKED = 5
LAST = ACKED


@dataclass(frozen=True, slots=True)
class Cluster:
    """Three bookie processes of one kind, in the order of their ids."""

    kind: str
    uri: str
    bookies: dict[str, BookieProcess]
    client: BookKeeperSync

    def says(self, bookie: str, ledger: int, entry: int) -> bool | None:
        """Whether one bookie has an entry; None when it does not say."""
        try:
            answer = self.client.call(self.client.client.pool.request(bookie, ReadRequest(ledger, entry), 4))
        except BkctlError:
            return None
        assert isinstance(answer, ReadResponse)
        known = {ResultCode.OK: True, ResultCode.NO_ENTRY: False, ResultCode.NO_LEDGER: False}
        return known.get(answer.code)

    def has(self, bookie: str, ledger: int, entry: int) -> bool:
        """Whether one bookie that runs has an entry; asked until it says so."""
        return self.wait_until(bookie, ledger, entry, has=None)

    def wait_until(self, bookie: str, ledger: int, entry: int, *, has: bool | None) -> bool:
        """Until a bookie has an entry; ``has`` None: until it answers at all. What it answers."""
        until = time.monotonic() + WAIT_S
        while (found := self.says(bookie, ledger, entry)) is None or has not in (None, found):
            assert time.monotonic() < until, f"bookie {bookie}: {self.bookies[bookie].last_words()}"
            time.sleep(0.02)
        return found

    def start(self, *names: str) -> None:
        """Start bookies that were killed, and wait until they answer."""
        for name in names:
            self.bookies[name].start(self.kind)
        for name in names:
            self.wait_until(name, 0, 0, has=None)

    def kill(self, *names: str) -> None:
        for name in names:
            self.bookies[name].kill()


@pytest.fixture(
    scope="module",
    params=[
        OURS,
        pytest.param(
            THEIRS,
            marks=[
                pytest.mark.interop,
                pytest.mark.thorough("tests/interop/test_our_client.py recovers there"),
            ],
        ),
    ],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kind, folder = request.param, tmp_path_factory.mktemp("recovery")
    if kind == THEIRS:
        uri = new_cluster(request.getfixturevalue("zookeeper_server"))
    else:
        uri = f"embedded://{folder}/metadata.db"
        with contextlib.closing(open_metadata_store(uri, SETTINGS)) as store:
            store.layout.initialise_cluster()
    with contextlib.ExitStack() as stack:
        bookies = [BookieProcess(folder / f"bookie{number}", uri) for number in range(3)]
        for bookie in bookies:
            stack.enter_context(bookie).start(kind)
        settings = ClientSettings(add_timeout_ms=TIMEOUT_MS, read_timeout_ms=TIMEOUT_MS)
        client = stack.enter_context(BookKeeperSync(uri, settings, metadata=SETTINGS))
        yield Cluster(kind, uri, {bookie.bookie_id: bookie for bookie in bookies}, client)


@contextlib.contextmanager
def last_entry_only_on(cluster: Cluster, names: set[str]) -> Iterator[LedgerWriterProcess]:
    """A writer with :data:`ACKED` entries on all bookies and one more on ``names``; the others hang."""
    with LedgerWriterProcess(cluster.uri) as writer:
        writer.append(ACKED)
        writer.wait_acknowledged(ACKED - 1)
        # An acknowledgement tells of two bookies.
        for name in cluster.bookies:
            cluster.wait_until(name, writer.ledger, ACKED - 1, has=True)
        for name in cluster.bookies.keys() - names:
            cluster.bookies[name].pause()
        writer.append()
        for name in names:
            cluster.wait_until(name, writer.ledger, LAST, has=True)
        if len(names) >= 2:
            writer.wait_acknowledged(LAST)
        yield writer


def check_closed(cluster: Cluster, ledger: int, last: int) -> None:
    """The ledger ends where it ends: for readers, for another recovery, and every entry is as written."""
    stored = cluster.client.read_metadata(ledger).metadata
    assert (stored.state, stored.last_entry, stored.length) == (
        LedgerState.CLOSED,
        last,
        (last + 1) * ENTRY_BYTES,
    )
    with BookKeeperSync(cluster.uri, metadata=SETTINGS) as other:
        reader = other.open(ledger, password=PASSWORD)
        assert (reader.closed, reader.last_add_confirmed) == (True, last)
        expected = [payload(ledger, entry, ENTRY_BYTES) for entry in range(last + 1)]
        assert [entry.payload for entry in reader.entries()] == expected
        again = other.recover(ledger)
        assert (again.last_entry, again.metadata, again.adopted) == (last, stored, True)


def names_of(cluster: Cluster) -> tuple[str, str, str]:
    first, second, third = cluster.bookies
    return first, second, third


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_writer_is_killed_with_its_last_entry_on_some_replicas(cluster: Cluster, replicas: int) -> None:
    names = names_of(cluster)
    with last_entry_only_on(cluster, set(names[:replicas])) as writer:
        writer.kill()
    without = names[replicas:]
    cluster.kill(*without)
    cluster.start(*without)
    assert [cluster.has(name, writer.ledger, LAST) for name in names] == [
        place < replicas for place in range(3)
    ]
    assert writer.acknowledged == list(range(ACKED + (replicas >= 2)))
    done = cluster.client.recover(writer.ledger)
    # On one replica it was never acknowledged: either end is right.
    assert done.last_entry in {1: (ACKED - 1, LAST), 2: (LAST,), 3: (LAST,)}[replicas]
    check_closed(cluster, writer.ledger, done.last_entry)
    if done.last_entry == LAST:
        holders = [name for name in names if cluster.has(name, writer.ledger, LAST)]
        assert len(holders) >= 2


def test_a_bookie_is_down_and_another_one_alone_has_the_last_entry(cluster: Cluster) -> None:
    holder, without, down = names_of(cluster)
    with last_entry_only_on(cluster, {holder}) as writer:
        writer.kill()
    cluster.kill(without, down)
    cluster.start(without)
    done = cluster.client.recover(writer.ledger)
    # The one that is down could have had it too: then it was acknowledged.
    assert done.last_entry == LAST
    assert done.entries_rewritten >= 1
    assert cluster.has(without, writer.ledger, LAST)
    cluster.start(down)
    assert cluster.has(down, writer.ledger, LAST) is False
    check_closed(cluster, writer.ledger, LAST)


def test_a_bookie_that_comes_back_with_an_entry_more_does_not_lengthen_the_ledger(cluster: Cluster) -> None:
    down, *others = names_of(cluster)
    with last_entry_only_on(cluster, {down}) as writer:
        writer.kill()
    cluster.kill(down, *others)
    cluster.start(*others)
    done = cluster.client.recover(writer.ledger)
    # Two of three never had it: no ack quorum did.
    assert done.last_entry == ACKED - 1
    assert writer.acknowledged == list(range(ACKED))
    cluster.start(down)
    assert cluster.has(down, writer.ledger, LAST)
    check_closed(cluster, writer.ledger, ACKED - 1)


def test_a_bookie_that_hangs_is_gone_on_without_and_gets_the_writers_entry_late(cluster: Cluster) -> None:
    *others, hanging = names_of(cluster)
    with last_entry_only_on(cluster, set(others)) as writer:
        writer.kill()
        began_s = time.monotonic()
        done = cluster.client.recover(writer.ledger)
        assert time.monotonic() - began_s < BOUND_S
        assert done.last_entry == LAST
        # The writer's last words are still in its socket.
        cluster.bookies[hanging].resume()
    cluster.wait_until(hanging, 0, 0, has=None)
    check_closed(cluster, writer.ledger, LAST)


def test_with_too_many_that_hang_it_fails_in_time_and_is_done_later(cluster: Cluster) -> None:
    holder, *hanging = names_of(cluster)
    with last_entry_only_on(cluster, {holder}) as writer:
        writer.kill()
        began_s = time.monotonic()
        with pytest.raises(RecoveryFailedError) as failed:
            cluster.client.recover(writer.ledger)
        assert time.monotonic() - began_s < BOUND_S
        assert any(name in str(failed.value) for name in hanging)
        assert cluster.client.read_metadata(writer.ledger).metadata.state is LedgerState.IN_RECOVERY
        for name in hanging:
            cluster.bookies[name].resume()
    for name in hanging:
        cluster.wait_until(name, 0, 0, has=None)
    done = cluster.client.recover(writer.ledger)
    assert done.last_entry in (ACKED - 1, LAST)
    check_closed(cluster, writer.ledger, done.last_entry)


def test_two_recoverers_at_once_agree(cluster: Cluster) -> None:
    holder, *hanging = names_of(cluster)
    with last_entry_only_on(cluster, {holder}) as writer:
        writer.kill()
        for name in hanging:
            cluster.bookies[name].resume()
    command = [sys.executable, "-m", "bkctl", "ledger", "recover", str(writer.ledger), "-o", "json"]
    environment = {**os.environ, "BKCTL_METADATA_URI": cluster.uri}
    recoverers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    told = [recoverer.communicate(timeout=WAIT_S) for recoverer in recoverers]
    assert [recoverer.returncode for recoverer in recoverers] == [0, 0], told
    rows = [json.loads(stdout) for stdout, _ in told]
    assert [row["state"] for row in rows] == ["CLOSED"] * 2
    (last,) = {row["last_entry"] for row in rows}
    assert last in (ACKED - 1, LAST)
    check_closed(cluster, writer.ledger, last)


def test_a_writer_that_was_paused_is_fenced_when_it_goes_on(cluster: Cluster) -> None:
    with LedgerWriterProcess(cluster.uri) as writer:
        writer.append(ACKED)
        writer.wait_acknowledged(ACKED - 1)
        writer.pause()
        assert cluster.client.recover(writer.ledger).last_entry == ACKED - 1
        writer.resume()
        writer.append()
        assert writer.wait_failed(LAST) == "HandleFencedError"
        assert writer.acknowledged == list(range(ACKED))
        check_closed(cluster, writer.ledger, ACKED - 1)
