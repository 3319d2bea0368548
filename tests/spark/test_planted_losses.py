"""Losses planted in metadata, logs, indexes and replicas of a fleet are found over sets as over files, by
DuckDB and on a standalone cluster of two workers with every query in Spark.

A job takes a minute and more: ``make soak SOAK=cluster`` runs all of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.codec import entry, location
from bkctl.codec.digest import Digester, DigestType
from bkctl.codec.ledger_path import ledger_path
from bkctl.kvstore.base import Delete
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.pipeline.results import Outcome
from bkctl.pipeline.tables.options import TableOptions
from tests.support.manifest import index_rows
from tests.support.pipeline_tables import rows_of, same_results
from tests.support.sets import collected, ran
from tests.support.spark_cluster import REPOSITORY, SETTINGS, SparkCluster

ROUNDS = int(os.environ.get("BKCTL_CLUSTER_ROUNDS") or 0)
SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 1)
pytestmark = [
    pytest.mark.corpora,
    pytest.mark.skipif(not ROUNDS, reason="takes minutes: make soak SOAK=cluster"),
    pytest.mark.timeout(0),
]

RUN_S_MAX = 600
AUDITS = ("verify", "index-audit", "replication-audit", "replica-compare", "orphans", "journal-forensics")
#: ``bkctl`` whose queries are all Spark's.
ALL_IN_SPARK = """
from bkctl.spark import engine
engine.HERE_ROWS_MAX = 0
from bkctl.cli import main
main()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


class Fleet:
    """Three bookies that lack what was planted, their metadata that lacks a ledger, and their sets."""

    def __init__(self, corpus: Path, folder: Path, chance: random.Random) -> None:
        self.root = Path(shutil.copytree(corpus / "clean", folder / "bookies"))
        self.bookies = sorted(path.parents[1] for path in self.root.rglob("ledgers/current"))
        self.dump = folder / "zk.json"
        without_log, without_row, with_flip = chance.sample(self.bookies, 3)
        rows = sorted(index_rows(without_log / "ledgers/current"))
        (without_log / "ledgers/current" / f"{chance.choice(rows)[2]:x}.log").unlink()
        ledger, number, *_ = chance.choice(sorted(index_rows(without_row / "ledgers/current")))
        place = str(without_row / "ledgers/current/locations")
        with open_store(place, LOCATIONS_PROFILE, create=False) as store:
            store.write([Delete(location.encode_key(ledger, number))], sync=True)
        rows = sorted(index_rows(with_flip / "ledgers/current"))
        _, _, log_id, offset = chance.choice(rows)
        log = with_flip / "ledgers/current" / f"{log_id:x}.log"
        data = bytearray(log.read_bytes())
        data[offset + 16 + chance.randrange(16)] ^= 1  # behind the ids: the last add confirmed, the digest
        log.write_bytes(data)
        put_another_payload(without_row, chance)
        nodes = json.loads((corpus / "zk-clean.json").read_text())
        kept = {row[0] for row in rows}
        del nodes[f"/ledgers{ledger_path(chance.choice(sorted(kept)))}"]
        self.dump.write_text(json.dumps(nodes))
        self.sets = folder / "sets"
        self.collect()

    def collect(self, blocks: Path | None = None) -> None:
        """Make a set of each bookie; ``blocks`` is a table of those to be listed entry by entry."""
        options = TableOptions(damage="rows", metadata=str(self.dump))
        more = {} if blocks is None else {"blocks": str(blocks)}
        for bookie in self.bookies:
            collected(bookie, self.sets, options=options, **more)


