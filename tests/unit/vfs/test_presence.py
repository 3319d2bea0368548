"""Whether a name is there: yes, no, or an error, and never a no in the place of an error."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bkctl.errors import StorageError
from bkctl.vfs.presence import is_there


def test_files_folders_and_links_are_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("nowhere")
    assert [is_there(str(tmp_path / name)) for name in ("file", "", "link")] == [True] * 3


def test_what_has_no_name_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert [is_there(str(tmp_path / name)) for name in ("none", "none/below", "file/below")] == [False] * 3


def test_what_cannot_be_looked_at_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "lstat", fails)
    with pytest.raises(StorageError, match="file"):
        is_there(str(tmp_path / "file"))
