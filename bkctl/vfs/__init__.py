"""The file-system seam: what scan and the engine are handed instead of ``open``.

Its twins for tests are in ``bkctl.vfs.memory`` and ``bkctl.vfs.faulty``, which no bookie imports.
"""

from bkctl.vfs.base import DiskSpace, FileStatus, FileSystem, ReadableFile, WritableFile, WritableFileSystem
from bkctl.vfs.failures import NoSpaceError, SyncError
from bkctl.vfs.posix import PosixFileSystem

__all__ = [
    "DiskSpace",
    "FileStatus",
    "FileSystem",
    "NoSpaceError",
    "PosixFileSystem",
    "ReadableFile",
    "SyncError",
    "WritableFile",
    "WritableFileSystem",
]
