"""Keep how the entries of known ledgers are checked, in a file that all processes map.

Every log is read by some process with what the metadata say of a million ledgers: handed over with each task,
that would be written and read again for each log.

======= ==== ==========================================================================
offset  size field
======= ==== ==========================================================================
0       8 n  ledger ids, i64, little-endian, ascending
8 n     n    types, by their place in ``DigestType``, and 0x80 where there is a key
9 n     20 n keys of MAC digests; nothing where no ledger has one
======= ==== ==========================================================================
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bkctl.codec.digest import Digester
from bkctl.errors import StorageError, as_storage_errors
from bkctl.types import DigestType

_TYPES = tuple(DigestType)
_KEYED = 0x80
_KEY_BYTES = 20
_ID_BYTES = 8


class DigestColumns(Mapping[int, Digester]):
    """Digests by ledger, ascending. Pickled it is the path of its file; see :func:`write_digests`."""

    def __init__(self, path: str, count: int, checksum: int) -> None:
        """Map the file. Raises StorageError when it is not the one that was written."""
        self._facts = (path, count, checksum)
        try:
            data: NDArray[Any] = np.memmap(path, np.uint8, "r") if count else np.empty(0, np.uint8)
        except (OSError, ValueError) as error:
            raise StorageError(f"{path}: {error}", path=path) from error
        plain = count * (_ID_BYTES + 1)
        if len(data) not in (plain, plain + count * _KEY_BYTES) or zlib.crc32(data.data) != checksum:
            raise StorageError(f"{path}: is not what was written", path=path)
        self._ids = data[: count * _ID_BYTES].view("<i8")
        self._kinds = data[count * _ID_BYTES : plain]
        self._keys = data[plain:]

    def __getitem__(self, ledger: int) -> Digester:
        at = int(np.searchsorted(self._ids, ledger))
        if at == len(self._ids) or self._ids[at] != ledger:
            raise KeyError(ledger)
        kind = int(self._kinds[at])
        key = b""
        if kind & _KEYED:
            key = self._keys[at * _KEY_BYTES : (at + 1) * _KEY_BYTES].tobytes()
        return Digester(_TYPES[kind & ~_KEYED], key)

    def __iter__(self) -> Iterator[int]:
        return (int(ledger) for ledger in self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, self._facts


@lru_cache(maxsize=4)
def _opened(path: str, count: int, checksum: int) -> DigestColumns:
    """Open the columns of a task, which are mapped once in each process."""
    return DigestColumns(path, count, checksum)


class Together(Mapping[int, Digester]):
    """Digests of two mappings; what ``first`` says wins."""

    def __init__(self, first: Mapping[int, Digester], second: Mapping[int, Digester]) -> None:
        self._first = first
        self._second = second

    def __getitem__(self, ledger: int) -> Digester:
        found = self._first.get(ledger)
        return self._second[ledger] if found is None else found

    def __iter__(self) -> Iterator[int]:
        yield from self._first
        yield from (ledger for ledger in self._second if ledger not in self._first)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def write_digests(path: str, digesters: Mapping[int, Digester]) -> DigestColumns:
    """Write a file that only its owner can read, as there are keys in it, and map it. Raises StorageError."""
    count = len(digesters)
    ids = np.fromiter(digesters, np.int64, count)
    order = np.argsort(ids)
    kinds, keys = np.empty(count, np.uint8), np.zeros(count * _KEY_BYTES, np.uint8)
    for at, ledger in enumerate(ids[order].tolist()):
        digester = digesters[ledger]
        kinds[at] = _TYPES.index(digester.type) | (_KEYED if digester.key else 0)
        if digester.key:
            keys[at * _KEY_BYTES : (at + 1) * _KEY_BYTES] = np.frombuffer(digester.key, np.uint8)
    pieces = [ids[order].astype("<i8").tobytes(), kinds.tobytes()]
    if bool((kinds & _KEYED).any()):
        pieces.append(keys.tobytes())
    data = b"".join(pieces)
    with as_storage_errors(path):
        with suppress(FileNotFoundError):
            os.unlink(path)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
    return DigestColumns(path, count, zlib.crc32(data))
