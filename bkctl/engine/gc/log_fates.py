"""The fates of logs: the results of the last ones that a collector dealt with, and the logs in quarantine."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection

from bkctl.clock import Clock
from bkctl.engine.gc.copying import Copied
from bkctl.engine.gc.log_usage import LogTotals, LogUsage
from bkctl.engine.gc.pace import StoppedError
from bkctl.engine.gc.reports import LogResult, PassReport
from bkctl.errors import BkctlError, CorruptionError

_log = logging.getLogger(__name__)


class LogFates:
    """Written by the collector's thread, read by any.

    ``aside`` has the logs in quarantine, each with the damage that brought it there; ``results`` the newest
    results, at most ``results_max`` of them.
    """

    def __init__(self, directory: str, clock: Clock, results_max: int) -> None:
        self.aside: dict[int, str] = {}
        self.results: deque[LogResult] = deque(maxlen=results_max)
        self._directory = directory
        self._clock = clock

    def set_aside(self, report: PassReport, log_id: int, error: BkctlError) -> None:
        """Quarantine a log: it stays as it is, and the pass goes on with the others."""
        if isinstance(error, StoppedError):
            raise error
        report.set_aside_logs += 1
        if isinstance(error, CorruptionError):
            self.aside[log_id] = str(error)
        _log.error("%s: log %x is set aside: %s", self._directory, log_id, error)
        self.note(log_id, "set_aside", str(error))

    def keep_aside(self, log_ids: Collection[int]) -> None:
        """Forget the quarantine of all logs but these, which are those that there are."""
        self.aside = {log_id: self.aside[log_id] for log_id in log_ids if log_id in self.aside}

    def note(
        self,
        log_id: int,
        action: str,
        reason: str,
        usage: LogUsage | LogTotals | None = None,
        *,
        copied: Copied | None = None,
        freed_bytes: int = 0,
    ) -> None:
        """Note what was done with a log, and log it."""
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
        self.results.append(result)
        _log.info(
            "%s: log %x %s (%s): %d bytes, %d copied, %d freed",
            self._directory,
            log_id,
            action,
            reason,
            result.file_bytes,
            result.copied_bytes,
            freed_bytes,
        )
