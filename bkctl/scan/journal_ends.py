"""How far the journals of one directory must reach, and in which of them a power cut explains holes.

Both depend on which journal the last run was cut off in. That is the newest one with any record: a journal is
made before anything is written to it, and a power cut between the two leaves it empty, or not even named.
Java makes the next journal before the one in front of it is durable to its end, so that such a cut may have
torn that one.
"""

from __future__ import annotations

from collections.abc import Iterable

from bkctl.codec.journal import HEADER_BYTES, MAGIC, JournalHeader, decode_previous_end
from bkctl.codec.last_mark import LastMark
from bkctl.errors import NotFoundError
from bkctl.scan.journal import unsynced_from
from bkctl.scan.journal_head import read_head
from bkctl.scan.known_end import KnownEnd
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem


class JournalEnds:
    """The ends of ``journals``, each an id and a path: all of one directory, from the last mark on.

    ``mark`` None means that no last mark is known: any of the journals may be the one of a run that was cut
    off. Raises StorageError when the newest ones cannot be opened.
    """

    def __init__(
        self, filesystem: FileSystem, journals: Iterable[tuple[int, str]], mark: LastMark | None
    ) -> None:
        self._filesystem = filesystem
        self._paths = dict(journals)
        self._mark = mark
        self._newest = self._last_written()

    @property
    def mark(self) -> LastMark | None:
        """The last mark, as far as it is known."""
        return self._mark

    def known_end(self, journal_id: int) -> KnownEnd:
        """Return what is known of a journal's end. Raises StorageError when the next one cannot be opened."""
        stated = self._stated(journal_id)
        mark = self._mark
        if mark is None or journal_id < mark.journal_id:
            return KnownEnd(stated=stated)
        is_older = journal_id < self._newest
        is_marked = journal_id == mark.journal_id
        return KnownEnd(not is_older, is_older and not is_marked, stated, mark.offset if is_marked else 0)

    def unsynced_from(self, journal_id: int) -> int | None:
        """Return the offset from which a hole in a journal is a trace of a power cut, None if nowhere."""
        return unsynced_from(journal_id, max(journal_id, self._newest), self._mark)

    def _last_written(self) -> int:
        """Return the id of the newest journal with a record; of the oldest where none has any.

        One that says where the journal before it ends was made when that was durable: nothing in front of it
        was being written.
        """
        ids = sorted(self._paths, reverse=True)
        for journal_id in ids:
            if self._stated(journal_id - 1) is not None or not self._is_empty(journal_id):
                return journal_id
        return ids[-1] if ids else 0

    def _stated(self, journal_id: int) -> int | None:
        """Return where the next journal says that the records of this one end."""
        file = self._open(journal_id + 1)
        if file is None:
            return None
        try:
            end = decode_previous_end(file.read_at(0, HEADER_BYTES))
        finally:
            file.close()
        return end.offset if end is not None and end.journal_id == journal_id else None

    def _is_empty(self, journal_id: int) -> bool:
        """Return whether a journal has nothing but its header, or a part of that."""
        file = self._open(journal_id)
        if file is None:
            return True
        try:
            head = read_head(file)
            start = JournalHeader(head.version).first_record if file.read_at(0, 4) == MAGIC else 0
            nothing = head.short or file.first_nonzero(start) is None
            return nothing and not head.damage and not file.unreadable
        finally:
            file.close()

    def _open(self, journal_id: int) -> SteadyFile | None:
        path = self._paths.get(journal_id)
        if path is None:
            return None
        try:
            return SteadyFile(self._filesystem.open(path))
        except NotFoundError:
            return None  # a running bookie trimmed it since it was listed
