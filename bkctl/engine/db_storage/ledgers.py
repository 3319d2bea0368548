"""The ``ledgers`` database, all of it in memory: the facts known of the ledgers of a directory.

Rows are those of :mod:`bkctl.codec.ledger_data`. They are held as bytes, equal ones once (ledgers of one
application share their master key), and decoded when asked for: about 150 bytes a ledger.

Where Java loses data it is not followed: a row of 8 bytes wins over one of 16 that Java's rebuild tool left;
when such a ledger is written or deleted, its 16-byte row goes, or Java would prefer it at its next start; and
a flush never depends on whether there were entries to flush.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.LedgerMetadataIndex``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Protocol

from bkctl.codec.ledger_data import (
    FLAGS_ID,
    KEY_BYTES,
    REBUILT_KEY_BYTES,
    LedgerData,
    decode_flags,
    decode_ledger_data,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.engine.cache.entry_table import empty_in_pieces
from bkctl.engine.db_storage.batched_writes import write_in_batches
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import Delete, Operation, Put, Row, note_written
from bkctl.ledger_set import PARTS, LedgerSet, Part
from bkctl.scan.ledger_places import place_of

#: Operations in one batch of the store, which takes all of it in one call: one or two milliseconds.
OPERATIONS_MAX = 1024

#: Different rows that are looked for among those that follow; more than that are not of a few applications.
_SHARED_ROWS_MAX = 10_000

_REBUILT_SUFFIX = bytes(REBUILT_KEY_BYTES - KEY_BYTES)
_FLAGS_KEY = encode_ledger_key(FLAGS_ID)

#: A ledger's row, None when it is deleted.
_Row = bytes | None


class RowStore(Protocol):
    """The store that rows are kept in, as a :class:`~bkctl.kvstore.base.KeyValueStore` does it."""

    @property
    def path(self) -> str:
        """The path that messages name the store by."""

    @property
    def never_written(self) -> bool:
        """Whether no row was ever written to the store."""

    def batches(self) -> Iterator[list[Row]]:
        """Return all rows, in the order of their keys."""

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """Apply operations in their order; ``sync`` makes them, and all before them, durable."""

    def flush(self) -> None:
        """Write rows that are only in memory and in a log into files."""

    def compact(self) -> None:
        """Give the disk space of deleted rows back."""

    def note_synced(self) -> None:
        """Note durably that all rows written so far are synced."""

    def close(self) -> None:
        """Close the store."""


class LedgerIndex:
    """Over an open store; thread-safe.

    ``get``, ``set`` and ``delete`` work on memory alone and never wait for a flush. Rows that a power cut
    must not take are durable after :meth:`flush`. ``flags`` is the storage's bit set
    (``NEEDS_INTEGRITY_CHECK``), 0 without such a row; ``strange_keys`` counts other rows with a negative id,
    which Java skips too. ``loaded`` counts the ledgers that were found, by the position among ``directories``
    that they belong to.
    """

    def __init__(self, store: RowStore, directories: int = 1) -> None:
        """Load all rows. Raises CorruptionError when one of them is wrong, StorageError."""
        self.flags = 0
        self.strange_keys = 0
        self.loaded = [0] * directories
        self._store = store
        self._lock = threading.Lock()
        self._flushing_lock = threading.Lock()
        # In parts like those of a ledger set: none of them takes long to grow or to be listed.
        self._rows: list[dict[int, bytes]] = [{} for _ in range(PARTS)]
        self._rebuilt: set[int] = set()
        self._pending: dict[int, _Row] = {}
        # Moved on by a flush: pending, taken, being written.
        self._taken: dict[int, _Row] = {}
        self._flushing: dict[int, _Row] = {}
        self._load()

    def get(self, ledger: int) -> LedgerData | None:
        """Return the newest row of a ledger, durable or not; None when it is unknown or deleted."""
        row = self._rows[ledger % PARTS].get(ledger)
        return None if row is None else _decoded(row)

    def __contains__(self, ledger: int) -> bool:
        return ledger in self._rows[ledger % PARTS]

    def set(self, ledger: int, data: LedgerData) -> None:
        """Remember a ledger's row, durably at the next flush."""
        row = encode_ledger_data(data)
        with self._lock:
            self._rows[ledger % PARTS][ledger] = row
            self._pending[ledger] = row

    def delete(self, ledger: int) -> None:
        """Forget a ledger's row, durably at the next flush; a ledger that is unknown may be deleted too."""
        with self._lock:
            self._rows[ledger % PARTS].pop(ledger, None)
            self._pending[ledger] = None

    def take(self) -> None:
        """Take the rows that were set or deleted so far for the next :meth:`flush`. Never waits."""
        with self._lock:
            # Rows of a flush that failed may be there still; those that were set since are newer.
            self._taken = {**self._taken, **self._pending} if self._taken else self._pending
            self._pending = {}

    def flush(self, *, only_taken: bool = False) -> None:
        """Make all rows that were set or deleted before the call durable; they are when this returns.

        With ``only_taken`` those that :meth:`take` took, and none that was set since. Rows that are set
        during the call wait for the next flush. Raises StorageError or CorruptionError; then all rows are
        pending as before, and the next flush writes them again.
        """
        with self._flushing_lock:
            if not only_taken:
                self.take()
            with self._lock:
                self._flushing, self._taken = self._taken, {}
            done = not self._flushing
            try:
                if not done:
                    self._write(self._flushing)
                    done = True
            finally:
                with self._lock:
                    if not done:
                        # Rows that were taken during the write are newer.
                        self._taken = {**self._flushing, **self._taken}
                    flushed, self._flushing = self._flushing, {}
            empty_in_pieces(flushed)

    def ledgers(self) -> LedgerSet:
        """Return the ids of all ledgers; one that comes or goes during the call may be among them or not."""
        return LedgerSet.of_parts(map(self._ids, self._rows))

    def _ids(self, rows: dict[int, bytes]) -> Part:
        with self._lock:
            return dict.fromkeys(rows)

    def one_of_place(self, place: int) -> int:
        """Return the first ledger found that belongs to a directory; there is one."""
        every = (ledger for rows in self._rows for ledger in rows)
        return next(ledger for ledger in every if place_of(ledger, len(self.loaded)) == place)

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    @property
    def has_pending(self) -> bool:
        """Whether something is not known to be durable yet."""
        with self._lock:
            return bool(self._pending or self._taken or self._flushing)

    @property
    def never_written(self) -> bool:
        """Whether no row was ever written."""
        return self._store.never_written

    def note_written(self) -> None:
        """Note durably that the database was written to."""
        note_written(self._store)

    def note_synced(self) -> None:
        """Note durably that all flushed rows are synced, so that damage to them is known."""
        with self._flushing_lock:
            self._store.note_synced()

    def close(self) -> None:
        """Close the store; what was not flushed is not durable."""
        self._store.close()

    def _write(self, rows: dict[int, _Row]) -> None:
        # The write-ahead log is synced: fences, keys and explicit LACs survive from here on.
        write_in_batches(self._store, self._operations(rows), OPERATIONS_MAX)
        if self._rebuilt:
            self._rebuilt.difference_update(rows)

    def _operations(self, rows: dict[int, _Row]) -> Iterator[Operation]:
        for ledger, row in rows.items():
            key = encode_ledger_key(ledger)
            if row is None or ledger in self._rebuilt:
                yield Delete(key + _REBUILT_SUFFIX)
            yield Delete(key) if row is None else Put(key, row)

    def _load(self) -> None:
        shared: dict[bytes, bytes] = {}
        for batch in self._store.batches():
            for key, value in batch:
                if key[:1] >= b"\x80":
                    self._load_special(key, value)
                elif len(key) == KEY_BYTES or key[KEY_BYTES:] == _REBUILT_SUFFIX:
                    self._load_ledger(key, value, shared)
                else:
                    raise self._corruption("ledgers key", "8 bytes, or 16 with 8 zeros", key)

    def _load_special(self, key: bytes, value: bytes) -> None:
        if key != _FLAGS_KEY:
            self.strange_keys += 1
            return
        try:
            self.flags = decode_flags(value)
        except CorruptionError as error:
            raise error.located(self._store.path) from None

    def _load_ledger(self, key: bytes, value: bytes, shared: dict[bytes, bytes]) -> None:
        ledger = int.from_bytes(key[:KEY_BYTES], "big")
        if len(key) == REBUILT_KEY_BYTES:
            self._rebuilt.add(ledger)
            # The row of 8 bytes comes first in key order.
            if ledger in self:
                return
        row = shared.get(value)
        if row is None:
            if not _is_plain(value):
                self._check(ledger, value)
            row = value
            if len(shared) < _SHARED_ROWS_MAX:
                shared[value] = value
        self._rows[ledger % PARTS][ledger] = row
        # As ``place_of``, without a call for each of millions of rows.
        self.loaded[ledger % len(self.loaded)] += 1

    def _check(self, ledger: int, value: bytes) -> None:
        try:
            decode_ledger_data(value)
        except CorruptionError as error:
            raise CorruptionError(
                f"row of ledger {ledger}: {error.what}",
                offset=error.offset,
                expected=error.expected,
                found=error.found,
                path=self._store.path,
            ) from None

    def _corruption(self, what: str, expected: str, key: bytes) -> CorruptionError:
        return CorruptionError(
            what,
            expected=expected,
            found=key[: 2 * REBUILT_KEY_BYTES].hex() or "nothing",
            path=self._store.path,
        )


def _is_plain(value: bytes) -> bool:
    """Return whether a row has one of the two forms that nearly all have, which need no decoding.

    Fenced or not, a key of less than 128 bytes, then nothing or an explicit LAC of less than 128 bytes.
    """
    if value[:5] not in (b"\x08\x01\x10\x00\x1a", b"\x08\x01\x10\x01\x1a"):
        return False
    if len(value) < 6 or value[5] > 0x7F:
        return False
    end = 6 + value[5]
    if len(value) < end + 2:
        return len(value) == end
    return value[end] == 0x22 and value[end + 1] < 0x80 and len(value) == end + 2 + value[end + 1]


@functools.lru_cache(maxsize=4096)
def _decoded(row: bytes) -> LedgerData:
    """Decode a row.

    Equal rows have equal values; decoding one costs microseconds, finding it here a tenth of one.
    """
    return decode_ledger_data(row)
