"""A bookie's directories go from ours to Java's and back, after orderly ends and after ``kill -9``.

Whoever runs on them serves every entry that either of them acknowledged, and keeps every fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.grades import one_kept
from tests.support.java_client import JavaClient, JavaLedger, JavaLedgerClient, entries_of
from tests.support.java_cluster import OURS, THEIRS, BookieProcess, new_cluster
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

Cli = Callable[..., Any]
DIGESTS = ("CRC32C", "CRC32", "MAC", "DUMMY")
FENCED = "BKLedgerFencedException(-101)"
SIZE = 700


@dataclass
class Written:
    """What was acknowledged: ledger -> digest and number of entries; handles of writers that live on."""

    client: JavaClient
    entries: dict[int, tuple[str, int]] = field(default_factory=dict)
    open: list[JavaLedger] = field(default_factory=list)
    fenced: list[JavaLedger] = field(default_factory=list)

    def write(self) -> None:
        """More of everything: closed ledgers, open ones, fenced ones with entries and without."""
        for digest in DIGESTS:
            ledger = self._ledger(digest, 60)
            ledger.close()
        self.open.append(self._ledger("CRC32C", 40))
        recovered = self._ledger("MAC", 25)
        self.client.open(recovered.id, "MAC", recovery=True).close()
        empty = self.client.create(1, 1, 1)
        self.client.open(empty.id, recovery=True).close()
        self.fenced += [recovered, empty]
        for ledger in self.open:
            before = self.entries[ledger.id][1]
            assert ledger.add(10, SIZE).acknowledged == list(range(before, before + 10))
            self.entries[ledger.id] = ("CRC32C", before + 10)

    def _ledger(self, digest: str, count: int) -> JavaLedger:
        ledger = self.client.create(1, 1, 1, digest)
        assert ledger.add(count, SIZE).acknowledged == list(range(count))
        self.entries[ledger.id] = (digest, count)
        return ledger

    def check(self) -> None:
        """Every acknowledged entry is read, and no fence was forgotten."""
        for ledger, (digest, count) in self.entries.items():
            reader = self.client.open(ledger, digest)
            assert reader.read_unconfirmed(0, count - 1) == entries_of(ledger, range(count), SIZE)
            reader.close()
        for ledger in self.fenced:
            bookie = next(iter(self.client.metadata(ledger.id).bookies))
            assert self.client.late_add(bookie, ledger.id, 1000) == FENCED, f"ledger {ledger.id}"

    def recover(self) -> None:
        """Readers close what the writers left open."""
        for ledger in self.open:
            digest, count = self.entries[ledger.id]
            recovered = self.client.open(ledger.id, digest, recovery=True)
            assert (recovered.closed, recovered.lac) == (True, count - 1)
            assert recovered.read(0, count - 1) == entries_of(ledger.id, range(count), SIZE)


@pytest.fixture
def bookie(
    request: pytest.FixtureRequest,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
) -> Iterator[BookieProcess]:
    """A bookie with as many directories of each kind as the parameter says."""
    folder = tmp_path / "bookie"
    conf = {
        # Small journals and logs, so that they roll.
        "journalMaxSizeMB": "1",
        "logSizeLimit": str(1 << 20),
        "flushInterval": "300",
        "gcWaitTime": "900000",
    }
    if request.param > 1:
        for key in ("journalDirectories", "ledgerDirectories", "indexDirectories"):
            conf[key] = ",".join(str(folder / f"{key}{number}") for number in range(request.param))
    with BookieProcess(folder, new_cluster(zookeeper_server), conf=conf) as process:
        yield process


def end(bookie: BookieProcess, how: str) -> None:
    if how == "kill":
        bookie.kill()
    else:
        bookie.stop()


def expect_clean(run_cli: Cli, bookie: BookieProcess) -> None:
    """Our own checks find no damage."""
    for words in (("entrylog", "verify"), ("journal", "verify"), ("index", "check")):
        uri = ("--metadata", bookie.metadata_uri) if "verify" in words else ()
        result = run_cli(*words, bookie.folder, *uri, "-o", "json")
        assert result.exit_code == 0, (words, result.stdout, result.stderr)


# Several directories; then, with one, each of the four ways from one to the other is in one of two.
@pytest.mark.parametrize(
    ("ours_ends", "theirs_ends", "bookie"),
    one_kept("the same with other ends", ("kill", "stop", 2), ("kill", "stop", 1), ("stop", "kill", 1)),
    indirect=["bookie"],
)
def test_java_serves_what_we_acknowledged_and_we_what_java_did(
    run_cli: Cli, java: JavaLedgerClient, bookie: BookieProcess, ours_ends: str, theirs_ends: str
) -> None:
    bookie.start(OURS)
    written = Written(java.client(bookie.metadata_uri))
    written.write()
    written.check()
    bookie.wait_for_a_log()  # so that what follows is in part behind the last mark, in part before it
    written.write()
    end(bookie, ours_ends)
    expect_clean(run_cli, bookie)

    bookie.start(THEIRS)
    written.client.wait_for(bookie.bookie_id)
    written.check()
    written.write()
    end(bookie, theirs_ends)
    expect_clean(run_cli, bookie)

    bookie.start(OURS)
    written.client.wait_for(bookie.bookie_id)
    written.check()
    written.write()
    written.recover()
    written.check()
    end(bookie, ours_ends)
    expect_clean(run_cli, bookie)

    bookie.start(THEIRS)
    written.client.wait_for(bookie.bookie_id)
    written.check()
    written.client.close()
