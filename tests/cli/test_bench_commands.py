"""``bkctl bench``: load on a bookie in this process, and what the commands say of it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bkctl.commands.bench import SCHEMA
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.rows import from_ndjson
from tests.support.tls_files import CERTIFICATE, KEY, STRICT_BOOKIE_TLS

Run = Callable[..., Any]
SHORT = ("--seconds", 0.2, "--warmup", 0, "--connections", 2, "--window", 8)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBookie(tmp_path_factory.mktemp("bench") / "b") as bookie:
        yield f"127.0.0.1:{bookie.port}"


@pytest.mark.parametrize("protocol", [2, 3])
def test_add_then_read(run_cli: Run, address: str, protocol: int) -> None:
    same = ("--protocol", protocol, "--ledgers", 2, "--first-ledger", (1 << 28) + protocol * 50, *SHORT)
    added = run_cli("bench", "add", address, "--size", 300, *same, "-o", "ndjson")
    assert added.exit_code == 0, added.stderr
    (row,) = from_ndjson(added.stdout)
    assert list(row) == [key.key for key in SCHEMA]
    assert row["operations"] > 0
    assert (row["failed"], row["codes"]) == (0, {"0": row["operations"]})
    assert row["p50_ms"] <= row["p99_ms"] <= row["p999_ms"] <= row["max_ms"]
    for order in ((), ("--random",)):
        entries = ("--entries", row["entries_per_ledger"])
        read = run_cli("bench", "read", address, *entries, *same, *order, "-o", "ndjson")
        assert read.exit_code == 0, read.stderr
        (read_row,) = from_ndjson(read.stdout)
        assert read_row["failed"] == 0
        assert read_row["operations"] > 0


def test_another_password_fails_and_says_so(run_cli: Run, address: str) -> None:
    same = ("--first-ledger", (1 << 28) + 500, *SHORT, "-o", "ndjson")
    assert run_cli("bench", "add", address, *same, "--password", "right").exit_code == 0
    result = run_cli("bench", "add", address, *same, "--password", "wrong")
    assert result.exit_code == 1
    (row,) = from_ndjson(result.stdout)
    assert row["failed"] == row["operations"] > 0
    assert row["codes"] == {"102": row["operations"]}


@pytest.mark.parametrize("wrong", ["nowhere", "127.0.0.1:", "127.0.0.1:bookie"])
def test_an_address_without_a_port_is_a_usage_error(run_cli: Run, wrong: str) -> None:
    result = run_cli("bench", "add", wrong)
    assert result.exit_code == 2
    assert "HOST:PORT" in result.stderr


@pytest.mark.parametrize(
    "option", [("--protocol", 4), ("--window", 0), ("--rate", -1), ("--first-ledger", 7), ("--seconds", 0)]
)
def test_a_load_that_is_none_is_a_usage_error(run_cli: Run, address: str, option: tuple[object, ...]) -> None:
    assert run_cli("bench", "add", address, *option).exit_code == 2


def test_nobody_listens(run_cli: Run) -> None:
    # Port 1 is no bookie's: nobody but root may have it.
    result = run_cli("bench", "add", "127.0.0.1:1", *SHORT)
    assert result.exit_code not in (0, 1, 2)
    assert "refused" in result.stderr


def test_a_bookie_that_resets_its_connections(run_cli: Run) -> None:
    def reset(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        peer.recv(1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=reset, args=[listener])
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        result = run_cli("bench", "add", address, "--connections", 1, "--seconds", 5)
        thread.join()
    assert result.exit_code == 5
    assert f"{address}: Connection reset" in result.stderr


@pytest.mark.parametrize("command", ["add", "read"])
def test_the_schema_is_shown_without_a_bookie(run_cli: Run, command: str) -> None:
    result = run_cli("bench", command, "--schema")
    assert result.exit_code == 0
    assert all(key.key in result.stdout for key in SCHEMA)


@pytest.mark.parametrize("verb", ["add", "read"])
def test_the_help_says_what_a_rate_means_after_a_stall(run_cli: Run, verb: str) -> None:
    shown = " ".join(run_cli("bench", verb, "--help").stdout.split())
    assert "A latency begins when its request was due." in shown
    assert "all late requests are sent at once" in shown


@pytest.fixture(scope="module")
def secured_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("bench") / "b"
    with EmbeddedBookie(place, overrides=STRICT_BOOKIE_TLS) as bookie:
        yield f"127.0.0.1:{bookie.port}"


@pytest.mark.parametrize(("protocol", "window"), [(2, 8), (3, 8), (2, 1)])
def test_over_tls_the_same_load_is_answered(
    run_cli: Run, secured_address: str, protocol: int, window: int
) -> None:
    """A window of 1 waits in the socket itself, larger ones in the epoll."""
    same = ("--protocol", protocol, "--first-ledger", (1 << 28) + protocol * 50 + window, "--seconds", 0.3)
    same = (*same, "--warmup", 0, "--connections", 1, "--window", window, "-o", "ndjson")
    same = (*same, "--tls-ca", CERTIFICATE, "--tls-cert", CERTIFICATE, "--tls-key", KEY)
    added = run_cli("bench", "add", secured_address, "--size", "30K", *same)
    assert added.exit_code == 0, added.stderr
    (row,) = from_ndjson(added.stdout)
    assert row["operations"] > 0
    read = run_cli("bench", "read", secured_address, "--entries", row["entries_per_ledger"], *same)
    assert read.exit_code == 0, read.stderr
    assert from_ndjson(read.stdout)[0]["operations"] > 0


def test_where_tls_is_not_to_be_had_nothing_is_sent_in_clear(
    run_cli: Run, address: str, secured_address: str
) -> None:
    plain = run_cli("bench", "add", address, *SHORT, "--tls-ca", CERTIFICATE)
    assert (plain.exit_code, "does not offer TLS" in plain.stderr) == (5, True)
    named = run_cli(
        "bench", "add", secured_address.replace("127.0.0.1", "localhost"), *SHORT, "--tls-ca", CERTIFICATE
    )
    assert (named.exit_code, "certificate" in named.stderr) == (5, True), named.stderr
