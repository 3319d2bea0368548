"""Inputs of a run: indexes that are left out, and metadata that are none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkctl.errors import CorruptionError, RefusedError
from bkctl.pipeline.job import Parameters
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.survey import survey, unread_indexes
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
