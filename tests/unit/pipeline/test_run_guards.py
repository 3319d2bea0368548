"""What a run says about what it could not know."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.codec.location import Location, encode_key, encode_value
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.pipeline.job import Parameters
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.sets import collection, rest_pass
from bkctl.pipeline.sets.index_pass import read_indexes
from bkctl.pipeline.sets.rest_pass import read_table
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import table_named
from bkctl.reporting import Advance, nobody
from bkctl.vfs import PosixFileSystem
from tests.support.log_builder import EntryLogBuilder, entry_body
from tests.support.manifest import index_rows
from tests.support.sets import collected, ran

DEMO = Path(__file__).parents[2] / "data" / "demo" / "bookie1"


def test_a_second_snapshot_is_proposed_where_only_one_was_given(tmp_path: Path) -> None:
    dump = str(DEMO.parent / "zk.json")
    for after in (None, dump):
        request = Request(JOBS["orphans"], (str(DEMO),), str(tmp_path / "out"), dump, after)
        with LocalEngine(jobs=1) as engine:
            outcome = run_job(PosixFileSystem(), engine, request)
        assert any("give a second one" in guard for guard in outcome.guards) == (after is None)


@pytest.mark.parametrize(
    ("job", "removed", "verdict"),
    [
        ("inventory", False, "clean"),
        ("inventory", True, "clean"),
        ("index-audit", False, "clean"),
        ("index-audit", True, "unexamined"),
    ],
)
def test_logs_that_a_bookie_removes_meanwhile_are_told(
    tmp_path: Path, job: str, removed: bool, verdict: str
) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    log = max(bookie.glob("ledgers/current/*.log"), key=lambda path: path.stat().st_size)

    @contextmanager
    def compacted(name: str, size_bytes: int) -> Iterator[Advance]:
        if removed and name == "reading runs":
            log.unlink()
        yield nobody

    request = Request(JOBS[job], (str(bookie),), str(tmp_path / "out"), parameters=Parameters())
    with LocalEngine(jobs=1) as engine:
        outcome = run_job(PosixFileSystem(), engine, request, phase=compacted)
    told = [guard for guard in outcome.guards if "1 entry log went away" in guard]
    assert len(told) == removed
    assert outcome.verdict == verdict
    assert ("logs_gone" in outcome.found) == (verdict == "unexamined")


def test_entries_whose_digests_could_not_be_checked_are_not_called_clean(tmp_path: Path) -> None:
    """Two of the demo's ledgers have digests that their entries do not show."""
    told = {}
    for metadata in (None, str(DEMO.parent / "zk.json")):
        request = Request(JOBS["verify"], (str(DEMO),), str(tmp_path / "out"), metadata)
        with LocalEngine(jobs=1) as engine:
            told[metadata] = run_job(PosixFileSystem(), engine, request)
    unknown, known = told.values()
    assert (unknown.verdict, unknown.exit_code, unknown.found) == ("unexamined", 3, ("unchecked",))
    assert (known.verdict, known.exit_code, known.counts["unchecked"]) == ("clean", 0, 0)


def _flush(bookie: Path) -> None:
    """Write what is behind the last mark into a log, and move the mark, as a checkpoint does."""
    options = TableOptions(damage="rows")
    journal, log = table_named("journal"), EntryLogBuilder()
    columns = ["ledger", "entry", "kind", "after_mark"]
    for split in journal.plan([str(bookie)], options):
        for batch in journal.read(split, columns, options):
            for row in batch.to_pylist():
                if row["kind"] == "entry" and row["after_mark"]:
                    log.add(entry_body(row["ledger"], row["entry"]))
    current = bookie / "ledgers" / "current"
    (current / "7f.log").write_bytes(log.roll().data)
    newest = max(bookie.glob("journal/current/*.txn"))
    mark = LastMark(int(newest.stem, 16), newest.stat().st_size)
    (current / "lastMark").write_bytes(encode_last_mark(mark))


@pytest.mark.parametrize("when", ["reading runs", "reading unflushed"])
def test_what_a_bookie_flushes_during_a_run_is_not_missing(tmp_path: Path, when: str) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))

    @contextmanager
    def flushed_after(name: str, _: int) -> Iterator[Advance]:
        yield nobody
        if name == when:
            _flush(bookie)

    dump = str(DEMO.parent / "zk.json")
    request = Request(JOBS["replication-audit"], (str(bookie),), str(tmp_path / "out"), dump, dump)
    with LocalEngine(jobs=1) as engine:
        outcome = run_job(PosixFileSystem(), engine, request, phase=flushed_after)
    assert (bookie / "ledgers" / "current" / "7f.log").exists()
    assert (outcome.counts["slots_missing"], outcome.counts["copies_missing"]) == (0, 0)


def _put(bookie: Path, log_id: int, ledger: int, entries: range) -> None:
    """Write a log with entries of a ledger, and their locations, as a flush does."""
    current, log = bookie / "ledgers" / "current", EntryLogBuilder()
    offsets = [log.add(entry_body(ledger, entry)).offset + 4 for entry in entries]
    (current / f"{log_id:x}.log").write_bytes(log.roll().data)
    with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=False) as store:
        store.write(
            [
                Put(encode_key(ledger, entry), encode_value(Location(log_id, offset)))
                for entry, offset in zip(entries, offsets, strict=True)
            ],
            sync=True,
        )


@pytest.mark.parametrize("when", ["reading runs", "reading suspect_entries", "reading suspect_locations"])
def test_what_a_bookie_flushes_during_an_audit_of_its_index_is_no_finding(tmp_path: Path, when: str) -> None:
    """A ledger is looked at entry by entry, because its locations were read after its runs."""
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    ledger = next(iter(index_rows(bookie / "ledgers" / "current")))[0]

    @contextmanager
    def flushed_after(name: str, _: int) -> Iterator[Advance]:
        yield nobody
        if name == "reading runs":
            _put(bookie, 0x7E, ledger, range(5000, 5010))
        if name == when != "reading runs":
            _put(bookie, 0x7F, ledger, range(6000, 6010))

    request = Request(JOBS["index-audit"], (str(bookie),), str(tmp_path / "out"))
    with LocalEngine(jobs=1) as engine:
        outcome = run_job(PosixFileSystem(), engine, request, phase=flushed_after)
    assert outcome.counts["ledgers_expanded"] == 1
    assert (outcome.verdict, outcome.found) == ("clean", ())


def test_nor_is_what_it_flushes_during_a_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    ledger = next(iter(index_rows(bookie / "ledgers" / "current")))[0]
    tables: list[str] = []

    def flushed_before(*arguments: Any) -> Any:
        _put(bookie, 0x7E, ledger, range(5000, 5010))
        return read_indexes(*arguments)

    def flushed_between(name: str, *arguments: Any) -> Iterator[Any]:
        yield from read_table(name, *arguments)
        if name in ("entries", "index_locations"):
            tables.append(name)
            if len(tables) == 1:
                _put(bookie, 0x7F, ledger, range(6000, 6010))

    monkeypatch.setattr(collection, "read_indexes", flushed_before)
    monkeypatch.setattr(rest_pass, "read_table", flushed_between)
    collected(bookie, tmp_path / "sets")
    assert len(tables) == 2
    outcome = ran("index-audit", [tmp_path / "sets"], tmp_path / "out", metadata=None)
    assert outcome.counts["ledgers_expanded"] == 1
    assert (outcome.verdict, outcome.found) == ("clean", ())
