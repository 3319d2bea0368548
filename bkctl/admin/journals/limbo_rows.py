"""Ledger rows for entries that a bookie will not have any more: in limbo, with what journals say of them.

The special records among them are not lost: a key, a fence and an explicit LAC go into the ledger's row, as
a replay would have put them there. A ledger without row and without key record gets a row as behind an
accepted loss: fenced, in limbo, its key blank.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from posixpath import basename, join

from bkctl.admin.index.repair import collapsed
from bkctl.admin.journals.skipped_records import LedgerRecords
from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.ledger_data import (
    FLAGS_ID,
    REBUILT_KEY_BYTES,
    LedgerData,
    decode_ledger_data,
    decode_ledger_key,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.directories.index_spaces import IndexSpace
from bkctl.errors import CorruptionError, RefusedError
from bkctl.kvstore.base import Delete, KeyValueReader, KeyValueStore, Operation, Put
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.index import LEDGERS, LOCATIONS
from bkctl.vfs import FileSystem

Serves = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class IndexDatabases:
    """The way to open the databases ``ledgers`` and ``locations``: to look, and to write."""

    read: Callable[[str], KeyValueReader]
    write: Callable[[str], KeyValueStore]


def rocks_databases() -> IndexDatabases:
    """Return the databases on disk."""
    from bkctl.kvstore import rocksdb_store
    from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
    from bkctl.scan.index import open_store

    def to_write(path: str) -> KeyValueStore:
        profile = LOCATIONS_PROFILE if basename(path) == LOCATIONS else LEDGERS_PROFILE
        return rocksdb_store.open_store(path, profile, create=False)

    return IndexDatabases(open_store, to_write)


def known_ledgers(store: KeyValueReader, serves: Serves) -> Iterator[int]:
    """Yield the ledgers that have a row and that ``serves`` chooses. Raises CorruptionError."""
    known = -1
    for key, _ in store.iterate():
        ledger, _ = decode_ledger_key(key)
        if ledger != FLAGS_ID and ledger != known and serves(ledger):
            known = ledger
            yield ledger


def database_of(fs: FileSystem, space: IndexSpace) -> str:
    """Return the path of a space's ``ledgers``.

    Raises RefusedError where there is none, and for .idx files, which have no place for the flag.
    """
    if not space.kind.has_databases:
        raise RefusedError(
            f"{space.dir}: its ledgers are in .idx files, which have no place for the limbo flag: entries "
            "that are lost would be answered with 'no such entry'"
        )
    path = join(space.index_dirs[0], LEDGERS) if space.index_dirs else ""
    if not path or not is_key_value_store(fs, path):
        raise RefusedError(
            f"{space.dir}: has no ledgers/ database; bring it back first (bkctl index rebuild)"
        )
    return path


def limbo_operations(
    store: KeyValueReader, ledgers: Mapping[int, LedgerRecords], limbo: Container[int]
) -> list[Operation]:
    """Return what brings the special records into the rows, and those ledgers that ``limbo`` has in limbo.

    Raises CorruptionError when a row cannot be read.
    """
    if store.damage is not None:  # a row that is not found may be one that cannot be read
        raise CorruptionError(store.damage, path=store.path)
    operations: list[Operation] = []
    for ledger, records in sorted(ledgers.items()):
        key = encode_ledger_key(ledger)
        old = key.ljust(REBUILT_KEY_BYTES, b"\0")
        eight, sixteen = _row(store, key), _row(store, old)
        known = collapsed(eight, sixteen) if eight and sixteen else eight or sixteen
        wanted = _row_with(known, records, limbo=ledger in limbo)
        if wanted != known or sixteen is not None:
            operations.append(Put(key, encode_ledger_data(wanted)))
        if sixteen is not None:
            operations.append(Delete(old))
    return operations


def _row_with(known: LedgerData | None, records: LedgerRecords, *, limbo: bool) -> LedgerData:
    row = known
    if row is None:
        row = LedgerData(fenced=records.key is None, master_key=records.key or b"")
    key = row.master_key
    if not any(key) and records.key:
        key = records.key
    lac = row.explicit_lac
    if records.explicit_lac is not None and _lac(records.explicit_lac) > _lac(lac):
        lac = records.explicit_lac
    return dataclasses.replace(
        row,
        fenced=row.fenced or records.fenced,
        master_key=key,
        explicit_lac=lac,
        limbo=True if limbo or known is None else row.limbo,
    )


def _lac(blob: bytes | None) -> int:
    if blob is None:
        return -2
    try:
        return decode_explicit_lac(blob).lac
    except CorruptionError:
        return -2


def _row(store: KeyValueReader, key: bytes) -> LedgerData | None:
    value = store.get(key)
    if value is None:
        return None
    try:
        return decode_ledger_data(value)
    except CorruptionError as error:
        raise error.located(f"{store.path}: row {key.hex()}") from None
