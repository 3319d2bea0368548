"""A bookie on the twins of file system and key-value store, which can be stopped at any step."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from bkctl.admin.journals.limbo_rows import LedgerDatabases
from bkctl.codec.ledger_data import LedgerData, decode_ledger_data, encode_ledger_key
from bkctl.kvstore.base import KeyValueReader, KeyValueStore, Operation
from bkctl.kvstore.memory import MemoryStore
from bkctl.scan.index import open_store
from bkctl.vfs import FaultyFileSystem, MemoryFileSystem

ROOT = "/b"


class BookieInMemory:
    """The files below a folder, and the rows of its ``ledgers`` databases by path.

    Of ``crash_after`` persistence steps of files and databases together each happens, and nothing more.
    """

    def __init__(
        self, files: MemoryFileSystem, rows: dict[str, dict[bytes, bytes]], crash_after: int | None = None
    ) -> None:
        self.disk = files
        self.files = FaultyFileSystem(files, crash_after=crash_after)
        self._stores = {path: _Store(self.files, values, path) for path, values in rows.items()}
        self.databases = LedgerDatabases(self._open, self._open_to_write)

    @classmethod
    def copy_of(cls, root: Path) -> BookieInMemory:
        """Read a stopped bookie."""
        found = {
            f"{ROOT}/{path.relative_to(root)}": path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }
        rows = {}
        for path in root.glob("*/current/ledgers"):
            store = open_store(str(path))
            rows[f"{ROOT}/{path.relative_to(root)}"] = dict(store.iterate())
            store.close()
        return cls(MemoryFileSystem(found), rows)

    def again(self, crash_after: int | None = None) -> BookieInMemory:
        """Return a second one as this one was at first; only of one that nothing was done to."""
        return BookieInMemory(MemoryFileSystem(self.disk.files), self._rows(), crash_after)

    def after_power_cut(self, chance: random.Random) -> BookieInMemory:
        """Return what a power cut at this moment leaves."""
        rows = {path: dict(store.crash(chance).iterate()) for path, store in self._stores.items()}
        return BookieInMemory(self.disk.crash(chance), rows)

    def row(self, ledger: int) -> LedgerData | None:
        """Return the row of a ledger."""
        store = self._stores[sorted(self._stores)[ledger % len(self._stores)]]
        value = store.get(encode_ledger_key(ledger))
        return None if value is None else decode_ledger_data(value)

    def _rows(self) -> dict[str, dict[bytes, bytes]]:
        return {path: dict(store.iterate()) for path, store in self._stores.items()}

    def _open(self, path: str) -> KeyValueReader:
        return self._stores[path]

    def _open_to_write(self, path: str) -> KeyValueStore:
        return self._stores[path]


class _Store(MemoryStore):
    """A store whose batches are steps of the machine, and that is never really closed."""

    def __init__(self, system: FaultyFileSystem, rows: dict[bytes, bytes], path: str) -> None:
        super().__init__(rows, path=path)
        self._system = system

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        self._system.enter("write", self.path)
        super().write(operations, sync=sync)

    def close(self) -> None:
        pass
