"""The garbage collector of one ledger directory: its thread, and the steps of one pass.

::

    recover     finish or remove the remains of a compaction that was cut off
    flush       so that only ledgers that are written right now have entries in the write caches
    logs        list the settled logs and read the ledgers of each; quarantine and report a damaged log
    listing     find the ledgers of the index and of the logs that the cluster does not have
    deletions   delete those that a second read does not find either; a flush makes the deletions durable
    logs        remove the logs without a live ledger
    compaction  when it is due or asked for

The ledgers are noted before the listing begins, so that a ledger that is created later is in neither. Nothing
is deleted because of a listing that failed. When a step fails, or a log, the pass goes on with the others.

A ledger that the index does not know counts as dead only if the cluster does not know it either, or does not
keep it here: an index that was lost or rebuilt by half must not cost the logs.

Source: ``org.apache.bookkeeper.bookie.GarbageCollectorThread`` and ``ScanAndCompareGarbageCollector``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from bkctl.clock import Clock
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.engine_thread import EngineThread, reported
from bkctl.engine.gc.compactions import Compactions
from bkctl.engine.gc.explanation import DirectoryState, Explainer, Known
from bkctl.engine.gc.ledger_sweep import LedgerSweep
from bkctl.engine.gc.log_fates import LogFates
from bkctl.engine.gc.pace import Pace, StoppedError
from bkctl.engine.gc.policy import Kind, Request
from bkctl.engine.gc.ports import LedgerDirectory, ReplicaDirectory
from bkctl.engine.gc.progress import Progress
from bkctl.engine.gc.reports import CollectorStatus, GcMeters, PassReport
from bkctl.engine.gc.settled_logs import SettledLogs
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import BkctlError, NoSpaceError
from bkctl.kvstore.base import KeyValueStore
from bkctl.ledger_set import LedgerSet
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)

#: Seconds between two checks whether a thread that is to end waits for the cluster.
_JOIN_S = 0.05


class Collector:
    """Collects one ledger directory, every ``wait_ms`` and when asked to.

    ``delete_ledger`` forgets a ledger unless entries of it have just come, and returns whether it did. With
    ``replicas`` the collector also looks for ledgers that only other bookies keep any more. ``rows`` is an
    open ``metadata-cache`` store, which becomes the collector's. A compaction gives way to the adds that
    ``adds`` counts. :meth:`start` and :meth:`stop` are called once; the thread calls :meth:`collect`, which
    takes one caller at a time.
    """

    def __init__(
        self,
        storage: LogKeeper,
        cluster: LedgerDirectory,
        *,
        filesystem: WritableFileSystem,
        clock: Clock,
        settings: GcSettings,
        delete_ledger: Callable[[int], bool],
        scarce_usage: float = 0.9,
        rows: KeyValueStore | None = None,
        replicas: ReplicaDirectory | None = None,
        adds: Callable[[], int] = lambda: 0,
    ) -> None:
        self.meters = GcMeters()
        self.directory = storage.directory
        self.index_place = storage.index_place
        self._pace = Pace()
        self._progress = Progress()
        self._fates = LogFates(storage.directory, clock, settings.results_max)
        self._ledgers = LedgerSweep(
            storage,
            cluster,
            clock=clock,
            settings=settings,
            delete_ledger=delete_ledger,
            pace=self._pace,
            meters=self.meters,
            replicas=replicas,
        )
        self._logs = SettledLogs(
            storage,
            filesystem,
            settings,
            pace=self._pace,
            meters=self.meters,
            progress=self._progress,
            fates=self._fates,
            rows=rows,
        )
        self._compactions = Compactions(
            storage,
            filesystem,
            clock,
            settings,
            logs=self._logs,
            fates=self._fates,
            pace=self._pace,
            meters=self.meters,
            progress=self._progress,
            scarce_usage=scarce_usage,
            adds=adds,
        )
        self._storage = storage
        self._filesystem = filesystem
        self._clock = clock
        self._settings = settings
        # Of the requests, which are under its lock.
        self._changed = threading.Condition()
        self._request: Request | None = None
        self._running: Request | None = None
        self._ended = False
        self._last_pass: PassReport | None = None
        self._thread = EngineThread("GarbageCollectorThread", self._run, self._broken)

    # --- life, from any thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; the first pass is one interval away."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, in the middle of a copy too; call it before the storage is stopped.

        A thread that waits for an answer of the cluster is left alone: it touches nothing of the directory
        any more when the answer comes. On the thread itself the call does not wait: the end comes behind it.
        """
        self._pace.stop()
        with self._changed:
            self._changed.notify_all()
        while self._thread.is_alive and not self._thread.is_current and not self._pace.asking:
            self._thread.join(_JOIN_S)
        self._logs.close()

    def abort(self) -> None:
        """Stop the collector as a kill would do it: nothing more is written. For tests."""
        self.stop()

    def request(self, request: Request) -> None:
        """Ask for a pass now; one that is running is followed by another, so that no request is lost.

        Behind an error that has ended the thread there is no pass any more, and nothing happens.
        """
        with self._changed:
            if self._ended:
                return
            self._request = request.joined(self._request)
            self._changed.notify_all()

    @property
    def in_force(self) -> bool:
        """Whether a pass that was asked for is running or waits for its turn."""
        with self._changed:
            return self._request is not None or self._running is not None

    def suspend(self, kinds: Collection[Kind]) -> None:
        """Run no compaction of these kinds; one that runs ends after its log."""
        self._compactions.suspend(kinds)

    def resume(self, kinds: Collection[Kind]) -> None:
        """Take a suspension back."""
        self._compactions.resume(kinds)

    def confirm_deletions(self) -> int:
        """Let the next pass delete the ledgers that the last one held back; return their number."""
        return self._ledgers.confirm()

    def status(self) -> CollectorStatus:
        """Return the present state of the collector."""
        compactions, suspended = self._compactions, self._compactions.suspended
        return CollectorStatus(
            directory=self._storage.directory,
            in_force=self.in_force,
            phase=self._progress.phase,
            progress=self._progress.share,
            log_id=self._progress.log_id,
            minor_compacting=compactions.running is Kind.MINOR,
            major_compacting=compactions.running is Kind.MAJOR,
            minor_suspended=Kind.MINOR in suspended,
            major_suspended=Kind.MAJOR in suspended,
            last_minor_ms=compactions.last_ms[Kind.MINOR],
            last_major_ms=compactions.last_ms[Kind.MAJOR],
            minor_compactions=self.meters.minor_compactions,
            major_compactions=self.meters.major_compactions,
            held_deletions=self._ledgers.held,
            set_aside=dict(self._fates.aside),
            last_pass=self._last_pass,
            results=tuple(self._fates.results),
        )

    def explain(self) -> DirectoryState:
        """Explain how much of each log is alive, and why the log stays or goes.

        From any thread. Raises StorageError.
        """
        known = Known(
            self._logs.seen,
            dict(self._fates.aside),
            dict(self._compactions.unresolved),
            {kind: self._compactions.due(kind) for kind in Kind},
            self._ledgers.held,
            self._settings.log_size_bytes,
        )
        unflushed = self._storage.entry_logger.unflushed_log_ids
        return Explainer(self._storage, self._filesystem, self._clock, known, unflushed).directory()

    def _run(self) -> None:
        """Run the collector's thread."""
        while not self._pace.is_stopped():
            with self._changed:
                self._changed.wait_for(
                    lambda: self._request is not None or self._pace.is_stopped(),
                    max(self._settings.wait_ms, 1) / 1000,
                )
                self._running, self._request = self._request, None
            if self._pace.is_stopped():
                return
            # A pass that was cut off is done again: nothing is removed before its replacement is durable.
            if reported(f"{self._storage.directory}: a garbage collection pass", self._collect_once):
                self.meters.failed_passes += 1

    def _collect_once(self) -> None:
        try:
            self.collect(self._running)
        except StoppedError:
            pass  # the loop of the thread checks it again
        finally:
            with self._changed:
                self._running = None

    def _broken(self, error: BkctlError) -> None:
        """Note that an error ended the thread; the log has the error.

        Space comes back when the bookie is started again.
        """
        self.meters.failed_passes += 1
        self._progress.enter(f"ended: {error}")
        with self._changed:
            # Nobody is to wait for a pass that does not come.
            self._ended = True
            self._request = self._running = None

    # --- a pass ---------------------------------------------------------------------------------------------

    def collect(self, request: Request | None = None) -> PassReport:
        """Run one pass; failures of the cluster, the disk and single logs are in the report, not raised.

        An unforeseen error is in the report and raised.
        """
        report = PassReport(self.meters.passes + 1, request is not None, self._clock.time_ms())
        self._last_pass = report
        started_s = self._clock.monotonic()
        if request is not None:
            # The operator who asks may have repaired something.
            self._fates.aside.clear()
        try:
            self._collect(report, request)
        except StoppedError:
            report.failure = "stopped"
            raise
        except BkctlError as error:
            report.failure = str(error)
            self.meters.failed_passes += 1
            _log.error("%s: garbage collection failed: %s", self._storage.directory, error)
        except Exception as error:
            report.failure = repr(error)
            raise
        finally:
            self._progress.enter("idle")
            report.ended_ms = self._clock.time_ms()
            self.meters.passes += 1
            self.meters.set_aside_logs = len(self._fates.aside)
            self.meters.duration.add(self._clock.monotonic() - started_s)
        return report

    def _collect(self, report: PassReport, request: Request | None) -> None:
        self._compactions.recover()
        self._flush()
        in_logs = LedgerSet()
        self._progress.enter("reading logs")
        self._logs.read(report, in_logs, self._compactions.unresolved)
        dead = self._ledgers.sweep(report, in_logs, self._progress.enter)
        if report.held_deletions:
            return
        self._logs.remove_garbage(report, dead)
        self._compactions.run(report, dead, request, self._ledgers.undecided)
        self._logs.count()
        self.meters.active_ledgers = len(self._storage.ledgers)

    def _flush(self) -> None:
        try:
            self._storage.flush()
        except NoSpaceError as error:
            # Entries in the write caches are not deleted then; those on the disk can be, which makes room.
            _log.warning("%s: collecting without a flush: %s", self._storage.directory, error)
