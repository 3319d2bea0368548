"""The ``.idx`` files of a stopped bookie as rows of ledgers and of entries, read and written in place.

A header is one ledger's row, a slot one entry's; both have the keys and values of DbLedgerStorage here. They
are written where they are, as a bookie that runs writes them: a header durably at once, slots in whole pages
that are durable with the next sync. So a kill between two files leaves old and new ones, each of them whole.

Files that a crash has left (``.rloc``, ``.tmp``) stay for the next start, which puts them in order; a copy in
progress is the ledger's file where there is no other.
"""

from __future__ import annotations

import struct
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from posixpath import dirname, join

from bkctl.admin.repairs.repair_journal import Intent, changes_file, changes_start, makes_directory
from bkctl.codec.file_info import (
    HEADER_BYTES,
    PAGE_BYTES,
    SLOT_BYTES,
    FileInfoHeader,
    decode_header,
    encode_header,
    index_path,
)
from bkctl.codec.ledger_data import KEY_BYTES, decode_ledger_data, encode_ledger_data, encode_ledger_key
from bkctl.codec.location import ID_MAX, LocationColumns
from bkctl.engine.interleaved_storage.index_files import ENTRIES_MAX
from bkctl.engine.interleaved_storage.index_headers import header_of, row_of
from bkctl.engine.interleaved_storage.index_places import settle_names
from bkctl.engine.interleaved_storage.interleaved_ledger_storage import ENTRY_ID_MAX
from bkctl.engine.interleaved_storage.ledger_file import LedgerFile
from bkctl.errors import CorruptionError, RefusedError
from bkctl.kvstore.base import Operation, Put, Row
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import FileSystem, ReadableFile, WritableFileSystem

_RELOCATING = ".rloc"
_KEY = struct.Struct(">qq")
_VALUE = struct.Struct(">q")
_ABSENT = bytes(SLOT_BYTES)
_PAGE_SLOTS = PAGE_BYTES // SLOT_BYTES
#: Files that are open at a time.
_OPEN_MAX = 64


class _Homes:
    """The file of each ledger, in one of the index directories.

    Raises RefusedError where a ledger has two, of which nobody knows which one counts; StorageError.
    """

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        self._fs = fs
        self.directories = directories
        self.paths: dict[int, str] = {}
        self._trees = [IdxTree(fs, directory) for directory in directories]
        self._tree_of: dict[int, IdxTree] = {}
        for tree in self._trees:
            for ledger, path in tree.files()[1].items():
                self._take(ledger, path, tree)

    def _take(self, ledger: int, path: str, tree: IdxTree) -> None:
        there = self.paths.get(ledger)
        if there is not None and not path.endswith(_RELOCATING) and not there.endswith(_RELOCATING):
            raise RefusedError(
                f"ledger {ledger} has two index files, {there} and {path}; make the index again: bkctl index"
                " rebuild"
            )
        if there is None or there.endswith(_RELOCATING):
            self.paths[ledger], self._tree_of[ledger] = path, tree

    def directory(self, ledger: int) -> str:
        """Return the directory of a ledger's file; the first one for a ledger that has none."""
        tree = self._tree_of.get(ledger)
        return self.directories[0] if tree is None else tree.path

    def header(self, ledger: int) -> FileInfoHeader | None:
        """Return the header of a ledger's file, also of one that has no ledger; None without a file.

        A file of no byte is none: Java makes it so. Raises CorruptionError, StorageError.
        """
        path = self.paths.get(ledger)
        if path is None:
            return None
        with closing(self._fs.open(path)) as file:
            return _header(file)

    def columns(self, ledger: int) -> Iterator[LocationColumns | IndexDamage]:
        """Yield the slots of a ledger's file."""
        return self._tree_of[ledger].locations(ledger, (0, ID_MAX))


def _header(file: ReadableFile) -> FileInfoHeader | None:
    if not file.size_bytes:
        return None
    try:
        return decode_header(file.read_at(0, HEADER_BYTES))
    except CorruptionError as error:
        raise error.located(file.path) from None


class HeaderRows:
    """The headers as rows of ledgers; with ``to_write`` they can be changed."""

    damage: str | None = None

    def __init__(
        self, fs: FileSystem, directories: Sequence[str], to_write: WritableFileSystem | None = None
    ) -> None:
        self._homes = _Homes(fs, directories)
        self._to_write = to_write

    @property
    def path(self) -> str:
        return self._homes.directories[0]

    def get(self, key: bytes) -> bytes | None:
        if len(key) != KEY_BYTES:
            return None
        header = self._homes.header(int.from_bytes(key, "big", signed=True))
        return None if header is None or not header.has_ledger else encode_ledger_data(row_of(header))

    def iterate(self) -> Iterator[Row]:
        for ledger in sorted(self._homes.paths):
            header = self._homes.header(ledger)
            if header is not None and header.has_ledger:
                yield encode_ledger_key(ledger), encode_ledger_data(row_of(header))

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """Change headers, each durably; nothing is written before all of them are known to have room."""
        del sync
        headers: dict[int, FileInfoHeader] = {}
        for operation in operations:
            assert isinstance(operation, Put), "a ledger's row is put, and has no second key"
            ledger = int.from_bytes(operation.key, "big", signed=True)
            before = self._homes.header(ledger)
            headers[ledger] = header_of(
                decode_ledger_data(operation.value), 0 if before is None else before.state
            )
            _refuse_long(ledger, headers[ledger])
        for ledger, header in headers.items():
            self._write(ledger, header)

    def _write(self, ledger: int, header: FileInfoHeader) -> None:
        assert self._to_write is not None, "the rows were opened to be changed"
        if self._homes.header(ledger) is None:
            settle_names(self._to_write, self._homes.directories, ledger)
            LedgerFile.create(self._to_write, self._homes.directory(ledger), ledger, header).close()
            return
        with closing(LedgerFile.open(self._to_write, self._homes.paths[ledger])) as file:
            file.write_header(header)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _refuse_long(ledger: int, header: FileInfoHeader) -> None:
    try:
        encode_header(header)
    except ValueError as error:
        raise RefusedError(f"ledger {ledger}: {error}; nothing was changed") from None


