"""Results of a run are written whole, and through nobody's link."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.errors import RefusedError, StorageError
from bkctl.pipeline import out_directory, results
from bkctl.pipeline.out_directory import MARK_NAME, claimed
from bkctl.pipeline.results import write_whole


def test_a_link_beside_a_report_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    report = tmp_path / "report.html"
    (tmp_path / "report.html.writing").symlink_to(victim)
    # Even the name that will be used is of no help to whoever knows it.
    monkeypatch.setattr(results.secrets, "token_hex", lambda _: "known")
    (tmp_path / "report.html.known.writing").symlink_to(victim)
    with pytest.raises(StorageError, match=r"report\.html"):
        write_whole(str(report), "new")
    monkeypatch.undo()
    write_whole(str(report), "new")
    assert report.read_text() == "new"
    assert victim.read_text() == "keep me"


def test_the_mark_of_a_directory_is_not_made_through_a_link(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / MARK_NAME).symlink_to(tmp_path / "made")
    with pytest.raises(RefusedError, match="not a regular file"), claimed(str(out)):
        pass
    assert not (tmp_path / "made").exists()
    (out / MARK_NAME).unlink()
    for _ in range(2):
        with claimed(str(out)):
            assert (out / MARK_NAME).is_file()


def test_nothing_is_left_beside(tmp_path: Path) -> None:
    write_whole(str(tmp_path / "summary.json"), "{}")
    assert os.listdir(tmp_path) == ["summary.json"]


def test_two_runs_do_not_write_into_one_directory(tmp_path: Path) -> None:
    """Each would remove what the other has begun, and its tables would stand under the other's summary."""
    out = tmp_path / "out"
    with claimed(str(out)) as work_dir:
        (Path(work_dir) / "runs").mkdir()
        with pytest.raises(RefusedError, match=f"pid {os.getpid()}. writes to it"), claimed(str(out)):
            pass
        assert (Path(work_dir) / "runs").is_dir()
    with claimed(str(out)) as work_dir:
        assert os.listdir(work_dir) == []


def test_where_there_are_no_locks_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(errno_: int) -> Callable[[int, int], None]:
        def flock(descriptor: int, operation: int) -> None:
            raise OSError(errno_, os.strerror(errno_))

        return flock

    monkeypatch.setattr(out_directory.fcntl, "flock", refused(errno.ENOLCK))
    with claimed(str(tmp_path / "out")) as work_dir:
        assert os.path.isdir(work_dir)
    monkeypatch.setattr(out_directory.fcntl, "flock", refused(errno.EIO))
    with pytest.raises(StorageError, match="locking"), claimed(str(tmp_path / "out")):
        pass
