"""A ledger storage in memory: the twin of the seam, for tests of the layers above it.

It has no files, no threads and no entry logs, so nothing of it is collected. Flushed entries are in its
:class:`MemoryDisk`, which a power cut leaves; the other entries are gone then. The storage makes no room by
itself: when it is full it asks for a checkpoint, as a storage does whose flushes are the checkpoint's.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bkctl.clock import Clock
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.cache.record_batch import entries_of
from bkctl.engine.ledger_storage import LAST_ENTRY, IndexPlace, LedgerStorage, LogKeeper, StorageLevels
from bkctl.engine.storage_meters import StorageMeters
from bkctl.engine.storage_parts import StorageParts
from bkctl.errors import BkctlError, BookieError, NoEntryError, NoSpaceError, StorageError, SyncError
from bkctl.ledger_set import LedgerSet
from bkctl.scan.directory import current

_KEY = struct.Struct(">qq")

#: The entries of ledgers, by their ids.
_Entries = dict[int, dict[int, bytes]]


@dataclass(slots=True)
class MemoryDisk:
    """The durable part of the storage. ``full`` refuses flushes for want of room, ``broken`` for good.

    ``on_flush`` is called before a flush and may raise a StorageError, with which the flush fails.
    """

    entries: _Entries = field(default_factory=dict)
    rows: dict[int, LedgerData] = field(default_factory=dict)
    full: bool = False
    broken: bool = False
    on_flush: Callable[[], None] | None = None

    def check(self) -> None:
        """Fail a flush before it begins. Raises SyncError, NoSpaceError, and what ``on_flush`` raises."""
        if self.on_flush is not None:
            self.on_flush()
        if self.broken:
            raise SyncError("entries could not be made durable")
        if self.full:
            raise NoSpaceError("no space left")

    def crash(self) -> MemoryDisk:
        """Return what a power cut leaves."""
        entries = {ledger: dict(each) for ledger, each in self.entries.items()}
        return MemoryDisk(entries, dict(self.rows))


class MemoryRows:
    """Ledger rows; those that were set or deleted since the last flush are ``pending``."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._now = dict(disk.rows)
        self._lock = threading.Lock()
        self._pending: dict[int, LedgerData | None] = {}

    def get(self, ledger: int) -> LedgerData | None:
        """Return the newest row of a ledger, None when it is unknown or deleted."""
        return self._now.get(ledger)

    def set(self, ledger: int, data: LedgerData) -> None:
        """Remember a row, durably at the next flush."""
        with self._lock:
            self._now[ledger] = self._pending[ledger] = data

    def delete(self, ledger: int) -> None:
        """Forget a row, durably at the next flush."""
        with self._lock:
            self._now.pop(ledger, None)
            self._pending[ledger] = None

    def flush(self, disk: MemoryDisk) -> None:
        """Make everything set or deleted before the call durable."""
        with self._lock:
            for ledger, row in self._pending.items():
                if row is None:
                    disk.rows.pop(ledger, None)
                else:
                    disk.rows[ledger] = row
            self._pending.clear()

    def ledgers(self) -> LedgerSet:
        """Return the ids of all ledgers."""
        with self._lock:
            return LedgerSet(self._now)

    def __contains__(self, ledger: int) -> bool:
        return ledger in self._now

    def __len__(self) -> int:
        return len(self._now)


