"""Ledger rows for entries that a bookie will not have any more: in limbo, with what journals say of them.

The special records among them are not lost: a key, a fence and an explicit LAC go into the ledger's row, as
a replay would have put them there. A ledger without row and without key record gets a row as behind an
accepted loss: fenced, in limbo, its key blank.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from bkctl.admin.index.repair import stored_row
from bkctl.admin.index.stopped_index import IndexDatabases, LedgerRows, StoppedIndex, refuse_damaged
from bkctl.admin.journals.skipped_records import LedgerRecords
from bkctl.admin.repairs.repair_journal import Intent
from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.ledger_data import (
    FLAGS_ID,
    LedgerData,
    decode_ledger_key,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.directories.index_spaces import IndexSpace
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import Operation, Put
from bkctl.vfs import FileSystem, WritableFileSystem

Serves = Callable[[int], bool]


def known_ledgers(store: LedgerRows, serves: Serves) -> Iterator[int]:
    """Yield the ledgers that have a row and that ``serves`` chooses. Raises CorruptionError."""
    known = -1
    for key, _ in store.iterate():
        ledger, _ = decode_ledger_key(key)
        if ledger != FLAGS_ID and ledger != known and serves(ledger):
            known = ledger
            yield ledger


def limbo_operations(
    store: LedgerRows, ledgers: Mapping[int, LedgerRecords], limbo: Container[int]
) -> list[Operation]:
    """Return what brings the special records into the rows, and those ledgers that ``limbo`` has in limbo.

    Raises CorruptionError when a row cannot be read.
    """
    refuse_damaged(store)
    operations: list[Operation] = []
    for ledger, records in sorted(ledgers.items()):
        known, stale = stored_row(store, ledger)
        wanted = _row_with(known, records, limbo=ledger in limbo)
        if wanted != known or stale:
            operations += [Put(encode_ledger_key(ledger), encode_ledger_data(wanted)), *stale]
    return operations


def row_changes(
    fs: FileSystem,
    spaces: Sequence[IndexSpace],
    ledgers: Mapping[int, LedgerRecords],
    databases: IndexDatabases,
) -> list[Intent]:
    """Return what :func:`put_rows` changes, for its undo; nothing without ledgers. Raises StorageError."""
    return [
        intent
        for space in (spaces if ledgers else ())
        for intent in StoppedIndex(fs, space, databases).ledger_changes(_here(space, ledgers))
    ]


def put_rows(
    fs: WritableFileSystem,
    spaces: Sequence[IndexSpace],
    ledgers: Mapping[int, LedgerRecords],
    limbo: Container[int],
    databases: IndexDatabases,
) -> None:
    """Do :func:`limbo_operations` in each space: a synced batch for a database, else header by header.

    Raises CorruptionError, StorageError.
    """
    for space in spaces if ledgers else ():
        store = StoppedIndex(fs, space, databases).ledgers_to_write(fs)
        try:
            operations = limbo_operations(store, _here(space, ledgers), limbo)
            if operations:
                store.write(operations, sync=True)
        finally:
            store.close()


def _here(space: IndexSpace, ledgers: Mapping[int, LedgerRecords]) -> dict[int, LedgerRecords]:
    return {ledger: records for ledger, records in ledgers.items() if not space.is_elsewhere(ledger)}


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
