"""New files for an operator: durable, nobody else's, and whole or not there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bkctl.admin.new_file import new_file
from bkctl.errors import RefusedError, StorageError


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with new_file(str(path)) as stream:
        stream.write(b"content")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"content", 0o600)


def test_what_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"mine")
    with pytest.raises(RefusedError, match="is there already"), new_file(str(path)):
        pytest.fail("there is nothing to write to")
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RefusedError("the cluster is gone")])
def test_half_a_file_is_removed(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "half"

    def write() -> None:
        with new_file(str(path)) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert not path.exists()


def test_a_disk_that_fails_is_named(tmp_path: Path) -> None:
    path = tmp_path / "full"
    with pytest.raises(StorageError, match=f"{path}: No space left"), new_file(str(path)):
        raise OSError(28, "No space left on device")
    assert not path.exists()
    with pytest.raises(StorageError, match="No such file"), new_file(str(tmp_path / "none" / "x")):
        pytest.fail("there is nothing to write to")
