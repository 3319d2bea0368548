"""The pipeline on real bookies: the manifest is the truth, all is well on them, broken copies are found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bkctl.codec import location
from bkctl.kvstore.base import Delete
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.pipeline.job import Parameters
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.results import Outcome, parquet_files
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.scan.metadata_dump import load_metadata_dump
from bkctl.types import LedgerState
from bkctl.vfs import PosixFileSystem
from tests.support.grades import every_value
from tests.support.manifest import CORPORA, Image, ImageOf, index_rows
from tests.support.pipeline_tables import rows_of

pytestmark = pytest.mark.corpora

#: Jobs that find something only where something is wrong.
AUDITS = ("verify", "index-audit", "replication-audit", "replica-compare", "orphans", "journal-forensics")
#: It was killed before its first flush, and has no index yet.
WITHOUT_INDEX = {("interleaved", "crash")}

EntryKey = tuple[int, int]


def run(
    job: str,
    paths: Iterable[Path],
    out: Path,
    metadata: Path,
    *,
    after: Path | None = None,
    **parameters: Any,
) -> Outcome:
    """A run whose metadata was read before and after; the same both times unless said."""
    request = Request(
        JOBS[job],
        tuple(str(path) for path in paths),
        str(out),
        str(metadata),
        str(after or metadata),
        Parameters(**parameters),
    )
    with LocalEngine(jobs=1) as engine:
        return run_job(PosixFileSystem(), engine, request)


@every_value("another state of the same corpus", corpus=CORPORA, state=("crash", "clean"))
def test_the_inventory_is_the_manifest(image_of: ImageOf, corpus: str, state: str, tmp_path: Path) -> None:
    image = image_of(corpus, state)
    metadata = image.path.parent / f"zk-{state}.json"
    outcome = run("inventory", [image.path], tmp_path / "o", metadata, entries=True)
    found = rows_of(outcome, "entries", "bookie", "ledger", "entry")
    pending = rows_of(outcome, "unflushed", "bookie", "ledger", "entry")
    for bookie in image.bookies():
        expected = image.held_by(bookie)
        flushed = {row[1:] for row in found if row[0] == bookie}
        held = flushed | {row[1:] for row in pending if row[0] == bookie}
        assert held <= expected
        gone = image.manifest.deleted if state == "clean" else frozenset()
        assert {ledger for ledger, _ in expected - held} <= gone
        counts = {
            ledger: count
            for name, ledger, count in rows_of(outcome, "ledger_inventory", "bookie", "ledger", "entries")
            if name == bookie
        }
        assert sum(counts.values()) == len(flushed)
        assert all(sum(key[0] == ledger for key in flushed) == count for ledger, count in counts.items())


@every_value("another state of the same corpus", corpus=CORPORA, state=("crash", "clean"))
def test_nothing_is_found_on_the_full_set(image_of: ImageOf, corpus: str, state: str, tmp_path: Path) -> None:
    image = image_of(corpus, state)
    metadata = image.path.parent / f"zk-{state}.json"
    for job in AUDITS:
        outcome = run(job, [image.path], tmp_path / job, metadata)
        if job == "index-audit" and (corpus, state) in WITHOUT_INDEX:
            assert (outcome.verdict, outcome.found) == ("unexamined", ("dirs_without_index",))
        else:
            assert (job, outcome.verdict, outcome.found) == (job, "clean", ())
    replay = sum(len(found.entries) for found in image.in_journals().values()) if state == "crash" else 0
    assert (outcome.counts["to_replay"] > 0) == (replay > 0)


class Fleet:
    """The three bookies of ``db``, stopped cleanly; one of them may be broken."""

    def __init__(self, image: Image, folder: Path) -> None:
        self.image = image
        self.metadata = image.path.parent / "zk-clean.json"
        self.ledgers = load_metadata_dump(PosixFileSystem(), str(self.metadata)).ledgers
        self.paths = dict(image.bookies())
        self._folder = folder

    def copy(self, bookie: str) -> Path:
        """Make one bookie a copy that may be changed; its ledger directory."""
        source = self.paths[bookie]
        self.paths[bookie] = self._folder / source.name
        shutil.copytree(source, self.paths[bookie])
        return self.paths[bookie] / "ledgers" / "current"

    def run(self, job: str, **more: Any) -> Outcome:
        """Run a job over what there is."""
        paths = more.pop("paths", None) or self.paths.values()
        metadata = more.pop("metadata", self.metadata)
        return run(job, paths, self._folder / "out" / job, metadata, **more)

    def closed(self, keys: Iterable[EntryKey]) -> set[EntryKey]:
        """Of these the entries of closed ledgers that metadata has."""
        return {
            key for key in keys if key[0] in self.ledgers and self.ledgers[key[0]].state is LedgerState.CLOSED
        }


@pytest.fixture
def fleet(image_of: ImageOf, tmp_path: Path) -> Fleet:
    return Fleet(image_of("db", "clean"), tmp_path)


@pytest.fixture
def victim(fleet: Fleet) -> str:
    return sorted(fleet.paths)[1]


def missing_entries(outcome: Outcome, fleet: Fleet, bookie: str) -> set[EntryKey]:
    """Entries that table ``missing`` says a bookie lacks, one by one."""
    found: set[EntryKey] = set()
    columns = ("ledger", "bookie", "first_missing", "last_missing", "missing")
    for ledger, name, first, last, count in rows_of(outcome, "missing", *columns):
        assert name == bookie
        keys = {(ledger, e) for e in range(first, last + 1) if bookie in fleet.image.holders(ledger, e)}
        assert len(keys) == count
        assert not keys & found
        found |= keys
    return found


def test_a_bookie_that_is_not_there(fleet: Fleet, victim: str) -> None:
    lost = fleet.closed(fleet.image.held_by(victim))
    del fleet.paths[victim]
    silent = fleet.run("replication-audit")
    assert (silent.verdict, silent.exit_code, silent.counts["bookies_not_examined"]) == ("unexamined", 3, 1)
    assert rows_of(silent, "missing") == []
    gone = fleet.run("replication-audit", bookies_gone=(victim,))
    assert (gone.verdict, gone.exit_code) == ("found", 1)
    missing = missing_entries(gone, fleet, victim)
    assert fleet.closed(missing) == lost
    # Of open ledgers what is confirmed: nothing is on its way to a bookie that is gone.
    assert lost < missing <= set(fleet.image.held_by(victim))
    assert gone.counts["copies_missing"] == gone.counts["entries_short"] == len(missing)
    assert gone.counts["entries_lost"] == 0
    assert (gone.counts["slots_unknown"], gone.counts["slots_not_judged"]) == (0, 0)
    assert silent.counts["slots_not_judged"] == silent.counts["slots_not_examined"] > 0


def test_a_log_that_is_not_there(fleet: Fleet, victim: str) -> None:
    current = fleet.copy(victim)
    rows = list(index_rows(current))
    log_id = max({row[2] for row in rows}, key=lambda log_id: sum(row[2] == log_id for row in rows))
    in_log = {(ledger, entry): (log, offset) for ledger, entry, log, offset in rows if log == log_id}
    (current / f"{log_id:x}.log").unlink()

    audit = fleet.run("index-audit")
    columns = ("kind", "bookie", "ledger", "entry", "index_log_id", "index_offset")
    assert {row[0] for row in rows_of(audit, "index_findings", *columns)} == {"dangling"}
    found = {(row[2], row[3]): (row[4], row[5]) for row in rows_of(audit, "index_findings", *columns)}
    assert found == in_log
    assert audit.counts["dangling"] == len(in_log)

    replication = fleet.run("replication-audit")
    assert missing_entries(replication, fleet, victim) == fleet.closed(in_log)
    assert replication.exit_code == 1

    forensics = fleet.run("journal-forensics")
    assert {
        row for row in rows_of(forensics, "lost_records", "ledger", "entry") if row in in_log
    } == in_log.keys()
    assert fleet.run("verify").verdict == "clean"


def test_an_index_row_that_is_not_there(fleet: Fleet, victim: str) -> None:
    current = fleet.copy(victim)
    ledger, entry, log_id, offset = next(iter(index_rows(current)))
    with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=False) as store:
        store.write([Delete(location.encode_key(ledger, entry))], sync=True)
    audit = fleet.run("index-audit")
    assert (audit.exit_code, audit.found) == (1, ("missing",))
    assert rows_of(audit, "index_findings") == [
        ("missing", victim, str(current), ledger, entry, None, None, log_id, offset)
    ]
    assert fleet.run("replication-audit").verdict == "clean"


def test_payload_bytes_that_are_others(fleet: Fleet, victim: str) -> None:
    current = fleet.copy(victim)
    metadata = fleet.ledgers
    ledger, entry, log_id, offset = next(
        row
        for row in index_rows(current)
        if row[0] in metadata and fleet.image.manifest.entries[row[0], row[1]][0] > 100
    )
    with (current / f"{log_id:x}.log").open("r+b") as file:
        file.seek(offset + 90)
        byte = file.read(1)
        file.seek(offset + 90)
        file.write(bytes([byte[0] ^ 1]))
    verified = fleet.run("verify")
    assert (verified.exit_code, verified.found) == (1, ("bad_entries",))
    assert rows_of(verified, "bad_entries", "bookie", "log_id", "bad_offset", "ledger", "entry") == [
        (victim, log_id, offset, ledger, entry)
    ]
    compared = fleet.run("replica-compare")
    assert (compared.exit_code, compared.counts["payload_differs"]) == (1, 1)
    replicas = rows_of(compared, "divergent", "ledger", "entry", "bookie", "digest_ok")
    holders = fleet.image.holders(ledger, entry)
    assert replicas == sorted((ledger, entry, name, name != victim) for name in holders)
    assert fleet.run("index-audit").verdict == "clean"
    assert fleet.run("replication-audit").verdict == "clean"


def test_a_ledger_without_metadata(fleet: Fleet, tmp_path: Path) -> None:
    dump = load_metadata_dump(PosixFileSystem(), str(fleet.metadata))
    ledger = next(
        ledger
        for ledger, found in dump.ledgers.items()
        if found.state is LedgerState.CLOSED and (found.last_entry or 0) > 10
    )
    znodes = json.loads(fleet.metadata.read_text())
    del znodes[dump.ledger_paths[ledger]]
    shorter = tmp_path / "zk.json"
    shorter.write_text(json.dumps(znodes))

    orphans = fleet.run("orphans", metadata=shorter)
    assert (orphans.exit_code, orphans.found) == (1, ("orphans",))
    expected = sorted({name for segment in dump.ledgers[ledger].segments for name in segment.bookies})
    assert rows_of(orphans, "orphans", "bookie", "ledger", "place") == [
        (name, ledger, "indexed") for name in expected
    ]
    # Only made after the first reading of metadata: no orphan, and no garbage either.
    made = fleet.run("orphans", metadata=shorter, after=fleet.metadata)
    assert made.verdict == "clean"
    assert fleet.run("replication-audit", metadata=shorter).verdict == "clean"

    before, after = fleet.run("garbage").counts, fleet.run("garbage", metadata=shorter).counts
    bytes_of_it = sum(
        size
        for table in [fleet._folder / "out" / "garbage" / "log_ledgers"]
        for path in parquet_files(str(table))
        for row in [pq.read_table(path).to_pydict()]
        for found, size in zip(row["ledger"], row["bytes"], strict=True)
        if found == ledger
    )
    assert after["dead_bytes"] - before["dead_bytes"] == bytes_of_it > 0
    assert after["live_bytes"] == before["live_bytes"] - bytes_of_it
