"""A store that comes back after its disk was full.

After a failed append to its write-ahead log RocksDB refuses every later write, also when there is room again;
only a new open lets it write. So after a write that found no room the database is closed and opened again
before the next write. Nothing is lost by that: synced batches are in the log, and the torn batch at its end
was never reported as written.

Readers go on during that time. The database is closed only when no thread is inside it; a thread that comes
then waits until it is open again. A database that cannot be closed, because a thread stays inside, serves the
readers as before, and the next write tries once more, as it does when the database could not be opened again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from bkctl.errors import BkctlError, NoSpaceError
from bkctl.kvstore.base import (
    BATCH_ROWS,
    KeyValueStore,
    Operation,
    PackedRows,
    Row,
    Span,
    StoreClosedError,
    StoreInUseError,
    StoreStatistics,
    TableFile,
)

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Seconds that a look-up waits for a database that is being opened again.
REOPENED_WAIT_S = 60.0


class ReopeningStore:
    """Implements :class:`bkctl.kvstore.base.KeyValueStore` over what ``open_store`` opens.

    A look-up, and the first row of an iteration, wait while the database is being opened again. An iteration
    that had begun is of the database that was closed: it ends with StoreClosedError.
    """

    def __init__(self, open_store: Callable[[], KeyValueStore]) -> None:
        self._open_store = open_store
        self._inner = open_store()
        self._reopening = threading.Lock()
        self._stuck = False
        self._closed = False

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def damage(self) -> str | None:
        return self._inner.damage

    @property
    def never_written(self) -> bool:
        return self._looked_up(lambda store: store.never_written)

    def get(self, key: bytes) -> bytes | None:
        return self._looked_up(lambda store: store.get(key))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._looked_up(lambda store: store.get_many(keys))

    def batches(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        rows_max: int = BATCH_ROWS,
    ) -> Iterator[list[Row]]:
        def begin(store: KeyValueStore) -> tuple[list[Row] | None, Iterator[list[Row]]]:
            batches = store.batches(start, stop, prefix=prefix, rows_max=rows_max)
            return next(batches, None), batches

        first, others = self._looked_up(begin)
        if first is not None:
            yield first
            yield from others

    def packed(
        self, key_bytes: int, value_bytes: int, start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[PackedRows | list[Row]]:
        return self.batches(start, stop)

    def iterate(
        self, start: bytes | None = None, stop: bytes | None = None, *, prefix: bytes | None = None
    ) -> Iterator[Row]:
        return chain.from_iterable(self.batches(start, stop, prefix=prefix))

    def floor(self, key: bytes) -> Row | None:
        return self._looked_up(lambda store: store.floor(key))

    def below(self, key: bytes, *, start: bytes | None = None) -> Row | None:
        return self._looked_up(lambda store: store.below(key, start=start))

    def count_estimate(self) -> int:
        return self._looked_up(lambda store: store.count_estimate())

    def statistics(self) -> StoreStatistics:
        return self._looked_up(lambda store: store.statistics())

    def unsettled(self) -> list[Span] | None:
        return self._looked_up(lambda store: store.unsettled())

    def tables(self) -> list[TableFile]:
        return self._looked_up(lambda store: store.tables())

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        self._written(lambda store: store.write(operations, sync=sync))

    def note_synced(self) -> None:
        if self._stuck:
            self._reopen()
        # A full disk that has no room for the note does the database no harm.
        self._inner.note_synced()

    def flush(self) -> None:
        self._written(lambda store: store.flush())

    def compact(self, start: bytes | None = None, stop: bytes | None = None) -> None:
        self._written(lambda store: store.compact(start, stop))

    def ingest(self, paths: Sequence[str]) -> None:
        self._written(lambda store: store.ingest(paths))

    def close(self) -> None:
        """Make everything durable and give the store back; a second call does nothing."""
        with self._reopening:
            self._closed = True
            self._inner.close()

    def _looked_up(self, look: Callable[[KeyValueStore], _T]) -> _T:
        store, repeated = self._inner, False
        while True:
            try:
                return look(store)
            except StoreClosedError:
                if not self._reopening.acquire(timeout=REOPENED_WAIT_S):
                    raise
                try:
                    renewed = self._inner
                finally:
                    self._reopening.release()
                # The same database is open as before because it could not be closed, or is closed for good.
                if renewed is store and repeated:
                    raise
                store, repeated = renewed, renewed is store

    def _written(self, change: Callable[[KeyValueStore], None]) -> None:
        if self._stuck:
            self._reopen()
        try:
            change(self._inner)
        except NoSpaceError:
            self._stuck = True
            raise

    def _reopen(self) -> None:
        """Close and open the database. Raises the error of either; the next write tries once more then."""
        with self._reopening:
            if self._closed or not self._stuck:
                return
            try:
                self._inner.close()
            except StoreInUseError:
                raise
            except BkctlError as error:
                # Closing syncs the rest of the log; every batch that counts is synced already.
                _log.info("%s", error)
            self._inner = self._open_store()
            self._stuck = False
            _log.warning("%s: opened again after its disk was full", self._inner.path)
