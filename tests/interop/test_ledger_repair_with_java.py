"""Damaged bookies of ours and of Java's are repaired in place; Java then reads each replica alone.

``BKCTL_REPAIR_ROUNDS`` sets how often bookies are damaged, for ``make soak SOAK=repair``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.distribution import Distribution
from tests.support.java_client import JavaClient, JavaLedgerClient, payload
from tests.support.java_cluster import OURS, THEIRS, BookieProcess, free_port, new_cluster
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(0 if "BKCTL_REPAIR_ROUNDS" in os.environ else 280)]

Run = Callable[..., Any]

ROUNDS = int(os.environ.get("BKCTL_REPAIR_ROUNDS") or 1)
SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 1)
#: Of the soak's cluster; CI has two of each, and a bookie of each kind is damaged.
KINDS = (OURS, THEIRS) * (3 if "BKCTL_REPAIR_ROUNDS" in os.environ else 2)
SIZE, ENTRIES = 300, 40
HEADER_BYTES = 1024
EMPTIED, NO_INDEX = "disk emptied", "databases lost"


def http(kind: str) -> dict[str, str]:
    """Return the keys by which a bookie of ours has an HTTP admin."""
    if kind == THEIRS:
        return {}
    return {"httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": str(free_port())}


@dataclass
class Cluster:
    """Bookies with their kinds, Java's client, and the ledgers it wrote: digest and quorums."""

    uri: str
    bookies: dict[str, BookieProcess]
    kinds: dict[str, str]
    java: JavaClient
    written: dict[int, tuple[str, tuple[int, int, int]]] = field(default_factory=dict)

    def write(self, *quorums: int, digest: str) -> int:
        ledger = self.java.create(quorums[0], quorums[1], quorums[2], digest)
        added = ledger.add(ENTRIES, SIZE)
        assert not added.failed, added
        ledger.close()
        self.written[ledger.id] = (digest, (quorums[0], quorums[1], quorums[2]))
        return int(ledger.id)

    def restart(self, bookie: str, kind: str | None = None) -> None:
        kind = kind or self.kinds[bookie]
        self.bookies[bookie].start(kind, **http(kind))
        self.java.wait_for(bookie)

    def holders(self) -> set[str]:
        """Return the bookies of the ledgers' ensembles: four bookies need not all have been chosen."""
        found: set[str] = set()
        for ledger in self.written:
            ((_, members),) = self.java.metadata(ledger).ensembles.items()
            found.update(members)
        return found

    def assert_java_reads_every_replica(self) -> None:
        for ledger, (digest, quorums) in self.written.items():
            metadata = self.java.metadata(ledger)
            assert (metadata.state, metadata.last_entry) == ("CLOSED", ENTRIES - 1)
            ((_, members),) = metadata.ensembles.items()
            for index, bookie in enumerate(members):
                found = self.java.replicas(bookie, ledger, 0, ENTRIES - 1, digest=digest)
                for entry, seen in enumerate(found):
                    if Distribution(*quorums).holds(index, entry):
                        expected = hashlib.sha256(payload(ledger, entry, SIZE)).hexdigest()
                        assert seen == expected, f"ledger {ledger}, entry {entry} at {bookie}: {seen}"


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:  # noqa: F811
    uri, folder = new_cluster(zookeeper_server), tmp_path_factory.mktemp("repaired")
    with contextlib.ExitStack() as stack:
        java = stack.enter_context(JavaLedgerClient())
        bookies, kinds = {}, {}
        for number, kind in enumerate(KINDS):
            bookie = stack.enter_context(BookieProcess(folder / f"bookie{number}", uri))
            bookie.start(kind, **http(kind))
            bookies[bookie.bookie_id], kinds[bookie.bookie_id] = bookie, kind
        client = java.client(uri)
        stack.callback(client.close)
        for name in bookies:
            client.wait_for(name)
        yield Cluster(uri, bookies, kinds, client)


