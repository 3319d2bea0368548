"""New entry logs: their ids, and the file ``lastId`` that keeps an id from coming again.

The logs of a storage over several directories have one space of ids. Each directory has a ``lastId``, written
when a log begins there; the largest one counts.

Source: ``org.apache.bookkeeper.bookie.EntryLoggerAllocator``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from posixpath import join

from bkctl.codec.last_id import LAST_ID_BYTES_MAX, LAST_ID_NAME, decode_last_id, encode_last_id
from bkctl.engine.entrylog.log_ids import last_log_id, next_log_id, sort_names
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.scan.directory import QUARANTINE_NAME
from bkctl.vfs.base import WritableFileSystem


class LogIds:
    """The ids of all logs of one storage, in one directory or several: none is given out twice."""

    def __init__(self, directories: Sequence[str], filesystem: WritableFileSystem) -> None:
        self.noted = -1
        self.strange_names: tuple[str, ...] = ()
        self._directories = tuple(directories)
        self._filesystem = filesystem
        self._last = -1
        self._opened = False
        # Names seen since the last note; None: look again.
        self._taken: frozenset[int] | None = None

    @property
    def last(self) -> int:
        """The id that was given out last."""
        return self._last

    def open(self) -> None:
        """Find the id that was given out last. Raises StorageError, NotFoundError without a directory."""
        if self._opened:
            return
        names = sort_names(self._names())
        noted = [found for directory in self._directories if (found := self._read(directory)) is not None]
        self._last = self.noted = last_log_id(names, max(noted, default=None))
        self.strange_names = names.strange
        self._opened = True

    def next(self) -> int:
        """Return an id that never came before. Raises StorageError."""
        if self._taken is None:
            self._taken = sort_names(self._names()).taken
        self._last = next_log_id(self._last, self._taken)
        return self._last

    def look_again(self) -> None:
        """Have the next id asked for consider the names that there are then."""
        self._taken = None

    def _names(self) -> list[str]:
        """Return the names of the files in the directories and in their quarantines.

        Index rows may name the logs in quarantine, too.
        """
        found: list[str] = []
        for directory in self._directories:
            names = self._filesystem.names(directory)
            found += names
            if QUARANTINE_NAME in names:
                with suppress(StorageError, NotFoundError):  # no directory, or none that can be read
                    found += self._filesystem.names(join(directory, QUARANTINE_NAME))
        return found

    def _read(self, directory: str) -> int | None:
        """Read the number in ``lastId``; None without one, also because a crash left the file empty."""
        try:
            file = self._filesystem.open(join(directory, LAST_ID_NAME))
        except NotFoundError:
            return None
        try:
            return decode_last_id(file.read_at(0, LAST_ID_BYTES_MAX))
        except CorruptionError:
            # As in Java the names of the logs decide then.
            return None
        finally:
            file.close()


class LogAllocator:
    """Gives out ids for the logs of a directory; used by the thread that appends."""

    def __init__(self, directory: str, filesystem: WritableFileSystem, ids: LogIds | None = None) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._ids = ids or LogIds((directory,), filesystem)

    @property
    def strange_names(self) -> tuple[str, ...]:
        """Files that look like logs but have a number that cannot be one's, as :meth:`open` found them."""
        return self._ids.strange_names

    def open(self) -> None:
        """Find the id that was given out last. Raises StorageError, NotFoundError without the directory."""
        self._ids.open()

    def new_id(self) -> int:
        """Give out an id that never comes again, not after a crash either. Raises StorageError."""
        self._ids.look_again()
        log_id = self.new_id_of_many()
        self.note()
        return log_id

    def new_id_of_many(self) -> int:
        """Give out a log id at a fraction of the cost of :meth:`new_id`.

        :meth:`note` must come before an index row names the log.

        Until then a crash may give the id out once more, to a log that nobody knows of.
        """
        return self._ids.next()

    def note(self) -> None:
        """Make the ids given out so far durable. Raises StorageError."""
        ids = self._ids
        ids.look_again()
        if ids.noted != ids.last:
            self._filesystem.replace(join(self._directory, LAST_ID_NAME), encode_last_id(ids.last))
            ids.noted = ids.last
