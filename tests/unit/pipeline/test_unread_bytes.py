"""What each job says of bookies in whose files the disk refuses a sector: what was not read is not clean."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import StorageError
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.tables.log_reader import windows
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.unread_notes import unread_in
from tests.support.log_builder import EntryLogBuilder, entry_body
from tests.support.sets import DEMO, collected, ran
from tests.support.unread_bytes import (
    CASES,
    INDEPENDENT,
    JOURNAL,
    LOG,
    MARK,
    OF_LOGS_ALONE,
    OF_MAPS,
    refuse,
    refuse_again,
)


def overwritten(path: Path, offset: int) -> None:
    """Put bytes into a file that are neither a size nor an entry."""
    data = bytearray(path.read_bytes())
    data[offset : offset + 4] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(DEMO, folder))


@pytest.mark.parametrize("job", sorted(JOBS))
@pytest.mark.parametrize("case", list(CASES))
def test_no_job_is_clean_over_bytes_that_its_answer_depends_on(
    case: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    name, *sector = CASES[case]
    with monkeypatch.context() as failing:
        refuse(failing, bookie / name, *sector)
        outcome = ran(job, [bookie], tmp_path / "out")
    if job == "verify":
        assert (outcome.verdict, outcome.found, outcome.unread_files) == ("found", ("damages",), ())
        return
    if job in INDEPENDENT[case]:
        before = ran(job, [bookie], tmp_path / "before")
        assert (outcome.verdict, outcome.counts, outcome.unread_files) == (before.verdict, before.counts, ())
        return
    assert (outcome.verdict, outcome.exit_code) == ("unexamined", 3)
    assert "unread_files" in outcome.found
    assert outcome.unread_files == (str(bookie / name),)
    assert sum(str(bookie / name) in guard for guard in outcome.guards) == 1


@pytest.mark.parametrize("job", sorted(JOBS))
@pytest.mark.parametrize(
    ("name", "offset", "independent"),
    [
        (LOG, 15259, OF_MAPS),
        (JOURNAL, 344064, OF_LOGS_ALONE),
        (JOURNAL, 8192, set(JOBS) - {"journal-forensics"}),
    ],
    ids=["a log", "behind the mark", "in front of the mark"],
)
def test_no_job_is_clean_over_bytes_that_are_no_records(
    name: str, offset: int, independent: set[str], job: str, tmp_path: Path
) -> None:
    """The disk gives them, and a chain of records goes on behind them: what stood there is not known."""
    bookie = copied(tmp_path / "bookie")
    overwritten(bookie / name, offset)
    outcome = ran(job, [bookie], tmp_path / "out")
    if job == "verify":
        assert (outcome.verdict, outcome.found) == ("found", ("damages",))
        return
    if job in independent:
        assert outcome.unread_files == ()
        assert "unread_files" not in outcome.found
        return
    assert (outcome.verdict, outcome.unread_files) == ("unexamined", (str(bookie / name),))
    assert sum(f"bytes from offset {offset} on are no records" in guard for guard in outcome.guards) == 1


def test_what_is_no_record_is_unknown_to_runs_over_a_set(tmp_path: Path) -> None:
    bookie = copied(tmp_path / "bookie")
    overwritten(bookie / LOG, 15259)
    assert collected(bookie, tmp_path / "sets").complete.manifest.verdict == "unexamined"
    outcome = ran("replica-compare", [tmp_path / "sets"], tmp_path / "out")
    assert outcome.verdict == "unexamined"
    assert {"runs_not_read", "blocks_not_read"} & set(outcome.found)


def test_a_damaged_header_stays_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of which a part was not read is not left out of the tables that are read later."""
    bookie = copied(tmp_path / "bookie")
    refuse(monkeypatch, bookie / LOG, 0, 4096)
    outcome = ran("inventory", [bookie], tmp_path / "out")
    assert outcome.found == ("damaged_logs", "unread_files")
    assert (outcome.counts["logs"], outcome.counts["damaged_logs"]) == (3, 1)