class MemoryLedgerStorage:
    """Implements :class:`~bkctl.engine.ledger_storage.LedgerStorage` over a :class:`MemoryDisk`.

    At most ``bytes_max`` wait for a flush. A flush is one step under the engine lock: all of it is durable,
    or nothing.
    """

    def __init__(
        self,
        directory: str,
        disk: MemoryDisk,
        *,
        lock: threading.Lock,
        clock: Clock,
        bytes_max: int,
        on_failure: Callable[[BkctlError], None],
    ) -> None:
        self.directory = directory
        self.directories = (directory,)
        self.index_place = IndexPlace((directory,), directory)
        self.disk = disk
        self.ledgers = MemoryRows(disk)
        self.meters = StorageMeters(bytes_max)
        self.on_room: Callable[[], None] | None = None
        self.on_no_space: Callable[[BkctlError], None] | None = None
        self.on_space: Callable[[], None] | None = None
        self.on_checkpoint: Callable[[], None] | None = None
        self._lock = lock
        self._clock = clock
        self._bytes_max = bytes_max
        self._on_failure = on_failure
        self._flush_lock = threading.Lock()
        self._failure: BkctlError | None = None
        self._no_space = False
        self._refused = False
        self._closed = False
        self._fresh: _Entries = {}
        self._fresh_bytes = 0
        # Ledgers whose entries on the disk do not count any more.
        self._deleted: set[int] = set()

    @property
    def collected(self) -> Sequence[LogKeeper]:
        """Nothing: a flush drops the entries of deleted ledgers."""
        return ()

    def start(self) -> None:
        """Do nothing: there is nothing to open."""

    def stop(self) -> None:
        """Refuse puts and flushes from here on."""
        with self._flush_lock:
            self._closed = True

    def abort(self) -> None:
        """Refuse puts and flushes from here on: a flush has no steps between which it could end."""
        self.stop()

    def has_room(self, size_bytes: int, entries: int) -> bool:
        """Return whether a batch can be put now; when not, a checkpoint is asked for."""
        if self._failure is None and (
            not self._fresh_bytes or self._fresh_bytes + size_bytes <= self._bytes_max
        ):
            return True
        self.meters.refused_puts += entries
        self._refused = True
        if self._failure is None and self.on_checkpoint is not None:
            self.on_checkpoint()
        return False

    def put_many(
        self,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        size_bytes: int,
        ledgers: Collection[bytes] | None = None,
    ) -> None:
        """Add entries; of two with the same key the later one counts. Raises StorageError after a failure."""
        if self._failure is not None or self._closed:
            raise self._refusal()
        for key, body in zip(keys, bodies, strict=True):
            ledger, entry = _KEY.unpack(key)
            self._fresh.setdefault(ledger, {})[entry] = body
        self._fresh_bytes += size_bytes
        self.meters.puts += len(keys)
        self.meters.put_bytes += size_bytes

    def put_records(self, records: bytes, count: int, size_bytes: int, ledgers: Iterable[bytes]) -> None:
        """Add ``count`` entries that come as whole records. Raises StorageError after a failure."""
        self.put_many(*entries_of(records), size_bytes, list(ledgers))

    def delete_ledger(self, ledger: int) -> None:
        """Forget a ledger, durably with the next flush."""
        self._fresh.pop(ledger, None)
        self._deleted.add(ledger)
        self.ledgers.delete(ledger)

    def has_unflushed(self, ledger: int) -> bool:
        """Return whether entries of a ledger wait for a flush."""
        return ledger in self._fresh

    def cached(self, key: bytes) -> bytes | None:
        """Return an entry's body if no flush has taken it yet."""
        ledger, entry = _KEY.unpack(key)
        return self._fresh.get(ledger, {}).get(entry)

    def cached_records(
        self, keys: bytes, bytes_max: int, *, whole: bool = False
    ) -> tuple[bytes, Sequence[int]] | None:
        """Return None: entries are looked up one by one."""

    def read_records(self, keys: bytes, bytes_max: int) -> tuple[bytes, int] | None:
        """Return None: entries are read one by one."""

    def read(self, ledger: int, entry: int) -> bytes:
        """Return an entry's body; ``LAST_ENTRY`` is the newest one. Raises NoEntryError."""
        started_s = self._clock.monotonic()
        if entry == LAST_ENTRY:
            last = self.last_entry(ledger)
            entry = LAST_ENTRY if last is None else last
        body = self._fresh.get(ledger, {}).get(entry)
        if body is None:
            body = self._on_disk(ledger).get(entry)
        if body is None:
            self.count_reads(0, started_s, failed=1)
            what = f"ledger {ledger}, entry {entry}: no such entry here"
            raise NoEntryError(what, ledger=ledger, entry=entry)
        self.count_reads(1, started_s)
        return body

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieError]:
        """Return the bodies of many entries, or the errors that :meth:`read` would raise."""
        answers: list[bytes | BookieError] = []
        for key in keys:
            try:
                answers.append(self.read(*_KEY.unpack(key)))
            except BookieError as error:
                answers.append(error)
        return answers

    def claim_next(self, key: bytes) -> bool:
        return False

    def read_next(self, ledger: int) -> None:
        """Do nothing: everything is in memory."""

    def count_reads(self, count: int, started_s: float, *, failed: int = 0) -> None:
        """Count reads that began at ``started_s``."""
        with self.meters.lock:
            self.meters.failed_reads += failed
            if count:
                self.meters.reads.add((self._clock.monotonic() - started_s) / count, count)

    def last_entry(self, ledger: int) -> int | None:
        """Return the highest entry id of a ledger, None without entries."""
        return max(self._ids(ledger), default=None)

    def entries(self, ledger: int) -> Iterator[int]:
        """Return the ids of a ledger's entries, ascending, each once."""
        return iter(sorted(self._ids(ledger)))

    def flush(self) -> None:
        """Make everything put, set or deleted before the call durable. Raises StorageError."""
        try:
            with self._flush_lock:
                if self._failure is not None or self._closed:
                    raise self._refusal()
                try:
                    self.disk.check()
                except SyncError as error:
                    self._failure = error
                    raise
                except NoSpaceError as error:
                    self._report_space(error)
                    raise
                self._write()
                self._report_space(None)
        except SyncError as error:
            self._on_failure(error)
            raise
        if self._refused:
            self._refused = False
            if self.on_room is not None:
                self.on_room()

    def _write(self) -> None:
        with self._lock:
            for ledger in self._deleted:
                self.disk.entries.pop(ledger, None)
            # Readers look into the fresh ones first, so that an entry is never in neither.
            for ledger, entries in self._fresh.items():
                self.disk.entries.setdefault(ledger, {}).update(entries)
            self.ledgers.flush(self.disk)
            self.meters.flushes += 1
            self.meters.flushed_bytes += self._fresh_bytes
            self.meters.deleted_ledgers += len(self._deleted)
            self._deleted, self._fresh, self._fresh_bytes = set(), {}, 0

    def _report_space(self, error: NoSpaceError | None) -> None:
        """Report that a flush found no room, or that the next one has succeeded; in the turn of the flush."""
        if error is not None:
            self._no_space = True
            if self.on_no_space is not None:
                self.on_no_space(error)
        elif self._no_space:
            self._no_space = False
            if self.on_space is not None:
                self.on_space()

    def note_synced(self) -> None:
        """Note nothing: nothing could be damaged unnoticed. Raises StorageError after a failure."""
        if self._failure is not None or self._closed:
            raise self._refusal()

    def lost_parts(self) -> Mapping[str, str]:
        """Return nothing: nothing is ever lost, as no logs could have more than the index."""
        return {}

    def note_written(self) -> None:
        """Do nothing: there is no index that could be lost and then be taken for an unused one."""

    def begin_new_logs(self) -> None:
        """Do nothing: there are no logs."""

    def levels(self) -> StorageLevels:
        """Return how much waits for a flush."""
        count = sum(len(entries) for entries in list(self._fresh.values()))
        return StorageLevels(self._fresh_bytes, count, None, 0, self._bytes_max, 0, 0, 0, 0, 0)

    def entries_estimate(self) -> int:
        """Return how many entries are durable."""
        return sum(len(entries) for entries in list(self.disk.entries.values()))

    def _on_disk(self, ledger: int) -> dict[int, bytes]:
        return {} if ledger in self._deleted else self.disk.entries.get(ledger, {})

    def _ids(self, ledger: int) -> set[int]:
        """Return the ids that readers see: as in Java, those that are not negative."""
        return {entry for entry in {*self._fresh.get(ledger, ()), *self._on_disk(ledger)} if entry >= 0}

    def _refusal(self) -> StorageError:
        reason = "closed" if self._failure is None else f"failed: {self._failure}"
        return StorageError(f"{self.directory}: the storage is {reason}", path=self.directory)


class MemoryStorages:
    """The disks of a bookie's storages by their directories; opens the storages (``OpenStorages``)."""

    def __init__(self, disks: Mapping[str, MemoryDisk] | None = None) -> None:
        self.disks: dict[str, MemoryDisk] = dict(disks or {})

    def __call__(self, parts: StorageParts) -> list[LedgerStorage]:
        """Open a storage for each ledger directory, over what its disk has."""
        directories = [current(path) for path in parts.settings.ledger_directories]
        bytes_max = parts.settings.storage.write_cache_bytes_max // len(directories)
        return [
            MemoryLedgerStorage(
                directory,
                self.disks.setdefault(directory, MemoryDisk()),
                lock=parts.lock,
                clock=parts.clock,
                bytes_max=bytes_max,
                on_failure=parts.on_failure,
            )
            for directory in directories
        ]

    def crash(self) -> MemoryStorages:
        """Return what a power cut leaves."""
        return MemoryStorages({directory: disk.crash() for directory, disk in self.disks.items()})