class SlotRows:
    """The slots of ledgers as rows of entries; with ``to_write`` they can be changed."""

    damage: str | None = None

    def __init__(
        self, fs: FileSystem, directories: Sequence[str], to_write: WritableFileSystem | None = None
    ) -> None:
        self._fs = fs
        self._homes = _Homes(fs, directories)
        self._to_write = to_write
        self._read: OrderedDict[int, _SlotReader] = OrderedDict()
        self._written: OrderedDict[int, LedgerFile] = OrderedDict()

    @property
    def path(self) -> str:
        return self._homes.directories[0]

    def columns(self) -> Iterator[LocationColumns | IndexDamage]:
        for ledger in sorted(self._homes.paths):
            header = self._homes.header(ledger)
            if header is not None and header.has_ledger:
                yield from self._homes.columns(ledger)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for ledger, entries in _by_ledger(keys):
            reader = self._reader(ledger)
            found += [None if reader is None else reader.slot(entry) for entry in entries]
        return found

    def _reader(self, ledger: int) -> _SlotReader | None:
        reader = self._read.get(ledger)
        if reader is not None:
            self._read.move_to_end(ledger)
            return reader
        header = self._homes.header(ledger)
        if header is None or not header.has_ledger:
            return None
        self._read[ledger] = reader = _SlotReader(self._fs.open(self._homes.paths[ledger]))
        if len(self._read) > _OPEN_MAX:
            self._read.popitem(last=False)[1].close()
        return reader

    def put_many(self, keys: Sequence[bytes], locations: Sequence[int]) -> None:
        at = 0
        for ledger, entries in _by_ledger(keys):
            reader = self._read.pop(ledger, None)
            if reader is not None:
                reader.close()
            file = self._file(ledger)
            pages: dict[int, array[int]] = {}
            for entry, location in zip(entries, locations[at : at + len(entries)], strict=True):
                if not 0 <= entry <= ENTRY_ID_MAX:
                    raise RefusedError(f"ledger {ledger}: entry {entry} has no slot in an index file")
                number, place = divmod(entry, _PAGE_SLOTS)
                slots = pages.get(number)
                if slots is None:
                    slots = pages[number] = file.read_page(number)
                slots[place] = location
            for number, slots in pages.items():
                file.write_page(number, slots)
            at += len(entries)

    def _file(self, ledger: int) -> LedgerFile:
        assert self._to_write is not None, "the rows were opened to be changed"
        file = self._written.get(ledger)
        if file is None:
            self._written[ledger] = file = LedgerFile.open(self._to_write, self._homes.paths[ledger])
            if len(self._written) > _OPEN_MAX:
                _synced(self._written.popitem(last=False)[1])
        self._written.move_to_end(ledger)
        return file

    def sync(self) -> None:
        while self._written:
            _synced(self._written.popitem()[1])

    def close(self) -> None:
        for reader in self._read.values():
            reader.close()
        for file in self._written.values():
            file.close()
        self._read.clear()
        self._written.clear()


def _synced(file: LedgerFile) -> None:
    with closing(file):
        file.sync()


class _SlotReader:
    """An open file whose last page is kept."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._number = -1
        self._page = b""

    def slot(self, entry: int) -> bytes | None:
        if not 0 <= entry < ENTRIES_MAX:
            return None
        number, place = divmod(entry, _PAGE_SLOTS)
        if number != self._number:
            self._page = self._file.read_at(HEADER_BYTES + number * PAGE_BYTES, PAGE_BYTES)
            self._number = number
        value = self._page[place * SLOT_BYTES : (place + 1) * SLOT_BYTES]
        return None if len(value) < SLOT_BYTES or value == _ABSENT else value

    def close(self) -> None:
        self._file.close()


def _by_ledger(keys: Sequence[bytes]) -> Iterator[tuple[int, list[int]]]:
    for ledger, run in groupby(map(_KEY.unpack, keys), key=lambda pair: pair[0]):
        yield ledger, [entry for _, entry in run]


def header_intents(fs: FileSystem, directories: Sequence[str], ledgers: Collection[int]) -> list[Intent]:
    """Return what giving ledgers other headers changes: the start of a file, or a file that is made."""
    return _intents(fs, directories, {}, ledgers)


def slot_intents(
    fs: FileSystem, directories: Sequence[str], ledgers: Collection[int], headers: Collection[int]
) -> list[Intent]:
    """Return what giving ledgers other slots, and some of them other headers, changes."""
    return _intents(fs, directories, ledgers, headers)


def _intents(
    fs: FileSystem, directories: Sequence[str], slots: Collection[int], headers: Collection[int]
) -> list[Intent]:
    homes, found = _Homes(fs, directories), dict[str, Intent]()
    for ledger in sorted({*slots, *headers}):
        path = homes.paths.get(ledger)
        header = homes.header(ledger)
        # One without a ledger may be replaced by one without its slots.
        if path is not None and header is not None and header.has_ledger:
            found[path] = changes_file(path) if ledger in slots else changes_start(path, HEADER_BYTES)
            continue
        path = join(homes.directory(ledger), index_path(ledger))
        for folder in (dirname(dirname(path)), dirname(path)):
            found.setdefault(folder, makes_directory(folder))
        found[path] = changes_file(path)
    return list(found.values())
