"""The RocksDB databases of a ledger directory: their names, how one is opened, how a row is decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bkctl.errors import CorruptionError
from bkctl.kvstore.base import KeyValueReader

_T = TypeVar("_T")

LOCATIONS = "locations"
LEDGERS = "ledgers"
METADATA_CACHE = "metadata-cache"

#: Opens the database in a directory for reading.
StoreOpener = Callable[[str], KeyValueReader]


def open_store(directory: str) -> KeyValueReader:
    """Open a RocksDB directory read-only, without a trace. Raises as ``kvstore.rocksdb.open_read_only``."""
    from bkctl.kvstore.rocksdb import open_read_only  # keeps commands on other formats free of RocksDB

    return open_read_only(directory)


def decoded(decoder: Callable[[bytes], _T], data: bytes, key: bytes, path: str) -> _T:
    """Decode one row's bytes; a failure names the database and the row."""
    try:
        return decoder(data)
    except CorruptionError as error:
        raise CorruptionError(
            f"row {key.hex()}: {error.what}",
            offset=error.offset,
            expected=error.expected,
            found=error.found,
            path=path,
        ) from None
