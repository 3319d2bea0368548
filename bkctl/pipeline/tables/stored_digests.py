"""Digest types of all ledgers in a file, for tasks that look up the few which are in their logs.

An Arrow file of one table: ``ledger`` (i64, ascending), ``kind`` (i8, the place among the digest types) and
``key`` (binary, of MAC ledgers, else null). It is mapped, so that a task reads only the pages it looks into,
and is its maker's alone, as it may hold keys.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from bkctl.codec.digest import Digester
from bkctl.errors import StorageError, as_storage_errors
from bkctl.pipeline.tables.known_digests import DIGEST_TYPES, KnownDigests

_SCHEMA = pa.schema([("ledger", pa.int64()), ("kind", pa.int8()), ("key", pa.binary())])


def store_digests(known: KnownDigests, path: str) -> int:
    """Write digests into a file that is not there yet; the number of ledgers. Raises StorageError."""
    ids = array("q", known.ledgers)
    table = pa.Table.from_arrays(
        [
            pa.array(np.frombuffer(known.ledgers, np.int64)),
            pa.array(np.frombuffer(known.kinds, np.int8)),
            pa.array([known.keys.get(ledger) for ledger in ids], pa.binary()),
        ],
        schema=_SCHEMA,
    )
    with as_storage_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream, pa.ipc.new_file(stream, _SCHEMA) as writer:
            writer.write_table(table)
    return len(table)


class StoredDigests(Mapping[int, Digester]):
    """The digests of a file, looked up one by one. Pickles as the file's path."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._columns: tuple[Any, pa.ChunkedArray, pa.ChunkedArray] | None = None

    def digesters(self) -> Mapping[int, Digester]:
        """Return the mapping that readers of logs ask."""
        return self

    def __getitem__(self, ledger: int) -> Digester:
        ledgers, kinds, keys = self._opened()
        at = int(np.searchsorted(ledgers, ledger))
        if at == len(ledgers) or ledgers[at] != ledger:
            raise KeyError(ledger)
        return Digester(DIGEST_TYPES[kinds[at].as_py()], keys[at].as_py() or b"")

    def __iter__(self) -> Iterator[int]:
        return iter(self._opened()[0].tolist())

    def __len__(self) -> int:
        return len(self._opened()[0])

    def __reduce__(self) -> tuple[type[StoredDigests], tuple[str]]:
        return StoredDigests, (self.path,)

    def _opened(self) -> tuple[Any, pa.ChunkedArray, pa.ChunkedArray]:
        if self._columns is None:
            try:
                table = pa.ipc.open_file(pa.memory_map(self.path)).read_all()
            except (OSError, pa.ArrowException) as error:
                raise StorageError(f"{self.path}: {error}", path=self.path) from error
            self._columns = table.column("ledger").to_numpy(), table.column("kind"), table.column("key")
        return self._columns
