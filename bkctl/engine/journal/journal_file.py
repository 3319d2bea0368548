"""One ``<hex id>.txn`` that is being written (Java: ``JournalChannel``)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from os.path import dirname

from bkctl.codec.journal import encode_header
from bkctl.codec.last_mark import LastMark
from bkctl.errors import NoSpaceError, NotFoundError, StorageError, SyncError
from bkctl.vfs.base import WritableFile, WritableFileSystem

PAGE_BYTES = 4096
#: The most bytes of synced records that the page cache keeps before they are given up with an advice.
FORGET_BYTES = 4 * 1024 * 1024

#: Smaller groups are written through the page cache: a disk may have to read what is around them, which that
#: has, and the copy that it costs is a small part of their sync.
DIRECT_BYTES_MIN = 64 * 1024

#: Zeros written at once.
_ZEROS_BYTES = 1024 * 1024


class JournalFile:
    """A journal under its id; ``position`` is where the next record goes.

    Writes come from the journal thread, syncs and the close from that or from the force-write thread.
    """

    __slots__ = ("_file", "_forgotten", "journal_id", "path", "position")

    def __init__(self, file: WritableFile, path: str, journal_id: int, position: int) -> None:
        self._file = file
        self._forgotten = 0
        self.path = path
        self.journal_id = journal_id
        self.position = position

    @classmethod
    def begin(
        cls,
        filesystem: WritableFileSystem,
        file: WritableFile,
        journal_id: int,
        version: int,
        previous_end: LastMark | None = None,
    ) -> JournalFile:
        """Return the journal in a new file; a crash cannot take it away any more. Raises StorageError.

        Its header says where the records of the journal before it end, which nothing else shows. A crash on
        the way leaves no file, an empty one, or a header alone: to readers an empty journal. ``file`` may
        also be what such an attempt has left. It is closed behind an error, and removed for lack of room
        where it can be.
        """
        header = encode_header(version, previous_end)
        try:
            file.write_at(0, header)
            # The header is on disk: a reader will not take the records for those of version 1.
            file.sync()
            # The name is on disk: records that are synced later can be found.
            filesystem.sync_directory(dirname(file.path))
        except BaseException as error:
            file.close()
            if isinstance(error, NoSpaceError):
                with contextlib.suppress(StorageError, NotFoundError):
                    filesystem.remove(file.path)
            raise
        return cls(file, file.path, journal_id, len(header))

    def write(self, pieces: Sequence[bytes], *, direct: bool) -> None:
        """Append the pieces to the file; ``direct`` says that they are synced next and not read again.

        Raises StorageError; the file must not be written to after that, but see :meth:`rewind`.
        """
        size_bytes = sum(map(len, pieces))
        if direct and size_bytes >= DIRECT_BYTES_MIN:
            self._file.write_direct(self.position, pieces)
        else:
            self._file.write_at(self.position, b"".join(pieces))
        self.position += size_bytes

    def write_synced(self, pieces: Sequence[bytes], *, direct: bool) -> float:
        """Append the pieces and make them durable; return the seconds of the sync.

        Raises SyncError when they are in the file and the sync has failed, else as :meth:`write`.
        """
        size_bytes = sum(map(len, pieces))
        try:
            seconds = self._file.write_synced(
                self.position, pieces, direct=direct and size_bytes >= DIRECT_BYTES_MIN
            )
        except SyncError:
            self.position += size_bytes
            raise
        self.position += size_bytes
        return seconds

    def rewind(self, position: int, end: int) -> None:
        """Zero what a write up to ``end`` that found no room has left from ``position`` on.

        The zeros are durable, and writing goes on there; without them bytes of the records that were given up
        would stand behind new, shorter ones. Raises NoSpaceError when not even blocks that are there can be
        written, SyncError.
        """
        end = min(end, self._file.size_bytes)
        for at in range(position, end, _ZEROS_BYTES):
            self._file.write_at(at, bytes(min(_ZEROS_BYTES, end - at)))
        # Nothing of the records that were given up comes back after a crash.
        self._file.sync_data()
        self.position = position

    def sync_data(self) -> None:
        """Make everything written durable. Raises StorageError."""
        self._file.sync_data()

    def sync(self) -> None:
        """Sync the file with all of its metadata. Raises StorageError."""
        self._file.sync()

    def forget_cached(self, position: int) -> None:
        """Let go of synced records below ``position``, some megabytes at a time.

        Fresh memory for each new page of the cache costs a write several times the copy itself.
        """
        end = position - position % PAGE_BYTES
        if end - self._forgotten >= FORGET_BYTES:
            self._file.forget_cached(self._forgotten, end - self._forgotten)
            self._forgotten = end

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        self._file.close()
