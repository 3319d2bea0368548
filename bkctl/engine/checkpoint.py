"""Checkpoints: they make a last mark true, and a thread drives them (Java: ``SyncThread``).

Durability depends on this order:

1. Take the marks of all journals. Every record in front of a mark was put into a write cache before it was
   appended to the journal.
2. Flush every ledger directory, all at a time: entries and ledger rows, also where there are only rows.
3. Write the marks.
4. Remove the journals that the marks have passed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing

from bkctl.clock import Clock
from bkctl.codec.last_mark import MARK_BYTES, LastMark, decode_last_mark, encode_last_mark, last_mark_name
from bkctl.engine.engine_thread import EngineThread
from bkctl.engine.journal.journal import Journal
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.work_threads import WorkThreads
from bkctl.errors import BkctlError, CorruptionError, NotFoundError, StorageError
from bkctl.metrics.latency import LatencyHistogram
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)


class LastMarks:
    """The marks of all journals in the ledger directories' ``current``."""

    def __init__(self, filesystem: WritableFileSystem, directories: Sequence[str], journals: int) -> None:
        self._filesystem = filesystem
        self._directories = directories
        self._journals = journals
        self._written: dict[int, LastMark] = {}

    def read(self, journal: int) -> LastMark:
        """Return the highest mark of a journal over all directories, (0, 0) when none has one.

        Files that are missing or not 16 bytes long are passed over, as Java does. Raises StorageError when
        one cannot be read: a mark that is too low would only cost time, but a disk that fails is to be
        known.
        """
        name = last_mark_name(journal, self._journals)
        best = LastMark(0, 0)
        for directory in self._directories:
            path = f"{directory}/{name}"
            try:
                file = self._filesystem.open(path)
            except NotFoundError:
                continue
            try:
                mark = decode_last_mark(file.read_at(0, MARK_BYTES))
            except CorruptionError as error:
                _log.warning("%s is passed over: %s", path, error.what)
                continue
            finally:
                file.close()
            best = max(best, mark, key=_position)
        self._written[journal] = best
        return best

    def written(self, journal: int) -> LastMark:
        """Return the mark that was last read or written, (0, 0) before."""
        return self._written.get(journal, LastMark(0, 0))

    def write(self, journal: int, mark: LastMark) -> None:
        """Make a mark durable in every directory that takes it; one that is not ahead is not written.

        Raises StorageError when no directory takes it.
        """
        if _position(mark) <= _position(self._written.get(journal, LastMark(-1, -1))):
            return
        name = last_mark_name(journal, self._journals)
        failed: StorageError | None = None
        written = 0
        for directory in self._directories:
            try:
                self._filesystem.replace(f"{directory}/{name}", encode_last_mark(mark))
                written += 1
            except StorageError as error:
                _log.warning("the last mark could not be written: %s", error)
                failed = error
        if failed is not None and not written:
            raise failed
        self._written[journal] = mark


def _position(mark: LastMark) -> tuple[int, int]:
    return mark.journal_id, mark.offset


class Checkpointer:
    """Runs checkpoints, one at a time; with :meth:`start` also every ``interval_ms`` and on request."""

    def __init__(
        self,
        journals: Sequence[Journal],
        storages: Sequence[LedgerStorage],
        marks: LastMarks,
        clock: Clock,
        interval_ms: int,
        on_failure: Callable[[BkctlError], None],
    ) -> None:
        self.duration = LatencyHistogram()
        self.failed = 0
        self._journals = journals
        self._storages = storages
        self._marks = marks
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._on_failure = on_failure
        self._running = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = EngineThread("bookie-sync", self._run, self._broken)

    def start(self) -> None:
        """Start the sync thread."""
        self._thread.start()

    @property
    def interval_s(self) -> float:
        """The time between two checkpoints."""
        return self._interval_s

    def set_interval(self, interval_ms: int) -> None:
        """Checkpoint every ``interval_ms`` from the next one on."""
        self._interval_s = interval_ms / 1000

    def stop(self) -> None:
        """End the sync thread, after the checkpoint that it is in."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def request(self) -> None:
        """Have the sync thread run a checkpoint now: a storage wants one. From any thread; memory only."""
        self._wake.set()

    def checkpoint(self) -> None:
        """Flush everything and move the marks. Raises StorageError; then the marks have not moved."""
        with self._running:
            started_s = self._clock.monotonic()
            marks = [journal.mark for journal in self._journals]
            self._flush_all()
            for number, mark in enumerate(marks):
                self._marks.write(number, mark)
            for journal, mark in zip(self._journals, marks, strict=True):
                journal.retire(mark)
            self.duration.add(self._clock.monotonic() - started_s)

    def end_logs(self) -> None:
        """Give the current logs their maps of ledgers, before a stop and behind the last checkpoint.

        The collector of the next run would have to read such a log as a whole, as it does with Java's. All
        entries are durable by now: a failure costs a log its map, and nothing else.
        """
        for storage in self._storages:
            storage.begin_new_logs()
        try:
            self._flush_all()
        except BkctlError as error:
            _log.warning("an entry log stays without its map of ledgers: %s", error)

    def _flush_all(self) -> None:
        """Flush every directory, all at a time: each has a disk of its own, and a flush mostly waits for it.

        Raises a failure once none of them flushes any more, one that trying again does not mend first.
        """
        with closing(WorkThreads("checkpoint", len(self._storages))) as threads:
            failed = threads.failures_of(_flush, self._storages)
        if failed:
            raise next((failure for failure in failed if not isinstance(failure, StorageError)), failed[0])

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval_s)
            # Before the question, or a stop between the two would be cleared away.
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self.checkpoint()
            except StorageError as error:
                # A full disk may have room again at the next turn; what cannot be repaired by trying again
                # has stopped the bookie through the storage's own on_failure.
                self.failed += 1
                _log.error("checkpoint failed, the last mark stays: %s", error)

    def _broken(self, error: BkctlError) -> None:
        """Stop the bookie: without a checkpoint journals grow until the disk is full."""
        self.failed += 1
        self._on_failure(error)


def _flush(storage: LedgerStorage) -> None:
    storage.flush()
    storage.note_synced()
