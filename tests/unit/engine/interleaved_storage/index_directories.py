"""Two index directories in memory, and the index files over them."""

from __future__ import annotations

from bkctl.codec.file_info import FileInfoHeader, encode_header
from bkctl.engine.interleaved_storage.index_files import IndexFiles, IndexFileSettings
from bkctl.vfs.faulty import FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.interleaved_storage_rig import FILES

PLACES = ("/i0/current", "/i1/current")
HEADER = FileInfoHeader(1, b"k" * 20)


def disk_with(*paths: str) -> MemoryFileSystem:
    """Two index directories, with an index file of this name for each path."""
    files = MemoryFileSystem()
    for place in PLACES:
        files.make_directories(place)
    for path in paths:
        files.make_directories(path.rpartition("/")[0])
        files.replace(path, encode_header(HEADER))
    return files


def opened(files: MemoryFileSystem | FaultyFileSystem, settings: IndexFileSettings = FILES) -> IndexFiles:
    return IndexFiles(files, PLACES, settings)
