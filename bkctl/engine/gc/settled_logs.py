"""The settled logs of one ledger directory as the passes of its collector know them.

A settled log is one that nothing is written to any more. A pass knows of each how much of it is alive, by
its ledgers: from memory, from the rows of an earlier pass, or by reading the log. A log into whose damage the
index points is quarantined; it is read once, not copied, and goes when all of its ledgers are dead.

A log is believed to have no live ledger when its map was read in the run of the bookie that has written it.
Of other logs, whose map may have changed since or is none, the index is asked whether it has an entry there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container
from functools import partial

from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.gc.log_fates import LogFates
from bkctl.engine.gc.log_reading import LogReading, corruption_of, pointed_at, read_log, records_bytes
from bkctl.engine.gc.log_usage import LogTotals, LogUsage, LogUsages
from bkctl.engine.gc.pace import Pace
from bkctl.engine.gc.progress import Progress
from bkctl.engine.gc.reports import GcMeters, PassReport
from bkctl.engine.gc.rows_into_logs import rows_into
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import BkctlError, CorruptionError
from bkctl.kvstore.base import KeyValueStore
from bkctl.ledger_set import LedgerSet
from bkctl.reporting import counted
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)


class SettledLogs:
    """Reads how much of each settled log is alive, and removes the logs of which nothing is.

    ``rows`` is an open ``metadata-cache`` store, which becomes this object's. Used by the collector's thread;
    any thread may read ``seen``.
    """

    def __init__(
        self,
        storage: LogKeeper,
        filesystem: WritableFileSystem,
        settings: GcSettings,
        *,
        pace: Pace,
        meters: GcMeters,
        progress: Progress,
        fates: LogFates,
        rows: KeyValueStore | None,
    ) -> None:
        #: The usages that the last pass found, by the ids of the logs; the pass goes on changing them.
        self.seen: dict[int, LogUsage | LogTotals] = {}
        self._storage = storage
        self._entry_logger = storage.entry_logger
        self._filesystem = filesystem
        self._pace = pace
        self._meters = meters
        self._progress = progress
        self._fates = fates
        self._usages = LogUsages(settings.usages_pairs_max, rows)
        #: The newest log at the first pass: logs up to it may be of earlier runs.
        self._newest_older: int | None = None

    def close(self) -> None:
        """Close the store of the rows."""
        self._usages.close()

    def read(self, report: PassReport, in_logs: LedgerSet, unresolved: Container[int]) -> None:
        """Read the usage of every settled log that is not quarantined; ``in_logs`` gets the logs' ledgers.

        The ``unresolved`` logs are those of compactions that cannot be finished; they are left alone. Only
        totals are kept of a log whose ledgers do not fit into memory.
        """
        log_ids = self._storage.while_quiet(self._entry_logger.settled_log_ids)
        if self._newest_older is None:
            self._newest_older = max([*log_ids, *self._entry_logger.unflushed_log_ids], default=-1)
        self._usages.drop_others(log_ids)
        self._fates.keep_aside(log_ids)
        report.logs = len(log_ids)
        report.unflushed_logs = len(self._entry_logger.unflushed_log_ids)
        report.least_unflushed_log_id = self._entry_logger.least_unflushed_log_id
        usages: dict[int, LogUsage | LogTotals] = {}
        doubtful: dict[int, LogReading] = {}
        for done, log_id in enumerate(log_ids):
            self._progress.share = done / len(log_ids)
            self._pace.check()
            if log_id in unresolved:
                continue
            if log_id in self._fates.aside:
                # The log was read once, but not copied: it still goes when all of its ledgers are dead.
                read = self._usages.remembered(log_id)
                if read is not None:
                    usages[log_id] = read
                    in_logs.update(read.ledgers)
                continue
            self._progress.log_id = log_id
            try:
                reading = self._read_log(report, log_id)
            except BkctlError as error:
                self._fates.set_aside(report, log_id, error)
                continue
            if reading.damage:
                doubtful[log_id] = reading
            else:
                usages[log_id] = self._usages.bounded(reading.usage)
                in_logs.update(reading.usage.ledgers)
        self._progress.log_id = None
        for reading in self._judge_damage(report, doubtful):
            self._usages.put(reading.usage)
            usages[reading.usage.log_id] = self._usages.bounded(reading.usage)
            in_logs.update(reading.usage.ledgers)
        self.seen = usages

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
                self._fates.set_aside(report, log_id, corruption_of(damage))
        return harmless

    def _read_log(self, report: PassReport, log_id: int) -> LogReading:
        path = self._entry_logger.path(log_id)
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

    def remove_garbage(self, report: PassReport, dead: Collection[int]) -> None:
        """Remove the logs in which only ``dead`` ledgers have records, the largest first."""
        usages = self.seen
        if dead:
            self._drop_dead(report, dead)
        empty = self._without_rows(report, [each for each in usages.values() if each.is_empty], dead)
        for usage in sorted(empty, key=lambda each: -each.file_bytes):
            self._pace.check()
            del usages[usage.log_id]
            try:
                self._entry_logger.remove(usage.log_id)
            except BkctlError as error:
                self._meters.failed_removals += 1
                self._fates.set_aside(report, usage.log_id, error)
                continue
            self._usages.drop(usage.log_id)
            report.deleted_logs += 1
            report.freed_bytes += usage.file_bytes
            self._meters.deleted_logs += 1
            self._meters.deleted_bytes += usage.file_bytes
            self._fates.note(usage.log_id, "deleted", "no live ledger", usage, freed_bytes=usage.file_bytes)
        if report.deleted_logs:
            self._storage.while_quiet(self._entry_logger.sync_names)

    def _without_rows(
        self, report: PassReport, empty: list[LogUsage | LogTotals], dead: Collection[int]
    ) -> list[LogUsage | LogTotals]:
        """Return those of the logs that seem to have no live ledger into which no row points, either."""
        assert self._newest_older is not None, "the logs were read"
        asked = [
            usage.log_id for usage in empty if usage.log_id <= self._newest_older or usage.source != "map"
        ]
        pointed = rows_into(self._storage.locations, asked, dead, self._pace.check)
        for log_id, rows in pointed.items():
            self._read_records(report, log_id, rows, dead)
        return [usage for usage in empty if usage.log_id not in pointed]

    def _read_records(self, report: PassReport, log_id: int, rows: int, dead: Collection[int]) -> None:
        """Read the ledgers of a log from its records, after its map has left a live one out."""
        path = self._entry_logger.path(log_id)
        _log.warning(
            "%s: no live ledger in its map, and %s of the index; it is read", path, counted(rows, "row")
        )
        self._usages.drop(log_id)
        del self.seen[log_id]
        try:
            reading = read_log(self._filesystem, path, log_id, lambda _: self._pace.check(), trust_map=False)
            usage = reading.usage
            usage.drop(dead)
            if reading.damage:
                raise corruption_of(reading.damage[0])
            if usage.is_empty:
                raise CorruptionError(
                    "entry log",
                    expected=f"records for {counted(rows, 'row')} of the index",
                    found="none",
                    path=path,
                )
        except BkctlError as error:
            self._fates.set_aside(report, log_id, error)
            return
        self._usages.put(usage)
        self.seen[log_id] = self._usages.bounded(usage)

    def _drop_dead(self, report: PassReport, dead: Collection[int]) -> None:
        """Drop the dead ledgers from the usages; read a log again of which only totals are known."""
        usages = self.seen
        for log_id, known in list(usages.items()):
            self._pace.check()
            try:
                usage = known if isinstance(known, LogUsage) else self._read_log(report, log_id).usage
            except BkctlError as error:
                del usages[log_id]
                self._fates.set_aside(report, log_id, error)
                continue
            if usage.drop(dead):
                self._usages.put(usage)
            usages[log_id] = self._usages.bounded(usage)

    def forget(self, log_id: int) -> None:
        """Forget a log that was compacted, and is no more."""
        del self.seen[log_id]
        self._usages.drop(log_id)

    def count(self) -> None:
        """Set the gauges of the logs that are left."""
        self._meters.active_logs = len(self.seen)
        self._meters.active_log_bytes = sum(usage.file_bytes for usage in self.seen.values())
