"""One flush of a ledger directory: what is in the flushing write cache becomes durable, in this order.

1. Entries, sorted by ledger then entry, are appended to the entry logs.
2. The logs are forced.
3. Locations of ledgers that were deleted before these entries came are removed, then the entries' locations
   are written, synced.
4. Locations of ledgers deleted since are removed, and the ledger rows that changed are written, synced; this
   also when there were no entries, or fences and master keys of an idle directory would be lost.
5. Only then deletion marks are lifted and the write cache is dropped. Logs that get no more records end.

The owner of the last mark moves the mark after that. A flush that fails anywhere changes nothing for readers,
and is done again as a whole: the copies that a second attempt leaves in the logs are harmless, because the
index names one of them.

The rows of step 4 are those that had changed when its deletions were chosen: the row of a ledger that is
deleted later stays until the next flush. Were it gone before the locations are, a power cut would leave
locations of an unknown ledger, and a new ledger under the same id would serve them.

Source: ``SingleDirectoryDbLedgerStorage.checkpoint``.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections import deque
from functools import partial
from typing import NamedTuple

from bkctl.clock import Clock
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.compiled_read_cache import AnyReadCache
from bkctl.engine.cache.compiled_write_cache import CompiledWriteCache
from bkctl.engine.cache.deletion_marks import Rounds, empty
from bkctl.engine.cache.entry_table import PIECE_ENTRIES
from bkctl.engine.cache.record_batch import keys_of
from bkctl.engine.cache.write_caches import AnyWriteCache, WriteCaches
from bkctl.engine.db_storage.flush_pace import FlushPace
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.ledger_storage import StoredLocations
from bkctl.engine.storage_meters import StorageMeters
from bkctl.errors import BkctlError, StorageError, SyncError

_log = logging.getLogger(__name__)

#: Rows of the index that are written at a time.
_GROUP_ENTRIES_MAX = 4096

#: Batches of gathered records have so many times the entries of batches of objects.
_RECORD_BATCHES = 8

#: How far a flush has come when the locations of its entries are in the index.
_DONE_INDEXED = 0.95
#: A row of the index takes as long as so many bytes of a log.
_ROW_BYTES = 350


class ForceFailedError(StorageError):
    """Entries could not be made durable. It is unknown which are on disk, so nothing is tried again."""


class _Group(NamedTuple):
    """Keys, as a list or joined, and their locations, for one batch of the index: freed group by group."""

    keys: list[bytes] | bytes
    locations: array[int]

    def key_list(self) -> list[bytes]:
        return keys_of(self.keys) if isinstance(self.keys, bytes) else self.keys


class Flush:
    """Runs flushes, for one caller at a time; the engine lock is taken for moments."""

    def __init__(
        self,
        caches: WriteCaches,
        read_cache: AnyReadCache,
        *,
        lock: threading.Lock,
        entry_logger: EntryLogger,
        locations: StoredLocations,
        ledgers: LedgerIndex,
        clock: Clock,
        settings: StorageSettings,
        meters: StorageMeters,
    ) -> None:
        self._caches = caches
        self._read_cache = read_cache
        self._lock = lock
        self._entry_logger = entry_logger
        self._locations = locations
        self._ledgers = ledgers
        self._clock = clock
        self._settings = settings
        self._meters = meters
        self._aborted = threading.Event()

    def abort(self) -> None:
        """Let the flush under way, if any, end with an error before its next step."""
        self._aborted.set()

    def run(self) -> bool:
        """Flush the flushing cache, if there is one, and the ledger rows; return whether a cache became free.

        Raises ForceFailedError, which is final; any other error leaves everything to the next attempt.
        """
        started_s = self._clock.monotonic()
        cache = self._caches.flushing
        count = size_bytes = body_bytes = 0
        pace = FlushPace(self._caches, self._clock, self._aborted.wait)
        try:
            done: Rounds = ()
            if cache is not None:
                self._meters.flush.waited.add(max(started_s - self._caches.swapped_s, 0.0))
                count, size_bytes, body_bytes = cache.count, cache.size_bytes, cache.body_bytes
                done = self._flush_entries(cache, pace)
            deleted = self._flush_rows(done)
            self._retire_logs(deleted)
        except Exception as error:
            with self._lock:
                self._caches.keep_marks()
            self._meters.flush_failures += 1
            self._meters.flush.failed += count
            if isinstance(error, SyncError):
                # Any data that was to be synced may be lost; another sync would only hide that.
                raise _force_failed(error) from error
            raise
        if cache is not None:
            # Its rows are in the index, so no reader needs it any more. Its memory is given back before the
            # other half may be swapped: no third one is ever there.
            cache.clear(partial(pace.step, 1.0))
            with self._lock:
                self._caches.release()
        empty(deleted)
        self._meters.flushes += 1
        self._meters.flushed_bytes += size_bytes
        if cache is not None:
            self._meters.flush_sizes.add_size(body_bytes)
        self._meters.flush.done += count
        self._meters.flush.worked.add(self._clock.monotonic() - started_s)
        return cache is not None

    def _flush_entries(self, cache: AnyWriteCache, pace: FlushPace) -> Rounds:
        """Take steps 1 to 3 of the flush and return the marks whose locations are gone."""
        started_s = self._clock.monotonic()
        # How far it has come when the entries are in the logs.
        logged = _DONE_INDEXED * cache.body_bytes / max(cache.body_bytes + _ROW_BYTES * cache.count, 1)
        groups = self._append(cache, pace, logged)
        written_s = self._clock.monotonic()
        self._check_going_on()
        # Every entry of this flush is on disk when this returns; only then may an index row name one.
        self._entry_logger.force()
        forced_s = self._clock.monotonic()
        self._check_going_on()
        with self._lock:
            marks = self._caches.marks_before_swap()
        self._delete(marks)
        total = max(len(groups), 1)
        while groups:
            group = groups.popleft()
            self._check_going_on()
            keys = group.key_list()
            # The last group is written with a sync, which makes all groups before it durable as well. The
            # records that the rows point at are durable already, so a crash leaves no row without a record.
            self._locations.put_many(keys, group.locations, sync=not groups)
            self._read_cache.next_generation()
            for start in range(0, len(keys), PIECE_ENTRIES):
                self._read_cache.remove_many(keys[start : start + PIECE_ENTRIES])
            pace.step(_DONE_INDEXED - (_DONE_INDEXED - logged) * len(groups) / total)
        self._meters.log_write.add(written_s - started_s)
        self._meters.force.add(forced_s - written_s)
        self._meters.locations.add(self._clock.monotonic() - forced_s)
        return marks

    def _flush_rows(self, done: Rounds) -> Rounds:
        """Take steps 4 and 5 of the flush and return all marks lifted.

        ``done`` are marks whose locations are gone already.
        """
        started_s = self._clock.monotonic()
        self._check_going_on()
        with self._lock:
            # Set since the swap, or, without a flushing cache, at any time: no entry that came after such a
            # mark has been written, so everything in the index is older than it.
            late = self._caches.marks_since(done)
            self._ledgers.take()
        self._delete(late)
        # Synced: master keys, fences and explicit LACs set before this flush survive from here on.
        self._ledgers.flush(only_taken=True)
        lifted = done + late
        with self._lock:
            self._caches.marks.lift(lifted)
        self._meters.deleted_ledgers += sum(map(len, lifted))
        self._meters.ledger_rows.add(self._clock.monotonic() - started_s)
        return lifted

    def _retire_logs(self, deleted: Rounds) -> None:
        """Retire logs; one that cannot be ended properly costs this flush nothing.

        Everything is durable by now.
        """
        self._check_going_on()
        try:
            for marked in deleted or ({},):
                self._entry_logger.retire(marked.keys())
        except SyncError:
            raise
        except StorageError as error:
            _log.warning("an entry log ends without its ledgers map: %s", error)

    def _append(self, cache: AnyWriteCache, pace: FlushPace, share: float) -> deque[_Group]:
        """Take step 1 of the flush, a ``share`` of it, and return the groups, in the order of their keys."""
        if isinstance(cache, CompiledWriteCache):
            return self._append_gathered(cache, pace, share)
        settings = self._settings
        groups: deque[_Group] = deque()
        keys_grouped: list[bytes] = []
        appended = 0
        for keys, bodies in cache.sorted_batches(
            settings.flush_batch_entries_max, settings.flush_batch_bytes_max
        ):
            self._check_going_on()
            locations = self._entry_logger.append(keys, bodies)
            if not groups or len(keys_grouped) + len(keys) > _GROUP_ENTRIES_MAX:
                keys_grouped = []
                groups.append(_Group(keys_grouped, array("q")))
            keys_grouped.extend(keys)
            groups[-1].locations.extend(locations)
            appended += len(keys)
            pace.step(share * appended / cache.count)
        return groups

    def _append_gathered(self, cache: CompiledWriteCache, pace: FlushPace, share: float) -> deque[_Group]:
        """Take step 1 of the flush over records that come sorted and gathered, a group for each batch."""
        settings = self._settings
        groups: deque[_Group] = deque()
        appended = 0
        for batch in cache.record_batches(
            _RECORD_BATCHES * settings.flush_batch_entries_max, settings.flush_batch_bytes_max
        ):
            self._check_going_on()
            groups.append(_Group(batch.keys, self._entry_logger.append_batch(batch)))
            appended += batch.count
            pace.step(share * appended / cache.count)
        return groups

    def _delete(self, rounds: Rounds) -> None:
        for marked in rounds:
            self._locations.delete_ledgers(int.from_bytes(ledger, "big") for ledger in marked)
            self._read_cache.next_generation()
            self._read_cache.remove_ledgers(marked.keys())

    def _check_going_on(self) -> None:
        if self._aborted.is_set():
            raise StorageError("the flush was aborted")


def _force_failed(error: BkctlError) -> ForceFailedError:
    return ForceFailedError(f"entries could not be made durable: {error}")
