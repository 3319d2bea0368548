"""The seam of ledger storage: what a bookie's engine needs of the place where entries go to stay.

::

    write stage   has_room, put_many, put_records  under the engine lock, memory only; on_room: room again
    read stage    cached, claim_next, read_next, read, read_many, last_entry, entries
    ledger table  ledgers (rows: master key, fence, explicit LAC, limbo), delete_ledger
    checkpoint    flush, note_synced; on_checkpoint asks for one before its time
    replay        has_room, put_many, flush, ledgers, note_written, lost_parts
    collectors    collected, for each directory: entry logs, locations, while_quiet, is_lost
    disks         on_no_space, on_space, begin_new_logs
    metrics       meters, levels, entries_estimate

Each storage has an index of its own. DbLedgerStorage has one for each ledger directory. Where the log
ids are those of all ledger directories, there is one storage with several ``directories``. The engine gives a
ledger to the storage at its id modulo the number of storages.

Calls are by the batch. The seam between the engine and a storage costs nothing: the methods of an
implementation are called directly, and no method is called for a single entry of a run.

Implementations are :mod:`bkctl.engine.db_storage` and the twin, :mod:`bkctl.engine.memory_ledger_storage`;
``tests/contract/test_ledger_storage.py`` runs over both. ``engine.storages`` chooses by the configuration.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.storage_meters import StorageMeters
from bkctl.errors import BkctlError, BookieError
from bkctl.ledger_set import LedgerSet
from bkctl.storage_kinds import DEFAULT, StorageKind

_Result = TypeVar("_Result")

#: Entry id that asks for the newest entry.
LAST_ENTRY = -1

#: Size, in a column of sizes, of an entry that is not there.
ABSENT_SIZE = -1


class IndexPlace(NamedTuple):
    """The directories of entry logs and the one of their index: the ``current`` of each.

    ``others`` are further directories of the same index, which has files in any of them.
    """

    logs: tuple[str, ...]
    databases: str
    kind: StorageKind = DEFAULT
    others: tuple[str, ...] = ()


class StorageLevels(NamedTuple):
    """How full the parts of a storage are. ``flushing_bytes`` is None while nothing is being flushed."""

    active_bytes: int
    active_entries: int
    flushing_bytes: int | None
    flushing_entries: int
    half_bytes_max: int
    read_cache_bytes: int
    read_cache_entries: int
    read_cache_bytes_max: int
    current_logs: int
    current_log_bytes: int

    @property
    def write_cache_bytes(self) -> int:
        """Bytes of the entries that are not in the index yet."""
        return self.active_bytes + (self.flushing_bytes or 0)

    @property
    def write_cache_entries(self) -> int:
        """Entries that are not in the index yet."""
        return self.active_entries + self.flushing_entries


class LedgerRows(Protocol):
    """The rows that a storage has of its ledgers.

    Every call is memory only; a flush makes what was set durable.
    """

    def get(self, ledger: int) -> LedgerData | None:
        """Return the newest row of a ledger, durable or not; None when it is unknown or deleted."""

    def set(self, ledger: int, data: LedgerData) -> None:
        """Remember a row, durably at the next flush, also when there is no entry to flush."""

    def ledgers(self) -> LedgerSet:
        """Return the ids of all ledgers; one that comes or goes during the call may be among them or not."""

    def __contains__(self, ledger: int) -> bool: ...

    def __len__(self) -> int: ...


class EntryLocations(Protocol):
    """The locations of entries in the entry logs, as a collector needs them; 0 counts as no location.

    Every method raises StorageError when the index fails and CorruptionError when what it holds is wrong;
    neither is ever answered as "absent".
    """

    @property
    def changes(self) -> int:
        """A number that is another one whenever something was put or deleted, done or failed.

        Answers that were found after a read of this number hold as long as it is the same and nothing is
        being put or deleted, but for the entries that the collector itself has moved since.
        """

    def get_many(self, keys: Sequence[bytes]) -> list[int | None]:
        """Return the location of every entry, in the order of ``keys``."""

    def places(self, keys: Sequence[bytes]) -> array[int]:
        """Return what :meth:`get_many` does as a column, ``ABSENT`` for an entry without a location."""

    def put_many(self, keys: Sequence[bytes], locations: Sequence[int], *, sync: bool = True) -> None:
        """Set the locations of ``keys``, durably when ``sync`` is true: their records were forced before."""

    def move_many(self, keys: Sequence[bytes], locations: Sequence[int]) -> None:
        """Set the locations of entries that the collector has copied; the copies were forced before.

        It does not count as a change, and is durable with the next :meth:`sync`.
        """

    def sync(self) -> None:
        """Make everything durable that was put or moved before the call."""

    def last_entry(self, ledger: int) -> int | None:
        """Return the largest entry id of a ledger, None when it has no entries."""

    def batches(self) -> Iterator[tuple[list[bytes], Sequence[int]]]:
        """Return the keys and locations of all entries, some thousands at a time."""


class StoredLocations(EntryLocations, Protocol):
    """The locations as their storage needs them, too. One thread at a time puts and deletes."""

    @property
    def never_written(self) -> bool:
        """Whether nothing was ever put."""

    def entries(self, ledger: int) -> Iterator[int]:
        """Return the ids of a ledger's entries, ascending; those that are not negative."""

    def delete_ledgers(self, ledgers: Iterable[int]) -> None:
        """Remove all locations of the ledgers, durably."""

    def count_estimate(self) -> int:
        """Return about how many locations there are."""

    def note_written(self) -> None:
        """Note durably that the index was written to."""

    def note_synced(self) -> None:
        """Note durably that all locations are synced, so that damage to them is known."""

    def close(self) -> None:
        """Close the locations; rows that were not synced are not durable."""


