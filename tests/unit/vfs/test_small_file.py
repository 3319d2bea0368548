"""A small file is a file, and small."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from bkctl.errors import NotFoundError, StorageError
from bkctl.vfs.small_file import read_small_file


def test_what_is_no_small_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(NotFoundError):
        read_small_file(str(path), 10)
    path.write_bytes(b"x" * 10)
    assert read_small_file(str(path), 10) == b"x" * 10
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("fifo", "link", "device", "."):
        with pytest.raises(StorageError, match="not a regular file of at most 10 bytes"):
            read_small_file(str(tmp_path / name), 10)
    with pytest.raises(StorageError, match="at most 9 bytes"):
        read_small_file(str(path), 9)
    with pytest.raises(NotFoundError):
        read_small_file(str(path / "below"), 10)


def test_memory_is_bounded_by_the_file_and_not_by_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"few")
    tracemalloc.start()
    try:
        assert read_small_file(str(path), 256 << 20) == b"few"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_a_file_of_several_blocks_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    content = bytes(range(256)) * (10 << 10)
    path.write_bytes(content)
    assert read_small_file(str(path), len(content)) == content
