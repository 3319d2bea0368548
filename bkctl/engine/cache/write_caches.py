"""The two write caches of a ledger directory: which one takes puts, which one is being flushed.

Why a reader that takes no lock finds every entry whose put has returned. An entry only moves forward: it is
in the active cache, then (after a swap) in the flushing one, then (after the flush has written its index row)
in the index. At each step it is in the next place before it leaves the one before: a swap sets ``flushing``
before ``active``, and a cache is cleared and dropped only when its rows are in the index. A reader looks in
the same order, active, flushing, index. Wherever the entry is when the reader starts, it is there or further
on when the reader comes by. An entry that is put once more starts over in the active cache; its older body
further on is never reached by a reader that started after that put, for the same reason.

The read cache stands beside that order, between the flushing cache and the index; it must not hold an older
body than the index does, see :mod:`bkctl.engine.cache.read_cache`. And a ledger's deletion mark hides
read cache and index; it is set before anything is deleted, and lifted when index and read cache have nothing
of the deleted ledger any more and before the flushing cache is dropped, because that one may have entries of
a ledger made again under the same id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from bkctl import _kernels
from bkctl._kernels._api import EntryTable
from bkctl.engine.cache.compiled_write_cache import CompiledWriteCache
from bkctl.engine.cache.deletion_marks import DeletionMarks, Rounds
from bkctl.engine.cache.write_cache import WriteCache

AnyWriteCache = WriteCache | CompiledWriteCache


class WriteCaches:
    """The two write caches of a directory, each with half of ``size_bytes_max``.

    Methods that change the caches are called under the engine lock.

    Lookups go through ``active``, ``flushing`` and ``marks``, in this order, from any thread.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self.half_bytes_max = max(size_bytes_max // 2, 1)
        self._kind = WriteCache if _kernels.EntryTable is None else CompiledWriteCache
        self.active: AnyWriteCache = self._kind(self.half_bytes_max)
        self.flushing: AnyWriteCache | None = None
        self.marks = DeletionMarks()
        self.swapped_s = 0.0
        self._marked_before_swap: Rounds = ()

    def swap(self, now_s: float) -> bool:
        """Hand the active cache to the flush; False when the other one is not free."""
        if self.flushing is not None:
            return False
        self._marked_before_swap = self.marks.until_now()
        self.swapped_s = now_s
        # In this order: between the two statements the entries are in both places, never in neither.
        self.flushing = self.active
        self.active = self._kind(self.half_bytes_max)
        return True

    def release(self) -> None:
        """Release the flushing cache, which was cleared: the next swap is possible."""
        self.flushing = None

    def get(self, key: bytes) -> bytes | None:
        """Return the body that was put last, from any thread."""
        body = self.active.get(key)
        if body is None:
            flushing = self.flushing
            if flushing is not None:
                body = flushing.get(key)
        return body

    @property
    def tables(self) -> tuple[EntryTable, ...] | None:
        """The tables that hold the entries, newest first; None when each key is to be looked up alone."""
        active = self.active.tables
        flushing = self.flushing
        if flushing is None or active is None:
            return active
        older = flushing.tables
        return None if older is None else active + older

    def put_many(
        self,
        keys: Sequence[bytes],
        bodies: Sequence[bytes],
        size_bytes: int,
        ledgers: Collection[bytes] | None = None,
    ) -> None:
        """Add entries to the active cache; see its ``put_many``."""
        self.active.put_many(keys, bodies, size_bytes, ledgers)

    def put_records(self, records: bytes, size_bytes: int, ledgers: Iterable[bytes]) -> None:
        """Add records to the active cache; see its ``put_records``."""
        self.active.put_records(records, size_bytes, ledgers)

    def delete_ledger(self, ledger: int) -> None:
        """Hide what there is of a ledger, here and in the index; what is put later is seen."""
        self.marks.add(ledger.to_bytes(8, "big"))
        self.active.delete_ledger(ledger)
        if self.flushing is not None:
            self.flushing.delete_ledger(ledger)

    def has_entries(self, ledger: int) -> bool:
        """Return whether one of the two has entries of a ledger."""
        flushing = self.flushing
        return self.active.has_entries(ledger) or (flushing is not None and flushing.has_entries(ledger))

    def marks_before_swap(self) -> Rounds:
        """Return the marks older than the flushing cache's last entry: new entries may lie behind them."""
        return self.marks.still_there(self._marked_before_swap)

    def marks_since(self, done: Rounds) -> Rounds:
        """Return all marks that there are, except ``done``; those made from now on are not among them."""
        return self.marks.until_now(done)

    def keep_marks(self) -> None:
        """Keep the marks that a flush took, after the flush has failed."""
        self.marks.go_on(self._marked_before_swap)
