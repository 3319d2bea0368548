"""Sets of a bookie in whose files the disk refuses a sector, or that fail behind the first look."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bkctl.pipeline import set_inputs
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.sets.choice import Cluster
from tests.support.sets import DEMO, collected, ran
from tests.support.unread_bytes import CASES, INDEPENDENT, JOURNAL, LOG, refuse, refuse_again


@pytest.fixture(autouse=True)
def without_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata names a bookie of which there is no set."""
    monkeypatch.setattr(set_inputs, "read_cluster", lambda *_: Cluster())


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(DEMO, folder))


@pytest.mark.parametrize("case", list(CASES))
def test_over_a_set_no_job_is_clean_that_is_not_over_the_files(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    name, *sector = CASES[case]
    with monkeypatch.context() as failing:
        refuse(failing, bookie / name, *sector)
        one = collected(bookie, tmp_path / "sets")
    assert (one.complete.manifest.verdict, one.exit_code) == ("unexamined", 3)
    assert [file.path for file in one.complete.manifest.files if file.is_unread] == [str(bookie / name)]
    for job in sorted(set(JOBS) - {"verify"}):
        outcome = ran(job, [tmp_path / "sets"], tmp_path / job)
        unknown = job not in INDEPENDENT[case]
        assert ("unread_files" in outcome.found) == unknown, job
        assert outcome.unread_files == ((str(bookie / name),) if unknown else ()), job
        assert (outcome.verdict == "clean") == (not unknown and job != "replication-audit"), job
    assert ran("verify", [tmp_path / "sets"], tmp_path / "verify").found == ("damages",)


@pytest.mark.parametrize("resume", [False, True])
def test_what_could_not_be_read_is_read_again_by_the_next_pass(
    resume: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``resume`` the pass before it was ended in front of its manifest."""
    bookie = copied(tmp_path / "bookie")
    with monkeypatch.context() as failing:
        refuse(failing, bookie / LOG, 61440, 65536)
        first = collected(bookie, tmp_path / "sets")
    if resume:
        (Path(first.complete.location.path) / "manifest.json").unlink()
    second = collected(bookie, tmp_path / "sets", resume=resume)
    assert (second.complete.manifest.verdict, dict(second.complete.manifest.not_read)) == ("clean", {})
    assert second.complete.manifest.set_id == first.complete.manifest.set_id or not resume
    assert ran("inventory", [tmp_path / "sets"], tmp_path / "out").verdict == "clean"


@pytest.mark.parametrize("name", [LOG, JOURNAL])
def test_a_file_that_fails_behind_the_first_look_costs_no_set(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    with monkeypatch.context() as failing:
        refuse_again(failing, bookie / name)
        one = collected(bookie, tmp_path / "sets")
    assert one.complete.manifest.verdict == "unexamined"
    states = {file.path: file.state for file in one.complete.manifest.files if file.is_unread}
    assert states == {str(bookie / name): "unreadable"}
    outcome = ran("journal-forensics", [tmp_path / "sets"], tmp_path / "out")
    assert (outcome.verdict, outcome.unread_files) == ("unexamined", (str(bookie / name),))


def test_blocks_of_a_log_that_was_taken_over_may_lack_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log did not change since it was read: only the entries of the blocks are read again."""
    bookie = copied(tmp_path / "bookie")
    first = collected(bookie, tmp_path / "sets")
    (blocks,) = first.complete.files("blocks")
    table = pq.read_table(blocks, columns=["ledger", "block"])
    asked = tmp_path / "blocks"
    asked.mkdir()
    named = table.append_column("bookie", pa.array([first.complete.manifest.bookie] * len(table)))
    pq.write_table(named, asked / "part-0.parquet")
    with monkeypatch.context() as failing:
        refuse(failing, bookie / LOG, 61440, 65536)
        second = collected(bookie, tmp_path / "sets", blocks=str(asked))
    assert second.logs_read == 0
    assert list(second.complete.manifest.not_read) == ["replicas"]
    outcome = ran("replica-compare", [tmp_path / "sets"], tmp_path / "out")
    assert (outcome.verdict, outcome.found) == ("unexamined", ("replicas_not_read",))
