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
from collections import deque
from collections.abc import Callable, Collection, Container, Sequence
from functools import partial

from bkctl.clock import Clock
from bkctl.config.server_keys.garbage import CompactionSettings, GcSettings
from bkctl.engine.engine_thread import EngineThread, reported
from bkctl.engine.gc import policy
from bkctl.engine.gc.compactor import Compactor
from bkctl.engine.gc.copying import Copied, GoneLedgers
from bkctl.engine.gc.explanation import DirectoryState, Explainer, Known
from bkctl.engine.gc.ledger_sweep import LedgerSweep
from bkctl.engine.gc.log_reading import LogReading, corruption_of, pointed_at, read_log, records_bytes
from bkctl.engine.gc.log_usage import LogTotals, LogUsage, LogUsages
from bkctl.engine.gc.pace import Pace, StoppedError
from bkctl.engine.gc.policy import Due, Kind, RateLimit, Request
from bkctl.engine.gc.ports import LedgerDirectory, ReplicaDirectory
from bkctl.engine.gc.reports import CollectorStatus, GcMeters, LogResult, PassReport
from bkctl.engine.gc.scratch_compactor import ScratchCompactor
from bkctl.engine.gc.transactional_compactor import TransactionalCompactor
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import BkctlError, CorruptionError, NoSpaceError
from bkctl.kvstore.base import KeyValueStore
from bkctl.ledger_set import LedgerSet
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)

#: A function that compacts a log. It takes the log's id, the dead ledgers, and the (offset, end) of damage
#: that no index row points into.
_Way = Callable[[int, Container[int], Sequence[tuple[int, int]]], Copied]

#: The usages of logs that a pass knows, by the ids of the logs.
_Seen = dict[int, LogUsage | LogTotals]

#: Seconds between two checks whether a thread that is to end waits for the cluster.
_JOIN_S = 0.05


