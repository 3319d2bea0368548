"""Bookies of ours on the index files that Java's left, and Java's on what ours leave, in turns.

The released client gets every entry of the image that its bookie was given, and all that was written since.
CI runs the two cases that tell most; ``BKCTL_SOAK`` (``make soak``) runs all of them.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bkctl.storage_kinds import INTERLEAVED_LEDGER_STORAGE, SORTED_LEDGER_STORAGE
from tests.support.adopted_images import adopt_cookies, load_metadata
from tests.support.grades import one_kept
from tests.support.java_bookkeeper import copy_directory
from tests.support.java_client import JavaClient, JavaLedgerClient, entries_of
from tests.support.java_cluster import OURS, THEIRS, BookieProcess
from tests.support.manifest import Image
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.corpora, pytest.mark.timeout(280)]

Corpora = Callable[[str], Path]
FENCED = "BKLedgerFencedException(-101)"
SIZE = 500

#: Corpus, its image, how ours ends in front of Java's start.
MOST_TELLING = one_kept(
    "longer than the other", ("perledger", "clean", "stop"), ("interleaved", "crash", "kill")
)
ALL = [
    (corpus, state, ends)
    for corpus in ("interleaved", "sorted", "perledger")
    for state in ("crash", "clean")
    for ends in ("kill", "stop")
]
CONF = {
    "interleaved": {"ledgerStorageClass": INTERLEAVED_LEDGER_STORAGE},
    "sorted": {"ledgerStorageClass": SORTED_LEDGER_STORAGE},
    "perledger": {"ledgerStorageClass": SORTED_LEDGER_STORAGE, "entryLogPerLedgerEnabled": "true"},
}


@dataclass
class Written:
    """What was acknowledged beside the image: ledger -> its entries; ledgers that were fenced by ours."""

    client: JavaClient
    bookie: str
    entries: dict[int, int] = field(default_factory=dict)
    fenced: list[int] = field(default_factory=list)

    def write(self, *, fence: bool) -> None:
        """Write two ledgers; one of them, and one without entries, is fenced and stays idle from then on."""
        for count in (30, 12):
            ledger = self.client.create(1, 1, 1)
            assert ledger.add(count, SIZE).acknowledged == list(range(count))
            self.entries[ledger.id] = count
        if fence:
            empty = self.client.create(1, 1, 1)
            for fenced in (ledger.id, empty.id):
                self.client.open(fenced, recovery=True).close()
                self.fenced.append(fenced)

    def check(self) -> None:
        for ledger, count in self.entries.items():
            reader = self.client.open(ledger)
            assert reader.read_unconfirmed(0, count - 1) == entries_of(ledger, range(count), SIZE)
            reader.close()
        for ledger in self.fenced:
            assert self.client.late_add(self.bookie, ledger, 1000) == FENCED, f"ledger {ledger}"


def check_image(image: Image, client: JavaClient, bookie: str, state: str) -> None:
    """The bookie has every entry of the image that it was given."""
    gone = image.manifest.deleted if state == "clean" else frozenset()
    expected: dict[int, dict[int, str]] = defaultdict(dict)
    for (ledger, entry), (_, sha256) in image.manifest.entries.items():
        if ledger not in gone and bookie in image.holders(ledger, entry):
            expected[ledger][entry] = sha256
    assert expected
    for ledger, entries in sorted(expected.items()):
        digest = image.manifest.digests[ledger].upper()
        hashes = client.replicas(bookie, ledger, 0, max(entries), digest=digest)
        assert {entry: hashes[entry] for entry in entries} == entries, f"ledger {ledger}"


@pytest.mark.parametrize(("corpus", "state", "ends"), ALL if os.environ.get("BKCTL_SOAK") else MOST_TELLING)
def test_index_files_go_from_java_to_ours_and_back(
    corpora: Corpora,
    java: JavaLedgerClient,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    run_cli: Callable[..., Any],
    tmp_path: Path,
    corpus: str,
    state: str,
    ends: str,
) -> None:
    source = corpora(corpus)
    folder = copy_directory(source / state, tmp_path / "image")
    image = Image.load(
        folder, source / "manifest.json", source / "zk-crash.json", source / f"zk-{state}.json"
    )
    uri, kazoo = load_metadata(zookeeper_server, source / f"zk-{state}.json")
    ((name, home),) = image.bookies().items()
    adopt_cookies(kazoo, f"/{uri.rpartition('/')[2]}", name, home)
    kazoo.stop()
    kazoo.close()
    client = java.client(uri)
    conf = {"flushInterval": "300", "gcWaitTime": "900000", **CONF[corpus]}
    with BookieProcess(home, uri, name, conf) as bookie:
        written = Written(client, name)
        for turn, kind in enumerate((OURS, THEIRS, OURS)):
            bookie.start(kind)
            client.wait_for(name)
            check_image(image, client, name, state)
            written.check()
            # The fence of an idle ledger is what Java's loses: only ours are asked to keep some.
            written.write(fence=kind == OURS)
            written.check()
            if ends == "kill":
                bookie.kill()
                if kind == THEIRS:
                    # It had them from our journal, and loses them with its memory.
                    written.fenced.clear()
            else:
                bookie.stop()
            if turn:
                found = json.loads(run_cli("index", "check", home, "-o", "json").stdout)
                damage = [each for each in found if each["severity"] == "damage" and "ledger" in each]
                # A replay brings deleted ledgers back by half, until a collector deletes them anew.
                assert not [each for each in damage if each["ledger"] not in image.manifest.deleted]
    client.close()
