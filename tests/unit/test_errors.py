"""Errors: failed system calls as those of the hierarchy, and errors that go to another process."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pytest

from bkctl.errors import NoSpaceError, RefusedError, StorageError, WrongFileError, as_storage_errors


def raised(error: BaseException, path: str = "/a/folder") -> StorageError:
    """Return what a block becomes that fails with ``error``."""
    with pytest.raises(StorageError) as caught, as_storage_errors(path):
        raise error
    return caught.value


def test_a_failed_call_names_the_given_path_and_the_reason() -> None:
    system = OSError(errno.EIO, os.strerror(errno.EIO))
    error = raised(system)
    assert type(error) is StorageError
    assert str(error) == f"/a/folder: {os.strerror(errno.EIO)}"
    assert error.path == "/a/folder"
    assert error.__cause__ is system


def test_the_message_names_the_file_that_the_system_names(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, as_storage_errors(str(tmp_path)):
        os.stat(tmp_path / "none")
    assert str(caught.value) == f"{tmp_path}/none: {os.strerror(errno.ENOENT)}"
    assert caught.value.path == str(tmp_path)


def test_a_descriptor_is_no_name_of_a_file() -> None:
    with pytest.raises(StorageError) as caught, as_storage_errors("/a/folder"):
        os.listdir(1 << 30)
    assert str(caught.value) == f"/a/folder: {os.strerror(errno.EBADF)}"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_a_full_disk_is_no_space(number: int) -> None:
    error = raised(OSError(number, os.strerror(number)))
    assert type(error) is NoSpaceError
    assert str(error) == f"/a/folder: {os.strerror(number)}"


def test_an_error_without_a_number_gives_its_text() -> None:
    assert str(raised(OSError("the server has gone away"))) == "/a/folder: the server has gone away"


@pytest.mark.parametrize("error", [RefusedError("not safe"), ValueError("no number")])
def test_any_other_error_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, as_storage_errors("/a/folder"):
        raise error
    assert caught.value is error


def test_a_file_of_another_kind_is_the_same_error_in_another_process() -> None:
    error = WrongFileError("/b/x", "a cookie", "it begins with a number")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.path, str(again)) == (WrongFileError, "/b/x", str(error))
    assert str(error) == "/b/x: is not a cookie (it begins with a number)"
