"""Directories by path or URL: of this machine, or of an object store or a cluster's file system.

``s3://``, ``gs://`` and ``abfs://`` go through ``pyarrow.fs``, with the credentials that the ecosystem has in
its environment variables, files and instance roles; parameters of a URL
(``s3://bucket/sets?endpoint_override=http://host:9000``) are those of ``pyarrow.fs``. ``hdfs://`` is
:mod:`~bkctl.pipeline.hdfs`. A name in a directory has slashes as everywhere.

A file that is written under a name is there as a whole, or its reader can see that it is not: no reader
relies on a change of names. On a disk of this machine a file is durable when its writing has ended, so that a
manifest outlives no file that it names. Only an export that replaces a set moves files, its own.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, Any

from bkctl.errors import NotFoundError, StorageError, UsageError, WrongFileError, as_storage_errors

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = re.compile(r"^file:(?://(?:localhost)?)?(?=/)")
SCHEMES = ("file", "s3", "gs", "abfs", "abfss", "hdfs")
#: Types of pyarrow's file systems that cannot change a name without a copy of the bytes.
_OBJECT_STORES = ("s3", "gcs", "abfs")
_COPY_BYTES = 8 << 20


def is_url(text: str) -> bool:
    """Return whether a text names a directory of another file system than this machine's."""
    return _URL.match(text) is not None and _FILE.match(text) is None


def local_path(text: str) -> str:
    """Return the path of this machine that a path or a ``file:`` URL names."""
    return _FILE.sub("", text)


def refuse_foreign_schemes(option: str, *values: str | None) -> None:
    """Refuse a URL of a scheme that nothing here reads or writes. Raises UsageError."""
    for value in values:
        scheme = None if value is None else _URL.match(value)
        if scheme is not None and scheme[1].lower() not in SCHEMES:
            raise UsageError(
                f"{option} {value}: no {scheme[1]}:// URLs; give a path, or one of "
                + ", ".join(f"{name}://" for name in SCHEMES)
            )


