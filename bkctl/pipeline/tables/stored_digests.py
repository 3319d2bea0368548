"""Digest types of all ledgers in a file, for tasks that look up the few which are in their logs.

An Arrow file of one table: ``ledger`` (i64, ascending), ``kind`` (i8, the place among the digest types) and
``key`` (binary, of MAC ledgers, else null). On a disk it is mapped, so that a task reads only the pages it
looks into, and is its maker's alone, as it may hold keys. In an object store others may read it: there a key
is sealed with a secret that only the job's tasks are given, by the exclusive or with an HMAC of the ledger.
"""

from __future__ import annotations

import hmac
import os
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from bkctl.codec.digest import Digester
from bkctl.errors import as_storage_errors
from bkctl.pipeline.locations import arrow_file, is_url, opened_file
from bkctl.pipeline.tables.known_digests import DIGEST_TYPES, KnownDigests

_SCHEMA = pa.schema([("ledger", pa.int64()), ("kind", pa.int8()), ("key", pa.binary())])


def store_digests(known: KnownDigests, path: str, secret: bytes | None = None) -> int:
    """Write digests into a file that is not there yet; the number of ledgers. Raises StorageError.

    ``path`` may be a URL; then keys are sealed with ``secret``, without which they are left out.
    """
    ids = array("q", known.ledgers)
    keys = {ledger: _stored_key(ledger, key, path, secret) for ledger, key in known.keys.items()}
    table = pa.Table.from_arrays(
        [
            pa.array(np.frombuffer(known.ledgers, np.int64)),
            pa.array(np.frombuffer(known.kinds, np.int8)),
            pa.array([keys.get(ledger) for ledger in ids], pa.binary()),
        ],
        schema=_SCHEMA,
    )
    with as_storage_errors(path), _new_file(path) as stream, pa.ipc.new_file(stream, _SCHEMA) as writer:
        writer.write_table(table)
    return len(table)


def _stored_key(ledger: int, key: bytes, path: str, secret: bytes | None) -> bytes | None:
    if secret is not None:
        return _sealed(ledger, key, secret)
    return None if is_url(path) else key


def _new_file(path: str) -> Any:
    if is_url(path):
        filesystem, name = opened_file(path)
        return filesystem.open_output_stream(name)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sealed(ledger: int, key: bytes, secret: bytes) -> bytes:
    """Return a key of at most 64 bytes sealed, or a sealed one opened: both are the same."""
    pad = hmac.digest(secret, ledger.to_bytes(8, "big"), "sha512")
    return bytes(one ^ other for one, other in zip(key, pad, strict=False))


class StoredDigests(Mapping[int, Digester]):
    """The digests of a file, looked up one by one. Pickles as the file's path, and what opens its keys."""

    def __init__(self, path: str, secret: bytes | None = None) -> None:
        self.path = path
        self._secret = secret
        self._columns: tuple[Any, pa.ChunkedArray, pa.ChunkedArray] | None = None

    def digesters(self) -> Mapping[int, Digester]:
        """Return the mapping that readers of logs ask."""
        return self

    def __getitem__(self, ledger: int) -> Digester:
        ledgers, kinds, keys = self._opened()
        at = int(np.searchsorted(ledgers, ledger))
        if at == len(ledgers) or ledgers[at] != ledger:
            raise KeyError(ledger)
        key: bytes = keys[at].as_py() or b""
        if self._secret is not None:
            key = _sealed(ledger, key, self._secret)
        return Digester(DIGEST_TYPES[kinds[at].as_py()], key)

    def __iter__(self) -> Iterator[int]:
        return iter(self._opened()[0].tolist())

    def __len__(self) -> int:
        return len(self._opened()[0])

    def __reduce__(self) -> tuple[type[StoredDigests], tuple[str, bytes | None]]:
        return StoredDigests, (self.path, self._secret)

    def _opened(self) -> tuple[Any, pa.ChunkedArray, pa.ChunkedArray]:
        if self._columns is None:
            with arrow_file(self.path) as file:
                table = file.read_all()
            self._columns = table.column("ledger").to_numpy(), table.column("kind"), table.column("key")
        return self._columns
