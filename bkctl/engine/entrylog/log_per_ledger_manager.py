"""Each ledger's entries go to logs of its own, so that a deleted ledger's logs go without any copying.

A bounded number of logs is *current*, each of one ledger; which one is known in memory alone, and a restart
begins new ones. A log ends, with its ledgers map, when it is full, when another ledger needs its place (the
one that was written longest ago goes), when its ledger was not written for a while, and when its ledger was
deleted. Ended and current logs are made durable by the same force, several at a time.

Beginning a log costs a file; its id is written to ``lastId`` once for all logs of a flush, before an index
row can name one of them.

Source: ``org.apache.bookkeeper.bookie.EntryLogManagerForEntryLogPerLedger``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import groupby

from bkctl.clock import Clock
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.entrylog.entry_log_manager import EntryLogManager
from bkctl.engine.entrylog.log_allocator import LogAllocator
from bkctl.engine.entrylog.log_writer import LogWriter
from bkctl.engine.entrylog.open_logs import OpenLogs
from bkctl.engine.work_threads import WorkThreads
from bkctl.vfs.base import WritableFileSystem

_LEDGER_BYTES = 8


class _LedgerLog:
    """A current log and when it was last written, seconds of the clock."""

    __slots__ = ("log", "written_s")

    def __init__(self, log: LogWriter, written_s: float) -> None:
        self.log = log
        self.written_s = written_s


class LogPerLedgerManager(EntryLogManager):
    """Implements :class:`EntryLogManager`.

    At most ``active_logs_max`` logs are current, and as many wait, complete, for the next force; when there
    would be more, those that wait are made durable at once. Each of both kinds has a file open.
    """

    def __init__(
        self,
        allocator: LogAllocator,
        open_logs: OpenLogs,
        directory: str,
        filesystem: WritableFileSystem,
        settings: EntryLogSettings,
        clock: Clock,
    ) -> None:
        super().__init__(allocator, open_logs, directory, filesystem, settings)
        self._clock = clock
        self._idle_s = settings.active_idle_ms / 1000
        # The current log of each ledger, whose id is the first bytes of a key; least recently written first.
        self._current: OrderedDict[bytes, _LedgerLog] = OrderedDict()
        # Ledgers whose current log was written since the last force.
        self._written: set[bytes] = set()
        # Ended and synced before the force, to bound the open files.
        self._synced_early: set[int] = set()
        self._threads = WorkThreads("entry-log-force", settings.force_threads)

    @property
    def current_log_ids(self) -> tuple[int, ...]:
        return tuple(each.log.log_id for each in list(self._current.values()))

    @property
    def current_log_bytes(self) -> int:
        return sum(each.log.position for each in list(self._current.values()))

    def append(self, keys: Sequence[bytes], bodies: Sequence[bytes], sizes: Sequence[int]) -> list[int]:
        locations: list[int] = []
        start = 0
        for ledger, run in groupby(keys, key=_ledger_of):
            stop = start + sum(1 for _ in run)
            self._append_run(ledger, keys[start:stop], bodies[start:stop], sizes[start:stop], locations)
            start = stop
        return locations

    def force(self) -> None:
        if self._begun:
            # Before an index row may name them; and first, because a full disk refuses it.
            self._allocator.note()
        current = [each.log for ledger in self._written if (each := self._current.get(ledger)) is not None]
        self._threads.do_all(LogWriter.sync, [*self._rolled, *current])
        self._sync_names()
        self._settle([*(log.log_id for log in self._rolled), *self._synced_early])
        self._rolled.clear()
        self._synced_early.clear()
        self._written.clear()
        self._begun.clear()

    def void(self) -> None:
        self._void_rolled()
        for log_id in self._synced_early:
            # Of those that were not begun since the last force, every record is durable.
            self._abandon(log_id)
        self._synced_early.clear()
        for ledger in self._written:
            torn = self._current.pop(ledger, None)
            if torn is not None:
                self._abandon(torn.log.log_id)
        self._written.clear()
        self._unflushed.intersection_update([*(log.log_id for log in self._rolled), *self.current_log_ids])
        self._begun.clear()

    def roll(self) -> None:
        for ledger in list(self._current):
            self._end_log_of(ledger)

    def retire(self, ledgers: Collection[bytes]) -> bool:
        for ledger in ledgers:
            if ledger in self._current:
                self._end_log_of(ledger)
        idle_since_s = self._clock.monotonic() - self._idle_s
        for ledger, each in list(self._current.items()):
            if each.written_s > idle_since_s:
                break
            self._end_log_of(ledger)
            self.meters.logs_evicted += 1
        return bool(self._rolled)

    def close(self) -> None:
        self._current.clear()
        self._rolled = []
        self._threads.close()

    def _append_run(
        self,
        ledger: bytes,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        sizes: Sequence[int],
        locations: list[int],
    ) -> None:
        now_s = self._clock.monotonic()
        while sizes:
            current = self._current.get(ledger) or self._begin_for(ledger)
            # A failure may come behind any part of the write.
            self._written.add(ledger)
            count = self._write(current.log, keys, bodies, sizes, locations)
            if count == 0:
                self._end_log_of(ledger)
                continue
            current.written_s = now_s
            self._current.move_to_end(ledger)
            keys, bodies, sizes = keys[count:], bodies[count:], sizes[count:]

    def _begin_for(self, ledger: bytes) -> _LedgerLog:
        while len(self._current) >= self._settings.active_logs_max:
            self._end_log_of(next(iter(self._current)))
            self.meters.logs_evicted += 1

        def began(log: LogWriter) -> None:
            self._current[ledger] = _LedgerLog(log, self._clock.monotonic())
            self._written.add(ledger)

        self._begin(self._allocator.new_id_of_many, began)
        return self._current[ledger]

    def _end_log_of(self, ledger: bytes) -> None:
        if len(self._rolled) >= self._settings.active_logs_max:
            self._sync_rolled()
        # A map that cannot be written whole leaves a log that is not to be gone on with.
        self._written.add(ledger)
        self._end(self._current[ledger].log)
        del self._current[ledger]
        self._written.discard(ledger)

    def _sync_rolled(self) -> None:
        """Make ended logs durable and close them before the force, which has nothing to do for them then."""
        self._threads.do_all(LogWriter.sync, self._rolled)
        for log in self._rolled:
            self._synced_early.add(log.log_id)
            self._open_logs.drop(log.log_id)
        self._rolled.clear()


def _ledger_of(key: bytes) -> bytes:
    return key[:_LEDGER_BYTES]
