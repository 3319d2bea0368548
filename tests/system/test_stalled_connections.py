"""Hundreds of connections that stall, at each stage: others are served, memory and descriptors are bounded.

``bench/abuse.py`` does the same with ten thousand and looks at the time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.types import ResultCode
from tests.support.bookie_command import BookieCommand
from tests.support.stalled_connections import (
    UNREAD_ENTRIES,
    UNREAD_ENTRY_BYTES,
    Stage,
    StalledConnections,
)
from tests.support.tls_files import BOOKIE_TLS
from tests.support.waiting import WAIT_S, until
from tests.support.wire_client import DisconnectedError, WireClient

MIB = 1 << 20
DESCRIPTORS = 1200
CONNECTIONS_MAX = 350
STALLED = 400
BUDGET_MB = 8
#: What a connection takes beside the budget, and what a process takes more as it goes on.
PER_CONNECTION_BYTES = 16 << 10
ALLOWANCE_BYTES = 40 * MIB
LEDGER = 1
#: A client that has sent whole requests is as good as another: no new one gets its place.
KEEPING_THEIR_PLACE = (Stage.NOT_READING, Stage.LONG_POLLS)


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieCommand]:
    keys = {
        **BOOKIE_TLS,
        "bkctlMaxConnections": str(CONNECTIONS_MAX),
        "bkctlConnectionMemoryMaxMb": str(BUDGET_MB),
        "dbStorage_writeCacheMaxSizeMb": "16",
        "dbStorage_readAheadCacheMaxSizeMb": "16",
    }
    limits = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", "--"]
    with BookieCommand(tmp_path_factory.mktemp("bookie"), inside=limits, **keys) as running:
        with WireClient(running.port) as client:
            for entry in range(UNREAD_ENTRIES):
                assert client.add(LEDGER, entry, bytes(UNREAD_ENTRY_BYTES)) is ResultCode.OK
        yield running


def resident_bytes(bookie: BookieCommand) -> int:
    pages = Path(f"/proc/{bookie.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def descriptors(bookie: BookieCommand) -> int:
    return len(os.listdir(f"/proc/{bookie.process.pid}/fd"))


def serves_a_new_client(bookie: BookieCommand) -> bool:
    try:
        with WireClient(bookie.port) as client:
            return client.read(LEDGER, 0).code is ResultCode.OK
    except DisconnectedError:
        return False


@pytest.mark.parametrize("stage", list(Stage), ids=lambda stage: stage.name.lower())
def test_others_are_served_and_all_bounds_hold(bookie: BookieCommand, stage: Stage) -> None:
    idle_bytes, idle_descriptors = resident_bytes(bookie), descriptors(bookie)
    port = bookie.row["http_port"] if stage is Stage.HALF_A_HEAD else bookie.port
    ledger = 10 + list(Stage).index(stage)
    most_bytes = most_descriptors = 0
    with WireClient(bookie.port) as client:
        assert client.add(ledger, 0) is ResultCode.OK
        with StalledConnections(stage, port, ledger=LEDGER) as stalled:
            assert stalled.open(STALLED, timeout_s=WAIT_S) == STALLED
            for entry in range(1, 200):
                assert client.add(ledger, entry) is ResultCode.OK
                assert client.read(ledger, entry).code is ResultCode.OK
                most_bytes = max(most_bytes, resident_bytes(bookie))
                most_descriptors = max(most_descriptors, descriptors(bookie))
                stalled.look()
            if stage is Stage.TLS_HELLO:
                until(lambda: descriptors(bookie) < idle_descriptors + 30, "too many shake hands")
            if stage not in KEEPING_THEIR_PLACE:
                until(lambda: serves_a_new_client(bookie), "a new client finds no place")
        # All of them are dropped at once, and the one that behaves is served on.
        for entry in range(200, 300):
            assert client.add(ledger, entry) is ResultCode.OK
    assert most_bytes - idle_bytes < BUDGET_MB * MIB + STALLED * PER_CONNECTION_BYTES + ALLOWANCE_BYTES
    # Connections beyond their bound may be there for a moment, before they are closed.
    assert most_descriptors < idle_descriptors + CONNECTIONS_MAX + 100
    assert most_descriptors < DESCRIPTORS * 3 // 4
    until(lambda: descriptors(bookie) < idle_descriptors + 10, "connections are left")
    until(lambda: serves_a_new_client(bookie), "places were not given back")
