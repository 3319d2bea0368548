"""A load run against a bookie in this process, and against ports that are none."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from bkctl.admin.load import run
from bkctl.admin.load.run import run_load
from bkctl.admin.load.settings import LoadReport, LoadSettings
from bkctl.errors import ConnectionFailedError
from bkctl.server.life.embedded import EmbeddedBookie
from tests.demo_client import DemoClient


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBookie]:
    with EmbeddedBookie(tmp_path_factory.mktemp("load") / "b") as bookie:
        yield bookie


def load(bookie: EmbeddedBookie, *, reads: bool = False, **changes: object) -> LoadReport:
    small = {"connections": 2, "window": 16, "payload_bytes": 200, "seconds": 0.3, "warmup_s": 0.05}
    settings = LoadSettings("127.0.0.1", bookie.port, **{**small, **changes})  # type: ignore[arg-type]
    return run_load(settings, reads=reads)


@pytest.mark.parametrize("wire", [2, 3])
def test_what_is_reported_as_written_can_be_read(bookie: EmbeddedBookie, wire: int) -> None:
    first = (1 << 28) + 100 * wire
    added = load(bookie, wire=wire, ledgers=3, first_ledger=first)
    assert added.failed == 0
    assert added.codes == {0: added.operations}
    assert added.entries_per_ledger > 0
    assert 0 < added.p50_ms <= added.p99_ms <= added.p999_ms <= added.max_ms
    assert added.rate_per_s == pytest.approx(added.operations / added.seconds)
    entries = added.entries_per_ledger
    for random in (False, True):
        read = load(
            bookie, reads=True, wire=wire, ledgers=3, first_ledger=first, entries=entries, random=random
        )
        assert read.codes == {0: read.operations}
        assert read.operations > 0


def test_reads_of_what_is_not_there_are_counted_as_failed(bookie: EmbeddedBookie) -> None:
    report = load(bookie, reads=True, first_ledger=(1 << 28) + 9000)
    assert report.failed == report.operations > 0
    assert 0 not in report.codes


def test_entries_are_those_that_the_frames_say(bookie: EmbeddedBookie) -> None:
    first = (1 << 28) + 500
    load(bookie, first_ledger=first, connections=1, payload_bytes=64)
    with DemoClient(bookie.port) as client:
        body = client.read(first, [1 << 28]).bodies[1 << 28]
    assert len(body) == 64 + 36


def test_a_rate_is_kept_from_above(bookie: EmbeddedBookie) -> None:
    report = load(bookie, rate_per_s=400, seconds=0.5, first_ledger=(1 << 28) + 600)
    assert 0 < report.operations <= 400 * 0.75


def test_the_begin_of_the_measurement_is_told_once(bookie: EmbeddedBookie) -> None:
    told: list[int] = []
    settings = LoadSettings("127.0.0.1", bookie.port, seconds=0.1, warmup_s=0.1, first_ledger=(1 << 28) + 700)
    run_load(settings, reads=False, on_measure=lambda: told.append(1))
    assert told == [1]


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        settings = LoadSettings("127.0.0.1", bound.getsockname()[1])
        with pytest.raises(ConnectionFailedError, match="refused"):
            run_load(settings, reads=False)


def test_a_peer_that_never_answers_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SILENCE_S_MAX", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = LoadSettings("127.0.0.1", silent.getsockname()[1], connections=1)
        with pytest.raises(ConnectionFailedError, match="no answer"):
            run_load(settings, reads=False)


def test_a_peer_that_closes_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = LoadSettings("127.0.0.1", listener.getsockname()[1], connections=1, window=1)
        client = run._LoadConnection(settings, 0, reads=False)
        peer, _ = listener.accept()
        peer.close()
        client.socket.setblocking(True)
        with pytest.raises(ConnectionFailedError, match=f":{settings.port}: .*closed"):
            client.receive([])
        client.close()


@pytest.mark.parametrize(("connections", "window"), [(1, 1), (4, 128)])
@pytest.mark.parametrize("rate", [None, 400.0])
def test_a_peer_that_resets_ends_the_run(connections: int, window: int, rate: float | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reset() -> None:
            with contextlib.suppress(OSError):  # the listener is closed
                while True:
                    peer, _ = listener.accept()
                    peer.recv(1000)
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    peer.close()

        thread = threading.Thread(target=reset)
        thread.start()
        port = listener.getsockname()[1]
        settings = LoadSettings(
            "127.0.0.1", port, connections=connections, window=window, rate_per_s=rate, seconds=5
        )
        with pytest.raises(ConnectionFailedError, match=rf"127\.0\.0\.1:{port}: .*(reset|pipe)"):
            run_load(settings, reads=False)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_reset_while_something_is_sent_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        settings = LoadSettings("127.0.0.1", port, connections=1, window=8)
        client = run._LoadConnection(settings, 0, reads=False)
        client.socket.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionFailedError, match=f":{port}: .*pipe"):
            client.send(8)
        client.close()


def test_quantiles_weigh_by_count() -> None:
    latencies = [(0.001, 98), (0.5, 1), (0.010, 1)]
    assert run._quantiles(latencies, (0.5, 0.98, 0.99, 1.0)) == [0.001, 0.001, 0.010, 0.5]
    assert run._quantiles([], (0.5, 1.0)) == [0.0, 0.0]


@pytest.mark.parametrize("wire", [2, 3])
def test_one_connection_with_one_request(bookie: EmbeddedBookie, wire: int) -> None:
    report = load(bookie, wire=wire, connections=1, window=1, first_ledger=(1 << 28) + 800 + wire)
    assert report.codes == {0: report.operations}
    assert 0 < report.entries_per_ledger <= report.operations * 2


def test_one_request_that_is_never_answered_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SILENCE_S_MAX", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = LoadSettings("127.0.0.1", silent.getsockname()[1], connections=1, window=1)
        with pytest.raises(ConnectionFailedError, match="no answer"):
            run_load(settings, reads=False)
