"""What paths hold, and the table of bookie directories."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from bkctl.errors import NotFoundError, UsageError
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.survey import (
    LOGS,
    Survey,
    SurveyedPath,
    bookies_table,
    folded_ranges,
    noted_logs_gone,
    notes_of_logs,
    survey,
)
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import table_named
from bkctl.scan.directory import BookieDirectory, LogFile
from bkctl.vfs import PosixFileSystem
from tests.support.s3_server import s3_bucket

DEMO = Path(__file__).parents[2] / "data" / "demo" / "bookie1"
FILES = PosixFileSystem()


def test_each_path_is_known_by_what_is_in_it() -> None:
    found = survey(FILES, [str(DEMO / "ledgers"), str(DEMO / "journal"), str(DEMO / "journal")])
    assert len(found.paths) == 2
    assert found.paths_with("runs") == found.paths_with("index_runs") == (str(DEMO / "ledgers"),)
    assert found.paths_with("journal") == (str(DEMO / "journal"),)
    assert len(found.paths_with("damage")) == 2
    files = [*DEMO.glob("ledgers/current/*.log"), *DEMO.glob("journal/current/*.txn")]
    assert found.bytes == sum(file.stat().st_size for file in files)


def test_a_file_is_its_kind_alone() -> None:
    log = next(DEMO.glob("ledgers/current/*.log"))
    found = survey(FILES, [str(log)])
    assert found.paths_with("entries") == (str(log),)
    assert found.paths_with("journal") == found.paths_with("index_runs") == ()
    assert bookies_table(FILES, found).num_rows == 0


def test_a_bookie_has_a_row_for_each_directory_and_what_its_cookie_names() -> None:
    rows = bookies_table(FILES, survey(FILES, [str(DEMO)])).to_pylist()
    assert sorted((row["holds_ledgers"], row["holds_journals"]) for row in rows) == [
        (False, True),
        (True, False),
    ]
    assert {(row["ledger_dirs"], row["journal_dirs"]) for row in rows} == {(1, 1)}
    assert len({row["bookie"] for row in rows}) == 1
    named = bookies_table(FILES, survey(FILES, [str(DEMO)]), "other:1").to_pylist()
    assert {row["bookie"] for row in named} == {"other:1"}


def test_a_directory_without_a_cookie_belongs_to_nobody(tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "b")
    for cookie in (tmp_path / "b").rglob("VERSION"):
        cookie.unlink()
    rows = bookies_table(FILES, survey(FILES, [str(tmp_path / "b")])).to_pylist()
    assert {row["bookie"] for row in rows} == {None}


def test_what_is_not_there_or_nothing_of_a_bookie_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        survey(FILES, [str(tmp_path / "x")])
    with pytest.raises(UsageError, match="no journal, entry log"):
        survey(FILES, [str(tmp_path)])


def test_ranges_hold_all_ledgers_and_are_few() -> None:
    assert folded_ranges([7, 5, 6, 6, 9]) == ((5, 7), (9, 9))
    assert folded_ranges([]) == ()
    assert folded_ranges(range(0, 1000, 2)) == ((0, 998),)


@pytest.mark.parametrize(
    "more", ["ledgers", "ledgers/current", "ledgers/current/0.log", "../bookie", "..", "journal"]
)
def test_tasks_read_what_overlapping_paths_hold_once(tmp_path: Path, more: str) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "fleet" / "bookie"))
    shutil.copytree(DEMO / "ledgers", tmp_path / "apart")
    paths = [str(bookie), str(bookie / more), str(tmp_path / "apart")]
    logs = table_named("runs")
    with LocalEngine(jobs=1) as engine:
        for given in (paths, paths[::-1]):
            surveyed = survey(FILES, given, engine.each)
            splits = [
                split
                for folder in surveyed.folders_of("runs")
                for split in logs.plan([folder], TableOptions(damage="rows"))
            ]
            found = sorted(file.path for split in splits for file in split.files)
            assert found == sorted(map(str, tmp_path.rglob("current/?.log")))


def test_folders_of_many_bookies_take_time_in_proportion() -> None:
    bookies = 8_000
    directories = tuple(
        BookieDirectory(f"/fleet/{number}/ledgers/current", (LogFile("0.log", 0, 0),), (), (), ())
        for number in range(bookies)
    )
    paths = [SurveyedPath(top, frozenset({LOGS}), 0, directories) for top in ("/fleet", "/")]
    started = time.process_time()
    assert len(Survey(tuple(paths), (), by_tasks=True).folders_of("runs")) == bookies
    assert time.process_time() - started < 5


@pytest.mark.parametrize("remote", [False, True])
def test_notes_of_logs_may_be_in_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    surveyed = survey(PosixFileSystem(), [str(bookie)])
    with s3_bucket("audits", monkeypatch) as parameters:
        folder = f"s3://audits/notes?{parameters}" if remote else str(tmp_path / "notes")
        with LocalEngine(jobs=1) as engine:
            notes = notes_of_logs(surveyed, engine.each, folder)
            assert len(notes) == 1
            assert notes[0].startswith(folder.partition("?")[0])
            assert noted_logs_gone(notes, engine.each) == 0
            logs = sorted(bookie.glob("ledgers/current/*.log"))
            logs[0].unlink()
            assert noted_logs_gone(notes, engine.each) == 1
            (bookie / "ledgers" / "current").rename(tmp_path / "elsewhere")
            assert noted_logs_gone(notes, engine.each) == len(logs) > 1
