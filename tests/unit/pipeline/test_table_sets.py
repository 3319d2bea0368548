"""What a run over collected tables takes over from the runs that wrote them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import CorruptionError, NotFoundError, RefusedError, UsageError
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.locations import located
from bkctl.pipeline.results import Outcome
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.sets.collection import CollectRequest, collect
from bkctl.pipeline.sets.store import SetStore
from bkctl.pipeline.table_sets import metadata_time_ms, read_table_set
from bkctl.reporting import Advance, nobody
from bkctl.vfs import PosixFileSystem

DEMO = Path(__file__).parents[2] / "data" / "demo" / "bookie1"
ZK = DEMO.parent / "zk.json"


def run(job: str, out: Path, *paths: Path, **options: Any) -> Outcome:
    phase = options.pop("phase", None)
    options.setdefault("metadata", str(ZK))
    request = Request(JOBS[job], tuple(map(str, paths)), str(out), **options)
    with LocalEngine(jobs=1) as engine:
        if phase is None:
            return run_job(PosixFileSystem(), engine, request)
        return run_job(PosixFileSystem(), engine, request, phase=phase)


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(DEMO, folder))


def without_its_largest_log(folder: Path) -> Path:
    bookie = copied(folder)
    max(bookie.glob("ledgers/current/*.log"), key=lambda path: path.stat().st_size).unlink()
    return bookie


def changed_summary(folder: Path, **changes: Any) -> None:
    path = folder / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_two_inventories_of_one_bookie_are_never_united(tmp_path: Path) -> None:
    """What today's lacks would be taken from yesterday's, and a loss called clean."""
    yesterday, today = tmp_path / "yesterday", tmp_path / "today"
    run("inventory", yesterday, DEMO)
    run("inventory", today, without_its_largest_log(tmp_path / "bookie"))
    alone = run("replication-audit", tmp_path / "a", today)
    assert alone.counts["slots_missing"]
    with pytest.raises(RefusedError, match="both hold bookie ") as refused:
        run("replication-audit", tmp_path / "b", yesterday, today)
    assert str(yesterday) in str(refused.value)
    assert str(today) in str(refused.value)
    with pytest.raises(RefusedError, match="yesterday and the directories both hold"):
        run("replication-audit", tmp_path / "c", yesterday, DEMO)
    assert not (tmp_path / "b").exists()


def test_sets_of_the_directories_of_one_bookie_are_united(tmp_path: Path) -> None:
    """A bookie with two disks may have an inventory of each."""
    for name in ("one", "two"):
        bookie = copied(tmp_path / name)
        for cookie in bookie.rglob("VERSION"):
            text = cookie.read_text().replace('ledgerDirs: "', 'ledgerDirs: "2\\t/disk0\\t/disk1"\n#')
            cookie.write_text(
                "\n".join(line for line in text.splitlines() if not line.startswith("#")) + "\n"
            )
        if name == "two":
            shutil.rmtree(bookie / "journal")
        run("inventory", tmp_path / f"set-{name}", bookie)
    outcome = run("stats", tmp_path / "o", tmp_path / "set-one", tmp_path / "set-two")
    assert "twin_directories" not in outcome.found


def test_two_copies_of_one_bookie_are_not_examined(tmp_path: Path) -> None:
    copies = [copied(tmp_path / name) for name in ("monday", "tuesday")]
    for job in ("replication-audit", "orphans"):
        outcome = run(job, tmp_path / "o", *copies)
        assert (outcome.verdict, outcome.exit_code) == ("unexamined", 3)
        assert "twin_directories" in outcome.found
        assert any("are there two copies of it" in guard for guard in outcome.guards)
    run("inventory", tmp_path / "set", *copies)
    request = CollectRequest(tuple(map(str, copies)))
    collect(PosixFileSystem(), SetStore(located(str(tmp_path / "sets"))), request)
    for of_both in (tmp_path / "set", tmp_path / "sets"):
        for job in ("replication-audit", "orphans", "garbage", "stats"):
            outcome = run(job, tmp_path / "o", of_both)
            assert (job, outcome.verdict, outcome.exit_code) == (job, "unexamined", 3)
            assert "twin_directories" in outcome.found


def test_logs_that_went_away_under_an_inventory_are_unknown_to_an_audit(tmp_path: Path) -> None:
    bookie = copied(tmp_path / "bookie")
    log = max(bookie.glob("ledgers/current/*.log"), key=lambda path: path.stat().st_size)

    @contextmanager
    def compacted(name: str, size_bytes: int) -> Iterator[Advance]:
        if name == "reading runs":
            log.unlink()
        yield nobody

    collected = run("inventory", tmp_path / "set", bookie, phase=compacted)
    assert collected.logs_gone == 1
    outcome = run("replication-audit", tmp_path / "o", tmp_path / "set")
    assert (outcome.verdict, outcome.exit_code) == ("unexamined", 3)
    assert "logs_gone" in outcome.found
    assert outcome.logs_gone == 1
    (told,) = [guard for guard in outcome.guards if "went away while files were read" in guard]
    assert told.startswith(f"of {tmp_path / 'set'}: ")


def test_an_index_that_an_inventory_left_out_is_unknown_to_an_audit(tmp_path: Path) -> None:
    bookie = copied(tmp_path / "bookie")
    shutil.rmtree(bookie / "ledgers" / "current" / "locations")
    collected = run("inventory", tmp_path / "set", bookie)
    assert collected.unread_indexes == (str(bookie / "ledgers" / "current"),)
    outcome = run("orphans", tmp_path / "o", tmp_path / "set")
    assert (outcome.verdict, outcome.exit_code) == ("unexamined", 3)
    assert "unread_indexes" in outcome.found
    assert any("is left out" in guard for guard in outcome.guards)
    # A job that reads no index judges all it reads, and hands the guard on.
    audit = run("replication-audit", tmp_path / "p", tmp_path / "set")
    assert "unread_indexes" not in audit.found
    assert any("is left out" in guard for guard in audit.guards)


def dump_of(path: Path, time_ms: int) -> str:
    znodes = json.loads(ZK.read_text())
    end = {"kind": "cluster", "complete": True, "time_ms": time_ms, "nodes": len(znodes), "next_ledger": None}
    path.write_text(json.dumps({**znodes, "end": end}))
    return str(path)


def test_a_set_is_compared_with_the_time_of_the_metadata(tmp_path: Path) -> None:
    """Metadata of before is older than the tables, metadata of after younger; else they say too much."""
    collected = run("inventory", tmp_path / "set", DEMO)
    before = dump_of(tmp_path / "before.json", collected.started_ms - 1000)
    after = dump_of(tmp_path / "after.json", collected.started_ms + 3_600_000)
    for first, second, unknown in (
        (before, after, set()),
        (before, None, set()),
        (str(ZK), None, set()),
        (after, None, {"older_than_metadata"}),
        (before, before, {"newer_than_metadata"}),
    ):
        outcome = run(
            "replication-audit", tmp_path / "o", tmp_path / "set", metadata=first, metadata_after=second
        )
        assert set(outcome.found) & {"older_than_metadata", "newer_than_metadata"} == unknown
        assert outcome.verdict == "unexamined"  # two of the three bookies were not given
        assert any("was collected" in guard for guard in outcome.guards) is bool(unknown)


def test_when_metadata_was_read(tmp_path: Path) -> None:
    assert metadata_time_ms("zk://host:2181/ledgers", 77) == 77
    assert metadata_time_ms(str(ZK), 77) is None
    assert metadata_time_ms(dump_of(tmp_path / "dump", 1_700_000_000_123), 77) == 1_700_000_000_123
    run("replication-audit", tmp_path / "set", DEMO)
    started = json.loads((tmp_path / "set/summary.json").read_text())["started_ms"]
    assert metadata_time_ms(str(tmp_path / "set"), 77) == started


def test_a_table_that_lacks_columns_is_refused_by_name(tmp_path: Path) -> None:
    """A run keeps only the columns that its job reads."""
    run("stats", tmp_path / "stats", DEMO)
    with pytest.raises(UsageError, match=r"table fragments has no column .*: a run of stats wrote it"):
        run("replication-audit", tmp_path / "o", DEMO, metadata=str(tmp_path / "stats"))
    outcome = run("stats", tmp_path / "p", DEMO, metadata=str(tmp_path / "stats"))
    assert outcome.counts["ledgers"] > 0


def test_a_summary_that_is_no_summary_is_named(tmp_path: Path) -> None:
    run("inventory", tmp_path / "set", DEMO)
    changed_summary(tmp_path / "set", job="a job of another version")
    assert read_table_set(str(tmp_path / "set")).job == "a job of another version"
    for text in ("{", "[]"):
        (tmp_path / "set/summary.json").write_text(text)
        with pytest.raises(CorruptionError, match="summary of a run"):
            read_table_set(str(tmp_path / "set"))


@pytest.mark.parametrize(
    "text",
    [
        '{"guards": 5}',
        '{"guards": [5]}',
        '{"unread_indexes": true}',
        '{"unread_files": [7]}',
        '{"logs_gone": "many"}',
        '{"logs_gone": []}',
        '{"job": 5}',
        "[" * 100_000,
    ],
)
def test_a_summary_with_values_of_other_kinds_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(
        CorruptionError, match=r"summary of a run.*summary.json|summary.json.*summary of a run"
    ):
        read_table_set(str(tmp_path))


@pytest.mark.parametrize("seconds", ["Infinity", "NaN", "1e400"])
def test_a_run_of_endless_seconds_has_no_end(tmp_path: Path, seconds: str) -> None:
    (tmp_path / "summary.json").write_text(f'{{"started_ms": 5, "seconds": {seconds}}}')
    assert read_table_set(str(tmp_path)).ended_ms is None


@pytest.mark.parametrize("url", ["ftp://host/inv", "S4://bucket/inv", "https://host/inv"])
def test_a_url_is_refused_by_name_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"--out {url}: no .*:// URLs"):
        _run_out(url)
    with pytest.raises(UsageError, match=f"PATH {url}"):
        _run_path(url, tmp_path / "o")
    assert list(tmp_path.iterdir()) == []


def _run_out(url: str) -> None:
    with LocalEngine(jobs=1) as engine:
        run_job(PosixFileSystem(), engine, Request(JOBS["inventory"], (str(DEMO),), url))


def _run_path(url: str, out: Path) -> None:
    with LocalEngine(jobs=1) as engine:
        run_job(PosixFileSystem(), engine, Request(JOBS["inventory"], (url,), str(out)))


def test_tables_of_an_earlier_run_in_a_directory_are_not_of_the_newest(tmp_path: Path) -> None:
    """Another job leaves the tables that it does not write: these are of another time than its summary."""
    run("inventory", tmp_path / "set", DEMO)
    run("garbage", tmp_path / "set", without_its_largest_log(tmp_path / "bookie"))
    with pytest.raises(NotFoundError, match="wrote this directory, but not table runs"):
        run("replication-audit", tmp_path / "o", tmp_path / "set")
    run("replication-audit", tmp_path / "set", DEMO)
    run("inventory", tmp_path / "set", DEMO)
    with pytest.raises(NotFoundError, match="without table ledgers"):
        run("orphans", tmp_path / "p", DEMO, metadata=str(tmp_path / "set"))


def test_a_table_that_a_run_did_not_write_is_named(tmp_path: Path) -> None:
    """Without its table of logs a bookie looks empty."""
    run("replication-audit", tmp_path / "set", DEMO)
    outcome = run("stats", tmp_path / "o", tmp_path / "set")
    assert outcome.counts["log_bytes"] == 0
    told = f"{tmp_path / 'set'}: the run that wrote this directory wrote no table logs"
    assert any(guard.startswith(told) for guard in outcome.guards)


@pytest.mark.parametrize("tables", ["5", "[5]", '[{"name": 5}]', "[{}]"])
def test_a_summary_whose_tables_have_no_names_is_named(tmp_path: Path, tables: str) -> None:
    (tmp_path / "summary.json").write_text(f'{{"tables": {tables}}}')
    with pytest.raises(CorruptionError, match="summary of a run, tables"):
        read_table_set(str(tmp_path))


@pytest.mark.parametrize("spelling", ["same", "relative", "link"])
def test_a_run_does_not_write_over_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    """However the directory is named: its summary, and what tables it has, would be another job's."""
    run("inventory", tmp_path / "set", DEMO)
    run("replication-audit", tmp_path / "metadata", DEMO)
    (tmp_path / "link").symlink_to("set")
    monkeypatch.chdir(tmp_path)
    out = {"same": tmp_path / "set", "relative": Path("set"), "link": tmp_path / "link"}[spelling]
    before = (tmp_path / "set" / "summary.json").read_bytes()
    with pytest.raises(UsageError, match="is also read from"):
        run("orphans", out, tmp_path / "set")
    assert (tmp_path / "set" / "summary.json").read_bytes() == before
    with pytest.raises(UsageError, match="is also read from"):
        run("orphans", Path("metadata"), DEMO, metadata=str(tmp_path / "metadata"))


def test_a_dump_that_may_be_a_part_of_a_cluster_is_named(tmp_path: Path) -> None:
    """What it lacks would be called an orphan, or be removed by a plan, without a word of it."""
    znodes = json.loads(ZK.read_text())
    (tmp_path / "part").write_text(json.dumps({name: znodes[name] for name in list(znodes)[:5]}))
    for metadata, told in ((str(tmp_path / "part"), True), (dump_of(tmp_path / "whole", 1), False)):
        outcome = run("orphans", tmp_path / "o", DEMO, metadata=metadata, metadata_after=metadata)
        assert any("has no end marker" in guard for guard in outcome.guards) is told
        assert (outcome.counts["orphans"] > 0) is told
