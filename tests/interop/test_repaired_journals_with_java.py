"""Journals and last marks that were repaired on a stopped bookie: Java replays them, and so do we."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.losses import decode_losses
from bkctl.scan.journal import JournalScan
from bkctl.vfs import PosixFileSystem
from tests.support.grades import one_kept
from tests.support.java_client import JavaLedgerClient, entries_of
from tests.support.java_cluster import OURS, THEIRS, BookieProcess, new_cluster
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

Cli = Callable[..., Any]
SIZE = 700
COUNT = 60


@pytest.fixture
def bookie(
    request: pytest.FixtureRequest,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
) -> Iterator[BookieProcess]:
    """A bookie that flushes as often as the parameter says, in milliseconds."""
    conf = {"journalMaxSizeMB": "1", "flushInterval": str(request.param), "gcWaitTime": "900000"}
    with BookieProcess(tmp_path / "bookie", new_cluster(zookeeper_server), conf=conf) as process:
        yield process


def damage(bookie: BookieProcess, ledger: int) -> int:
    """Overwrite the start of the record of an entry in the middle of a ledger; the entry."""
    for path in sorted(bookie.folder.glob("*/current/*.txn")):
        with JournalScan(PosixFileSystem(), str(path)) as scan:
            found = [
                (batch.entries[index], batch.offset(index))
                for batch in scan.batches()
                for index in range(len(batch))
                if batch.ledgers[index] == ledger
            ]
        if found:
            entry, offset = found[len(found) // 2]
            content = bytearray(path.read_bytes())
            content[offset : offset + 40] = b"\xee" * 40
            path.write_bytes(content)
            return entry
    raise AssertionError("no journal has it")


@pytest.mark.parametrize("bookie", [600_000], indirect=True)
@pytest.mark.parametrize("starts", one_kept("ours replays as Java's does", THEIRS, OURS))
def test_what_was_salvaged_is_replayed(
    run_cli: Cli, java: JavaLedgerClient, bookie: BookieProcess, tmp_path: Path, starts: str
) -> None:
    bookie.start(THEIRS)
    client = java.client(bookie.metadata_uri)
    ledgers = [client.create(1, 1, 1, "CRC32C") for _ in range(2)]
    for ledger in ledgers:
        assert ledger.add(COUNT, SIZE).acknowledged == list(range(COUNT))
        ledger.close()
    bookie.kill()
    lost = damage(bookie, ledgers[0].id)

    fresh, losses = tmp_path / "fresh", tmp_path / "losses.json"
    done = run_cli("journal", "salvage", bookie.folder, "--out", fresh, "--losses", losses, "--yes")
    assert done.exit_code == 1, done.stderr
    listed = {loss.ledger: loss for loss in decode_losses(losses.read_bytes()).losses}
    assert any(first <= lost <= last for first, last in listed[ledgers[0].id].entries)
    journal = next(bookie.folder.glob("*/current/*.txn")).parent.parent
    journal.rename(tmp_path / "old-journal")
    fresh.rename(journal)
    assert run_cli("journal", "verify", journal).exit_code == 0

    if starts == THEIRS:
        # Java's answers reads of a ledger in limbo with "unknown" in protocol 3: they carry the LAC.
        cleared = run_cli("index", "limbo", *(each.id for each in ledgers), bookie.folder, "--clear", "--yes")
        assert cleared.exit_code == 0, cleared.stderr
    bookie.start(starts)
    client.wait_for(bookie.bookie_id)
    whole = client.open(ledgers[1].id, "CRC32C")
    assert whole.read_unconfirmed(0, COUNT - 1) == entries_of(ledgers[1].id, range(COUNT), SIZE)
    hurt = client.open(ledgers[0].id, "CRC32C")
    for first, last in ((0, lost - 1), (lost + 1, COUNT - 1)):
        expected = entries_of(ledgers[0].id, range(first, last + 1), SIZE)
        assert hurt.read_unconfirmed(first, last) == expected
    client.close()


@pytest.mark.thorough("tests/unit/engine/test_bookie_recovery.py begins at such marks")
@pytest.mark.parametrize("bookie", [300], indirect=True)
@pytest.mark.parametrize("starts", one_kept("Java's starts there as ours does", OURS, THEIRS))
def test_a_mark_that_was_set_back_is_where_a_start_begins(
    run_cli: Cli, java: JavaLedgerClient, bookie: BookieProcess, starts: str
) -> None:
    bookie.start(THEIRS)
    client = java.client(bookie.metadata_uri)
    ledger = client.create(1, 1, 1, "CRC32C")
    assert ledger.add(COUNT, SIZE).acknowledged == list(range(COUNT))
    bookie.wait_for_a_log()
    assert ledger.add(COUNT, SIZE).acknowledged == list(range(COUNT, 2 * COUNT))
    ledger.close()
    bookie.kill()
    done = run_cli("lastmark", "set", bookie.folder, "--journal", 0, "--offset", 0, "--yes")
    assert done.exit_code == 0, done.stderr

    bookie.start(starts)
    client.wait_for(bookie.bookie_id)
    reader = client.open(ledger.id, "CRC32C")
    assert reader.read_unconfirmed(0, 2 * COUNT - 1) == entries_of(ledger.id, range(2 * COUNT), SIZE)
    client.close()
