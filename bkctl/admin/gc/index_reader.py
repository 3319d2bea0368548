"""Read what the index of a space says of ledgers and of places, without leaving a trace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from posixpath import join
from struct import Struct

from bkctl.codec.entry import EntryBatch
from bkctl.codec.location import VALUE_BYTES
from bkctl.directories.index_spaces import IndexSpace
from bkctl.engine.gc.copying import located
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.kvstore.base import KeyValueReader
from bkctl.scan.index import DirectoryIndex, open_index
from bkctl.scan.index_databases import LOCATIONS, open_store
from bkctl.scan.index_rows import IndexDamage, LedgerRow
from bkctl.scan.location_index import LocationIndex
from bkctl.vfs import FileSystem

#: A range of an ``.idx`` file is read whole when it has fewer slots than this for each entry looked up.
_SLOTS_PER_ENTRY = 64
_VALUE = Struct(">q")
_KEY_BYTES = 16


class IndexReader:
    """The ledger rows of a space in memory, its locations on demand. A context manager.

    ``ledgers`` are the ids that have a row; ``damage`` are rows that do not decode, ``doubtful`` the ledgers
    of such rows, as far as they are known. ``needs_integrity_check`` is Java's mark of an index that is being
    filled again.
    """

    def __init__(self, filesystem: FileSystem, space: IndexSpace) -> None:
        """Open the index of a space; where there is none at all, there are no rows.

        Raises CorruptionError and StorageError when the index cannot be read.
        """
        self.ledgers: set[int] = set()
        self.damage: list[IndexDamage] = []
        self.doubtful: set[int] = set()
        self.needs_integrity_check = False
        self._stack = ExitStack()
        self._indexes: list[DirectoryIndex] = []
        self._store: KeyValueReader | None = None
        self._locations: LocationIndex | None = None
        done = False
        try:
            self._open(filesystem, space)
            done = True
        finally:
            if not done:
                self._stack.close()

    def _open(self, filesystem: FileSystem, space: IndexSpace) -> None:
        for directory in space.index_dirs:
            index = open_index(filesystem, directory)
            if index is not None:
                self._indexes.append(self._stack.enter_context(index))
        for index in self._indexes:
            self._read_ledgers(index)
        if space.kind.has_databases and space.index_dirs:
            self._store = _open_locations(space.index_dirs[0])
            self._stack.callback(self._store.close)
            self._locations = LocationIndex(self._store)
            if self._store.damage is not None:
                raise CorruptionError(self._store.damage, path=self._store.path)

    def _read_ledgers(self, index: DirectoryIndex) -> None:
        self.needs_integrity_check |= index.ledgers.needs_integrity_check()
        for row in index.ledgers.merged():
            if isinstance(row, LedgerRow):
                self.ledgers.add(row.ledger)
                continue
            if not row.key_hex and row.offset is None:
                # Rows may be missing without anybody knowing which.
                raise CorruptionError(row.reason, path=row.path)
            self.damage.append(row)
            if len(row.key_hex) >= _KEY_BYTES:
                self.doubtful.add(int.from_bytes(bytes.fromhex(row.key_hex[:_KEY_BYTES]), "big", signed=True))

    def has_locations(self, ledger: int) -> bool:
        """Return whether the location database has an entry of a ledger; ``.idx`` files have no others.

        Entries with negative ids do not count: a deletion leaves them behind. Raises CorruptionError,
        StorageError.
        """
        return self._locations is not None and self._locations.last_entry(ledger) is not None

    def compare(self, batch: EntryBatch, log_id: int) -> list[bool | None]:
        """Return whether the index has each record right here, in this log; None where it has no row at all.

        Raises CorruptionError, StorageError.
        """
        keys, places = located(batch, log_id)
        if self._store is None:
            return [
                None if there is None else there == place
                for there, place in zip(self._find_slots(batch), places, strict=True)
            ]
        values = self._store.get_many(keys)
        here = list(map(_VALUE.pack, places))
        if values == here:
            return [True] * len(here)
        path = self._store.path
        return [
            None if value is None else value == place or _is_elsewhere(value, key, path)
            for value, place, key in zip(values, here, keys, strict=True)
        ]

    def _find_slots(self, batch: EntryBatch) -> list[int | None]:
        wanted: dict[int, list[int]] = {}
        for ledger, entry in zip(batch.ledgers, batch.entries, strict=True):
            wanted.setdefault(ledger, []).append(entry)
        found = {ledger: self._slots(ledger, entries) for ledger, entries in wanted.items()}
        return [found[ledger].get(entry) for ledger, entry in zip(batch.ledgers, batch.entries, strict=True)]

    def _slots(self, ledger: int, entries: Sequence[int]) -> dict[int, int]:
        """Read packed locations of some entries of a ledger.

        The file of the ledger is in one of the index directories.
        """
        if ledger not in self.ledgers:
            return {}
        first, last = max(min(entries), 0), max(entries)
        slots: dict[int, int] = {}
        dense = last - first < _SLOTS_PER_ENTRY * len(entries)
        for index in self._indexes:
            ranges = [(first, last)] if dense else [(entry, entry) for entry in set(entries) if entry >= 0]
            for each in ranges:
                for rows in index.locations.rows(ledger, each):
                    if isinstance(rows, IndexDamage):
                        raise CorruptionError(rows.reason, path=rows.path, offset=rows.offset or 0)
                    for entry, log_id, offset in zip(rows.entries, rows.log_ids, rows.offsets, strict=True):
                        slots[entry] = log_id << 32 | offset
        return slots

    def __enter__(self) -> IndexReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _open_locations(directory: str) -> KeyValueReader:
    try:
        return open_store(join(directory, LOCATIONS))
    except NotFoundError:
        raise CorruptionError(
            "index of DbLedgerStorage", expected=f"a directory {LOCATIONS}", found="none", path=directory
        ) from None


def _is_elsewhere(value: bytes, key: bytes, path: str) -> bool | None:
    """Judge a value that is not the place of a record: False, or None for the 0 that means no row."""
    if len(value) != VALUE_BYTES or value[0] & 0x80:
        raise CorruptionError(
            f"location of {key.hex()}",
            expected=f"{VALUE_BYTES} bytes with a log id >= 0",
            found=value[:16].hex() or "nothing",
            path=path,
        )
    return False if any(value) else None
