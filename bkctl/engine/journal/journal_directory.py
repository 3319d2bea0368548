"""The files of a journal directory: which there are, how one is made, and which are needed no more."""

from __future__ import annotations

import contextlib
import logging

from bkctl.codec.journal import journal_name, parse_journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal.journal_file import JournalFile
from bkctl.engine.journal.meters import JournalMeters
from bkctl.errors import NotFoundError, StorageError
from bkctl.vfs.base import WritableFile, WritableFileSystem

_log = logging.getLogger(__name__)


class JournalDirectory:
    """Finds, makes and removes the ``.txn`` files of ``directory``."""

    def __init__(
        self,
        directory: str,
        filesystem: WritableFileSystem,
        settings: JournalSettings,
        meters: JournalMeters,
    ) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._settings = settings
        self._meters = meters
        # A file that this run has made and could not begin, for lack of room. It may still be there.
        self._unfinished: int | None = None

    def ids(self) -> list[int]:
        """Return the ids of the files there are, ascending."""
        found = map(parse_journal_name, self._filesystem.names(self._directory))
        return sorted(journal_id for journal_id in found if journal_id is not None)

    def next_id(self, after: int) -> int:
        """Return the id of the file to be made behind that of ``after``, and behind all that there are.

        A file that could not be begun is made whole instead: in front of a newer one it would be a journal
        whose records are gone, and nothing would show that there were none.
        """
        ids = [journal_id for journal_id in self.ids() if journal_id != self._unfinished]
        return max([after, *ids]) + 1

    def create(self, journal_id: int, previous_end: LastMark | None) -> JournalFile:
        """Make a file, whose name is durable; ``previous_end`` is where the records before it end."""
        file = self._new_file(journal_id)
        self._unfinished = journal_id
        version = self._settings.format_version
        journal = JournalFile.begin(self._filesystem, file, journal_id, version, previous_end)
        self._unfinished = None
        return journal

    def _new_file(self, journal_id: int) -> WritableFile:
        path = f"{self._directory}/{journal_name(journal_id)}"
        if journal_id == self._unfinished:
            with contextlib.suppress(NotFoundError):
                return self._filesystem.open_to_write(path)
        return self._filesystem.create(path)

    def retire(self, before: int) -> list[str]:
        """Remove the files with ids below ``before`` but the newest ``backups_max``; return their paths.

        A file that cannot be removed is logged, counted and left.
        """
        older = [journal_id for journal_id in self.ids() if journal_id < before]
        removed = []
        for journal_id in older[: max(len(older) - self._settings.backups_max, 0)]:
            path = f"{self._directory}/{journal_name(journal_id)}"
            try:
                self._filesystem.remove(path)
                removed.append(path)
            except (StorageError, NotFoundError) as error:
                self._meters.retire_failures += 1
                _log.warning("an old journal stays: %s", error)
        if removed:
            try:
                # The names are gone for good: a restart does not find an old journal without its neighbours.
                self._filesystem.sync_directory(self._directory)
            except StorageError as error:
                self._meters.retire_failures += 1
                _log.warning("old journals may come back after a power cut: %s", error)
        return removed
