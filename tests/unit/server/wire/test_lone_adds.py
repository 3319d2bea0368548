"""Lone adds where a record waits for no other one: the event loop itself makes them durable."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from bkctl.engine.journal import journal
from bkctl.engine.journal.group_writer import GroupWriter
from bkctl.protocol.messages import Wire
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.types import ResultCode
from tests.support.wire_client import WireClient, add_request

LOOP = "embedded-bookie"
LEDGER = 7


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that wrote groups."""
    names: list[str] = []
    write = GroupWriter.write

    def noted(writer: GroupWriter, *what: Any) -> Any:
        names.append(threading.current_thread().name)
        return write(writer, *what)

    monkeypatch.setattr(GroupWriter, "write", noted)
    # Whatever else uses the disk.
    monkeypatch.setattr(journal, "LENT_SYNC_S_MAX", 60.0)
    return names


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("directories", [1, 2])
def test_the_loop_writes_them_and_nothing_else(
    tmp_path: Path, writers: list[str], wire: Wire, directories: int
) -> None:
    keys = {
        "journalFlushWhenQueueEmpty": "true",
        "allowMultipleDirsUnderSameDiskPartition": "true",
        "journalDirectories": ",".join(str(tmp_path / f"j{number}") for number in range(directories)),
        "ledgerDirectories": ",".join(str(tmp_path / f"l{number}") for number in range(directories)),
    }
    with EmbeddedBookie(tmp_path, overrides=keys) as bookie, WireClient(bookie.port, wire) as client:
        for entry in range(20):
            assert client.add(LEDGER, entry, b"lone") is ResultCode.OK
            assert client.read(LEDGER, entry).code is ResultCode.OK
        # The first one brings the ledger's key, and makes known how long a sync takes.
        assert LOOP in writers[1:]
        lone = len(writers)
        client.send([(add_request(LEDGER, 20 + entry, b"many"), entry) for entry in range(50)])
        assert all(answer.response.code is ResultCode.OK for answer in client.receive_all())
        assert "journal-" in "".join(writers[lone:])
    with EmbeddedBookie(tmp_path, overrides=keys) as bookie, WireClient(bookie.port, wire) as client:
        for entry in range(70):
            assert client.read(LEDGER, entry).code is ResultCode.OK


def test_the_journal_thread_writes_large_ones(tmp_path: Path, writers: list[str]) -> None:
    keys = {"journalFlushWhenQueueEmpty": "true"}
    with EmbeddedBookie(tmp_path, overrides=keys) as bookie, WireClient(bookie.port) as client:
        for entry in range(20):
            assert client.add(LEDGER, entry, bytes(65_536)) is ResultCode.OK
    assert set(writers) == {"journal-0"}


def test_the_journal_thread_writes_them_by_default(tmp_path: Path, writers: list[str]) -> None:
    with EmbeddedBookie(tmp_path) as bookie, WireClient(bookie.port) as client:
        for entry in range(20):
            assert client.add(LEDGER, entry, b"lone") is ResultCode.OK
    assert set(writers) == {"journal-0"}