def put_another_payload(bookie: Path, chance: random.Random) -> None:
    """Replace an entry's payload by one whose digest is right, as two writers of a ledger leave it."""
    rows = sorted(index_rows(bookie / "ledgers/current"))
    for _, _, log_id, offset in chance.sample(rows, len(rows)):
        log = bookie / "ledgers/current" / f"{log_id:x}.log"
        data = bytearray(log.read_bytes())
        body = bytes(data[offset : offset + int.from_bytes(data[offset - 4 : offset], "big")])
        for digester in (Digester(DigestType.CRC32C), Digester(DigestType.CRC32)):
            payload = body[entry.HEADER_BYTES + digester.size_bytes :]
            if payload and digester.checks(body):
                other = payload[:-1] + bytes([payload[-1] ^ 1])
                data[offset : offset + len(body)] = entry.encode(entry.decode_header(body), other, digester)
                log.write_bytes(data)
                return
    raise AssertionError("no entry with a digest that can be made again")


@pytest.fixture(scope="module")
def fleet(corpora: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(corpora("db"), tmp_path_factory.mktemp("fleet"), random.Random(SEED))


@pytest.mark.parametrize("job", AUDITS)
def test_losses_are_found_over_sets_as_over_files(
    job: str, cluster: SparkCluster, fleet: Fleet, tmp_path: Path
) -> None:
    metadata = str(fleet.dump)
    over_files = ran(job, [fleet.root], tmp_path / "files", metadata=metadata)
    over_sets = ran(job, [fleet.sets], tmp_path / "sets", metadata=metadata)
    assert over_files.found
    same_findings(job, over_files, over_sets)
    same_on_cluster(job, over_sets, fleet, cluster, tmp_path / "one")
    if job == "replica-compare":
        # The bookies concerned list the entries of the blocks that differ, and the payload is found.
        fleet.collect(tmp_path / "sets" / "blocks_to_compare")
        again = ran(job, [fleet.sets], tmp_path / "again", metadata=metadata)
        for count in ("payload_differs", "header_differs"):
            assert again.counts[count] == over_files.counts[count] > 0, count
        # Blocks compare entries whose digest type is not known as well, by their bytes.
        more = again.counts["entries_compared"] - over_files.counts["entries_compared"]
        assert 0 <= more <= over_files.counts["uncompared"]
        assert again.counts["blocks_undecided"] == 0
        same_on_cluster(job, again, fleet, cluster, tmp_path / "two")


def same_on_cluster(job: str, over_sets: Outcome, fleet: Fleet, cluster: SparkCluster, folder: Path) -> None:
    """Assert that a job over the sets comes to the same on the cluster."""
    folder.mkdir()
    told = on_cluster(job, fleet, cluster, folder)
    assert told["engine"] == "spark"
    here = json.loads(json.dumps(over_sets.as_row()))
    for key in ("verdict", "counts", "found", "exit_code"):
        assert told[key] == here[key], key
    results = [table for table in over_sets.tables if table.role == "result"]
    moved = [replace(table, path=str(folder / "spark" / table.name)) for table in results]
    there = replace(over_sets, tables=tuple(moved))
    for table in results:
        assert rows_of(there, table.name) == rows_of(over_sets, table.name), table.name


def same_findings(job: str, over_files: Outcome, over_sets: Outcome) -> None:
    """Assert that sets say what files say. Where blocks do not decide they say so, never better."""
    if job != "replica-compare":
        same_results(over_files, over_sets)
        return
    assert over_files.counts["payload_differs"] == 1
    assert over_sets.counts["records"] == over_files.counts["records"]
    assert over_sets.verdict == "unexamined"
    assert over_sets.counts["blocks_undecided"] > 0


def on_cluster(job: str, fleet: Fleet, cluster: SparkCluster, folder: Path) -> dict[str, object]:
    """Run a job over the sets on the cluster; what it says."""
    words = ["pipeline", "run", job, str(fleet.sets), "--out", str(folder / "spark"), "-o", "json"]
    words += ["--metadata", str(fleet.dump), "--metadata-after", str(fleet.dump), "--master", cluster.master]
    settings = {
        **SETTINGS,
        "spark.speculation": "true",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-c", ALL_IN_SPARK, *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode in (0, 1, 3), done.stderr[-4000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found
