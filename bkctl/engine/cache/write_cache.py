"""One of the two write caches of a ledger directory.

Source: ``org.apache.bookkeeper.bookie.storage.ldb.WriteCache``; here without an arena, because bodies are
bytes objects that the journal shares. Where the kernels are compiled
:class:`~bkctl.engine.cache.compiled_write_cache.CompiledWriteCache` takes its place.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat

from bkctl.engine.cache.entry_table import (
    ENTRY_OVERHEAD_BYTES,
    PIECE_ENTRIES,
    TABLE_ENTRIES_MAX,
    BoundedEntries,
    empty_in_pieces,
    ledger_of,
)
from bkctl.engine.cache.record_batch import entries_of
from bkctl.engine.cache.sorting import Batch, Run, distribute, in_order, ledger_in_order, pack

_LEDGER = struct.Struct(">q")
_ENTRY = struct.Struct(">q")
_ENTRY_AT = 8
_SMALL_LEDGER_ENTRIES = 64


class _Table:
    """Entries by key, and the keys as they came (one that came twice stands there twice).

    ``ledgers`` are those of the keys, without values. ``newest`` has each ledger's highest key among the
    first ``seen`` ones.
    """

    __slots__ = ("entries", "keys", "ledgers", "newest", "seen")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []
        self.ledgers: dict[bytes, None] = {}
        self.newest: dict[bytes, bytes] = {}
        self.seen = 0

    def look_at_new_keys(self) -> None:
        """Bring ``newest`` up to date: C calls on pieces, and Python once for each ledger in a piece."""
        newest = self.newest
        end = len(self.keys)
        while self.seen < end:
            piece = sorted(self.keys[self.seen : min(end, self.seen + PIECE_ENTRIES)])
            # Of the keys of a ledger the last one stays, which is its highest.
            for ledger, key in dict(zip(map(ledger_of, piece), piece, strict=True)).items():
                if key > newest.get(ledger, b""):
                    newest[ledger] = key
            self.seen += len(piece)

    def forget(self, ledgers: set[bytes]) -> list[bytes]:
        """Remove the entries of ledgers; their bodies. Looks at every key."""
        dead = [key for key in self.entries if ledger_of(key) in ledgers]
        bodies = [self.entries.pop(key) for key in dead]
        self.keys = list(self.entries)
        for ledger in ledgers:
            self.ledgers.pop(ledger, None)
        self.newest, self.seen = {}, 0
        return bodies

    def empty(self, between: Callable[[], None]) -> None:
        """Free everything in pieces, with calls of ``between`` on the way."""
        entries, keys = self.entries, self.keys
        while keys:
            piece = keys[-PIECE_ENTRIES:]
            del keys[-PIECE_ENTRIES:]
            deque(map(entries.pop, piece, repeat(None)), maxlen=0)
            between()
        empty_in_pieces(self.newest)
        empty_in_pieces(self.ledgers)
        between()


class WriteCache(BoundedEntries):
    """Entries by key, the last one of a key wins; bounded by ``size_bytes_max``.

    One thread at a time changes the cache: puts, deletions and the decision about room happen under the
    engine lock, ``clear`` when no thread puts entries any more. Any thread may look entries up at the same
    time, without that lock: a key is found from the moment ``put_many`` has returned.

    ``size_bytes`` counts each entry's body and ``ENTRY_OVERHEAD_BYTES``, also of one that a later one
    replaced; ``count`` counts those too. Entry ids are >= 0 (the write stage refuses other adds).
    """

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes_max = size_bytes_max
        self.size_bytes = 0
        self.count = 0
        self._tables: list[_Table] = []
        # The tables that lookups search, newest first; the tuple is replaced as a whole, so that a reader
        # thread sees one state of it.
        self._lookups: tuple[dict[bytes, bytes], ...] = ()
        # Ledgers whose entries here were deleted: no lookup finds them.
        self._deleted: set[bytes] = set()
        # Guards what tables know of their newest keys.
        self._newest_lock = threading.Lock()

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies alone."""
        return self.size_bytes - self.count * ENTRY_OVERHEAD_BYTES

    def put_many(
        self,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        size_bytes: int,
        ledgers: Collection[bytes] | None = None,
    ) -> None:
        """Add entries; ``size_bytes`` is the sum of the bodies' lengths.

        ``ledgers`` are those of the keys (ids as 8 bytes), each once, for a caller who knows them anyway.
        """
        if ledgers is None:
            ledgers = set(map(ledger_of, keys))
        if self._deleted:
            self._forget_before(self._deleted.intersection(ledgers))
        tables = self._tables
        if not tables or len(tables[-1].keys) >= TABLE_ENTRIES_MAX:
            tables.append(_Table())
            self._lookups = (tables[-1].entries, *self._lookups)
        table = tables[-1]
        table.entries.update(zip(keys, bodies, strict=True))
        table.keys.extend(keys)
        table.ledgers.update(dict.fromkeys(ledgers))
        self.size_bytes += size_bytes + len(keys) * ENTRY_OVERHEAD_BYTES
        self.count += len(keys)

    def put_records(self, records: bytes, size_bytes: int, ledgers: Iterable[bytes]) -> None:
        """Add entries that come as records, with bodies of ``size_bytes`` together, of ``ledgers``."""
        self.put_many(*entries_of(records), size_bytes, list(ledgers))

    def get(self, key: bytes) -> bytes | None:
        """Return the entry's body."""
        if self._deleted and key[:_ENTRY_AT] in self._deleted:
            return None
        for entries in self._lookups:
            body = entries.get(key)
            if body is not None:
                return body
        return None

    @property
    def tables(self) -> None:
        """Each key is looked up alone; see the twin."""

    def has_entries(self, ledger: int) -> bool:
        """Return whether there are entries of a ledger. Looks at no key."""
        return self._has_entries(_LEDGER.pack(ledger))

    def last_entry(self, ledger: int) -> int | None:
        """Return the ledger's highest entry id. A call looks only at keys that came since the last one."""
        prefix = _LEDGER.pack(ledger)
        if not self._has_entries(prefix):
            return None
        highest = b""
        with self._newest_lock:
            for table in self._tables:
                if prefix in table.ledgers:
                    table.look_at_new_keys()
                    highest = max(highest, table.newest.get(prefix, b""))
        if not highest or prefix in self._deleted:
            return None
        entry: int = _ENTRY.unpack_from(highest, _ENTRY_AT)[0]
        return entry

    def entries(self, ledger: int) -> list[int]:
        """Return the ledger's entry ids, ascending. Looks at every key of the tables that have some."""
        prefix = _LEDGER.pack(ledger)
        if prefix in self._deleted:
            return []
        found: set[bytes] = set()
        for table in [table for table in self._tables if prefix in table.ledgers]:
            keys = table.keys
            for start in range(0, len(keys), PIECE_ENTRIES):
                found.update([key for key in keys[start : start + PIECE_ENTRIES] if key.startswith(prefix)])
        return [_ENTRY.unpack_from(key, _ENTRY_AT)[0] for key in in_order(list(found))]

    def delete_ledger(self, ledger: int) -> None:
        """Forget the entries that a ledger has now; entries of it that are put later are kept."""
        prefix = _LEDGER.pack(ledger)
        if self._has_entries(prefix):
            self._deleted.add(prefix)

    def sorted_batches(self, entries_max: int, bytes_max: int = 2 << 20) -> Iterator[Batch]:
        """Return keys and bodies in batches bounded by both numbers.

        They come by ledger, then entry, each key once.

        An entry larger than ``bytes_max`` is a batch of its own. A ledger that is deleted before its turn
        comes is left out. No entry may be put before the last batch was taken.
        """
        return pack(self._in_order(), entries_max, bytes_max)

    def clear(self, between: Callable[[], None] = lambda: None) -> None:
        """Drop and free everything, with calls of ``between`` on the way.

        Lookups may go on: they find less and less.
        """
        tables, self._tables = self._tables, []
        self._lookups = ()
        for table in tables:
            # A search for the last entry may still read it.
            with self._newest_lock:
                table.seen = len(table.keys)
            table.empty(between)
        self._deleted = set()
        self.size_bytes = 0
        self.count = 0

    def _has_entries(self, prefix: bytes) -> bool:
        return prefix not in self._deleted and any(prefix in table.ledgers for table in self._tables)

    def _in_order(self) -> Iterator[Batch]:
        ledgers: dict[bytes, list[Run]] = {}
        for table in self._tables:
            repeated = len(table.keys) != len(table.entries)
            distribute(list(table.entries) if repeated else table.keys, table.entries, ledgers)
        # Keys of small ledgers are gathered, as going through all the steps for a few entries is dear.
        small: list[bytes] = []
        for ledger in in_order(list(ledgers)):
            runs = ledgers.pop(ledger)
            if ledger in self._deleted:
                continue
            is_small = sum(len(keys) for keys, _ in runs) <= _SMALL_LEDGER_ENTRIES
            if is_small:
                small += sorted({key for keys, _ in runs for key in keys})
            if small and (len(small) >= PIECE_ENTRIES or not is_small):
                yield small, list(map(self._newest_body, small))
                small = []
            if not is_small:
                yield from ledger_in_order(runs, self._newest_body)
        if small:
            yield small, list(map(self._newest_body, small))

    def _newest_body(self, key: bytes) -> bytes:
        for entries in self._lookups:
            body = entries.get(key)
            if body is not None:
                return body
        raise AssertionError(f"key {key.hex()} came from one of the tables")

    def _forget_before(self, ledgers: set[bytes]) -> None:
        """Free entries of deleted ledgers that are now used again.

        Looks at every key of the tables that have some. An id is used again only by who deletes a ledger and
        makes it again within the time between two flushes.
        """
        if not ledgers:
            return
        with self._newest_lock:
            for table in self._tables:
                if table.ledgers.keys().isdisjoint(ledgers):
                    continue
                bodies = table.forget(ledgers)
                self.size_bytes -= sum(map(len, bodies)) + len(bodies) * ENTRY_OVERHEAD_BYTES
        self._deleted -= ledgers
