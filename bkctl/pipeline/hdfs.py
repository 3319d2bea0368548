"""Open the file system of a Hadoop cluster for Arrow, by ``hdfs-native``: without a Java (ADR 0026).

Addresses, name services, Kerberos and encryption are settings of Hadoop's own, in the files of
``HADOOP_CONF_DIR``. The user is that of the Kerberos ticket, or ``HADOOP_USER_NAME``, or who runs this.
"""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from pyarrow import PythonFile, fs

from bkctl.errors import ConnectionFailedError, UsageError
from bkctl.extras import need

SCHEME = "hdfs"
#: For the first request, so that a wrong address is reported within seconds. All others have Hadoop's own
#: setting, with which a name node may be away for minutes.
_FIRST_ATTEMPTS = {"dfs.client.failover.max.attempts": "2"}
_FOLDER_MODE = 0o755
#: The form of Java's exceptions here: their class, their text and, behind it, where they were thrown.
_RPC_ERROR = re.compile(r'^RPCError\("(?P<kind>[\w.$]+)", "(?P<text>.*?)(?:\\n|"\)$)')
#: URLs and settings that name no cluster.
_NO_ADDRESS = re.compile(r'^(?:InvalidArgument|UrlParseError)\("?(?P<text>.*?)"?\)$')


def hdfs_filesystem(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system and the path that an ``hdfs://`` URL names; its name node is asked once.

    Raises UsageError for one that has no meaning, ConnectionFailedError where no name node answers.
    """
    need("hdfs:// URLs", "hdfs_native")
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise UsageError(
            f"{url}: an hdfs:// URL has no parameters; Hadoop's files in HADOOP_CONF_DIR have the settings"
        )
    return _connected(f"{SCHEME}://{parts.netloc}"), parts.path


@lru_cache(maxsize=16)
def _connected(root: str) -> fs.FileSystem:
    """Return the file system of a cluster, one for each: a connection is shared by all files."""
    from hdfs_native import Client

    try:
        with _translated():
            Client(root, _FIRST_ATTEMPTS).get_file_info("/")
    except PermissionError:
        pass  # the cluster answers; a file that may not be read is reported when it is read
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise UsageError(f"{root}: {error.strerror}; is HADOOP_CONF_DIR set?") from None
        raise ConnectionFailedError(f"{root}: no answer of a name node ({error})") from None
    return fs.PyFileSystem(HadoopFiles(root))


@contextmanager
def _translated() -> Iterator[None]:
    """Raise what the client has as a RuntimeError as an OSError, and leave out its lines of Java."""
    try:
        yield
    except RuntimeError as error:
        raise _as_os_error(str(error)) from None
    except OSError as error:
        first, more, _ = str(error).partition("\n")
        if not more:
            raise
        raise type(error)(first) from None


def _as_os_error(text: str) -> OSError:
    wrong = _NO_ADDRESS.match(text)
    if wrong is not None:
        return OSError(errno.EINVAL, wrong["text"])
    found = _RPC_ERROR.match(text)
    if found is None:
        return OSError(text)
    kind, said = found["kind"].rpartition(".")[2], found["text"].replace('\\"', '"')
    return PermissionError(said) if kind == "AccessControlException" else OSError(f"{kind}: {said}")


class HadoopFiles(fs.FileSystemHandler):  # type: ignore[misc] # pyarrow ships no types
    """Files of a cluster as Arrow asks for them; ``root`` is the cluster's URL without a path.

    It goes to other processes by its root: a connection does not.
    """

    def __init__(self, root: str) -> None:
        from hdfs_native import Client

        self._root = root
        with _translated():
            self._client = Client(root)

    def __reduce__(self) -> tuple[type[HadoopFiles], tuple[str]]:
        return HadoopFiles, (self._root,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopFiles) and other._root == self._root

    def __hash__(self) -> int:
        return hash(self._root)

    def get_type_name(self) -> str:
        return SCHEME

    def normalize_path(self, path: str) -> str:
        return path or "/"

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _translated():
                return _as_info(path, self._client.get_file_info(path or "/"))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            with _translated():
                found = list(self._client.list_status(selector.base_dir or "/", selector.recursive))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        return [_as_info(one.path, one) for one in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        with _translated():
            self._client.mkdirs(path, _FOLDER_MODE, recursive)

    def delete_dir(self, path: str) -> None:
        self._delete(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        selector = fs.FileSelector(path, allow_not_found=missing_dir_ok)
        for one in self.get_file_info_selector(selector):
            self._delete(one.path)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("nothing here empties a whole file system")

    def delete_file(self, path: str) -> None:
        self._delete(path)

    def _delete(self, path: str) -> None:
        with _translated():
            if not self._client.delete(path, True):
                raise FileNotFoundError(path)

    def move(self, src: str, dest: str) -> None:
        with _translated():
            self._client.rename(src, dest, overwrite=True)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError("nothing here copies within a file system")

    def open_input_stream(self, path: str) -> PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> PythonFile:
        with _translated():
            return PythonFile(_Reader(self._client.read(path)), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> PythonFile:
        from hdfs_native import WriteOptions

        with _translated():
            writer = self._client.create(path, WriteOptions(overwrite=True))
        return PythonFile(_Writer(writer), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> PythonFile:
        raise NotImplementedError("nothing here appends")


def _as_info(path: str, status: Any) -> fs.FileInfo:
    if status.isdir:
        return fs.FileInfo(path, fs.FileType.Directory)
    return fs.FileInfo(path, fs.FileType.File, size=status.length, mtime=status.modification_time / 1000)


class _Reader(io.RawIOBase):
    """A file that is read, with the errors of files."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with _translated():
            found: bytes = self._inner.read(size)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _translated():
            self._inner.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._inner.tell())


class _Writer(io.RawIOBase):
    """A file that is written, with the errors of files. The file is there once it is closed."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        with _translated():
            self._inner.write(content)
        size = memoryview(content).nbytes
        self._bytes += size
        return size

    def tell(self) -> int:
        return self._bytes

    def close(self) -> None:
        if self.closed:
            return
        try:
            with _translated():
                self._inner.close()
        finally:
            super().close()
