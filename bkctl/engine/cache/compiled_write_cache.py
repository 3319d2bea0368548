"""One of the two write caches of a ledger directory, over the compiled tables of entries.

It answers as :class:`~bkctl.engine.cache.write_cache.WriteCache` does, its twin where the kernels are not
compiled. There is no Python object for an entry: a run of adds is one block of records, ``i32 size, body``
one behind the other, which the journal writes as it is, and which lies here until it was flushed. Tables
find entries in blocks, and a flush gets them sorted and gathered into the bytes of an entry log.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.WriteCache``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from bkctl import _kernels
from bkctl._kernels._api import EntryTable
from bkctl.engine.cache.entry_table import (
    ENTRY_OVERHEAD_BYTES,
    LEDGER_BYTES,
    TABLE_ENTRIES_MAX,
    BoundedEntries,
)
from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.cache.sorting import Batch

#: Bytes of an entry of a block beside its body: the length word, the row in a table (32 bytes, 48 while the
#: table grows) with its place in the index (8 to 16), and the share of a flush: an item to sort (32), key
#: and location (24).
RECORD_OVERHEAD_BYTES = 128

#: The header of a bytes object, its place in the list of blocks, and what the allocator adds.
BLOCK_OVERHEAD_BYTES = 96

#: Blocks that one call frees: runs of adds, of a quarter of a megabyte mostly.
_BLOCKS_FREED = 16


class CompiledWriteCache(BoundedEntries):
    """Entries by key, the last one of a key wins; bounded by ``size_bytes_max``.

    Threads as in :class:`~bkctl.engine.cache.write_cache.WriteCache`: one thread at a time changes the
    cache, and any thread may look entries up at the same time. Every call of a table is one step.

    ``size_bytes`` counts blocks and what is kept about them, also of entries that later ones replaced or
    whose ledger was deleted: blocks are freed by :meth:`clear` alone.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes_max = size_bytes_max
        self.size_bytes = 0
        self.body_bytes = 0
        self.count = 0
        self._tables: list[EntryTable] = []
        # The tables that lookups search, newest first; the tuple is replaced as a whole, so that a reader
        # thread sees one state of it.
        self._lookups: tuple[EntryTable, ...] = ()
        # Ledgers whose entries here were deleted: no lookup finds them.
        self._deleted: set[int] = set()

    def put_many(
        self,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        size_bytes: int,
        ledgers: Collection[bytes] | None = None,
    ) -> None:
        """Add entries as the twin's method does."""
        if self._deleted:
            self._forget_before({key[:LEDGER_BYTES] for key in keys} if ledgers is None else ledgers)
        self._open_table().put_many(list(keys), list(bodies))
        self._counted(size_bytes, len(keys), len(keys) * ENTRY_OVERHEAD_BYTES)

    def put_records(self, records: bytes, size_bytes: int, ledgers: Iterable[bytes]) -> None:
        """Add the entries of a block, with bodies of ``size_bytes`` together, of ``ledgers``."""
        if self._deleted:
            self._forget_before(ledgers)
        count = self._open_table().put_records(records)
        self._counted(size_bytes, count, count * RECORD_OVERHEAD_BYTES + BLOCK_OVERHEAD_BYTES)

    def get(self, key: bytes) -> bytes | None:
        """Return the entry's body."""
        if self._deleted and _ledger_of(key) in self._deleted:
            return None
        for table in self._lookups:
            body = table.get(key)
            if body is not None:
                return body
        return None

    @property
    def tables(self) -> tuple[EntryTable, ...] | None:
        """The tables that hold the entries, newest first; None when each key is to be looked up alone."""
        return None if self._deleted else self._lookups

    def has_entries(self, ledger: int) -> bool:
        """Return whether there are entries of a ledger. Looks at no key."""
        return ledger not in self._deleted and any(
            table.highest(ledger) is not None for table in self._lookups
        )

    def last_entry(self, ledger: int) -> int | None:
        """Return the ledger's highest entry id."""
        found = [table.highest(ledger) for table in self._lookups]
        highest = max((each for each in found if each is not None), default=None)
        return None if ledger in self._deleted else highest

    def entries(self, ledger: int) -> list[int]:
        """Return the ledger's entry ids, ascending. Looks at every key of the tables that have some."""
        if ledger in self._deleted:
            return []
        found: set[int] = set()
        for table in self._lookups:
            if table.highest(ledger) is not None:
                found.update(table.entries(ledger))
        return sorted(found)

    def delete_ledger(self, ledger: int) -> None:
        """Forget a ledger: its entries are gone; ones that are put later are there."""
        if self.has_entries(ledger):
            self._deleted.add(ledger)

    def record_batches(self, entries_max: int, bytes_max: int) -> Iterator[RecordBatch]:
        """Yield the entries by ledger, then entry, each key once, in batches bounded by both numbers.

        An entry larger than ``bytes_max`` is a batch of its own. A ledger that is deleted before its turn
        comes is left out. No entry may be put before the last batch was taken.
        """
        assert _kernels.SortedEntries is not None
        entries = _kernels.SortedEntries()
        for table in self._tables:
            entries.add(table)
        entries.sort()
        while (batch := entries.next(entries_max, bytes_max, self._deleted)) is not None:
            keys, records, ends = batch
            yield RecordBatch(keys, records, array("q", ends))

    def sorted_batches(self, entries_max: int, bytes_max: int = 2 << 20) -> Iterator[Batch]:
        """Yield what :meth:`record_batches` does, as keys and bodies."""
        for batch in self.record_batches(entries_max, bytes_max):
            yield batch.key_list(), batch.bodies()

    def clear(self, between: Callable[[], None] = lambda: None) -> None:
        """Drop and free everything, with calls of ``between`` on the way.

        Lookups may go on: they find less and less.
        """
        tables, self._tables = self._tables, []
        self._lookups = ()
        for table in tables:
            while table.clear(_BLOCKS_FREED):
                between()
        self._deleted = set()
        self.size_bytes = self.body_bytes = 0
        self.count = 0

    def _counted(self, body_bytes: int, count: int, overhead_bytes: int) -> None:
        self.size_bytes += body_bytes + overhead_bytes
        self.body_bytes += body_bytes
        self.count += count

    def _open_table(self) -> EntryTable:
        """Return the table that takes entries; one that is large is left alone, as growing it takes long."""
        if not self._tables or len(self._tables[-1]) >= TABLE_ENTRIES_MAX:
            assert _kernels.EntryTable is not None
            table = _kernels.EntryTable()
            self._tables.append(table)
            self._lookups = (table, *self._lookups)
        return self._tables[-1]

    def _forget_before(self, ledgers: Iterable[bytes]) -> None:
        """Forget entries of deleted ledgers that are now used again; their blocks stay until the flush."""
        again = self._deleted.intersection(map(_ledger_of, ledgers))
        if not again:
            return
        self._tables = [
            table.without(again) if any(table.highest(each) is not None for each in again) else table
            for table in self._tables
        ]
        self._lookups = tuple(reversed(self._tables))
        self._deleted -= again


def _ledger_of(key: bytes) -> int:
    return int.from_bytes(key[:LEDGER_BYTES], "big")
