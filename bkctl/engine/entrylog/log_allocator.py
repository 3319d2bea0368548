"""New entry logs of one directory: their ids, and the file ``lastId`` that keeps an id from coming again.

Source: ``org.apache.bookkeeper.bookie.EntryLoggerAllocator``.
"""

from __future__ import annotations

from posixpath import join

from bkctl.codec.last_id import LAST_ID_BYTES_MAX, LAST_ID_NAME, decode_last_id, encode_last_id
from bkctl.engine.entrylog.log_ids import last_log_id, next_log_id, sort_names
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.vfs.base import WritableFileSystem


class LogAllocator:
    """Gives out ids; used by the thread that appends. ``strange_names`` are files that look like logs but
    have a number that cannot be one's, as :meth:`open` found them.
    """

    def __init__(self, directory: str, filesystem: WritableFileSystem) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._last_id = -1
        self._noted_id = -1
        # Names seen since the last note; None: look again.
        self._taken: frozenset[int] | None = None
        self.strange_names: tuple[str, ...] = ()

    def open(self) -> None:
        """Find the id that was given out last. Raises StorageError, NotFoundError without the directory."""
        names = sort_names(self._filesystem.names(self._directory))
        self._last_id = self._noted_id = last_log_id(names, self._read_last_id())
        self.strange_names = names.strange

    def new_id(self) -> int:
        """An id that never comes again, not after a crash either. Raises StorageError."""
        self._taken = None
        log_id = self.new_id_of_many()
        self.note()
        return log_id

    def new_id_of_many(self) -> int:
        """The same at a fraction of the cost; :meth:`note` must come before an index row names the log.

        Until then a crash may give the id out once more, to a log that nobody knows of.
        """
        if self._taken is None:
            self._taken = sort_names(self._filesystem.names(self._directory)).taken
        self._last_id = next_log_id(self._last_id, self._taken)
        return self._last_id

    def note(self) -> None:
        """Make the ids given out so far durable. Raises StorageError."""
        self._taken = None
        if self._noted_id != self._last_id:
            self._filesystem.replace(join(self._directory, LAST_ID_NAME), encode_last_id(self._last_id))
            self._noted_id = self._last_id

    def _read_last_id(self) -> int | None:
        """The number in ``lastId``; None when there is none, also because a crash left the file empty."""
        try:
            file = self._filesystem.open(join(self._directory, LAST_ID_NAME))
        except NotFoundError:
            return None
        try:
            return decode_last_id(file.read_at(0, LAST_ID_BYTES_MAX))
        except CorruptionError:
            # As in Java the names of the logs decide then.
            return None
        finally:
            file.close()
