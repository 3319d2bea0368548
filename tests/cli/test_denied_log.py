"""A log that its reader may not open is no damaged one: every command that reads it fails, and says why."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import storage_error
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import ReadableFile

Run = Callable[..., Any]
DEMO = Path(__file__).parent.parent / "data/demo/bookie1"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of a stopped bookie that cannot be opened, by root neither."""
    shutil.copytree(DEMO, tmp_path / "bookie")
    denied = tmp_path / "bookie/ledgers/current/1.log"
    real = PosixFileSystem.open

    def open_unless_denied(self: PosixFileSystem, path: str) -> ReadableFile:
        if path == str(denied):
            raise storage_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), path)
        return real(self, path)

    monkeypatch.setattr(PosixFileSystem, "open", open_unless_denied)
    return denied


@pytest.mark.parametrize(
    "line",
    [
        "entrylog verify",
        "entrylog list",
        "index check",
        "gc plan",
        "gc explain",
        "gc run --yes",
        "space",
        "pipeline run verify --jobs 1 --out OUT",
    ],
)
def test_a_log_that_may_not_be_read_is_not_damaged(
    run_cli: Run, log: Path, tmp_path: Path, line: str
) -> None:
    words = [tmp_path / "out" if word == "OUT" else word for word in line.split()]
    done = run_cli(*words, tmp_path / "bookie")
    assert (done.exit_code, f"{log}: Permission denied" in done.stderr) == (7, True), done.stderr
    assert "damaged" not in done.stderr
    assert log.exists()


@pytest.mark.parametrize("line", ["doctor", "entrylog list", "journal list", "cookie get", "gc explain"])
def test_a_ledger_directory_that_may_not_be_listed_is_no_index_without_logs(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Its usual name is that of a database: the bookie seemed to have an index, and no log and no cookie."""
    shutil.copytree(DEMO, tmp_path / "bookie")
    denied = tmp_path / "bookie/ledgers"
    real = PosixFileSystem.status

    def status_unless_denied(self: PosixFileSystem, path: str) -> Any:
        if denied in Path(path).parents:
            raise storage_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), path)
        return real(self, path)

    monkeypatch.setattr(PosixFileSystem, "status", status_unless_denied)
    done = run_cli(*line.split(), tmp_path / "bookie")
    assert (done.exit_code, done.stdout) == (7, ""), done.stderr
    assert f"{denied}/CURRENT: Permission denied" in done.stderr