class LogKeeper(Protocol):
    """The entry logs of one ledger directory, and the index that points into them, for a collector.

    The keepers of a storage over several directories have the index in common.
    """

    @property
    def directory(self) -> str:
        """The ``current`` directory of the logs."""

    @property
    def index_place(self) -> IndexPlace:
        """The place of the index."""

    @property
    def entry_logger(self) -> EntryLogger:
        """The entry logs of the directory."""

    @property
    def locations(self) -> EntryLocations:
        """The locations of the entries, also those in other directories."""

    @property
    def ledgers(self) -> LedgerRows:
        """The rows of its ledgers."""

    def flush(self) -> None:
        """Make everything put, set or deleted before the call durable; see :class:`LedgerStorage`."""

    def note_synced(self) -> None:
        """Note durably what of the index is synced; see :class:`LedgerStorage`."""

    def while_quiet(self, work: Callable[[], _Result]) -> _Result:
        """Call ``work`` and return its result; no flush runs, so the logs' ends and the index stand still.

        ``work`` may append to the entry logs if it forces them before it returns, and write the index. A sync
        that fails in it stops the storage. Raises what ``work`` raises, and StorageError when the storage is
        closed or has failed.
        """

    def is_lost(self, key: bytes) -> bool:
        """Return whether the index lacks an entry that it ought to have, after it was asked for the entry.

        The ledger is here then, and no flush is going to write the entry's row. From any thread. Raises
        StorageError, CorruptionError.
        """


