"""Inputs of a run: indexes that are left out, and metadata that are none."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import CorruptionError, RefusedError, StorageError
from bkctl.pipeline.job import Parameters
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.results import Outcome
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.survey import JOURNALS, KIND_OF, LOGS, survey, unread_files, unread_indexes
from bkctl.pipeline.tables.options import TableOptions
from bkctl.scan.metadata_dump import DumpKind
from bkctl.vfs import PosixFileSystem
from tests.support.cluster_dumps import dump_file

DEMO = Path(__file__).parents[2] / "data" / "demo" / "bookie1"


def test_no_job_takes_an_undo_file_for_the_ledgers_of_a_cluster(tmp_path: Path) -> None:
    """Every ledger but those that were deleted would be an orphan."""
    undo = dump_file(tmp_path / "undo.json", {}, kind=DumpKind.UNDO, next_ledger=0)
    request = Request(JOBS["orphans"], (str(DEMO),), str(tmp_path / "out"), str(undo), None)
    with LocalEngine(jobs=1) as engine, pytest.raises(RefusedError, match="is an undo file"):
        run_job(PosixFileSystem(), engine, request)


@pytest.mark.parametrize("job", ["index-audit", "inventory", "journal-forensics", "orphans"])
@pytest.mark.parametrize("gone", ["locations", "ledgers"])
def test_an_index_that_cannot_be_opened_is_left_out_of_a_fleet(tmp_path: Path, job: str, gone: str) -> None:
    """What no index leads to is then unknown in that bookie; other bookies are judged."""
    broken, whole = (Path(shutil.copytree(DEMO, tmp_path / name)) for name in ("broken", "whole"))
    _rename(broken, "broken:1")
    current = broken / "ledgers" / "current"
    shutil.rmtree(current / gone)
    found = {}
    for paths in ((str(whole),), (str(broken), str(whole))):
        request = Request(
            JOBS[job], paths, str(tmp_path / "out"), str(DEMO.parent / "zk.json"), parameters=Parameters()
        )
        with LocalEngine(jobs=1) as engine:
            found[paths] = run_job(PosixFileSystem(), engine, request)
    alone, both = found.values()
    assert (both.verdict, both.exit_code) == ("unexamined", 3)
    assert "unread_indexes" in both.found
    (told,) = [guard for guard in both.guards if "left out" in guard and str(current) in guard]
    assert gone in told
    assert "unread_indexes" not in alone.found
    # No alarm comes from the one that could not be read.
    assert both.found_of(JOBS[job]) == alone.found_of(JOBS[job])


def test_a_bookie_with_one_unreadable_index_has_none_that_is_trusted(tmp_path: Path) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    shutil.copytree(bookie / "ledgers", bookie / "more")
    shutil.rmtree(bookie / "more" / "current" / "locations")
    reasons = unread_indexes(PosixFileSystem(), survey(PosixFileSystem(), [str(bookie)]))
    first, second = (str(bookie / name / "current") for name in ("ledgers", "more"))
    assert sorted(reasons) == [first, second]
    assert second in reasons[first]


def test_with_damage_that_fails_it_ends_the_run(tmp_path: Path) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    shutil.rmtree(bookie / "ledgers" / "current" / "locations")
    request = Request(
        JOBS["index-audit"], (str(bookie),), str(tmp_path / "out"), options=TableOptions(damage="fail")
    )
    with LocalEngine(jobs=1) as engine, pytest.raises(CorruptionError, match="locations"):
        run_job(PosixFileSystem(), engine, request)


def _rename(bookie: Path, name: str) -> None:
    """Give a copy of a bookie another name in its cookies."""
    for path in bookie.rglob("VERSION"):
        lines = [
            f'bookieHost: "{name}"' if line.startswith("bookieHost:") else line
            for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("job", sorted(JOBS))
@pytest.mark.parametrize("name", ["ledgers/current/*.log", "journal/current/*.txn"])
def test_a_file_that_cannot_be_opened_is_left_out_of_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, name: str
) -> None:
    """The others are read; no job that reads such files is clean without it."""
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    lost = max(bookie.glob(name), key=lambda path: path.stat().st_size)
    failing_open(monkeypatch, lost, errno.EIO)
    sources = {KIND_OF.get(item.source) for item in JOBS[job].inputs}
    reads = (LOGS if lost.suffix == ".log" else JOURNALS) in sources
    first = run_of(job, [bookie], tmp_path / "out")
    if job == "verify":
        assert first.found == ("damages",)
        return
    assert ("unread_files" in first.found) == reads
    assert first.unread_files == ((str(lost),) if reads else ())
    assert sum(str(lost) in guard and "left out" in guard for guard in first.guards) == reads
    if reads:
        assert (first.verdict, first.exit_code) == ("unexamined", 3)


def test_a_file_that_an_inventory_left_out_is_unknown_to_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    lost = max(bookie.glob("ledgers/current/*.log"))
    with monkeypatch.context() as failing:
        failing_open(failing, lost, errno.EIO)
        run_of("inventory", [bookie], tmp_path / "set")
    outcome = run_of("replication-audit", [tmp_path / "set"], tmp_path / "out")
    assert (outcome.verdict, outcome.unread_files) == ("unexamined", (str(lost),))
    assert "unread_files" in outcome.found


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_a_file_that_is_refused_to_this_process_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """That says nothing of the file."""
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    failing_open(monkeypatch, max(bookie.glob("ledgers/current/*.log")), number)
    with pytest.raises(StorageError):
        run_of("stats", [bookie], tmp_path / "out")


def test_tasks_find_what_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    lost = max(bookie.glob("ledgers/current/*.log"))
    failing_open(monkeypatch, lost, errno.EIO)
    with LocalEngine(jobs=1) as engine:
        surveyed = survey(PosixFileSystem(), [str(bookie)], engine.each)
        assert list(unread_files(PosixFileSystem(), surveyed, {LOGS}, engine.each)) == [str(lost)]
        assert not unread_files(PosixFileSystem(), surveyed, {JOURNALS}, engine.each)
    alone = survey(PosixFileSystem(), [str(lost)])
    assert list(unread_files(PosixFileSystem(), alone, {LOGS})) == [str(lost)]


def failing_open(monkeypatch: pytest.MonkeyPatch, path: Path, number: int) -> None:
    real = os.open

    def failing(what: Any, *rest: Any, **how: Any) -> int:
        if str(what) == str(path):
            raise OSError(number, os.strerror(number))
        return real(what, *rest, **how)

    monkeypatch.setattr(os, "open", failing)


def run_of(job: str, paths: list[Path], out: Path) -> Outcome:
    request = Request(JOBS[job], tuple(map(str, paths)), str(out), str(DEMO.parent / "zk.json"))
    with LocalEngine(jobs=1) as engine:
        return run_job(PosixFileSystem(), engine, request)
