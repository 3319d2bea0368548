"""Key-value stores in memory, for tests; the writable one can take a power cut."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from bkctl.errors import StorageError
from bkctl.kvstore.base import (
    BATCH_ROWS,
    Delete,
    DeleteRange,
    Operation,
    PackedRows,
    Put,
    Row,
    Span,
    StoreClosedError,
    StoreStatistics,
    TableFile,
    key_range,
)

if TYPE_CHECKING:
    import random


class MemoryReader:
    """Implements :class:`bkctl.kvstore.base.KeyValueReader` over a copy of ``rows``."""

    def __init__(self, rows: Mapping[bytes, bytes], path: str = "memory", damage: str | None = None) -> None:
        # Rows and keys are one attribute, so that a writer replaces both at once.
        self._view = _sorted_view(dict(rows))
        self._path = path
        self._damage = damage
        self._closed = False
        self._written = bool(rows)

    @property
    def path(self) -> str:
        return self._path

    @property
    def damage(self) -> str | None:
        return self._damage

    @property
    def never_written(self) -> bool:
        self._check_open()
        return not self._written

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._view[0].get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check_open()
        return list(map(self._view[0].get, keys))

    def batches(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        rows_max: int = BATCH_ROWS,
    ) -> Iterator[list[Row]]:
        start, stop = key_range(start, stop, prefix)
        self._check_open()
        values, keys = self._view  # rows that are written during an iteration do not show in it
        first = 0 if start is None else bisect_left(keys, start)
        end = len(keys) if stop is None else bisect_left(keys, stop)
        for at in range(first, end, rows_max):
            self._check_open()
            yield [(key, values[key]) for key in keys[at : min(at + rows_max, end)]]

    def packed(
        self, key_bytes: int, value_bytes: int, start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[PackedRows | list[Row]]:
        return self.batches(start, stop)

    def iterate(
        self, start: bytes | None = None, stop: bytes | None = None, *, prefix: bytes | None = None
    ) -> Iterator[Row]:
        return chain.from_iterable(self.batches(start, stop, prefix=prefix))

    def floor(self, key: bytes) -> Row | None:
        return self._row_before(key, bisect_right)

    def below(self, key: bytes, *, start: bytes | None = None) -> Row | None:
        row = self._row_before(key, bisect_left)
        return None if row is None or (start is not None and row[0] < start) else row

    def count_estimate(self) -> int:
        self._check_open()
        return len(self._view[1])

    def statistics(self) -> StoreStatistics:
        self._check_open()
        rows = self.count_estimate()
        return StoreStatistics(rows, (), 0, 0, 0, rows)

    def unsettled(self) -> list[Span] | None:
        return None

    def tables(self) -> list[TableFile]:
        self._check_open()
        return []

    def close(self) -> None:
        self._closed = True

    def _row_before(self, key: bytes, bisect: Callable[[list[bytes], bytes], int]) -> Row | None:
        self._check_open()
        values, keys = self._view
        index = bisect(keys, key)
        if index == 0:
            return None
        found = keys[index - 1]
        return found, values[found]

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self._path}: closed", path=self._path)


#: The rows of table files by path, for :meth:`MemoryStore.ingest`.
MemoryFiles = dict[str, dict[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """One atomic change; a ``durable`` one behind others that are not is an ingested file."""

    operations: list[Operation]
    durable: bool


class MemoryStore(MemoryReader):
    """Implements :class:`bkctl.kvstore.base.KeyValueStore`; ``files`` is where it ingests from.

    Batches written without ``sync`` are durable after a later write with it, ``flush`` or ``close``, as in a
    write-ahead log; ``rows`` are from the start. Safe for threads.
    """

    def __init__(
        self,
        rows: Mapping[bytes, bytes] | None = None,
        files: MemoryFiles | None = None,
        path: str = "memory",
    ) -> None:
        super().__init__(rows or {}, path)
        self._files: MemoryFiles = {} if files is None else files
        self._lock = threading.Lock()
        self._durable = self._view[0]
        self._durably_written = self._written
        self._unsynced: list[_Batch] = []

    @property
    def unsynced_batches(self) -> int:
        """The number of batches that a power cut may take."""
        with self._lock:
            return sum(not batch.durable for batch in self._unsynced)

    def crash(self, chance: random.Random | None = None) -> MemoryStore:
        """Return the store that a power cut at this moment leaves, opened; this store goes on.

        A write-ahead log loses its tail, in whole batches: without ``chance`` all batches that are not
        durable, with it a random number of the newest. Ingested files stay.
        """
        with self._lock:
            volatile = sum(not batch.durable for batch in self._unsynced)
            survive = 0 if chance is None else chance.randint(0, volatile)
            rows = self._durable
            written = self._durably_written
            for batch in self._unsynced:
                if batch.durable or survive > 0:
                    rows = _applied(rows, batch.operations)
                    written = written or bool(batch.operations)
                    survive -= not batch.durable
            left = MemoryStore(rows, dict(self._files), self._path)
            left._written = left._durably_written = written
            return left

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        self._check_open()
        batch = list(operations)
        with self._lock:
            self._check_open()
            self._replace(_applied(self._view[0], batch))
            self._written = self._written or bool(batch)
            if sync:
                self._make_durable()
            else:
                self._unsynced.append(_Batch(batch, durable=False))

    def note_synced(self) -> None:
        self.flush()

    def flush(self) -> None:
        with self._lock:
            self._check_open()
            self._make_durable()

    def compact(self, start: bytes | None = None, stop: bytes | None = None) -> None:
        self._check_open()

    def ingest(self, paths: Sequence[str]) -> None:
        with self._lock:
            self._check_open()
            missing = [path for path in paths if path not in self._files]
            if missing:
                raise StorageError(f"{missing[0]}: no such file", path=missing[0])
            rows: list[Operation] = [Put(*row) for path in paths for row in self._files.pop(path).items()]
            self._replace(_applied(self._view[0], rows))
            self._written = self._written or bool(rows)
            # The files are durable at once; the batches before them are not durable yet.
            self._unsynced.append(_Batch(rows, durable=True))

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._make_durable()
            self._closed = True

    def _make_durable(self) -> None:
        self._durable = self._view[0]
        self._durably_written = self._written
        self._unsynced.clear()

    def _replace(self, values: dict[bytes, bytes]) -> None:
        self._view = _sorted_view(values)


def _sorted_view(values: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], list[bytes]]:
    return values, sorted(values)


def _applied(rows: dict[bytes, bytes], operations: Iterable[Operation]) -> dict[bytes, bytes]:
    values = dict(rows)
    for operation in operations:
        match operation:
            case Put(key, value):
                values[key] = value
            case Delete(key):
                values.pop(key, None)
            case DeleteRange(start, stop):
                for key in [key for key in values if start <= key < stop]:
                    del values[key]
    return values
