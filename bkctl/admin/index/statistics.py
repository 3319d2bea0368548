"""``index stats`` and ``index compact``: what the databases of an index are made of, and making them small.

Tombstones are what deleted ledgers leave in ``locations``: until a compaction every read across them steps
over each. Statistics are read without a lock and without a trace; compaction opens the database for writing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from posixpath import join

from bkctl.codec.location import KEY_BYTES, VALUE_BYTES
from bkctl.errors import NotFoundError
from bkctl.kvstore.base import KeyValueStore, StoreStatistics
from bkctl.reporting import Advance
from bkctl.scan.directory import inspect_directory, is_key_value_store
from bkctl.scan.files.entrylogs import show_log
from bkctl.scan.index import open_index
from bkctl.scan.index_databases import LEDGERS, LOCATIONS, METADATA_CACHE, open_store
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import FileSystem

DATABASES = (LOCATIONS, LEDGERS, METADATA_CACHE)
#: Bytes of a location in the index before compression: key and value.
ROW_BYTES = KEY_BYTES + VALUE_BYTES


@dataclass(frozen=True, slots=True)
class StoreRow:
    """One database of a directory. ``statistics`` as :class:`bkctl.kvstore.base.StoreStatistics`."""

    dir: str
    database: str
    statistics: StoreStatistics


@dataclass(frozen=True, slots=True)
class LedgerRowsRow:
    """The rows of one ledger in the location index: entries, and ``bytes`` of rows before compression.

    ``data_bytes`` are the bytes of the ledger's entries in the entry logs of the same directory, with their
    size words and with the copies that replays and compactions left; None where the directory has no log.
    """

    dir: str
    ledger: int
    entries: int
    first_entry: int
    last_entry: int
    bytes: int
    data_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CompactionRow:
    """One database before and after its compaction."""

    dir: str
    database: str
    before: StoreStatistics
    after: StoreStatistics
    seconds: float


def store_statistics(fs: FileSystem, dirs: Sequence[str]) -> Iterator[StoreRow]:
    """Yield the databases in ``current`` directories, a running bookie's included. ``.idx`` files have none.

    Raises CorruptionError and StorageError when a database cannot be opened.
    """
    for directory, name in databases_of(fs, dirs):
        store = open_store(join(directory, name))
        try:
            yield StoreRow(directory, name, store.statistics())
        finally:
            store.close()


def databases_of(fs: FileSystem, dirs: Sequence[str]) -> list[tuple[str, str]]:
    """List the directory and the name of each database in ``dirs``."""
    return [
        (directory, name)
        for directory in dirs
        for name in DATABASES
        if is_key_value_store(fs, join(directory, name))
    ]


def ledger_statistics(fs: FileSystem, dirs: Sequence[str]) -> Iterator[LedgerRowsRow | IndexDamage]:
    """Count the rows of each ledger in the location indexes, in order, by one pass over all locations.

    The bytes of the ledgers' data are taken from the logs beside an index.

    Works on databases and on ``.idx`` files. Raises CorruptionError and StorageError when an index cannot be
    read any further.
    """
    for directory in dirs:
        index = open_index(fs, directory)
        if index is None:
            continue
        data_bytes = _data_bytes(fs, directory)
        with index:
            for row in _ledgers_of(directory, index.locations.rows()):
                if data_bytes is not None and isinstance(row, LedgerRowsRow):
                    yield replace(row, data_bytes=data_bytes.get(row.ledger, 0))
                else:
                    yield row


def _data_bytes(fs: FileSystem, directory: str) -> dict[int, int] | None:
    """Add up the bytes of each ledger in the entry logs of a directory; None when there is no log.

    They are taken from the maps of rolled logs; a log without a map is read. Raises StorageError.
    """
    logs = [log for log in inspect_directory(fs, directory).logs if not log.compaction]
    if not logs:
        return None
    found: dict[int, int] = {}
    for log in logs:
        try:
            shares = show_log(fs, log).ledgers
        except NotFoundError:
            continue  # a running bookie's collection removed it since it was listed
        for share in shares:
            found[share.ledger] = found.get(share.ledger, 0) + share.bytes
    return found


def _ledgers_of(directory: str, batches: Iterator[object]) -> Iterator[LedgerRowsRow | IndexDamage]:
    from bkctl.codec.location import LocationColumns

    last: LedgerRowsRow | None = None
    for batch in batches:
        if isinstance(batch, IndexDamage):
            yield batch
            continue
        assert isinstance(batch, LocationColumns)
        at = 0
        for ledger, group in groupby(batch.ledgers):
            count = sum(1 for _ in group)
            first, entries = batch.entries[at], count
            if last is not None and last.ledger == ledger:
                first, entries = last.first_entry, last.entries + count
            elif last is not None:
                yield last
            last_entry = batch.entries[at + count - 1]
            last = LedgerRowsRow(directory, ledger, entries, first, last_entry, entries * ROW_BYTES)
            at += count
    if last is not None:
        yield last


def compact(
    fs: FileSystem, dirs: Sequence[str], advance: Advance = lambda _: None
) -> Iterator[CompactionRow]:
    """Compact every database in directories that a ``DirectoryLock`` holds, one row for each.

    In steps of about one table, so that an interruption waits for no more than that; what was compacted so
    far stays. ``advance`` gets the bytes of tables that a step has rewritten. Needs the disk space of the
    step's tables beside them. Raises RefusedError when a process holds a database, CorruptionError and
    StorageError.
    """
    from bkctl.kvstore import rocksdb_store
    from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE

    for directory, name in databases_of(fs, dirs):
        profile = LOCATIONS_PROFILE if name == LOCATIONS else LEDGERS_PROFILE
        started = time.monotonic()
        with rocksdb_store.open_store(join(directory, name), profile, create=False) as store:
            before = store.statistics()
            store.flush()
            for start, stop, size in _steps(store):
                store.compact(start, stop)
                advance(size)
            after = store.statistics()
        yield CompactionRow(directory, name, before, after, round(time.monotonic() - started, 3))


def _steps(store: KeyValueStore) -> list[tuple[bytes | None, bytes | None, int]]:
    """List ranges that cover all keys, one for each table of the deepest level, and the table's bytes."""
    tables = store.tables()
    deepest = max((table.level for table in tables), default=0)
    if deepest == 0:  # the tables of level 0 overlap
        return [(None, None, sum(table.size_bytes for table in tables))]
    own = sorted((table.start, table.size_bytes) for table in tables if table.level == deepest)
    starts: list[bytes | None] = [None, *(start for start, _ in own[1:])]
    stops: list[bytes | None] = [*starts[1:], None]
    return [(start, stop, size) for start, stop, (_, size) in zip(starts, stops, own, strict=True)]
