"""A new ``ledgers`` database from planned rows, read back before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from bkctl.admin.index.rebuild.ledger_rows import LedgerPlan
from bkctl.admin.index.rebuild.state import WorkDirectory
from bkctl.codec.ledger_data import FLAGS_ID, encode_ledger_data, encode_ledger_key
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import Put, Row, note_written
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store

_BATCH_ROWS = 10_000


def planned_rows(plan: LedgerPlan) -> Iterator[Row]:
    """Yield keys and values in key order: ledgers, then the flags, whose key is negative."""
    for ledger in sorted(plan.rows):
        yield encode_ledger_key(ledger), encode_ledger_data(plan.rows[ledger])
    if plan.flags is not None:
        yield encode_ledger_key(FLAGS_ID), plan.flags


def build_ledgers(work: WorkDirectory, plan: LedgerPlan) -> int:
    """Make ``database`` in the work directory and verify it; number of ledgers.

    Raises StorageError, CorruptionError when a row does not come back as it was written.
    """
    work.discard("database")
    work.prepare()
    store = open_store(work.at("database"), LEDGERS_PROFILE, create=True)
    try:
        rows = planned_rows(plan)
        while batch := [Put(key, value) for key, value in islice(rows, _BATCH_ROWS)]:
            store.write(batch, sync=False)
        store.write([], sync=True)
        store.flush()
        # Without the note a database without rows would pass for an empty one in place of a lost one.
        note_written(store)
    finally:
        store.close()
    _verify(work.at("database"), plan)
    return len(plan.rows)


def _verify(database: str, plan: LedgerPlan) -> None:
    expected = planned_rows(plan)
    store = open_read_only(database)
    try:
        for row in store.iterate():
            if row != next(expected, None):
                raise CorruptionError(
                    "new ledgers", expected="the rows written", found=row[0].hex(), path=database
                )
    finally:
        store.close()
    missing = next(expected, None)
    if missing is not None:
        raise CorruptionError("new ledgers", expected=f"row {missing[0].hex()}", found="none", path=database)
