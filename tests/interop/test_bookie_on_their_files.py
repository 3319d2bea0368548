"""Our bookies on what Java's left behind, after an orderly end and after ``kill -9``.

The released client gets every entry that was ever acknowledged, from every bookie that was given it.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.types import LedgerState
from tests.support.adopted_images import adopt_cookies, load_metadata
from tests.support.grades import one_kept
from tests.support.java_bookkeeper import copy_directory
from tests.support.java_client import JavaClient, JavaLedgerClient
from tests.support.java_cluster import OUR_CONF
from tests.support.manifest import Image
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.corpora, pytest.mark.timeout(280)]

Corpora = Callable[[str], Path]
WIRES = ("v2", "v3")
FENCED = "BKLedgerFencedException(-101)"
#: A ledger of the corpus that was closed by recovery.
RECOVERED = 29


@dataclass
class Served:
    """The bookies of an image, ours, over the image's own metadata."""

    state: str
    image: Image
    bookies: dict[str, EmbeddedBookie]
    clients: dict[str, JavaClient]

    def ledgers(self) -> list[int]:
        """Those that exist at this point of the image's life."""
        gone = self.image.manifest.deleted if self.state == "clean" else frozenset()
        return sorted(set(self.image.manifest.digests) - gone)

    def expected(self, ledger: int) -> list[tuple[int, int, str]]:
        """Entry, payload length and SHA-256."""
        entries = self.image.manifest.entries
        return [(entry, *facts) for (its, entry), facts in sorted(entries.items()) if its == ledger]


def adopt(client: KazooClient, root: str, bookie: str, folder: Path, metadata_uri: str) -> EmbeddedBookie:
    """A bookie of ours on a folder that was moved."""
    adopt_cookies(client, root, bookie, folder)
    overrides = {
        **OUR_CONF,
        "bookieId": bookie,
        "journalDirectories": str(folder / "journal"),
        "ledgerDirectories": str(folder / "ledgers"),
    }
    return EmbeddedBookie(folder, metadata_uri=metadata_uri, overrides=overrides)


@pytest.fixture(scope="module", params=one_kept("as after a crash", "crash", "clean"))
def served(
    request: pytest.FixtureRequest,
    corpora: Corpora,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    state, corpus = request.param, corpora("db")
    folder = copy_directory(corpus / state, tmp_path_factory.mktemp("theirs") / state)
    image = Image.load(
        folder, corpus / "manifest.json", corpus / "zk-crash.json", corpus / f"zk-{state}.json"
    )
    uri, kazoo = load_metadata(zookeeper_server, corpus / f"zk-{state}.json")
    root = uri.rpartition("/")[2]
    with contextlib.ExitStack() as stack:
        bookies = {}
        for bookie, its_folder in image.bookies().items():
            bookies[bookie] = adopt(kazoo, f"/{root}", bookie, its_folder, uri)
            stack.callback(bookies[bookie].stop)
            bookies[bookie].start()
        kazoo.stop()
        kazoo.close()
        yield Served(state, image, bookies, {wire: java.client(uri, wire=wire) for wire in WIRES})


def check_every_replica(served: Served, wire: str) -> None:
    """Asks each bookie for each entry that it was given."""
    held: dict[tuple[str, int], list[int]] = defaultdict(list)
    for ledger in served.ledgers():
        for entry, _, _ in served.expected(ledger):
            for bookie in served.image.holders(ledger, entry):
                held[bookie, ledger].append(entry)
    assert len({bookie for bookie, _ in held}) == len(served.bookies)
    for (bookie, ledger), entries in held.items():
        digest = served.image.manifest.digests[ledger].upper()
        hashes = served.clients[wire].replicas(bookie, ledger, 0, max(entries), digest=digest)
        expected = {entry: sha256 for entry, _, sha256 in served.expected(ledger)}
        assert {entry: hashes[entry] for entry in entries} == {entry: expected[entry] for entry in entries}


def test_the_start_tells_a_crash_from_an_orderly_end(served: Served) -> None:
    for bookie in served.bookies.values():
        assert bookie.report is not None
        assert not bookie.report.new
        assert bookie.report.unclean == (served.state == "crash")
        assert bookie.report.recovery.damage_count == 0
        if served.state == "crash":
            assert bookie.report.recovery.entries > 0


@pytest.mark.parametrize("wire", WIRES)
def test_every_bookie_serves_every_entry_that_it_was_given(served: Served, wire: str) -> None:
    check_every_replica(served, wire)


@pytest.mark.parametrize("wire", WIRES)
def test_the_client_opens_and_reads_every_ledger(served: Served, wire: str) -> None:
    manifest = served.image.manifest
    for ledger in served.ledgers():
        expected = served.expected(ledger)
        digest, password = manifest.digests[ledger].upper(), manifest.passwords[ledger]
        opened = served.clients[wire].open(ledger, digest, password=password)
        if served.image.metadata[ledger].state is LedgerState.CLOSED:
            assert (opened.closed, opened.lac) == (True, len(expected) - 1)
        else:
            assert not opened.closed
        if expected:
            found = opened.read_unconfirmed(0, len(expected) - 1)
            assert [(one.entry, one.size, one.sha256) for one in found] == expected
        opened.close()


def test_a_fenced_ledger_stays_fenced(served: Served) -> None:
    client, manifest = served.clients["v3"], served.image.manifest
    digest, password = manifest.digests[RECOVERED].upper(), manifest.passwords[RECOVERED]
    # The old writer comes back: somebody with its key who does not know that the ledger was recovered.
    client.delete(RECOVERED)
    writer = client.create(3, 3, 3, digest, f"ledger={RECOVERED}", password=password)
    assert writer.add_at([0]).failed == {FENCED: 1}


def test_open_ledgers_are_recovered_with_all_that_was_acknowledged(served: Served) -> None:
    client, manifest = served.clients["v3"], served.image.manifest
    metadata = served.image.metadata
    unclosed = [ledger for ledger in served.ledgers() if metadata[ledger].state is not LedgerState.CLOSED]
    assert len(unclosed) == 3
    for ledger in unclosed:
        expected = served.expected(ledger)
        digest, password = manifest.digests[ledger].upper(), manifest.passwords[ledger]
        recovered = client.open(ledger, digest, recovery=True, password=password)
        assert (recovered.closed, recovered.lac) == (True, len(expected) - 1)
        found = recovered.read(0, len(expected) - 1)
        assert [(one.entry, one.size, one.sha256) for one in found] == expected


def test_a_restart_of_ours_changes_nothing(served: Served) -> None:
    for bookie in served.bookies.values():
        bookie.stop()
        report = bookie.start()
        assert not report.unclean
        assert report.recovery.damage_count == 0
    for name in served.bookies:
        served.clients["v3"].wait_for(name)
    check_every_replica(served, "v3")