class Collector:
    """Collects one ledger directory, every ``wait_ms`` and when asked to.

    ``delete_ledger`` forgets a ledger unless entries of it have just come, and returns whether it did. With
    ``replicas`` the collector also looks for ledgers that only other bookies keep any more. ``rows`` is an
    open ``metadata-cache`` store, which becomes the collector's. :meth:`start` and :meth:`stop` are called
    once; the thread calls :meth:`collect`, which takes one caller at a time.
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
    ) -> None:
        self.meters = GcMeters()
        self.directory = storage.directory
        self.index_place = storage.index_place
        self._pace = Pace()
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
        self._storage = storage
        self._filesystem = filesystem
        self._clock = clock
        self._settings = settings
        self._scarce_usage = scarce_usage
        self._usages = LogUsages(settings.usages_pairs_max, rows)
        self._copy_rate = RateLimit(settings.bytes_per_s or settings.entries_per_s)
        rig = (storage, filesystem, settings, self._pace_copy)
        self._transactional = TransactionalCompactor(*rig)
        self._by_scratch = ScratchCompactor(*rig, settings.scratch_directories)
        self._compactor = self._transactional if settings.transactional else Compactor(*rig)
        # Under the condition's lock: requests, suspensions, confirmations.
        self._changed = threading.Condition()
        self._request: Request | None = None
        self._running: Request | None = None
        self._suspended: set[Kind] = set()
        now_ms = clock.time_ms()
        self._last_ms = {Kind.MINOR: now_ms, Kind.MAJOR: now_ms}
        self._last_s = dict.fromkeys(Kind, clock.monotonic())
        self._compacting: Kind | None = None
        self._phase = "idle"
        self._progress: float | None = None
        self._log_id: int | None = None
        self._aside: dict[int, str] = {}
        self._unresolved: dict[int, str] = {}
        # The usages of the last pass, for explanations; the pass goes on changing them.
        self._seen: dict[int, LogUsage | LogTotals] = {}
        self._results: deque[LogResult] = deque(maxlen=settings.results_max)
        self._last_pass: PassReport | None = None
        self._thread = EngineThread("GarbageCollectorThread", self._run, self._broken)

    # --- life, from any thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; the first pass is one interval away."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, in the middle of a copy too; call it before the storage is stopped.

        A thread that waits for an answer of the cluster is left alone: it touches nothing of the directory
        any more when the answer comes.
        """
        self._pace.stop()
        with self._changed:
            self._changed.notify_all()
        while self._thread.is_alive and not self._pace.asking:
            self._thread.join(_JOIN_S)
        self._usages.close()

    def abort(self) -> None:
        """Stop the collector as a kill would do it: nothing more is written. For tests."""
        self.stop()

    def request(self, request: Request) -> None:
        """Ask for a pass now; one that is running is followed by another, so that no request is lost."""
        with self._changed:
            self._request = request.joined(self._request)
            self._changed.notify_all()

    @property
    def in_force(self) -> bool:
        """Whether a pass that was asked for is running or waits for its turn."""
        with self._changed:
            return self._request is not None or self._running is not None

    def suspend(self, kinds: Collection[Kind]) -> None:
        """Run no compaction of these kinds; one that runs ends after its log."""
        with self._changed:
            self._suspended |= set(kinds)

    def resume(self, kinds: Collection[Kind]) -> None:
        """Take a suspension back."""
        with self._changed:
            self._suspended -= set(kinds)

    def confirm_deletions(self) -> int:
        """Let the next pass delete the ledgers that the last one held back; return their number."""
        return self._ledgers.confirm()

    def status(self) -> CollectorStatus:
        """Return the present state of the collector."""
        with self._changed:
            suspended = set(self._suspended)
            in_force = self.in_force
        return CollectorStatus(
            directory=self._storage.directory,
            in_force=in_force,
            phase=self._phase,
            progress=self._progress,
            log_id=self._log_id,
            minor_compacting=self._compacting is Kind.MINOR,
            major_compacting=self._compacting is Kind.MAJOR,
            minor_suspended=Kind.MINOR in suspended,
            major_suspended=Kind.MAJOR in suspended,
            last_minor_ms=self._last_ms[Kind.MINOR],
            last_major_ms=self._last_ms[Kind.MAJOR],
            minor_compactions=self.meters.minor_compactions,
            major_compactions=self.meters.major_compactions,
            held_deletions=self._ledgers.held,
            set_aside=dict(self._aside),
            last_pass=self._last_pass,
            results=tuple(self._results),
        )

    def explain(self) -> DirectoryState:
        """Explain how much of each log is alive, and why the log stays or goes.

        From any thread. Raises StorageError.
        """
        known = Known(
            self._seen,
            dict(self._aside),
            dict(self._unresolved),
            {kind: self._due(kind) for kind in Kind},
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
        self._in_phase(f"ended: {error}")

    # --- a pass ---------------------------------------------------------------------------------------------

    def collect(self, request: Request | None = None) -> PassReport:
        """Run one pass; failures of the cluster, the disk and single logs are in the report, not raised."""
        report = PassReport(self.meters.passes + 1, request is not None, self._clock.time_ms())
        self._last_pass = report
        started_s = self._clock.monotonic()
        if request is not None:
            # The operator who asks may have repaired something.
            self._aside.clear()
        try:
            self._collect(report, request)
        except StoppedError:
            report.failure = "stopped"
            raise
        except BkctlError as error:
            report.failure = str(error)
            self.meters.failed_passes += 1
            _log.error("%s: garbage collection failed: %s", self._storage.directory, error)
        finally:
            self._in_phase("idle")
            self._log_id, self._compacting = None, None
            report.ended_ms = self._clock.time_ms()
            self.meters.passes += 1
            self.meters.set_aside_logs = len(self._aside)
            self.meters.duration.add(self._clock.monotonic() - started_s)
        return report

    def _collect(self, report: PassReport, request: Request | None) -> None:
        self._unresolved = self._transactional.recover().unresolved | self._by_scratch.recover().unresolved
        self._flush()
        in_logs = LedgerSet()
        self._seen = usages = self._read_logs(report, in_logs)
        dead = self._ledgers.sweep(report, in_logs, self._in_phase)
        if report.held_deletions:
            return
        self._remove_garbage(report, usages, dead)
        self._compact(report, usages, dead, request)
        self._count_what_is_left(usages)

    def _flush(self) -> None:
        try:
            self._storage.flush()
        except NoSpaceError as error:
            # Entries in the write caches are not deleted then; those on the disk can be, which makes room.
            _log.warning("%s: collecting without a flush: %s", self._storage.directory, error)

    def _read_logs(self, report: PassReport, in_logs: LedgerSet) -> _Seen:
        """Read the usage of every settled log that is not quarantined; ``in_logs`` gets the logs' ledgers.

        Only totals are kept of a log whose ledgers do not fit into memory.
        """
        self._in_phase("reading logs")
        log_ids = self._storage.while_quiet(self._storage.entry_logger.settled_log_ids)
        self._usages.drop_others(log_ids)
        self._aside = {log_id: self._aside[log_id] for log_id in log_ids if log_id in self._aside}
        report.logs = len(log_ids)
        report.unflushed_logs = len(self._storage.entry_logger.unflushed_log_ids)
        report.least_unflushed_log_id = self._storage.entry_logger.least_unflushed_log_id
        usages: _Seen = {}
        doubtful: dict[int, LogReading] = {}
        for done, log_id in enumerate(log_ids):
            self._progress = done / len(log_ids)
            self._pace.check()
            if log_id in self._unresolved:
                continue
            if log_id in self._aside:
                # The log was read once, but not copied: it still goes when all of its ledgers are dead.
                read = self._usages.remembered(log_id)
                if read is not None:
                    usages[log_id] = read
                    in_logs.update(read.ledgers)
                continue
            self._log_id = log_id
            try:
                reading = self._read_log(report, log_id)
            except BkctlError as error:
                self._set_aside(report, log_id, error)
                continue
            if reading.damage:
                doubtful[log_id] = reading
            else:
                usages[log_id] = self._usages.bounded(reading.usage)
                in_logs.update(reading.usage.ledgers)
        self._log_id = None
        for reading in self._judge_damage(report, doubtful):
            self._usages.put(reading.usage)
            usages[reading.usage.log_id] = self._usages.bounded(reading.usage)
            in_logs.update(reading.usage.ledgers)
        return usages

    def _judge_damage(self, report: PassReport, doubtful: dict[int, LogReading]) -> list[LogReading]:
        """Quarantine the logs into whose damage the index points; return the others, which lost nothing."""
        if not doubtful:
            return []
        harmless = []
        lost = pointed_at(
            self._storage.locations,
            {log_id: reading.damage for log_id, reading in doubtful.items()},
            self._pace.check,
        )
        for log_id, reading in doubtful.items():
            damage = lost.get(log_id)
            if damage is None:
                harmless.append(reading)
            else:
                self._set_aside(report, log_id, corruption_of(damage))
        return harmless

    def _read_log(self, report: PassReport, log_id: int) -> LogReading:
        path = self._storage.entry_logger.path(log_id)
        status = self._filesystem.status(path)
        if status is None:
            raise CorruptionError("entry log", expected="a file", found="none", path=path)
        usage = self._usages.get(log_id, status.size_bytes, partial(records_bytes, self._filesystem, path))
        if usage is not None:
            return LogReading(usage)
        reading = read_log(self._filesystem, path, log_id, lambda _: self._pace.check())
        report.logs_read += 1
        if not reading.damage:
            self._usages.put(reading.usage)
        return reading

    def _set_aside(self, report: PassReport, log_id: int, error: BkctlError) -> None:
        """Quarantine a log: it stays as it is, and the pass goes on with the others."""
        if isinstance(error, StoppedError):
            raise error
        report.set_aside_logs += 1
        if isinstance(error, CorruptionError):
            self._aside[log_id] = str(error)
        _log.error("%s: log %x is set aside: %s", self._storage.directory, log_id, error)
        self._result(log_id, "set_aside", str(error))

    # --- logs -----------------------------------------------------------------------------------------------

    def _remove_garbage(self, report: PassReport, usages: _Seen, dead: Collection[int]) -> None:
        """Remove logs without a live ledger, the largest first."""
        if dead:
            self._drop_dead(report, usages, dead)
        empty = [usage for usage in usages.values() if usage.is_empty]
        for usage in sorted(empty, key=lambda each: -each.file_bytes):
            self._pace.check()
            del usages[usage.log_id]
            try:
                self._storage.entry_logger.remove(usage.log_id)
            except BkctlError as error:
                self.meters.failed_removals += 1
                self._set_aside(report, usage.log_id, error)
                continue
            self._usages.drop(usage.log_id)
            report.deleted_logs += 1
            report.freed_bytes += usage.file_bytes
            self.meters.deleted_logs += 1
            self.meters.deleted_bytes += usage.file_bytes
            self._result(usage.log_id, "deleted", "no live ledger", usage, freed_bytes=usage.file_bytes)
        if report.deleted_logs:
            self._storage.while_quiet(self._storage.entry_logger.sync_names)

    def _drop_dead(self, report: PassReport, usages: _Seen, dead: Collection[int]) -> None:
        """Drop the dead ledgers from the usages; read a log again of which only totals are known."""
        for log_id, known in list(usages.items()):
            self._pace.check()
            try:
                usage = known if isinstance(known, LogUsage) else self._read_log(report, log_id).usage
            except BkctlError as error:
                del usages[log_id]
                self._set_aside(report, log_id, error)
                continue
            if usage.drop(dead):
                self._usages.put(usage)
            usages[log_id] = self._usages.bounded(usage)

    def _compact(
        self, report: PassReport, usages: _Seen, dead: Collection[int], request: Request | None
    ) -> None:
        kind, report.compaction_reason = policy.choose(
            self._due(Kind.MINOR),
            self._due(Kind.MAJOR),
            request,
            compact_when_off=self._settings.compact_when_off,
        )
        if kind is None:
            return
        report.compaction = self._compacting = kind
        self._in_phase("compacting")
        settings = self._kind_settings(kind)
        started_s = self._clock.monotonic()
        ordered = policy.compaction_order(
            [usage for usage in usages.values() if usage.log_id not in self._aside],
            settings.threshold,
            log_size_bytes=self._settings.log_size_bytes,
            scarce=self._disk_is_scarce(),
        )
        gone = GoneLedgers(self._storage, dead)
        for done, usage in enumerate(ordered):
            self._progress = done / len(ordered)
            self._pace.check()
            elapsed_ms = (self._clock.monotonic() - started_s) * 1000
            if settings.time_max_ms is not None and elapsed_ms >= settings.time_max_ms:
                report.compaction_reason += f"; ended after {settings.time_max_ms} ms"
                break
            if self._is_suspended(kind) and not (request is not None and request.overrides):
                report.compaction_reason += "; suspended while it ran"
                break
            self._compact_log(report, usages, usage, gone)
        self._compacted(kind)

    def _compact_log(
        self, report: PassReport, usages: _Seen, usage: LogUsage | LogTotals, dead: Container[int]
    ) -> None:
        way, obstacle = self._way_of(usage)
        if way is None:
            self._result(usage.log_id, "left", obstacle, usage)
            return
        self._log_id = usage.log_id
        try:
            copied = way(usage.log_id, dead, usage.holes)
        except CorruptionError as error:
            self._set_aside(report, usage.log_id, error)
            return
        except NoSpaceError as error:
            self.meters.compaction_failures += 1
            self._result(usage.log_id, "left", str(error), usage)
            return
        except BkctlError:
            self.meters.compaction_failures += 1
            raise
        finally:
            self._log_id = None
        del usages[usage.log_id]
        self._usages.drop(usage.log_id)
        freed_bytes = max(usage.file_bytes - copied.bytes, 0)
        report.compacted_logs += 1
        report.copied_bytes += copied.bytes
        report.freed_bytes += freed_bytes
        self.meters.compacted_bytes += freed_bytes
        reason = f"{usage.usage(self._settings.log_size_bytes):.1%} live"
        self._result(usage.log_id, "compacted", reason, usage, copied=copied, freed_bytes=freed_bytes)

    def _way_of(self, usage: LogUsage | LogTotals) -> tuple[_Way | None, str]:
        """Choose how to compact a log with the room there is; None, and the reason, when there is no way."""
        free_bytes = self._filesystem.disk_space(self._storage.directory).free_bytes
        if policy.fits(usage.remaining_bytes, free_bytes, self._settings):
            return self._compactor.compact, ""
        needed = usage.remaining_bytes + self._settings.free_bytes_min
        obstacle = f"needs {needed} bytes of disk, {free_bytes} are free"
        if not self._settings.scratch_directories:
            return None, obstacle
        scratch = self._by_scratch.roomy(usage.remaining_bytes)
        if scratch is None:
            return None, f"{obstacle}, and no other disk has room for a scratch copy"
        _log.info("%s: log %x is compacted by way of %s", self._storage.directory, usage.log_id, scratch)
        return partial(self._by_scratch.compact, scratch=scratch), ""

    def _compacted(self, kind: Kind) -> None:
        kinds = tuple(Kind) if kind is Kind.MAJOR else (kind,)
        for each in kinds:
            # A major compaction has also done the work of a minor one.
            self._last_ms[each] = self._clock.time_ms()
            self._last_s[each] = self._clock.monotonic()
        if kind is Kind.MAJOR:
            self.meters.major_compactions += 1
        else:
            self.meters.minor_compactions += 1
        self._compacting = None

    def _count_what_is_left(self, usages: _Seen) -> None:
        self.meters.active_logs = len(usages)
        self.meters.active_log_bytes = sum(usage.file_bytes for usage in usages.values())
        self.meters.active_ledgers = len(self._storage.ledgers)

    # --- small things ---------------------------------------------------------------------------------------

    def _in_phase(self, phase: str) -> None:
        self._phase, self._progress = phase, None

    def _kind_settings(self, kind: Kind) -> CompactionSettings:
        return self._settings.major if kind is Kind.MAJOR else self._settings.minor

    def _due(self, kind: Kind) -> Due:
        since_ms = (self._clock.monotonic() - self._last_s[kind]) * 1000
        return Due(self._kind_settings(kind), since_ms, self._is_suspended(kind))

    def _is_suspended(self, kind: Kind) -> bool:
        with self._changed:
            return kind in self._suspended

    def _disk_is_scarce(self) -> bool:
        space = self._filesystem.disk_space(self._storage.directory)
        return space.free_bytes < space.total_bytes * (1 - self._scarce_usage)

    def _pace_copy(self, entries: int, size_bytes: int) -> None:
        units = entries if self._settings.bytes_per_s is None else size_bytes
        self._pace.wait(self._copy_rate.wait_s(units, self._clock.monotonic()))

    def _result(
        self,
        log_id: int,
        action: str,
        reason: str,
        usage: LogUsage | LogTotals | None = None,
        *,
        copied: Copied | None = None,
        freed_bytes: int = 0,
    ) -> None:
        result = LogResult(
            log_id,
            action,
            reason,
            file_bytes=0 if usage is None else usage.file_bytes,
            live_bytes=0 if usage is None else usage.remaining_bytes,
            copied_bytes=0 if copied is None else copied.bytes,
            copied_entries=0 if copied is None else copied.entries,
            freed_bytes=freed_bytes,
            finished_ms=self._clock.time_ms(),
        )
        self._results.append(result)
        _log.info(
            "%s: log %x %s (%s): %d bytes, %d copied, %d freed",
            self._storage.directory,
            log_id,
            action,
            reason,
            result.file_bytes,
            result.copied_bytes,
            freed_bytes,
        )
