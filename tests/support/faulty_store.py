"""A key-value store that fails or waits where it is told to: the twin that tests what a dying disk does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from bkctl.errors import CorruptionError, NoSpaceError, StorageError
from bkctl.kvstore.base import (
    BATCH_ROWS,
    KeyValueStore,
    Operation,
    PackedRows,
    Row,
    Span,
    StoreStatistics,
    TableFile,
)

StoreOperation = Literal["get", "iterate", "write", "flush", "compact", "ingest"]


@dataclass(frozen=True, slots=True)
class StoreFaultRule:
    """Calls of ``operation`` that fail, wait, or wait and fail.

    ``get`` is ``get``, ``get_many``, ``floor`` and ``below``; ``iterate`` is every batch that is asked
    for, the first included. Of these calls ``first`` (from 1) is the first one that is hit and ``count`` how
    many are; None is all. The call waits ``latency_s`` seconds and then does what ``error`` says:
    ``storage``, ``corruption`` and ``no_space`` raise that error before anything is done, ``after`` raises
    StorageError when all was done (a failed batch may be in the store), None succeeds.
    """

    operation: StoreOperation
    first: int = 1
    count: int | None = None
    latency_s: float = 0.0
    error: Literal["storage", "corruption", "no_space", "after"] | None = "storage"


class FaultyStore:
    """Implements :class:`bkctl.kvstore.base.KeyValueStore`: ``inner`` with faults.

    ``sleep`` is how a latency is waited for. Safe for threads as far as ``inner`` is.
    """

    def __init__(
        self,
        inner: KeyValueStore,
        rules: Sequence[StoreFaultRule] = (),
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inner = inner
        self._sleep = sleep
        self._lock = threading.Lock()
        self._rules: list[StoreFaultRule] = []
        self._seen: list[int] = []
        self.inject(*rules)

    def inject(self, *rules: StoreFaultRule) -> None:
        """More faults; each counts from here."""
        with self._lock:
            self._rules += rules
            self._seen += [0] * len(rules)

    def heal(self) -> None:
        """No faults any more."""
        with self._lock:
            self._rules = []
            self._seen = []

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def damage(self) -> str | None:
        return self._inner.damage

    @property
    def never_written(self) -> bool:
        with self._faults("get"):
            return self._inner.never_written

    def get(self, key: bytes) -> bytes | None:
        with self._faults("get"):
            return self._inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._faults("get"):
            return self._inner.get_many(keys)

    def batches(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        prefix: bytes | None = None,
        rows_max: int = BATCH_ROWS,
    ) -> Iterator[list[Row]]:
        inner = self._inner.batches(start, stop, prefix=prefix, rows_max=rows_max)
        while True:
            with self._faults("iterate"):
                batch = next(inner, None)
            if batch is None:
                return
            yield batch

    def packed(
        self, key_bytes: int, value_bytes: int, start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[PackedRows | list[Row]]:
        return self.batches(start, stop)

    def iterate(
        self, start: bytes | None = None, stop: bytes | None = None, *, prefix: bytes | None = None
    ) -> Iterator[Row]:
        return chain.from_iterable(self.batches(start, stop, prefix=prefix))

    def floor(self, key: bytes) -> Row | None:
        with self._faults("get"):
            return self._inner.floor(key)

    def below(self, key: bytes, *, start: bytes | None = None) -> Row | None:
        with self._faults("get"):
            return self._inner.below(key, start=start)

    def count_estimate(self) -> int:
        return self._inner.count_estimate()

    def statistics(self) -> StoreStatistics:
        return self._inner.statistics()

    def unsettled(self) -> list[Span] | None:
        return self.inner.unsettled()

    def tables(self) -> list[TableFile]:
        return self._inner.tables()

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        with self._faults("write"):
            self._inner.write(operations, sync=sync)

    def note_synced(self) -> None:
        with self._faults("flush"):
            self._inner.note_synced()

    def flush(self) -> None:
        with self._faults("flush"):
            self._inner.flush()

    def compact(self, start: bytes | None = None, stop: bytes | None = None) -> None:
        with self._faults("compact"):
            self._inner.compact(start, stop)

    def ingest(self, paths: Sequence[str]) -> None:
        with self._faults("ingest"):
            self._inner.ingest(paths)

    def close(self) -> None:
        self._inner.close()

    @contextmanager
    def _faults(self, operation: StoreOperation) -> Iterator[None]:
        """Around the work: waits and raises what was asked for."""
        with self._lock:
            hit = [rule for at, rule in enumerate(self._rules) if self._is_hit(at, rule, operation)]
        for rule in hit:
            if rule.latency_s > 0:
                self._sleep(rule.latency_s)
        errors = {rule.error for rule in hit}
        if "corruption" in errors:
            raise CorruptionError(f"{operation} failed a checksum", path=self.path)
        if "no_space" in errors:
            raise NoSpaceError(f"{self.path}: {operation}: No space left on device", path=self.path)
        failure = StorageError(f"{self.path}: {operation}: Input/output error", path=self.path)
        if "storage" in errors:
            raise failure
        yield
        if "after" in errors:
            raise failure

    def _is_hit(self, at: int, rule: StoreFaultRule, operation: StoreOperation) -> bool:
        if rule.operation != operation:
            return False
        self._seen[at] += 1
        since = self._seen[at] - rule.first
        return since >= 0 and (rule.count is None or since < rule.count)