@dataclass(frozen=True, slots=True)
class Location:
    """A directory; ``text`` is what an operator would write. Every method raises StorageError.

    Those that look into it raise WrongFileError where it is a file.
    """

    text: str
    path: str
    filesystem: Any = field(repr=False, compare=False)

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine."""
        return not is_url(self.text)

    def child(self, name: str) -> Location:
        """Return a directory in it."""
        return Location(f"{self.text_of(name)}", f"{self.path}/{name}", self.filesystem)

    def text_of(self, name: str) -> str:
        """Return what an operator would write for a name in it: parameters stay at the end."""
        front, mark, parameters = self.text.partition("?") if is_url(self.text) else (self.text, "", "")
        return f"{front.rstrip('/')}/{name}{mark}{parameters}"

    def names(self) -> list[str]:
        """Return the names of the files and directories in it, sorted; none of one that is not there."""
        from pyarrow import fs

        with _failures(self.text):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(info.base_name for info in found)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file in it and below, by name."""
        from pyarrow import fs

        with _failures(self.text):
            selector = fs.FileSelector(self.path, recursive=True, allow_not_found=True)
            found = self.filesystem.get_file_info(selector)
        front = len(self.path.rstrip("/")) + 1
        return {info.path[front:]: info.size for info in found if info.type == fs.FileType.File}

    def written_at(self) -> dict[str, float]:
        """Return when each file in it was written last, by name, in seconds of the file system's clock."""
        from pyarrow import fs

        with _failures(self.text):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return {info.base_name: info.mtime.timestamp() for info in found if info.type == fs.FileType.File}

    def holds(self, name: str) -> bool:
        """Return whether a file of that name is in it."""
        from pyarrow import fs

        with _failures(self.text_of(name)):
            info = self.filesystem.get_file_info(f"{self.path}/{name}")
        return bool(info.type == fs.FileType.File)

    def is_directory(self) -> bool:
        """Return whether the location is there and a directory."""
        from pyarrow import fs

        with _failures(self.text):
            info = self.filesystem.get_file_info(self.path)
        return bool(info.type == fs.FileType.Directory)

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the content of a file. Raises NotFoundError, and StorageError also for a larger file.

        On a local disk anybody who may write into the folder may put a pipe there, which would never end.
        """
        text = self.text_of(name)
        if self.is_local and _is_special(f"{self.path}/{name}"):
            raise StorageError(f"{text}: is not a regular file", path=text)
        with _failures(text), self.filesystem.open_input_stream(f"{self.path}/{name}") as stream:
            found: bytes = stream.read(bytes_max + 1)
        if len(found) > bytes_max:
            raise StorageError(f"{text}: is larger than {bytes_max} bytes", path=text)
        return found

    @contextmanager
    def opened_to_read(self, name: str) -> Iterator[IO[bytes]]:
        """Give a stream out of a file."""
        with (
            _failures(self.text_of(name)),
            self.filesystem.open_input_stream(f"{self.path}/{name}") as stream,
        ):
            yield stream

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        with self.opened(name) as stream:
            stream.write(content)

    @contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        """Give a stream into a new file; its directory is made (object stores have none, HDFS makes it)."""
        path = f"{self.path}/{name}"
        with _failures(self.text_of(name)):
            if self.is_local:
                _make_folder(os.path.dirname(path))
            with self.filesystem.open_output_stream(path) as stream:
                yield stream
            if self.is_local:
                _sync(path)
                _sync(os.path.dirname(path))

    def move_file(self, name: str, to: str) -> None:
        """Give a file another name in this directory; in an object store its bytes are copied."""
        source, target = f"{self.path}/{name}", f"{self.path}/{to}"
        if self.filesystem.type_name in _OBJECT_STORES:
            with self.opened_to_read(name) as stream, self.opened(to) as copy:
                shutil.copyfileobj(stream, copy, _COPY_BYTES)
            self.remove_file(name)
            return
        with _failures(self.text_of(name)):
            if self.is_local:
                _make_folder(os.path.dirname(target))
                os.replace(source, target)
                _sync(os.path.dirname(target))
                return
            self.filesystem.create_dir(os.path.dirname(target), recursive=True)
            self.filesystem.move(source, target)

    def remove_file(self, name: str) -> None:
        """Remove a file."""
        with _failures(self.text_of(name)):
            self.filesystem.delete_file(f"{self.path}/{name}")

    def remove(self) -> None:
        """Remove the directory with all that is in it; one that is not there is fine.

        In an object store Arrow leaves an empty object in the place of a directory whose content it deletes,
        and of the parent of one that it deletes: the parent stays, as it does on a disk.
        """
        with _failures(self.text):
            self.filesystem.delete_dir_contents(self.path, missing_dir_ok=True)
            if self.is_directory():
                self.filesystem.delete_dir(self.path)


def _make_folder(path: str) -> None:
    """Make a directory of this machine and those above it, with names that are durable. Raises OSError."""
    above = os.path.dirname(path)
    if above != path and not os.path.isdir(path):
        _make_folder(above)
        with suppress(FileExistsError):  # another one has made it since; below, it is no directory
            os.mkdir(path)
        _sync(above)


def _sync(path: str) -> None:
    """Make a file's content, or the names in a directory, durable. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return  # what may be written and not be read is the system's to sync
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _failures(text: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise NotFoundError(f"{text}: no such file") from None
    except NotADirectoryError:
        raise WrongFileError(text, "a directory", "its name, or a part of it, is that of a file") from None
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{text}: {error}", path=text) from error


def located(text: str) -> Location:
    """Return the directory that a path or a URL names; nothing is looked at.

    Raises UsageError for a URL that has no meaning, ConnectionFailedError where no HDFS answers.
    """
    refuse_foreign_schemes("directory", text)
    filesystem, path = _filesystem(text)
    return Location(text if is_url(text) else local_path(text), path, filesystem)


def new_name(folder: str, ending: str) -> str:
    """Return a name that nobody has used of a file in a folder, which is made, or is a URL.

    Raises StorageError.
    """
    if not is_url(folder):
        with as_storage_errors(folder):
            os.makedirs(folder, exist_ok=True)
    return located(folder).text_of(f"{secrets.token_hex(8)}.{ending}")


@lru_cache(maxsize=64)
def _filesystem(text: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    if not is_url(text):
        return fs.LocalFileSystem(), os.path.abspath(local_path(text))
    if _is_hdfs(text):
        from bkctl.pipeline.hdfs import hdfs_filesystem

        filesystem, path = hdfs_filesystem(text)
        return filesystem, path.rstrip("/")
    try:
        filesystem, path = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{text}: {error}") from None
    return filesystem, path.rstrip("/")


def _is_hdfs(text: str) -> bool:
    return text.lower().startswith("hdfs:")


def written_file(text: str, content: bytes) -> None:
    """Write a file by its path or URL. Raises UsageError, StorageError."""
    filesystem, path = opened_file(text)
    with _failures(text), filesystem.open_output_stream(path) as stream:
        stream.write(content)


def read_file(text: str) -> bytes:
    """Return the content of a file by its path or URL. Raises UsageError, NotFoundError, StorageError."""
    filesystem, path = opened_file(text)
    with _failures(text), filesystem.open_input_stream(path) as stream:
        found: bytes = stream.read()
    return found


@contextmanager
def arrow_file(text: str) -> Iterator[Any]:
    """Give an Arrow file by its path or URL to be read, one of this machine without reading all of it.

    Raises UsageError, and StorageError for one that cannot be read or is no Arrow file.
    """
    import pyarrow as pa

    try:
        if is_url(text):
            filesystem, path = opened_file(text)
            with filesystem.open_input_file(path) as stream:
                yield pa.ipc.open_file(stream)
        else:
            yield pa.ipc.open_file(pa.memory_map(local_path(text)))
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{text}: {error}", path=text) from error


def _is_special(path: str) -> bool:
    """Return whether a local path is something else than a regular file. A link counts as its target."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False  # what opens it says why it cannot


def opened_file(text: str) -> tuple[Any, str]:
    """Return the file system and the path of a file. Raises UsageError."""
    if not is_url(text):
        return _filesystem("/")[0], os.path.abspath(local_path(text))
    folder, _, name = text.partition("?")[0].rpartition("/")
    parameters = text.partition("?")[2]
    found = located(folder + (f"?{parameters}" if parameters else ""))
    return found.filesystem, f"{found.path}/{name}"
