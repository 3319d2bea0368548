"""The journal of a bookie (Java: ``org.apache.bookkeeper.bookie.Journal``).

Three threads and their queues. The journal thread takes the batches that have arrived, joins them into a
group, pads it, writes and syncs it in one call, and answers it. Where some answers do not wait for the sync,
it only writes: the force-write thread then makes all written groups durable with one fdatasync, and the
callback thread answers. A fourth thread writes zeros ahead of the records.

Where the configuration says that a record waits for no other one (``journalFlushWhenQueueEmpty``), a lone
record is written, synced and answered by the thread that appends it, which has the journal thread's turn then
(:meth:`Journal.write_lent`, ``docs/adr/0042``).

An error of a write or a sync ends the journal for good. It is reported for every batch that waits, nothing is
tried again, and no success is reported for that group or a later one.

A write that finds the disk full is different, because nothing was to be synced yet. The group, and all
batches that wait behind it, fail, and the journal is *suspended*. When :meth:`Journal.retry` finds room
again, the journal overwrites the bytes that it had given up, and goes on. A sync that reports a full disk is
an error like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bkctl.clock import Clock
from bkctl.codec.last_mark import LastMark
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.engine_thread import EngineThread, as_failure, logged_failure, reported
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.callback_stage import CallbackStage, Outcome
from bkctl.engine.journal.force_write import ForceWriteStage, Group, Synced
from bkctl.engine.journal.group_commit import FlushReason
from bkctl.engine.journal.group_writer import GroupWriter
from bkctl.engine.journal.journal_directory import JournalDirectory
from bkctl.engine.journal.journal_file import JournalFile
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.engine.journal.meters import JournalMeters
from bkctl.engine.journal.zeros_ahead import ZerosAhead
from bkctl.errors import BkctlError, NoSpaceError, StorageError
from bkctl.vfs.base import WritableFileSystem

_log = logging.getLogger(__name__)


#: Behind a sync that took longer the next lone record is the journal thread's: who appends it has other work.
LENT_SYNC_S_MAX = 0.002


class Journal:
    """One journal directory: ``directory`` holds the ``.txn`` files (``<journal dir>/current``).

    ``index`` is the journal's place in the configuration, for names of threads. ``on_failure`` is called
    once, from the callback thread, after the failure of the first batches was reported.
    """

    def __init__(
        self,
        index: int,
        directory: str,
        filesystem: WritableFileSystem,
        clock: Clock,
        settings: JournalSettings,
        on_failure: Callable[[BkctlError], None],
    ) -> None:
        self.index = index
        self.directory = directory
        self.settings = settings
        self.meters = JournalMeters(settings)
        #: Called by the thread that writes, without locks, when there is room after ``has_room`` said no.
        self.on_room: Callable[[], None] | None = None
        #: Called from the thread that writes, without locks, when the disk is full: appends are refused now.
        self.on_no_space: Callable[[NoSpaceError], None] | None = None
        #: Called from there when the journal could go on; has to call :meth:`resume` when appends may come.
        self.on_space: Callable[[], None] | None = None
        self._filesystem = filesystem
        self._clock = clock
        self._files = JournalDirectory(directory, filesystem, settings, self.meters)
        self._queue = JournalQueue(clock, settings, self.meters)
        self._callbacks = CallbackStage(clock, self._queue, self.meters, on_failure)
        self._force_write = ForceWriteStage(
            clock,
            self._queue,
            self._callbacks,
            self.meters,
            forgetful=settings.remove_from_page_cache,
        )
        self._zeros = ZerosAhead(
            filesystem, settings.preallocation_bytes, settings.size_bytes_max, self.meters, self._queue.fail
        )
        self._writer = GroupWriter(clock, settings, self._queue, self._zeros, self.meters)
        self._file: JournalFile | None = None
        self._last_sync_s = 0.0
        self._lends = settings.sync_data and self._queue.writes_at_once
        # While suspended: the range that a failed write may have touched, or that a new file is due.
        self._given_up: tuple[int, int] | None = None
        self._file_due = False
        self._wanted_bytes = 0
        # Whether the thread that was lent the turn writes; that one alone changes it.
        self._lent_in_use = False
        self._thread: EngineThread | None = None

    def start(self, *, after_id: int = 0, records_end: LastMark | None = None) -> None:
        """Open a new file, behind all that exist and behind ``after_id``, and start the threads.

        ``records_end`` is where the records that were replayed end, None where that is not known. The first
        id ever is the time in milliseconds + 1, as in Java. Raises StorageError, and NotFoundError when there
        is no such directory.
        """
        ids = self._files.ids()
        newest = max(ids) if ids else self._clock.time_ms()
        file = self._create(max(newest, after_id) + 1, records_end)
        self._file = file
        # Nothing was appended yet, so everything that was is durable.
        self._force_write.mark = LastMark(file.journal_id, file.position)
        self._last_sync_s = self._clock.monotonic()
        name = f"journal-{self.index}"
        self._thread = EngineThread(name, self._run, self._broken)
        try:
            self._zeros.start(f"{name}-zeros")
            self._callbacks.start(f"{name}-callback")
            self._force_write.start(f"{name}-force-write")
            self._thread.start()
        except StorageError:
            # A stage ends when the one in front of it says so, which may not be there.
            self._force_write.close()
            self._callbacks.close()
            file.close()
            raise

    def append(self, batch: JournalBatch, *, borrows: bool = False) -> None:
        """Queue a batch; never blocks, never refuses for lack of room (:meth:`has_room`).

        With ``borrows`` the caller calls :meth:`write_lent` next, outside its locks.

        Raises StorageError when the journal has failed or was stopped, NoSpaceError while it is suspended;
        then the batch will not be answered.
        """
        self._queue.append(batch, borrows=borrows)

    @property
    def lends_its_turn(self) -> bool:
        """Whether the thread that appends a lone record may write it, as far as is known now."""
        return self._lends and self._force_write.sync_s <= LENT_SYNC_S_MAX

    def write_lent(self) -> None:
        """Write, sync and answer on this thread what it appended, if it was lent the turn for that.

        This waits for the disk. A record that does not fit in the file is the journal thread's, and so is one
        that a sink appends while it gets such an answer: the answers behind that one come first.
        """
        if self._lent_in_use:
            return
        try:
            if self._queue.is_lent_here:
                self._write_lent()
        finally:
            self.return_turn()

    def return_turn(self) -> None:
        """Give back a turn that this thread was lent and does not use; the journal thread writes then."""
        if not self._lent_in_use:
            self._queue.give_back()

    def _write_lent(self) -> None:
        batches: list[JournalBatch] = []
        self._lent_in_use = True
        try:
            batches = self._queue.take_lent(self._room_in_file())
            if batches:
                self._flush_timed(batches, FlushReason.QUEUE_EMPTY)
        except BaseException as error:
            # Also where the thread is interrupted: the file's end is not known any more. A batch that a stage
            # has got has no pieces, and the journal thread answers those that were not taken.
            left = [batch for batch in batches if batch.pieces]
            self._fail(left, logged_failure(f"{self.directory}: writing a lone record", error))
            if not isinstance(error, Exception):
                raise
        finally:
            self._lent_in_use = False

    def _room_in_file(self) -> int:
        """Return how many bytes surely fit in the file: a new one takes its time.

        The padding behind a group is shorter than two of its units.
        """
        settings = self.settings
        return settings.size_bytes_max - self._current_file().position - 2 * settings.alignment_bytes

    def has_room(self, size_bytes: int, entries: int) -> bool:
        """Return whether the queue's bounds allow so much more; if not, ``on_room`` is called when they may.

        An empty queue has room for anything. So has a journal that has stopped: the append then reports it.
        """
        return self._queue.has_room(size_bytes, entries)

    @property
    def mark(self) -> LastMark:
        """Everything appended up to here is on disk (Java: ``Journal.lastLogMark``); it only grows."""
        return self._force_write.mark

    def retry(self) -> None:
        """Let a suspended journal look whether its disk has room again; any other does nothing."""
        self._queue.retry()

    def resume(self) -> None:
        """Take appends again after a suspension.

        Records were lost in it: the caller has keys that later records rely on journaled again.
        """
        self._queue.resume()

    @property
    def queued_bytes(self) -> int:
        """Bytes of the records that are not yet written."""
        return self._queue.queued_bytes

    @property
    def suspended(self) -> NoSpaceError | None:
        """The error for which appends are refused for the time being; None when they are taken."""
        return self._queue.suspended

    @property
    def failure(self) -> BkctlError | None:
        """The error that ended the journal, None while it lives."""
        return self._queue.error

    def retire(self, mark: LastMark) -> list[str]:
        """Remove files older than ``mark`` but the newest ``backups_max``; return the paths of those removed.

        ``mark`` is the persisted one, so nothing in them is needed to replay. A file that cannot be removed
        is logged, counted and left. Unlinking gigabytes takes its time: not to be called under a lock.
        """
        return self._files.retire(min(mark.journal_id, self.mark.journal_id))

    def stop(self) -> None:
        """Write, sync and answer everything that was appended, then close; idempotent.

        On the thread that writes, to a sink, it returns at once; the end comes behind that call.
        """
        self._queue.stop()
        self._join()

    def abort(self) -> None:
        """End as a kill would: nothing more is written, synced or answered; idempotent."""
        self._queue.abort()
        if self._join() and self._file is not None:
            self._file.close()

    def _join(self) -> bool:
        """Wait for the end of all threads; False on the one whose turn it is, behind which they end."""
        if self._queue.is_lent_here or (self._thread is not None and self._thread.is_current):
            return False
        for thread in (self._thread, self._force_write.thread, self._callbacks.thread):
            if thread is not None:
                thread.join()
        self._zeros.stop()
        return True

    def _create(self, journal_id: int, previous_end: LastMark | None) -> JournalFile:
        started_s = self._clock.monotonic()
        file = self._files.create(journal_id, previous_end)
        self._zeros.follow(file.path, file.position)
        self.meters.created.add(self._clock.monotonic() - started_s)
        return file

    # --- the journal thread

    def _run(self) -> None:
        while (taken := self._queue.take()) is not None:
            batches, reason = taken
            if batches:
                self._flush_timed(batches, reason)
            else:
                self._mend()
        if not self._queue.aborted:
            self._end()
        self._force_write.close()
        # Where a sink has ended the journal on this thread nobody else may do it.
        self._zeros.stop()

    def _flush_timed(self, batches: list[JournalBatch], reason: FlushReason) -> None:
        started_s = self._clock.monotonic()
        self._flush(batches, reason)
        self.meters.processed.add(self._clock.monotonic() - started_s)

    def _broken(self, error: BkctlError) -> None:
        """End the journal with the error that ended the thread."""
        self._queue.fail(error)
        # A group that is being written on a turn that was lent passes through the stages first.
        self._queue.await_turn()
        batches, _ = self._queue.drain()
        self._callbacks.put(Outcome(batches, self._clock.monotonic(), error, counted=False))
        self._force_write.close()

    def _flush(self, batches: list[JournalBatch], reason: FlushReason) -> None:
        """Flush one group: write it, hand it on, begin a new file when this one is full."""
        handed_on = False
        group: Group | None = None
        position = 0
        try:
            file = self._current_file()
            position = file.position
            synced = self._writer.write(file, batches)
            full = file.position > self.settings.size_bytes_max
            if self._queue.aborted:
                return
            self.meters.flushes[reason] += 1
            group = self._hand_on(file, batches, full=full, synced=synced)
            handed_on = True
            if group is not None:
                self._force_write.force_now(group)
            if full:
                self._roll(file)
        except NoSpaceError as error:
            size_bytes = sum([batch.size_bytes for batch in batches]) + self.settings.alignment_bytes
            self._file_due = handed_on
            self._given_up = None if handed_on else (position, position + 2 * size_bytes)
            self._wanted_bytes = size_bytes + self.settings.buffered_bytes_max
            self._suspend([] if handed_on else batches, error)
        except BkctlError as error:
            self._fail([] if handed_on else batches, error)
        except Exception as error:  # noqa: BLE001
            # After any error the batches must be answered.
            _log.exception("writing a journal group failed")
            # Of a group that this thread was to answer those are left that it has not come to.
            left = group.batches if group is not None else [] if handed_on else batches
            self._fail(left, as_failure(f"{self.directory}: writing a group", error))

    def _roll(self, full: JournalFile) -> None:
        """Go on in a new file, which comes to be only when the one before it is durable to its end.

        Else a power cut could leave a hole in a journal that is not the newest, where it is taken for damage.
        """
        if self._queue.await_forced():
            self._begin_file(full, full.journal_id + 1)

    def _begin_file(self, full: JournalFile, journal_id: int) -> None:
        """Go on in a new file behind ``full``, and behind any that somebody has put there."""
        follows = journal_id == full.journal_id + 1
        file = self._create(journal_id, LastMark(full.journal_id, full.position) if follows else None)
        self._file = file
        self._force_write.mark = LastMark(file.journal_id, file.position)
        self.meters.rolls += 1

    def _suspend(self, batches: list[JournalBatch], error: NoSpaceError) -> None:
        """Fail a group, and what has arrived since, for lack of room."""
        _log.error("the journal waits for room: %s", error)
        waiting, room_wanted = self._queue.suspend(error)
        if self.on_no_space is not None:
            # The batches must be answered, whatever comes of it.
            reported("telling that the journal waits for room", self.on_no_space, error)
        self._callbacks.put(
            Outcome([*batches, *waiting], self._clock.monotonic(), error, counted=False, final=False)
        )
        if room_wanted:
            # Adds that were held for lack of room in the queue have to learn of it as well.
            self._tell_room()

    def _mend(self) -> None:
        """Go on after a suspension if there is room."""
        if self._queue.suspended is None:
            return
        try:
            if self._filesystem.disk_space(self.directory).free_bytes < self._wanted_bytes:
                return
            if not self._tidy():
                return
        except NoSpaceError as error:
            _log.warning("the journal still waits for room: %s", error)
        except BkctlError as error:
            self._fail([], error)
        else:
            _log.warning("%s: the journal goes on", self.directory)
            what = f"{self.directory}: going on"
            failure = reported(what, self.on_space or self.resume)
            if failure is not None:
                self._fail([], as_failure(what, failure))

    def _tidy(self) -> bool:
        """Bring the file into a state in which writing can go on; False when the journal ends before that.

        Raises StorageError.
        """
        # An error of the sync below would be hidden from one that the force-write thread is in.
        if not self._queue.await_forced():
            return False
        file = self._current_file()
        if self._given_up is not None:
            file.rewind(*self._given_up)
            # Once: what is written there next is not to be overwritten.
            self._given_up = None
        if self._file_due:
            self._begin_file(file, self._files.next_id(file.journal_id))
            self._file_due = False
        return True

    def _current_file(self) -> JournalFile:
        if self._file is None:
            raise StorageError(f"{self.directory}: the journal was not started", path=self.directory)
        return self._file

    def _hand_on(
        self, file: JournalFile, batches: list[JournalBatch], *, full: bool, synced: Synced | None
    ) -> Group | None:
        """Hand answers after the write to the callback stage; everything else waits for its sync.

        Returns the group that this thread is to sync and answer at once: one of which every answer waits for
        the sync, as those that come next will, while no other one is being synced. Another thread could only
        wait for it as well, and the way there and back takes longer than many a sync. After an error
        ``batches`` are those that were not handed on.
        """
        written_s = self._clock.monotonic()
        sync_data = self.settings.sync_data
        early: list[JournalBatch] = []
        late: list[JournalBatch] = []
        for batch in batches:
            # A batch without records is there for the sync alone, whatever the settings say.
            waits = not batch.after_write and (sync_data or not batch.pieces)
            (late if waits else early).append(batch)
            batch.pieces = []
        interval_s = self.settings.page_cache_flush_interval_ms / 1000
        force = sync_data or bool(late) or full or written_s - self._last_sync_s >= interval_s
        here = synced is not None or (not early and self._writer.syncs_at_once())
        room_wanted = self._queue.written(forcing=int(force), answering=int(bool(early)))
        if early:
            self._callbacks.put(Outcome(early, written_s, durable=False))
            # Those are answered; an error that keeps the others from being handed on is not for them.
            batches[:] = late
        group = Group(file, file.position, late, written_s, last=full, synced=synced)
        if force:
            self._last_sync_s = written_s
            if not here:
                self._force_write.put(group)
        if room_wanted:
            self._tell_room()
        return group if here else None

    def _fail(self, batches: list[JournalBatch], error: BkctlError) -> None:
        self._queue.fail(error)
        self._callbacks.put(Outcome(batches, self._clock.monotonic(), error, counted=False))

    def _end(self) -> None:
        """End after the last group: what is left fails, or what was written is synced and closed."""
        file = self._file
        error = self._queue.error
        if error is not None:
            batches, room_wanted = self._queue.drain()
            self._callbacks.put(Outcome(batches, self._clock.monotonic(), error, counted=False))
            if room_wanted:
                self._tell_room()
        if self._queue.suspended is not None and error is None:
            if self._file_due:
                # The file was full and closed, the next one could not be made.
                return
            try:
                self._tidy()
            except NoSpaceError as failure:
                # The records stay as a torn end, which a replay treats as it treats that of a killed bookie.
                _log.warning("records that were given up stay in the journal: %s", failure)
            except BkctlError as failure:
                self._fail([], failure)
        if file is not None:
            # The mark does not stand within records that stay.
            position = file.position if self._given_up is None else self._given_up[0]
            self._queue.written(forcing=1, answering=0)
            self._force_write.put(Group(file, position, [], self._clock.monotonic(), last=True))

    def _tell_room(self) -> None:
        on_room = self.on_room
        if on_room is None:
            return
        # Records that wait must still be written.
        reported("telling of room in the journal's queue", on_room)