def damage(chance: random.Random, folder: Path, kind: str) -> None:
    """Do to a stopped bookie's files what disks do to them."""
    current = folder / "ledgers" / "current"
    logs = sorted(path for path in current.glob("*.log") if path.stat().st_size > HEADER_BYTES)
    if kind == EMPTIED:
        for name in ("journal", "ledgers"):
            shutil.rmtree(folder / name)
            (folder / name).mkdir()
    elif kind == NO_INDEX:
        for name in ("ledgers", "locations"):
            shutil.rmtree(current / name)
    elif kind == "log deleted":
        chance.choice(logs).unlink()
    elif kind == "log cut":
        log = chance.choice(logs)
        os.truncate(log, chance.randrange(HEADER_BYTES, log.stat().st_size))
    else:
        for log in logs:
            data = bytearray(log.read_bytes())
            for _ in range(chance.randrange(1, 6)):
                at = chance.randrange(HEADER_BYTES, len(data))
                if kind == "bits flipped":
                    data[at] ^= 1 << chance.randrange(8)
                else:
                    end = min(at + chance.randrange(1, 3000), len(data))
                    data[at:end] = bytes(end - at)
            log.write_bytes(data)


DAMAGES = ("bits flipped", "ranges zeroed", "log cut", "log deleted", NO_INDEX, EMPTIED)


def hurt(run_cli: Run, cluster: Cluster, chance: random.Random, bookie: str, kind: str) -> None:
    """Damage a bookie, and bring it to where it can be repaired online."""
    process = cluster.bookies[bookie]
    process.stop()
    damage(chance, process.folder, kind)
    if kind == EMPTIED:
        process.write_conf()
        done = run_cli("bookie", "rebuild", "--conf", process.conf_path, "--yes")
        assert done.exit_code == 0, done.stderr
    elif kind == NO_INDEX and cluster.kinds[bookie] == OURS:
        done = run_cli(
            "index", "rebuild", process.folder, "--all", "--storage", "db", "--accept-loss", "--yes"
        )
        assert done.exit_code in (0, 1), done.stderr
    # Java's cannot leave limbo while it runs: ours takes its place until the ledgers are whole.
    cluster.restart(bookie, OURS if kind == EMPTIED else None)


@pytest.mark.parametrize(
    "quorums",
    [
        pytest.param((3, 3, 2), id="Wq3", marks=pytest.mark.thorough("as of ledgers with two replicas")),
        pytest.param((3, 2, 2), id="Wq2"),
    ],
)
def test_java_reads_every_replica_alone_after_the_repair(
    run_cli: Run, cluster: Cluster, quorums: tuple[int, int, int]
) -> None:
    cluster.written.clear()
    uri = ("--metadata-uri", cluster.uri)
    for number in range(ROUNDS):
        chance = random.Random(f"{SEED} {number} {quorums}")
        for digest in ("CRC32", "CRC32C", "MAC"):
            cluster.write(*quorums, digest=digest)
        ours, theirs = (
            sorted(b for b in cluster.holders() if cluster.kinds[b] == wanted) for wanted in (OURS, THEIRS)
        )
        # Fewer than there are replicas; of the two kinds in turn where it is only one.
        chosen = [chance.choice(ours), chance.choice(theirs)]
        if quorums[1] == 2:
            chosen = [chosen[(number + SEED) % 2]]
        kinds = {bookie: chance.choice(DAMAGES) for bookie in chosen}
        print(f"round {number}: BKCTL_SOAK_SEED={SEED}: {kinds}")
        for bookie, kind in kinds.items():
            hurt(run_cli, cluster, chance, bookie, kind)
        ledgers = sorted(cluster.written)
        done = run_cli("ledger", "repair", *ledgers, "--yes", "-o", "json", *uri)
        rows = json.loads(done.stdout)
        assert done.exit_code == 0, (kinds, rows, done.stderr)
        assert not any(row["lost"] or row["left"] or row["limbo"] == "stays" for row in rows)
        # What is read now comes from the disks.
        for bookie in chosen:
            cluster.bookies[bookie].stop()
            cluster.restart(bookie)
        cluster.assert_java_reads_every_replica()
        for ledger in ledgers[-2:]:
            same = run_cli("ledger", "compare", ledger, "--differences", *uri)
            assert (same.exit_code, same.stdout) == (0, ""), same.stdout
