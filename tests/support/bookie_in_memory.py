"""A bookie on the twins of file system and key-value store, which can be stopped at any step."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

from bkctl.admin.index.stopped_index import IndexDatabases
from bkctl.codec.file_info import decode_header, index_path, slot_offset
from bkctl.codec.ledger_data import LedgerData, decode_ledger_data, encode_ledger_key
from bkctl.codec.location import Location, decode_value, encode_key
from bkctl.engine.interleaved_storage.index_headers import row_of
from bkctl.kvstore.base import KeyValueReader, KeyValueStore, Operation
from bkctl.kvstore.memory import MemoryStore
from bkctl.scan.index_databases import open_store
from bkctl.vfs.faulty import FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem

ROOT = "/b"
DATABASES = ("ledgers", "locations")
_ROWS = "rows"


class BookieInMemory:
    """The files below a folder, among them the rows of its databases, each database a single file of rows.

    Of ``crash_after`` persistence steps each happens, and nothing more.
    """

    def __init__(self, files: MemoryFileSystem, crash_after: int | None = None) -> None:
        self.disk = files
        self.files = FaultyFileSystem(files, crash_after=crash_after)
        self.databases = IndexDatabases(self._open, self._open_to_write)

    @classmethod
    def copy_of(cls, root: Path) -> BookieInMemory:
        """Read a stopped bookie."""
        stores = [path for name in DATABASES for path in root.glob(f"*/current/{name}")]
        found = {
            f"{ROOT}/{path.relative_to(root)}": path.read_bytes()
            for path in root.rglob("*")
            if path.is_file() and not any(path.is_relative_to(each) for each in stores)
        }
        for path in stores:
            store = open_store(str(path))
            found[f"{ROOT}/{path.relative_to(root)}/{_ROWS}"] = _encoded(dict(store.iterate()))
            found[f"{ROOT}/{path.relative_to(root)}/CURRENT"] = b"a database"
            store.close()
        return cls(MemoryFileSystem(found))

    def again(self, crash_after: int | None = None) -> BookieInMemory:
        """Return a second one with the files that this one has now."""
        return BookieInMemory(MemoryFileSystem(self.disk.files), crash_after)

    def after_power_cut(self, chance: random.Random) -> BookieInMemory:
        """Return what a power cut at this moment leaves."""
        return BookieInMemory(self.disk.crash(chance))

    @property
    def content(self) -> dict[str, bytes]:
        """The files below the bookie's folder, those that a killed ``replace`` has left not among them."""
        found = {path: data for path, data in self.disk.files.items() if path.startswith(f"{ROOT}/")}
        return {path: data for path, data in found.items() if not path.endswith(".tmp")}

    def row(self, ledger: int) -> LedgerData | None:
        """Return the row of a ledger."""
        if self._is_of_files:
            content = self._index_file(ledger)
            return None if content is None else row_of(decode_header(content))
        value = self._of_ledger(ledger, "ledgers").get(encode_ledger_key(ledger))
        return None if value is None else decode_ledger_data(value)

    def location(self, ledger: int, entry: int) -> Location | None:
        """Return where the index has an entry."""
        if self._is_of_files:
            content = self._index_file(ledger) or b""
            slot = content[slot_offset(entry) : slot_offset(entry + 1)]
            return decode_value(slot) if any(slot) else None
        value = self._of_ledger(ledger, "locations").get(encode_key(ledger, entry))
        return None if value is None else decode_value(value)

    @property
    def _is_of_files(self) -> bool:
        return not any(path.endswith(f"/locations/{_ROWS}") for path in self.disk.files)

    def _index_file(self, ledger: int) -> bytes | None:
        end = f"current/{index_path(ledger)}"
        return next((data for path, data in self.disk.files.items() if path.endswith(end)), None)

    def _of_ledger(self, ledger: int, name: str) -> dict[bytes, bytes]:
        files = self.disk.files
        paths = sorted(path for path in files if path.endswith(f"/{name}/{_ROWS}") and "bkctl-" not in path)
        return _decoded(files[paths[ledger % len(paths)]])

    def _open(self, path: str) -> KeyValueReader:
        return _Store(self.files, path)

    def _open_to_write(self, path: str) -> KeyValueStore:
        return _Store(self.files, path)


class _Store(MemoryStore):
    """A store whose batches replace its file, so that each step of that is one of the machine."""

    def __init__(self, system: FaultyFileSystem, path: str) -> None:
        file = system.open(f"{path}/{_ROWS}")
        super().__init__(_decoded(file.read_at(0, file.size_bytes)), path=path)
        self._system = system

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        super().write(operations, sync=sync)
        self._system.replace(f"{self.path}/{_ROWS}", _encoded(dict(self.iterate())))


def _encoded(rows: dict[bytes, bytes]) -> bytes:
    return json.dumps({key.hex(): value.hex() for key, value in rows.items()}).encode()


def _decoded(content: bytes) -> dict[bytes, bytes]:
    return {bytes.fromhex(key): bytes.fromhex(value) for key, value in json.loads(content).items()}