@pytest.mark.parametrize("job", ["inventory", "garbage", "index-audit", "stats", "journal-forensics"])
@pytest.mark.parametrize("name", [LOG, JOURNAL])
def test_a_file_that_fails_behind_the_first_look_ends_no_run(
    name: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    refuse_again(monkeypatch, bookie / name)
    outcome = ran(job, [bookie], tmp_path / "out")
    if name == JOURNAL and job in OF_LOGS_ALONE:
        assert outcome.verdict == "clean"
        return
    assert (outcome.verdict, outcome.unread_files) == ("unexamined", (str(bookie / name),))
    assert "unread_files" in outcome.found


def test_a_journal_beside_one_that_cannot_be_opened_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far it has to reach depends on the newest journal: it is not read, and named as well."""
    bookie = copied(tmp_path / "bookie")
    newest = bookie / "journal" / "current" / "1a1fe148090.txn"
    shutil.copy(bookie / JOURNAL, newest)
    refuse_again(monkeypatch, newest, first=0)
    outcome = ran("journal-forensics", [bookie], tmp_path / "out")
    assert outcome.verdict == "unexamined"
    assert set(outcome.unread_files) == {str(bookie / JOURNAL), str(newest)}


@pytest.mark.parametrize("job", sorted(JOBS))
def test_a_last_mark_that_cannot_be_read_is_named(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind it is not known; jobs that read no journals do not need it."""
    bookie = copied(tmp_path / "bookie")
    refuse(monkeypatch, bookie / MARK, 0, 16)
    outcome = ran(job, [bookie], tmp_path / "out")
    if job in OF_LOGS_ALONE | {"verify"}:
        assert (outcome.verdict, outcome.unread_files) == ("clean", ())
        return
    assert (outcome.verdict, outcome.exit_code, outcome.unread_files) == (
        "unexamined",
        3,
        (str(bookie / MARK),),
    )
    assert "unread_files" in outcome.found
    assert sum(f"the last mark: {bookie / MARK}: " in guard for guard in outcome.guards) == 1


def test_a_dead_ledger_disk_beside_the_journals_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks are there, and the journals can be read."""
    bookie = copied(tmp_path / "bookie")
    dead = bookie / "ledgers" / "current"
    real = os.stat

    def failing(what: Any, *rest: Any, **how: Any) -> os.stat_result:
        if str(what) == str(dead):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(what, *rest, **how)

    monkeypatch.setattr(os, "stat", failing)
    outcome = ran("journal-forensics", [bookie / "journal"], tmp_path / "out")
    assert (outcome.verdict, outcome.unread_files) == ("unexamined", (str(dead),))


def test_a_set_says_that_a_last_mark_was_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = copied(tmp_path / "bookie")
    refuse(monkeypatch, bookie / MARK, 0, 16)
    done = collected(bookie, tmp_path / "sets")
    assert done.complete.manifest.verdict == "unexamined"
    assert any(f"the last mark: {bookie / MARK}: " in guard for guard in done.complete.manifest.guards)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_a_file_that_is_refused_behind_the_first_look_ends_the_run(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That says nothing of the file."""
    bookie = copied(tmp_path / "bookie")
    refuse_again(monkeypatch, bookie / LOG, number)
    with pytest.raises(StorageError):
        ran("inventory", [bookie], tmp_path / "out")


@pytest.mark.parametrize(
    ("case", "job", "unknown"),
    [
        ("in a log", "replication-audit", True),
        ("in a log", "journal-forensics", True),
        ("in a log", "garbage", False),
        ("in a log", "stats", False),
        ("a log's header", "stats", True),
        ("behind the mark", "replication-audit", True),
        ("behind the mark", "orphans", False),
        ("in front of the mark", "replication-audit", False),
    ],
)
def test_what_an_inventory_could_not_read_is_unknown_to_later_runs(
    case: str, job: str, unknown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    name, *sector = CASES[case]
    source = "journal-forensics" if job == "journal-forensics" else "inventory"
    with monkeypatch.context() as failing:
        refuse(failing, bookie / name, *sector)
        ran(source, [bookie], tmp_path / "set")
    outcome = ran(job, [tmp_path / "set"], tmp_path / "out")
    assert ("unread_files" in outcome.found) == unknown
    assert outcome.unread_files == ((str(bookie / name),) if unknown else ())


def test_no_record_is_lacking_where_only_the_ledgers_map_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map begins with a sector; one byte further in front of it a record may be lacking."""
    log = EntryLogBuilder()
    log.add(entry_body(5, 0, bytes(8192 - 1024 - 4 - len(entry_body(5, 0, b"")))))
    built = log.roll()
    assert next(span.start for span in built.spans if span.kind == "map") == 8192
    path = tmp_path / "0.log"
    path.write_bytes(built.data)
    file = SplitFile(str(path), str(tmp_path), None, 0, len(built.data))
    for sector, unread in ((8192, []), (4096, [str(path)])):
        notes = str(tmp_path / f"notes-{sector}")
        options = TableOptions(damage="rows", unread_notes=notes)
        with monkeypatch.context() as failing:
            refuse(failing, path, sector, sector + 4096)
            rows = sum(map(len, windows(file, Split((file,)), options)))
        assert ([one.path for one in unread_in(notes)], rows) == (unread, 0 if unread else 1)
