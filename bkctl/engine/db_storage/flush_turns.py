"""The turns of flushes, and of whatever needs logs and index to stand still: one at a time.

The DbStorage flush thread flushes a write cache that was full, and again after ``retry_ms`` what any flush
has failed at; a checkpoint flushes everything. A flush that could not force an entry log, or a bug in the
thread, is final: it is reported once, and no turn is given any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from bkctl.clock import Clock
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.cache.write_caches import WriteCaches
from bkctl.engine.db_storage.flush import Flush, ForceFailedError
from bkctl.engine.engine_thread import EngineThread
from bkctl.engine.storage_meters import StorageMeters
from bkctl.errors import BkctlError, NoSpaceError, StorageError, SyncError

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class FlushTurns:
    """Gives turns to flushes. ``lock`` is the engine lock.

    ``on_failure`` gets the failure that is final, once, and ``on_room`` is called when a write cache has
    become free; both are called without locks. ``on_no_space`` is called when a flush found the disk full,
    ``on_space`` when the next one has succeeded, both within the turn of the flush: so the one that is called
    last says what the last flush has found. They must not flush.
    """

    def __init__(
        self,
        directory: str,
        flush: Flush,
        caches: WriteCaches,
        *,
        lock: threading.Lock,
        clock: Clock,
        settings: StorageSettings,
        meters: StorageMeters,
        on_failure: Callable[[BkctlError], None],
        on_room: Callable[[], None],
        on_no_space: Callable[[NoSpaceError], None],
        on_space: Callable[[], None],
    ) -> None:
        #: The failure that is final: nothing can be flushed any more.
        self.failure: BkctlError | None = None
        self._directory = directory
        self._flush = flush
        self._caches = caches
        self._lock = lock
        self._clock = clock
        self._settings = settings
        self._meters = meters
        self._on_failure = on_failure
        self._on_room = on_room
        self._on_no_space = on_no_space
        self._on_space = on_space
        self._no_space = False
        self._closed = False
        # Taken before the engine lock, never under it.
        self._flush_lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = EngineThread("DbStorage flush thread", self._run, self._broken)

    def start(self) -> None:
        """Start the flush thread. Raises StorageError."""
        self._thread.start()

    def stop(self, close: Callable[[], None]) -> None:
        """End the flush thread after the flush that it is in, then call ``close``, during which none runs.

        A second call does nothing.
        """
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        with self._flush_lock:
            if not self._closed:
                self._closed = True
                close()

    def refusal(self) -> StorageError:
        """Return the error of a call that comes after the failure, or after the end."""
        reason = "closed" if self.failure is None else f"failed: {self.failure}"
        return StorageError(f"{self._directory}: the storage is {reason}", path=self._directory)

    def swap(self) -> bool:
        """Swap the write caches if the other one is free; return whether it was. Under the engine lock."""
        size_bytes = self._caches.active.size_bytes
        swapped = self._caches.swap(self._clock.monotonic())
        if swapped:
            self._meters.flush.length = size_bytes
        return swapped

    def begin(self) -> None:
        """Let the flush thread flush the cache that was swapped."""
        self._wake.set()

    def flush(self) -> None:
        """Flush all that was put, set or deleted before the call. Raises as ``LedgerStorage.flush``."""
        if self._caches.flushing is not None:
            # That cache was full, or its flush has failed. The room that it makes is reported before the
            # active cache is flushed, which may take as long again, or fail.
            self._guarded(self._flush_full)
        self._guarded(self._flush_rest)

    def while_quiet(self, work: Callable[[], _Result]) -> _Result:
        """Call ``work``, during which no flush runs, and return its result.

        A sync that fails in it is final. Raises what ``work`` raises, and StorageError after a failure or the
        end.
        """
        try:
            with self._flush_lock:
                if self.failure is not None or self._closed:
                    raise self.refusal()
                try:
                    return work()
                except SyncError as error:
                    self.failure = error
                    raise
        except SyncError as error:
            self._on_failure(error)
            raise

    def _flush_full(self) -> bool:
        # After a full disk also the ledger rows alone: whether there is room again is to be seen.
        return (self._caches.flushing is not None or self._no_space) and self._flush.run()

    def _flush_rest(self) -> bool:
        with self._lock:
            # A thread that has swapped the caches before has swapped the cache that this flush is for.
            if self._caches.active.count:
                self.swap()
        return self._flush.run()

    def _guarded(self, flush: Callable[[], bool]) -> None:
        """Run a flush while no other one runs, then report its failure or the room that it made."""
        try:
            freed = self._in_turn(flush)
        except ForceFailedError as error:
            self._on_failure(error)
            raise
        except Exception:
            # The flush thread takes it from here, whatever it was: adds may wait for this cache to be free,
            # and the caller comes again in an interval of its own.
            self._wake.set()
            raise
        if freed:
            self._on_room()

    def _in_turn(self, flush: Callable[[], bool]) -> bool:
        with self._flush_lock:
            if self.failure is not None or self._closed:
                raise self.refusal()
            try:
                freed = flush()
                self._report_space(None)
            except ForceFailedError as error:
                self.failure = error
                raise
            except NoSpaceError as error:
                self._report_space(error)
                raise
            finally:
                flushing = self._caches.flushing
                self._meters.flush.length = 0 if flushing is None else flushing.size_bytes
            return freed

    def _report_space(self, error: NoSpaceError | None) -> None:
        """Report that a flush found no room, or that the next one has succeeded; in the turn of the flush."""
        if error is not None:
            self._no_space = True
            self._on_no_space(error)
        elif self._no_space:
            self._no_space = False
            self._on_space()

    def _run(self) -> None:
        """Run the flush thread."""
        while True:
            self._wake.wait()
            # Before the question, or a stop between the two would be cleared away.
            self._wake.clear()
            if self._stopping.is_set() or self.failure is not None:
                return
            try:
                self._guarded(self._flush_full)
            except ForceFailedError:
                return
            except BkctlError as error:
                _log.error("%s: flush failed, will be tried again: %s", self._directory, error)
                self._stopping.wait(self._settings.retry_ms / 1000)
                self._wake.set()

    def _broken(self, error: BkctlError) -> None:
        """End the storage for an error that ended the thread: nothing would be flushed any more."""
        self.failure = StorageError(f"{self._directory}: {error}", path=self._directory)
        self._on_failure(self.failure)
