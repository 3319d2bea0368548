"""The file-system seam: what scan and, later, the engine are handed instead of ``open``."""

from bkctl.vfs.base import FileStatus, FileSystem, ReadableFile
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem
from bkctl.vfs.posix import PosixFileSystem

__all__ = [
    "FaultyFileSystem",
    "FileStatus",
    "FileSystem",
    "MemoryFileSystem",
    "PosixFileSystem",
    "ReadFault",
    "ReadableFile",
]