class LedgerStorage(Protocol):
    """Entries and ledger rows of one or more ledger directories.

    An entry or row that is put, set or deleted is durable once a :meth:`flush` that began later has returned;
    until then the journal has it. A failure is final when entries could not be made durable: ``on_failure``,
    given to the constructor, is called once, and puts and flushes are refused from then on. Reads go on.

    The engine sets these: ``on_room`` is called when a put that was refused may be tried again;
    ``on_no_space`` when a flush found a disk full, and ``on_space`` when the next one has succeeded;
    ``on_checkpoint`` when the storage wants a checkpoint before its time. A storage that makes room by
    itself never calls the last one. They are called without locks, but for ``on_no_space`` and ``on_space``:
    no other flush of the storage ends before these have returned, so that the last one that is called is what
    the last flush has found. They must not flush.
    """

    meters: StorageMeters
    on_room: Callable[[], None] | None
    on_no_space: Callable[[BkctlError], None] | None
    on_space: Callable[[], None] | None
    on_checkpoint: Callable[[], None] | None

    @property
    def directory(self) -> str:
        """The ``current`` directory that messages and metrics name the storage by."""

    @property
    def directories(self) -> Sequence[str]:
        """The ``current`` directories of all its entry logs."""

    @property
    def index_place(self) -> IndexPlace:
        """The place of the storage's logs and its index."""

    @property
    def ledgers(self) -> LedgerRows:
        """The rows of its ledgers."""

    @property
    def collected(self) -> Sequence[LogKeeper]:
        """The keepers that collectors work on, one for each of the ``directories``.

        It is empty for a storage that gives back by itself what nobody needs.
        """

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take entries. Raises StorageError, NotFoundError."""

    def stop(self) -> None:
        """Close everything after a flush that is under way, and flush nothing; a second call does nothing."""

    def abort(self) -> None:
        """Close everything as a kill does: a flush under way ends between two of its steps. For tests."""

    # --- puts: under the engine lock ------------------------------------------------------------------------

    def has_room(self, size_bytes: int, entries: int) -> bool:
        """Return whether a batch (the sum of its bodies' lengths, their number) can be put now.

        False means that room is being made, or that the storage has failed. A batch larger than all there is
        is taken by an empty storage. Under the engine lock; memory only.
        """

    def put_many(
        self,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        size_bytes: int,
        ledgers: Collection[bytes] | None = None,
    ) -> None:
        """Add entries; of two with the same key the later one counts.

        ``size_bytes`` is the sum of the bodies' lengths, ``ledgers`` the keys' (ids as 8 bytes), each once,
        for a caller who knows them anyway. Under the engine lock after :meth:`has_room`; memory only. Raises
        StorageError after a failure.
        """

    def put_records(self, records: bytes, count: int, size_bytes: int, ledgers: Iterable[bytes]) -> None:
        """Add ``count`` entries that come as whole records (``i32 size, body``), as :meth:`put_many` does."""

    def delete_ledger(self, ledger: int) -> None:
        """Forget a ledger: no reader finds anything of it from here on.

        Durable with the next flush. Entries put later under the same id are those of a new ledger. Under the
        engine lock; memory only.
        """

    def has_unflushed(self, ledger: int) -> bool:
        """Return whether entries of a ledger wait for a flush. Under the engine lock; memory only."""

    # --- reads: any thread ----------------------------------------------------------------------------------

    def cached(self, key: bytes) -> bytes | None:
        """Return an entry's body if memory has it."""

    def cached_records(
        self, keys: bytes, bytes_max: int, *, whole: bool = False
    ) -> tuple[bytes, Sequence[int]] | None:
        """Return the entries of ``keys``, which are joined, that :meth:`cached` would give: their records
        (``i32 size, body``), and the sizes of the bodies, ``ABSENT_SIZE`` of those that memory does not have.

        They end behind the entry that brings the bodies to ``bytes_max``, and without ``whole`` before the
        first one that is not there. None says that the keys are to be looked up one by one. Memory only.
        """

    def read(self, ledger: int, entry: int) -> bytes:
        """Return an entry's body; ``LAST_ENTRY`` is the newest one of the ledger.

        Raises NoEntryError when it is not here, BookieIOError when index or log cannot be read. Whether the
        ledger is known is for the caller to say.
        """

    def read_records(self, keys: bytes, bytes_max: int) -> tuple[bytes, int] | None:
        """Return entries as records (``i32 size, body``), and their number; the ``keys`` are joined.

        The records end before the first entry that cannot be read with the others, and behind the one that
        brings what caches have of them to ``bytes_max``. None says that :meth:`read_many` is to be called. It
        also reads what is left, and says what is wrong with it.
        """

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieError]:
        """Return the bodies of many entries, or the errors that :meth:`read` would raise."""

    def claim_next(self, key: bytes) -> bool:
        """Return whether the caller that got this entry from a cache is to call :meth:`read_next`.

        Memory only.
        """

    def read_next(self, ledger: int) -> None:
        """Read entries of a ledger ahead of a client that reads it in order; failures are not reported."""

    def count_reads(self, count: int, started_s: float, *, failed: int = 0) -> None:
        """Count reads that began at ``started_s``; callers of :meth:`cached` have to count theirs here."""

    def last_entry(self, ledger: int) -> int | None:
        """Return the highest entry id of a ledger, None without entries. Raises BookieIOError."""

    def entries(self, ledger: int) -> Iterator[int]:
        """Return the ids of a ledger's entries, ascending, each once; the iteration raises BookieIOError."""

    # --- durability -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything put, set or deleted before the call durable.

        Waits for a flush that is under way. Raises StorageError or CorruptionError; then nothing is lost.
        """

    def note_synced(self) -> None:
        """Note durably what of the index is synced: in front of the last mark, or of the end of a log.

        From then on the journal, or the log, is given up from which the rows could come again; so damage to
        them must be known as such. Raises StorageError; a sync that fails stops the storage.
        """

    def lost_parts(self) -> Mapping[str, str]:
        """Return the parts of the index that nothing was ever written to, each with "empty".

        Where logs hold records that no journal holds, such a part was lost (``lost_index``).
        """

    def note_written(self) -> None:
        """Make the index durably one that was written to, before the first record of its logs.

        Raises StorageError.
        """

    # --- what others ask ------------------------------------------------------------------------------------

    def begin_new_logs(self) -> None:
        """Let the current logs end soon: because their disk is full, or before a stop. Each gets its map."""

    def levels(self) -> StorageLevels:
        """Return how full the parts of the storage are. From any thread; memory only."""

    def entries_estimate(self) -> int:
        """Return about how many entries the index has. Raises BkctlError when it fails."""
