"""The ``locations`` database, read and written: the places of a ledger directory's entries.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.EntryLocationIndex``; rows are those of
:mod:`bkctl.codec.location`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence

from bkctl import _kernels
from bkctl.codec.ledger_data import encode_ledger_key
from bkctl.codec.location import ABSENT, ID_MAX, KEY_BYTES, VALUE_BYTES, encode_key
from bkctl.engine.db_storage.batched_writes import write_in_batches
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import DeleteRange, KeyValueStore, Puts, note_written
from bkctl.reporting import counted

#: Operations in one batch of the store, which takes all of it in one call: one or two milliseconds.
OPERATIONS_MAX = 1024

_NO_ROW = bytes(VALUE_BYTES)
_ENTRY_IDS = slice(KEY_BYTES // 2, None)
_SWAP = sys.byteorder == "little"


class EntryLocationIndex:
    """Over an open store; thread-safe as far as the store is. A location of 0 counts as no row.

    Every method raises StorageError when the store fails and CorruptionError when what it holds is wrong;
    neither is ever answered as "absent".
    """

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        #: Grows behind every put and every deletion, not behind a move.
        self.changes = 0

    def put_many(self, keys: Sequence[bytes], locations: Sequence[int], *, sync: bool = True) -> None:
        """Set the locations of ``keys``, durably: the entry logs they point into were forced before.

        Without ``sync`` they are durable with the next call that has it. In batches of at most
        ``OPERATIONS_MAX``, of which a failure may leave some in the store.
        """
        try:
            self._put(keys, locations, sync=sync)
        finally:
            self.changes += 1

    def move_many(self, keys: Sequence[bytes], locations: Sequence[int]) -> None:
        """Set the locations of entries that were copied; this counts as no change, and :meth:`sync` ends it.

        The logs with the copies were forced before. Until the sync a crash may leave either location.
        """
        self._put(keys, locations, sync=False)

    def sync(self) -> None:
        """Make everything durable that was put or moved before the call."""
        self._store.write((), sync=True)

    def _put(self, keys: Sequence[bytes], locations: Sequence[int], *, sync: bool) -> None:
        if len(keys) != len(locations):
            raise ValueError(f"{len(keys)} keys for {len(locations)} locations")
        for first in range(0, len(keys), OPERATIONS_MAX):
            stop = first + OPERATIONS_MAX
            # The last one's sync makes the others durable: they stand before it in the write-ahead log.
            last = sync and stop >= len(keys)
            self._store.write(Puts(keys[first:stop], _encoded(locations[first:stop])), sync=last)

    def count_estimate(self) -> int:
        """Return about how many rows there are, as the store estimates it."""
        return self._store.count_estimate()

    def get(self, key: bytes) -> int | None:
        """Return the entry's location, None when there is no such entry."""
        value = self._store.get(key)
        return None if value is None else self._decoded(key, value)

    def get_many(self, keys: Sequence[bytes]) -> list[int | None]:
        """Return each entry's location, in the order of ``keys``; other threads run during the call."""
        return [location or None for location in self.places(keys)]

    def places(self, keys: Sequence[bytes]) -> array[int]:
        """Return the locations of entries as a column, ``ABSENT`` where there is none."""
        values = [_NO_ROW if value is None else value for value in self._store.get_many(keys)]
        return self._column(keys, values)

    def last_entry(self, ledger: int) -> int | None:
        """Return the largest entry id of a ledger, None when it has no entries.

        As in Java neither an entry 2^63-1 nor one with a negative id is ever seen.
        """
        row = self._store.below(encode_key(ledger, ID_MAX), start=encode_key(ledger, 0))
        if row is None:
            return None
        (entry,) = self._entry_ids([row[0]])
        return entry

    def entries(self, ledger: int) -> Iterator[int]:
        """Return the ids of a ledger's entries, ascending; those that are not negative."""
        first, last = encode_key(ledger, 0), encode_key(ledger, ID_MAX)
        for rows in self._store.batches(first, last + b"\0"):
            yield from self._entry_ids([key for key, _ in rows])

    def batches(self) -> Iterator[tuple[list[bytes], Sequence[int]]]:
        """Yield keys and locations of all rows, in the order of the keys, some thousands at a time.

        ``ABSENT`` is a row that Java takes for none. Raises CorruptionError for a value that is no location.
        """
        for rows in self._store.batches():
            keys = [key for key, _ in rows]
            yield keys, self._column(keys, [value for _, value in rows])

    def delete_ledgers(self, ledgers: Iterable[int]) -> None:
        """Remove every row of the ledgers, durably.

        That includes entry 2^63-1 and negative entry ids, which Java's range leaves behind for ever.
        """
        # Behind the last entry id of a ledger come its negative ones, up to the next ledger's first key.
        ranges = (DeleteRange(encode_ledger_key(each), (each + 1).to_bytes(8, "big")) for each in ledgers)
        try:
            write_in_batches(self._store, ranges, OPERATIONS_MAX)
        finally:
            self.changes += 1

    @property
    def never_written(self) -> bool:
        """Whether no row was ever written."""
        return self._store.never_written

    def note_written(self) -> None:
        """Note durably that the index was written to."""
        note_written(self._store)

    def note_synced(self) -> None:
        """Note durably that all rows are synced, so that damage to them is noticed.

        No thread may write rows during the call.
        """
        self._store.note_synced()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _column(self, keys: Sequence[bytes], values: Sequence[bytes]) -> array[int]:
        """Return the locations of many values at once.

        Raises CorruptionError naming the first value that is none.
        """
        if set(map(len, values)) <= {VALUE_BYTES}:
            locations = array("q", b"".join(values))
            if _SWAP:
                locations.byteswap()
            if min(locations, default=ABSENT) >= ABSENT:
                return locations
        # One of them is wrong: which one is to be said.
        return array(
            "q", [self._decoded(key, each) or ABSENT for key, each in zip(keys, values, strict=True)]
        )

    def _decoded(self, key: bytes, value: bytes) -> int | None:
        location = int.from_bytes(value, "big", signed=True)
        if len(value) != VALUE_BYTES or location < 0:
            raise CorruptionError(
                f"location of {key.hex()}",
                expected="8 bytes with a log id >= 0",
                found=value[:KEY_BYTES].hex() or "nothing",
                path=self._store.path,
            )
        return None if location == ABSENT else location

    def _entry_ids(self, keys: list[bytes]) -> array[int]:
        wrong = next((key for key in keys if len(key) != KEY_BYTES), None)
        if wrong is not None:
            raise CorruptionError(
                "locations key",
                expected=f"{KEY_BYTES} bytes",
                found=f"{counted(len(wrong), 'byte')}: {wrong[:KEY_BYTES].hex()}",
                path=self._store.path,
            )
        ids = array("q", b"".join([key[_ENTRY_IDS] for key in keys]))
        if _SWAP:
            ids.byteswap()
        return ids


def _encoded(locations: Sequence[int]) -> list[bytes]:
    """Return the values of the rows of one batch."""
    packed = array("q", locations)
    if _SWAP:
        packed.byteswap()
    return _kernels.pieces_of(packed.tobytes(), VALUE_BYTES)
