"""Start-up: bring the records of the journals behind the last mark into storage.

Source: ``BookieImpl.readJournal``.

Java stops reading a journal at the first zero word and takes the rest for absent. Here the scanner reads on
behind it. There are two cases:

* In the newest journal, behind the last mark, a power cut may leave a hole in front of records that prove
  themselves. Those records were never acknowledged, and they are replayed all the same.
* Anywhere else a hole is damage, and acknowledged entries may have stood in it. The same holds for a journal
  that is missing between others. The start is refused and names file and offset. If the operator accepts the
  loss, every ledger of that journal directory is put in limbo, so that no missing entry is called absent
  (``journal_replay``).

Records of ledgers without a key, in the journal or in the index, belong to deleted ledgers and are skipped,
unless the metadata still place the ledger on this bookie (``keyless_ledgers``). Behind an accepted loss the
key may be lost as well: there the records are kept under a blank key, fenced. A fence without a key is
treated in the same way. Of two keys of one ledger the last one counts (``second_keys``).

A record whose digest fails is replayed as the entry that its digest proves, and raises a doubt where it
proves none (``doubted_entries``). Behind the last mark of the newest journal a record may be half written
(``torn_records``): it never replaces a record that is known, and is not served where it is known to be torn.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from bkctl.clock import Clock
from bkctl.codec.last_mark import LastMark
from bkctl.engine.accepted_losses import forget_accepted, note_accepted
from bkctl.engine.checkpoint import LastMarks
from bkctl.engine.file_replay import ReplayedEnd
from bkctl.engine.gc.ports import LedgerDirectory
from bkctl.engine.journal_replay import JournalReplay
from bkctl.engine.keyless_ledgers import KeylessLedgers
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.lost_index import LostIndex
from bkctl.engine.lost_index_limbo import put_in_limbo
from bkctl.engine.replay_report import DAMAGES_MAX, ReplayReport
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.engine.unproved_rows import note_rows_asked, unproved_indexes
from bkctl.errors import StorageError
from bkctl.scan.directory import journal_ids
from bkctl.scan.lost_marks import marks_are_lost
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)

__all__ = ["DAMAGES_MAX", "Replay", "ReplayReport"]


class Replay:
    """Replays the journals of a bookie that does not serve yet.

    ``journal_directories``, ``index_directories`` and ``storages`` are in the order of the configuration;
    ``lock`` is the engine lock. ``lost_indexes`` are those whose loss is accepted. ``cluster`` says which
    ledgers exist.
    """

    def __init__(
        self,
        filesystem: WritableFileSystem,
        journal_directories: Sequence[str],
        index_directories: Sequence[str],
        storages: Sequence[LedgerStorage],
        marks: LastMarks,
        lock: threading.Lock,
        clock: Clock,
        *,
        accept_loss: bool = False,
        lost_indexes: Sequence[LostIndex] = (),
        cluster: LedgerDirectory | None = None,
    ) -> None:
        self._filesystem = filesystem
        self._journal_directories = journal_directories
        self._index_directories = index_directories
        self._storages = storages
        self._marks = marks
        self._clock = clock
        self._accept_loss = accept_loss
        self._lost_indexes = lost_indexes
        #: Where the records of each journal directory end, None where none was read.
        self.records_ends: list[LastMark | None] = []
        #: Numbers of the journal directories of which a loss was accepted.
        self._lossy: set[int] = set()
        self._report = ReplayReport()
        self._cluster = cluster
        self._ledgers = ReplayedLedgers(storages, lock, self._report, KeylessLedgers(cluster))

    def run(self) -> ReplayReport:
        """Replay every journal, flush everything, move the marks.

        Raises RefusedError for damage that may have cost acknowledged entries, for a journal that is gone,
        and for a master key that contradicts the ledger's; StorageError when reading or flushing fails.
        Nothing was lost then: a later start finds the same.
        """
        started_s = self._clock.monotonic()
        lossy = {lost.number for lost in self._lost_indexes}
        for number, storage in enumerate(self._storages):
            if number not in lossy:
                # A flush below may write rows alone, which without this would show a loss of the locations.
                storage.note_written()
        for lost in self._lost_indexes:
            self._accept(lost)
        unproved = self._find_unproved()
        marks_lost = self._are_marks_lost()  # before a replay fills logs
        ends = [
            self._replay(number, path, marks_lost=marks_lost)
            for number, path in enumerate(self._journal_directories)
        ]
        if self._lossy or self._ledgers.without_rows:
            self._ledgers.add_those_kept_here(self._lossy, len(self._journal_directories))
        self._note_keyless()
        # Entries, locations and rows are durable before any mark says so.
        for storage in self._storages:
            storage.flush()
        for storage in self._storages:
            storage.note_written()
            storage.note_synced()
        for number, end in enumerate(ends):
            if end is not None:
                self._settle(end)
                self._marks.write(number, end.mark)
        for lost in self._lost_indexes:
            forget_accepted(self._filesystem, lost.place.databases, *lost.place.others)
        for index in unproved:
            note_rows_asked(self._filesystem, index)
        self.records_ends = [None if end is None else end.records_end for end in ends]
        self._report.seconds = self._clock.monotonic() - started_s
        return self._report

    def _settle(self, end: ReplayedEnd) -> None:
        """Make the last journal durable as it was read: no power cut leaves the mark behind its end then.

        The bookie that was killed may not have synced the end of it. Raises SyncError.
        """
        try:
            file = self._filesystem.open_to_write(end.path)
        except StorageError as error:
            # Nothing is lost: behind a power cut the mark may be refused, although all is in the logs.
            _log.warning("a journal that was replayed cannot be synced: %s", error)
            return
        try:
            # The bytes that the mark names are on disk.
            file.sync()
        finally:
            file.close()

    def _note_keyless(self) -> None:
        keyless = self._ledgers.keyless
        keyless.log()
        self._report.skipped_ledgers = len(keyless.skipped)
        self._report.keyless_ledgers = len(keyless.kept)

    def _accept(self, lost: LostIndex) -> None:
        _log.warning("%s; accepted", lost.found)
        self._report.lost_indexes += 1
        note_accepted(self._filesystem, lost.place.databases, lost.databases)
        if lost.rows_lost:
            self._ledgers.without_rows.add(self._storages[lost.number])
        put_in_limbo(self._filesystem, lost, self._journal_directories, self._ledgers)

    def _find_unproved(self) -> list[str]:
        """Return the indexes of which the cluster is asked for ledgers without a row, none without it."""
        if self._cluster is None:
            return []
        found = unproved_indexes(self._filesystem, self._index_directories)
        for number in found:
            # Index files are one storage, in whichever directories they are.
            self._ledgers.without_rows.add(self._storages[number % len(self._storages)])
        return [self._index_directories[number] for number in found]

    def _are_marks_lost(self) -> bool:
        """Return whether the ledger directories lost their marks, where a journal directory is empty."""
        if all(journal_ids(self._filesystem, path) for path in self._journal_directories):
            return False
        places = [path for storage in self._storages for path in storage.index_place.logs]
        return marks_are_lost(self._filesystem, places)

    def _replay(self, number: int, directory: str, *, marks_lost: bool) -> ReplayedEnd | None:
        """Replay one journal directory; the end of its last file, None without files."""
        replay = JournalReplay(
            self._filesystem,
            number,
            len(self._journal_directories),
            directory,
            self._ledgers,
            self._report,
            accept_loss=self._accept_loss,
        )
        end = replay.run(self._marks.read(number), marks_lost=marks_lost)
        if replay.lossy:
            self._lossy.add(number)
        return end
