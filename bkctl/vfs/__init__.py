"""The file-system seam: what scan and the engine are handed instead of ``open``; its twins for tests."""

from bkctl.vfs.base import DiskSpace, FileStatus, FileSystem, ReadableFile, WritableFile, WritableFileSystem
from bkctl.vfs.failures import NoSpaceError, SyncError
from bkctl.vfs.faulty import CrashPointReached, FaultRule, FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem
from bkctl.vfs.posix import PosixFileSystem

__all__ = [
    "CrashPointReached",
    "DiskSpace",
    "FaultRule",
    "FaultyFileSystem",
    "FileStatus",
    "FileSystem",
    "MemoryFileSystem",
    "NoSpaceError",
    "PosixFileSystem",
    "ReadFault",
    "ReadableFile",
    "SyncError",
    "WritableFile",
    "WritableFileSystem",
]
