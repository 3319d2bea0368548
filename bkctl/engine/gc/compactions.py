"""The compactions of one ledger directory: when one runs, which logs it takes, and by which way.

The copying itself is in :mod:`compactor`, :mod:`transactional_compactor` and :mod:`scratch_compactor`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Container, Sequence
from functools import partial
from typing import Protocol

from bkctl.clock import Clock
from bkctl.config.server_keys.garbage import CompactionSettings, GcSettings
from bkctl.engine.gc import policy
from bkctl.engine.gc.compactor import Compactor
from bkctl.engine.gc.copying import Copied, GoneLedgers
from bkctl.engine.gc.giving_way import GivingWay
from bkctl.engine.gc.log_fates import LogFates
from bkctl.engine.gc.log_usage import LogTotals, LogUsage
from bkctl.engine.gc.pace import Pace
from bkctl.engine.gc.policy import Due, Kind, RateLimit, Request
from bkctl.engine.gc.progress import Progress
from bkctl.engine.gc.reports import GcMeters, PassReport
from bkctl.engine.gc.rows_into_logs import RowCounts
from bkctl.engine.gc.scratch_compactor import ScratchCompactor
from bkctl.engine.gc.settled_logs import SettledLogs
from bkctl.engine.gc.transactional_compactor import TransactionalCompactor
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import BkctlError, CorruptionError, NoSpaceError, RefusedError, StorageError, SyncError
from bkctl.reporting import counted
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)


class _Way(Protocol):
    """A function that compacts a log, as :meth:`Compactor.compact` does."""

    def __call__(
        self, log_id: int, dead: Container[int], holes: Sequence[tuple[int, int]], *, rows: RowCounts
    ) -> Copied: ...


class Compactions:
    """Runs the compactions that are due or asked for, as steps of the collector's passes.

    They give way to clients' adds, of which ``adds`` counts how many there have been.

    :meth:`suspend` and :meth:`resume` are called from any thread, which may also read ``running``,
    ``last_ms`` and ``unresolved``; the rest belongs to the collector's.
    """

    def __init__(
        self,
        storage: LogKeeper,
        filesystem: WritableFileSystem,
        clock: Clock,
        settings: GcSettings,
        *,
        logs: SettledLogs,
        fates: LogFates,
        pace: Pace,
        meters: GcMeters,
        progress: Progress,
        scarce_usage: float,
        adds: Callable[[], int] = lambda: 0,
    ) -> None:
        #: The kind that runs now.
        self.running: Kind | None = None
        #: When the last one of each kind ended, in milliseconds since 1970; at first when this began.
        self.last_ms = dict.fromkeys(Kind, clock.time_ms())
        #: Logs of compactions that could not be finished, each with the reason.
        self.unresolved: dict[int, str] = {}
        self._last_s = dict.fromkeys(Kind, clock.monotonic())
        self._storage = storage
        self._filesystem = filesystem
        self._clock = clock
        self._settings = settings
        self._logs = logs
        self._fates = fates
        self._pace = pace
        self._meters = meters
        self._progress = progress
        self._scarce_usage = scarce_usage
        self._copy_rate = RateLimit(settings.bytes_per_s or settings.entries_per_s)
        self._giving_way = GivingWay(adds, clock, pace.wait)
        rig = (storage, filesystem, settings, self._pace_copy, self._go_on)
        is_asked = self._giving_way.is_asked_for
        self._transactional = TransactionalCompactor(*rig, is_asked=is_asked)
        self._by_scratch = ScratchCompactor(*rig, settings.scratch_directories, is_asked=is_asked)
        plain = Compactor(*rig, is_asked=is_asked)
        self._compactor = self._transactional if settings.transactional else plain
        self._lock = threading.Lock()
        self._suspended: frozenset[Kind] = frozenset()

    # --- from any thread ------------------------------------------------------------------------------------

    @property
    def suspended(self) -> frozenset[Kind]:
        """The kinds that do not run until they are resumed."""
        return self._suspended

    def suspend(self, kinds: Collection[Kind]) -> None:
        """Run no compaction of these kinds; one that runs ends after its log."""
        with self._lock:
            self._suspended |= set(kinds)

    def resume(self, kinds: Collection[Kind]) -> None:
        """Take a suspension back."""
        with self._lock:
            self._suspended -= set(kinds)

    def due(self, kind: Kind) -> Due:
        """Return what decides whether a compaction of this kind is due."""
        since_ms = (self._clock.monotonic() - self._last_s[kind]) * 1000
        return Due(self._kind_settings(kind), since_ms, kind in self._suspended)

    # --- steps of a pass ------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Finish or remove what is left of compactions that were cut off; note where neither works."""
        self.unresolved = self._transactional.recover().unresolved | self._by_scratch.recover().unresolved

    def run(
        self,
        report: PassReport,
        dead: Collection[int],
        request: Request | None,
        undecided: Container[int] = frozenset(),
    ) -> None:
        """Run the compaction that is due or asked for, if there is one.

        ``undecided`` are ledgers that the index does not know, and of which nobody said that they are gone.
        """
        kind, report.compaction_reason = policy.choose(
            self.due(Kind.MINOR),
            self.due(Kind.MAJOR),
            request,
            compact_when_off=self._settings.compact_when_off,
        )
        if kind is None:
            return
        report.compaction = self.running = kind
        self._progress.enter("compacting")
        try:
            self._compact(report, kind, dead, request, GoneLedgers(self._storage, dead, undecided))
        finally:
            self.running = None

    def _compact(
        self,
        report: PassReport,
        kind: Kind,
        dead: Collection[int],
        request: Request | None,
        gone: GoneLedgers,
    ) -> None:
        settings = self._kind_settings(kind)
        started_s = self._clock.monotonic()
        scarce = self._disk_is_scarce()
        ordered = policy.compaction_order(
            [usage for usage in self._logs.seen.values() if usage.log_id not in self._fates.aside],
            settings.threshold,
            log_size_bytes=self._settings.log_size_bytes,
            scarce=scarce,
        )
        log_ids = [usage.log_id for usage in ordered]
        rows = RowCounts(self._storage.locations, log_ids, dead, self._go_on)
        with self._compactor.in_order([(usage.log_id, usage.holes) for usage in ordered], gone):
            for done, usage in enumerate(ordered):
                self._progress.share = done / len(ordered)
                self._pace.check()
                # It may take hours, in which adds fill the disk, or room comes back.
                self._giving_way.hurry = self._disk_is_scarce()
                elapsed_ms = (self._clock.monotonic() - started_s) * 1000
                if settings.time_max_ms is not None and elapsed_ms >= settings.time_max_ms:
                    report.compaction_reason += f"; ended after {settings.time_max_ms} ms"
                    break
                if kind in self._suspended and not (request is not None and request.overrides):
                    report.compaction_reason += "; suspended while it ran"
                    break
                self._compact_log(report, usage, gone, rows)
        self._count(kind)

    def _compact_log(
        self, report: PassReport, usage: LogUsage | LogTotals, dead: Container[int], rows: RowCounts
    ) -> None:
        way, obstacle = self._way_of(usage)
        if way is None:
            self._fates.note(usage.log_id, "left", obstacle, usage)
            return
        self._progress.log_id = usage.log_id
        try:
            copied = way(usage.log_id, dead, usage.holes, rows=rows)
        except (CorruptionError, RefusedError) as error:
            self._fates.set_aside(report, usage.log_id, error)
            return
        except NoSpaceError as error:
            self._meters.compaction_failures += 1
            self._fates.note(usage.log_id, "left", str(error), usage)
            return
        except BkctlError as error:
            self._meters.compaction_failures += 1
            if not self._is_of_log(error, usage.log_id):
                raise
            self._fates.set_aside(report, usage.log_id, error)
            return
        finally:
            self._progress.log_id = None
        self._logs.forget(usage.log_id)
        freed_bytes = max(usage.file_bytes - copied.bytes, 0)
        report.compacted_logs += 1
        report.copied_bytes += copied.bytes
        report.freed_bytes += freed_bytes
        self._meters.compacted_bytes += freed_bytes
        reason = f"{usage.usage(self._settings.log_size_bytes):.1%} live"
        self._fates.note(usage.log_id, "compacted", reason, usage, copied=copied, freed_bytes=freed_bytes)

    def _is_of_log(self, error: BkctlError, log_id: int) -> bool:
        """Return whether it is this log alone that cannot be read or removed."""
        if isinstance(error, SyncError) or not isinstance(error, StorageError):
            return False
        return error.path == self._storage.entry_logger.path(log_id)

    def _way_of(self, usage: LogUsage | LogTotals) -> tuple[_Way | None, str]:
        """Choose how to compact a log with the room there is; None, and the reason, when there is no way."""
        free_bytes = self._filesystem.disk_space(self._storage.directory).free_bytes
        if policy.fits(usage.remaining_bytes, free_bytes, self._settings):
            return self._compactor.compact, ""
        # A descriptor would keep the room of a log that goes by another way.
        self._compactor.forget_next()
        needed = usage.remaining_bytes + self._settings.free_bytes_min
        obstacle = f"needs {counted(needed, 'byte')} of disk, {free_bytes} are free"
        if not self._settings.scratch_directories:
            return None, obstacle
        scratch = self._by_scratch.roomy(usage.remaining_bytes)
        if scratch is None:
            return None, f"{obstacle}, and no other disk has room for a scratch copy"
        _log.info("%s: log %x is compacted by way of %s", self._storage.directory, usage.log_id, scratch)
        return partial(self._by_scratch.compact, scratch=scratch), ""

    def _count(self, kind: Kind) -> None:
        """Count a compaction that has come to its end, and let the interval to the next one begin."""
        kinds = tuple(Kind) if kind is Kind.MAJOR else (kind,)
        for each in kinds:
            # A major compaction has also done the work of a minor one.
            self.last_ms[each] = self._clock.time_ms()
            self._last_s[each] = self._clock.monotonic()
        if kind is Kind.MAJOR:
            self._meters.major_compactions += 1
        else:
            self._meters.minor_compactions += 1

    # --- small things ---------------------------------------------------------------------------------------

    def _kind_settings(self, kind: Kind) -> CompactionSettings:
        return self._settings.major if kind is Kind.MAJOR else self._settings.minor

    def _disk_is_scarce(self) -> bool:
        space = self._filesystem.disk_space(self._storage.directory)
        return space.free_bytes < space.total_bytes * (1 - self._scarce_usage)

    def _go_on(self) -> None:
        """Give way to adds. Raises StoppedError when the collector is to end."""
        self._pace.check()
        self._giving_way.step()

    def _pace_copy(self, entries: int, size_bytes: int) -> None:
        units = entries if self._settings.bytes_per_s is None else size_bytes
        self._pace.wait(self._copy_rate.wait_s(units, self._clock.monotonic()))
