"""The bookie's engine: directories in, adds and reads served, everything durable before it is answered.

``Bookie`` puts the parts together and starts and stops them. The parts are in their own modules:
``write_stage`` (adds), ``fencing``, ``explicit_lacs``, ``read_stage``, ``replay``, ``checkpoint``, ``disks``,
``ledger_storage`` and ``journal``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial

from bkctl.clock import Clock
from bkctl.engine.checkpoint import Checkpointer, LastMarks
from bkctl.engine.disks import DiskMonitor, DiskState
from bkctl.engine.engine_thread import Actions, call_all
from bkctl.engine.explicit_lacs import ExplicitLacs
from bkctl.engine.fencing import Fencing
from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.opening import open_collectors
from bkctl.engine.gc.policy import Request
from bkctl.engine.gc.ports import LedgerDirectory
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.journal import Journal
from bkctl.engine.keyless_ledgers import placed_ledgers
from bkctl.engine.ledger_descriptor import Done
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.ledger_table import LedgerTable
from bkctl.engine.limbo import LimboExit
from bkctl.engine.lost_index import find_lost_indexes
from bkctl.engine.lost_index_refusal import journal_places, refuse_lost_indexes
from bkctl.engine.read_stage import ReadStage
from bkctl.engine.replay import Replay, ReplayReport
from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import OpenStorages, OpenStore, StorageParts
from bkctl.engine.storages import storage_of
from bkctl.engine.write_stage import WriteStage
from bkctl.errors import BadRequestError, BkctlError, BookieIOError
from bkctl.scan.directory import current
from bkctl.scan.exchanged_journals import refuse_exchanged_journals
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)


class Bookie:
    """An engine over directories that exist and belong to it alone.

    ``open_store`` opens (or makes) the key-value store in a directory. ``on_failure`` is called once when the
    bookie cannot go on: from then on nothing is acknowledged, and the bookie is to be stopped.
    ``on_read_only`` is called whenever the disks turn the bookie read-only (True) or back (False).
    ``open_storages`` opens other storages than those that the settings choose.
    ``cluster`` says which ledgers exist; without it nothing is ever collected, and a start leaves out records
    of ledgers whose key it does not find.

    Use: :meth:`start`, then ``writes``, ``fencing``, ``explicit_lacs``, ``reads``, :meth:`force_ledger`
    from any thread, then :meth:`stop`.
    """

    def __init__(
        self,
        settings: BookieSettings,
        *,
        filesystem: WritableFileSystem,
        clock: Clock,
        open_store: OpenStore,
        on_failure: Callable[[BkctlError], None] | None = None,
        on_read_only: Callable[[bool], None] | None = None,
        cluster: LedgerDirectory | None = None,
        open_storages: OpenStorages | None = None,
    ) -> None:
        self.settings = settings
        self.failure: BkctlError | None = None
        #: Whether the last start came to its end.
        self.served = False
        self._filesystem = filesystem
        self._clock = clock
        self._open_store = open_store
        self._cluster = cluster
        self._on_failure = on_failure
        self._on_read_only = on_read_only
        self._lock = threading.Lock()
        self._failing = threading.Lock()
        self._read_only_by_operator = False
        self._mode_lock = threading.Lock()
        # Journals and storages whose disk was found full by a write.
        self._without_space: set[Journal | LedgerStorage] = set()
        self._told_read_only = False
        self._telling = threading.Lock()
        self._disks_were_full = False
        self._full_directories: set[str] = set()
        self._serving = False
        self.journals = [self._journal(number) for number in range(len(settings.journal_directories))]
        parts = StorageParts(settings, filesystem, clock, self._lock, open_store, self.fail)
        with contextlib.ExitStack() as opened:
            #: In the order in which ledgers are given to them.
            self.storages = (open_storages or storage_of(settings).open)(parts)
            for storage in self.storages:
                opened.callback(storage.stop)
            self._build(cluster, opened)
            opened.pop_all()

    def _build(self, cluster: LedgerDirectory | None, opened: contextlib.ExitStack) -> None:
        """Make the parts over the storages; ``opened`` gets what has to be closed when one of them fails."""
        settings, filesystem, clock = self.settings, self._filesystem, self._clock
        self.table = LedgerTable(self.storages, self.journals, descriptors_max=settings.descriptors_max)
        self.writes = WriteStage(
            self._lock,
            self.table,
            clock,
            settings.writes,
            self.fail,
            write_data=settings.journal.write_data,
            throttle_ms_max=settings.storage.throttle_ms_max,
        )
        self.reads = ReadStage(self._lock, self.table)
        self.fencing = Fencing(self._lock, self.table, clock)
        self.limbo = LimboExit(self._lock, self.table)
        self.explicit_lacs = ExplicitLacs(
            self._lock, self.table, self.writes, clock, journal=settings.journal.format_version >= 6
        )
        ledger_directories = [current(path) for path in settings.ledger_directories]
        self.marks = LastMarks(filesystem, ledger_directories, len(self.journals))
        self.checkpointer = Checkpointer(
            self.journals, self.storages, self.marks, clock, settings.entry_log.flush_interval_ms, self.fail
        )
        self.disks = DiskMonitor(
            filesystem, ledger_directories, settings.disks, self._disks_looked_at, self.fail
        )
        #: One for each directory that is collected.
        self.collectors: list[Collector] = []
        if cluster is not None:
            self.collectors = open_collectors(
                settings,
                self.storages,
                cluster,
                filesystem=filesystem,
                clock=clock,
                open_store=self._open_store,
                delete_ledger=self.collect_ledger,
                adds=lambda: self.writes.meter.done,
                opened=opened,
            )
        for journal in self.journals:
            journal.on_no_space = partial(self._no_space, journal)
            journal.on_space = partial(self._journal_goes_on, journal)
        for storage in self.storages:
            storage.on_no_space = partial(self._no_space, storage)
            storage.on_space = partial(self._space_again, storage)
            storage.on_checkpoint = self.checkpointer.request

    def start(self, *, accept_loss: bool = False) -> ReplayReport:
        """Replay the journals, open new ones, start all threads.

        Raises RefusedError (damage; see ``recovery`` and ``lost_index``), StorageError or the cluster's
        BkctlError; the bookie is to be closed with :meth:`stop` in that case too.
        """
        journals = journal_places(self.settings, self.marks)
        refuse_exchanged_journals(self._filesystem, [(each.directory, each.mark) for each in journals])
        lost = find_lost_indexes(
            self._filesystem,
            [storage.index_place for storage in self.storages],
            lambda: journals,
            lambda number: self.storages[number].lost_parts(),
            None if self._cluster is None else placed_ledgers(self._cluster, accept_loss),
            lambda number, ledger: ledger in self.storages[number].ledgers,
        )
        if not accept_loss:
            refuse_lost_indexes(self._filesystem, lost)
        for storage in self.storages:
            storage.start()
        replay = Replay(
            self._filesystem,
            [current(path) for path in self.settings.journal_directories],
            [current(path) for path in self.settings.indexes],
            self.storages,
            self.marks,
            self._lock,
            self._clock,
            accept_loss=accept_loss,
            lost_indexes=lost,
            cluster=self._cluster,
        )
        report = replay.run()
        for journal in self.journals:
            journal.start(
                after_id=self.marks.written(journal.index).journal_id,
                records_end=replay.records_ends[journal.index],
            )
        if report.accepted:
            # A loss is accepted once: the marks go behind it, also where no journal was left to hold one.
            self.checkpointer.checkpoint()
        self.writes.start()
        self.checkpointer.start()
        self.disks.start()
        for collector in self.collectors:
            collector.start()
        self._serving = self.served = True
        return report

    def stop(self) -> None:
        """Answer what was accepted, flush everything, move the marks, close. A second call does nothing.

        Raises StorageError when something could not be flushed; the journals still have it then.
        """
        serving, self._serving = self._serving, False
        # A step that fails does not keep the others from being done. The stack does them from the last one
        # pushed to the first.
        with contextlib.ExitStack() as stack:
            for storage in reversed(self.storages):
                stack.callback(storage.stop)
            if serving:
                stack.callback(self._checkpoint_unless_failed)
            for journal in reversed(self.journals):
                stack.callback(journal.stop)
            stack.callback(self.writes.stop)
            stack.callback(self.checkpointer.stop)
            for collector in reversed(self.collectors):
                stack.callback(collector.stop)
            stack.callback(self.disks.stop)

    def _checkpoint_unless_failed(self) -> None:
        """Flush everything and move the marks, but for what a failure has left unknown."""
        if self.failure is None:
            self.checkpointer.checkpoint()
            self.checkpointer.end_logs()

    def abort(self) -> None:
        """End all threads as a kill does: nothing more is written, flushed or answered. For tests."""
        self._serving = False
        for collector in self.collectors:
            collector.abort()
        for journal in self.journals:
            journal.abort()
        self.disks.stop()
        self.checkpointer.stop()
        self.writes.stop()
        for storage in self.storages:
            storage.abort()

    def force_ledger(self, ledger: int, done: Done) -> None:
        """Call ``done`` when everything appended to the ledger's journal before this call is durable.

        An unknown ledger is no error. Raises BadRequestError for a negative id.
        """
        if ledger < 0:
            raise BadRequestError(f"ledger {ledger}: ids are not negative", ledger=ledger)
        with self._lock:
            journal = self.table.journal_of(ledger)
            journal.append(JournalBatch([], size_bytes=0, entries=0, sink=_Forced(), context=done))

    def delete_ledger(self, ledger: int) -> None:
        """Forget a ledger: reads say so at once, its rows go with the next flush."""
        self._delete_ledger(ledger, written_too=True)

    def collect_ledger(self, ledger: int) -> bool:
        """Do what :meth:`delete_ledger` does, unless entries of it came since the last flush: then False.

        A client that writes to the ledger takes it for alive; the next collection asks the cluster again.
        """
        return self._delete_ledger(ledger, written_too=False)

    def _delete_ledger(self, ledger: int, *, written_too: bool) -> bool:
        actions: Actions = []
        with self._lock:
            storage = self.table.storage_of(ledger)
            if not written_too and storage.has_unflushed(ledger):
                return False
            row = storage.ledgers.get(ledger)
            if row is not None and row.fenced:
                self.table.bury(ledger, self._clock.monotonic())
            descriptor = self.table.forget(ledger)
            storage.delete_ledger(ledger)
            if descriptor is not None:
                actions.extend(descriptor.due_watches(None))
        call_all("telling of a deleted ledger", actions)
        return True

    def checkpoint(self) -> None:
        """Flush everything and move the marks now. Raises StorageError."""
        self.checkpointer.checkpoint()

    def set_read_only(self, read_only: bool) -> None:
        """Turn the bookie read-only by hand, or let its disks decide again."""
        with self._mode_lock:
            self._read_only_by_operator = read_only
        self._set_mode()
        self._tell_mode()

    @property
    def read_only(self) -> bool:
        """Whether plain adds are refused."""
        return self.writes.read_only

    @property
    def takes_high_priority_adds(self) -> bool:
        """Whether adds of high priority (recovery) are taken, read-only or not."""
        return self.writes.takes_high_priority

    def disk_space(self) -> tuple[int, int]:
        """Return total and free bytes of the ledger directories' disks, each disk counted once."""
        total_bytes = free_bytes = 0
        seen: set[int] = set()
        for path in self.settings.ledger_directories:
            space = self._filesystem.disk_space(current(path))
            if space.device not in seen:
                seen.add(space.device)
                total_bytes += space.total_bytes
                free_bytes += space.free_bytes
        return total_bytes, free_bytes

    def fail(self, error: BkctlError) -> None:
        """Stop the bookie for a part that cannot go on: nothing is acknowledged from here on."""
        with self._failing:
            if self.failure is not None:
                return
            self.failure = error
        _log.critical("the bookie stops: %s", error, extra={"event": "failed", "error": str(error)})
        with self._mode_lock:
            # A thread that sets the mode has either seen the failure or is through.
            self.writes.set_read_only(True, high_priority_too=True)
        if self._on_failure is not None:
            self._on_failure(error)

    def _disks_looked_at(self, state: DiskState) -> None:
        self._set_mode()
        self._tell_mode()
        for journal in self.journals:
            journal.retry()
        self._end_logs_on_full_disks(state)
        full = any(use.full for use in state.disks)
        if full and not self._disks_were_full and self.settings.gc.collect_when_full:
            for collector in self.collectors:
                collector.request(Request(major=True, minor=True))
        self._disks_were_full = full

    def _end_logs_on_full_disks(self, state: DiskState) -> None:
        """End the current logs on disks that have just become full.

        The logs on such a disk can then be collected at once, current ones included.
        """
        full = {use.directory for use in state.disks if use.full}
        for storage in self.storages:
            if not (full - self._full_directories).isdisjoint(storage.directories):
                storage.begin_new_logs()
        self._full_directories = full

    def _no_space(self, part: Journal | LedgerStorage, error: BkctlError) -> None:
        """Note that a write found the disk full, regardless of the thresholds. From any thread."""
        with self._mode_lock:
            if part not in self._without_space:
                _log.error("the bookie is read-only until there is room: %s", error)
            self._without_space.add(part)
        self._set_mode()
        # The answers say so from now on; registering it may take a while and is done by that thread.
        self.disks.wake()

    def _space_again(self, part: Journal | LedgerStorage) -> None:
        with self._mode_lock:
            self._without_space.discard(part)
        self.disks.wake()

    def _journal_goes_on(self, journal: Journal) -> None:
        with self._lock:
            # The records that were given up may hold keys of ledgers: no key in this journal counts any more.
            self.table.journal_keys_again(journal)
            journal.resume()
        self._space_again(journal)

    def _set_mode(self) -> None:
        """Let the write stage take or refuse adds, by what is known now."""
        with self._mode_lock:
            if self.failure is not None:
                return
            # Asked for under the lock: the thread that comes last has the newest of everything.
            state = self.disks.last
            without_space = bool(self._without_space)
            full = without_space or (state is not None and state.read_only)
            too = without_space or (state is not None and state.high_priority_too)
            self.writes.set_read_only(full or self._read_only_by_operator, high_priority_too=too)

    def _tell_mode(self) -> None:
        # One report at a time, so that the last one reported is the present mode.
        with self._telling:
            read_only = self.writes.read_only
            if self.failure is None and self._told_read_only != read_only:
                self._told_read_only = read_only
                if self._on_read_only is not None:
                    self._on_read_only(read_only)

    def _journal(self, number: int) -> Journal:
        directory = current(self.settings.journal_directories[number])
        return Journal(number, directory, self._filesystem, self._clock, self.settings.journal, self.fail)


class _Forced:
    """Answers FORCE_LEDGER."""

    def journaled(self, batches: list[JournalBatch]) -> None:
        call_all("an answer to a force", [partial(_done(batch), None) for batch in batches])

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        failure = BookieIOError(f"the journal could not be forced: {error}")
        call_all("an answer to a force", [partial(_done(batch), failure) for batch in batches])


def _done(batch: JournalBatch) -> Done:
    assert callable(batch.context)
    return batch.context
