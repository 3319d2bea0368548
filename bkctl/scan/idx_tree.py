"""The ``.idx`` files below a ``current`` directory, read as locations and as ledgers.

One file is open at a time, and of that one window of slots is in memory. The names of all files are listed
first, because ledgers are to come in order.

A file whose header does not decode gives one IndexDamage and nothing else, however often it is read. A
``.idx.rloc`` is a copy in progress; as for Java at start-up it counts only when there is no ``.idx`` beside
it. (Java looks for that in all index directories, this only in one.)
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from contextlib import closing
from posixpath import join

from bkctl.codec import file_info
from bkctl.codec.file_info import HEADER_BYTES, SLOT_BYTES, FileInfoHeader, SlotColumns
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import ID_MAX, OFFSET_MAX, Location, LocationColumns, unpack_location
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.reporting import counted
from bkctl.scan.index_rows import BATCH_ROWS, IndexDamage, LedgerRow, reason_of
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

_HEX_DIRECTORY = re.compile(r"[0-9a-f]{1,2}")
_SUFFIXES = (".idx", ".idx.rloc")


def has_idx_files(fs: FileSystem, current_dir: str) -> bool:
    """Return whether there is any ``<hex>/<hex>/*.idx[.rloc]``. Raises NotFoundError, StorageError."""
    return next(_paths(fs, current_dir), None) is not None


def is_hex_folder(name: str) -> bool:
    """Return whether a name is one of those that both levels of folders around ``.idx`` files have."""
    return _HEX_DIRECTORY.fullmatch(name) is not None


class IdxTree:
    """A ``current`` directory with ``.idx`` files."""

    def __init__(self, fs: FileSystem, current_dir: str) -> None:
        self._fs = fs
        self.path = current_dir

    def locations(
        self, ledger: int | None = None, entries: tuple[int, int] | None = None
    ) -> Iterator[LocationColumns | IndexDamage]:
        """Yield locations as ``LocationSource.rows`` does; a sector that cannot be read is damage, too."""
        first, last = entries or (0, ID_MAX)
        if ledger is None:
            damage, files = self.files()
            yield from damage
        else:
            path = self._path(ledger)
            files = {} if path is None else {ledger: path}
        for number in sorted(files):
            yield from self._slots(number, files[number], max(first, 0), last)

    def ledger_rows(self) -> Iterator[LedgerRow | IndexDamage]:
        """Yield the rows of ledgers as :meth:`bkctl.scan.index_rows.LedgerSource.rows` does."""
        damage, files = self.files()
        yield from damage
        for ledger in sorted(files):
            path = files[ledger]
            try:
                header = self._header(path)
            except NotFoundError:
                continue  # deleted since it was listed
            except (CorruptionError, StorageError) as error:
                yield _damage(path, error)
                continue
            if header.has_ledger:
                yield LedgerRow(ledger, _ledger_data(header))

    def header(self, ledger: int) -> FileInfoHeader | None:
        """Return the header of a ledger's file, None when it has none.

        Raises CorruptionError, StorageError.
        """
        path = self._path(ledger)
        return None if path is None else self._header(path)

    def get(self, ledger: int, entry: int) -> Location | None:
        """Return the location of an entry, None when it is absent. Raises CorruptionError, StorageError."""
        path = self._path(ledger)
        if path is None or entry < 0:
            return None
        with closing(self._fs.open(path)) as file:
            _decode_header(path, file.read_at(0, HEADER_BYTES))
            offset = file_info.slot_offset(entry)
            if offset >= file.size_bytes:
                return None
            data = file.read_at(offset, SLOT_BYTES)
        try:
            return unpack_location(file_info.decode_slot(data))
        except CorruptionError as error:
            raise error.located(path, offset) from None

    def last_entry(self, ledger: int) -> int | None:
        """Return the largest entry id with a location. Raises CorruptionError, StorageError."""
        path = self._path(ledger)
        if path is None:
            return None
        with closing(self._fs.open(path)) as file:
            _decode_header(path, file.read_at(0, HEADER_BYTES))
            slots = (file.size_bytes - HEADER_BYTES) // SLOT_BYTES
            while slots > 0:
                first = max(0, slots - BATCH_ROWS)
                data = file.read_at(file_info.slot_offset(first), (slots - first) * SLOT_BYTES)
                columns = file_info.decode_slots(data[: len(data) // SLOT_BYTES * SLOT_BYTES], first)
                if columns:
                    return columns.entries[-1]
                slots = first
        return None

    def _path(self, ledger: int) -> str | None:
        if ledger < 0:
            return None
        path = join(self.path, file_info.index_path(ledger))
        for candidate in (path, f"{path}.rloc"):
            if self._fs.status(candidate) is not None:
                return candidate
        return None

    def files(self) -> tuple[list[IndexDamage], dict[int, str]]:
        """Return the files that stand where no reader would look for them, and the path of each ledger's
        file.

        Files without a ledger are among them. Raises StorageError.
        """
        damage: list[IndexDamage] = []
        files: dict[int, str] = {}
        for path in _paths(self._fs, self.path):
            try:
                name = file_info.parse_index_path(path)
            except CorruptionError as error:
                damage.append(_damage(path, error))
                continue
            if not name.relocating or name.ledger not in files:
                files[name.ledger] = path
        return damage, files

    def _header(self, path: str) -> FileInfoHeader:
        with closing(self._fs.open(path)) as file:
            return _decode_header(path, file.read_at(0, HEADER_BYTES))

    def _slots(
        self, ledger: int, path: str, first: int, last: int
    ) -> Iterator[LocationColumns | IndexDamage]:
        try:
            opened = self._fs.open(path)
        except NotFoundError:
            return  # deleted since it was listed
        except StorageError as error:
            yield _damage(path, error)
            return
        with closing(opened):
            try:
                _decode_header(path, opened.read_at(0, HEADER_BYTES))
            except (CorruptionError, StorageError) as error:
                yield _damage(path, error)
                return
            yield from _windows(ledger, SteadyFile(opened), first, last)


class IdxLocations:
    """An :class:`IdxTree` as a :class:`bkctl.scan.index_rows.LocationSource`."""

    def __init__(self, tree: IdxTree) -> None:
        self._tree = tree

    @property
    def path(self) -> str:
        return self._tree.path

    def rows(
        self, ledger: int | None = None, entries: tuple[int, int] | None = None
    ) -> Iterator[LocationColumns | IndexDamage]:
        return self._tree.locations(ledger, entries)

    def get(self, ledger: int, entry: int) -> Location | None:
        return self._tree.get(ledger, entry)

    def last_entry(self, ledger: int) -> int | None:
        return self._tree.last_entry(ledger)


class IdxLedgers:
    """An :class:`IdxTree` as a :class:`bkctl.scan.index_rows.LedgerSource`."""

    def __init__(self, tree: IdxTree) -> None:
        self._tree = tree

    @property
    def path(self) -> str:
        return self._tree.path

    def rows(self) -> Iterator[LedgerRow | IndexDamage]:
        return self._tree.ledger_rows()

    def merged(self) -> Iterator[LedgerRow | IndexDamage]:
        return self._tree.ledger_rows()

    def get(self, ledger: int) -> LedgerRow | None:
        header = self._tree.header(ledger)
        return None if header is None else LedgerRow(ledger, _ledger_data(header))

    def needs_integrity_check(self) -> bool:
        """Return False: only DbLedgerStorage has the flag."""
        return False


def _paths(fs: FileSystem, current_dir: str) -> Iterator[str]:
    """Yield every ``.idx`` before its ``.idx.rloc``."""
    for upper in _hex_directories(fs, current_dir):
        for lower in _hex_directories(fs, upper):
            for name in fs.names(lower):
                if name.endswith(_SUFFIXES):
                    yield join(lower, name)


def _hex_directories(fs: FileSystem, path: str) -> Iterator[str]:
    for name in fs.names(path):
        below = join(path, name)
        if _HEX_DIRECTORY.fullmatch(name):
            facts = fs.status(below)
            if facts is not None and facts.is_dir:
                yield below


def _windows(ledger: int, file: SteadyFile, first: int, last: int) -> Iterator[LocationColumns | IndexDamage]:
    """Iterate over the slots of entries ``first`` to ``last``, window by window."""
    slots, odd_bytes = divmod(file.size_bytes - HEADER_BYTES, SLOT_BYTES)
    end = min(last + 1, slots)
    named = 0
    for entry in range(first, end, BATCH_ROWS):
        offset = file_info.slot_offset(entry)
        data = file.read_at(offset, min(BATCH_ROWS, end - entry) * SLOT_BYTES)
        yield from _located(ledger, file.path, file_info.decode_slots(data, entry))
        for start, stop in file.unreadable[named:]:
            yield IndexDamage(file.path, "", f"{counted(stop - start, 'byte')} cannot be read", start)
        named = len(file.unreadable)
    if odd_bytes and last >= slots:
        yield IndexDamage(
            file.path, "", f"{counted(odd_bytes, 'byte')} of a slot at the end", file_info.slot_offset(slots)
        )


def _located(ledger: int, path: str, slots: SlotColumns) -> Iterator[LocationColumns | IndexDamage]:
    damage: list[IndexDamage] = []
    entries, packed = slots.entries, slots.locations
    if packed and min(packed) < 0:
        for entry, location in zip(entries, packed, strict=True):
            if location < 0:
                reason = f"location {location} of entry {entry} is negative"
                damage.append(IndexDamage(path, "", reason, file_info.slot_offset(entry)))
        entries = array("q", [entry for entry, at in zip(entries, packed, strict=True) if at > 0])
        packed = array("q", [at for at in packed if at > 0])
    if entries:
        log_ids = array("i", [at >> 32 for at in packed])
        offsets = array("I", [at & OFFSET_MAX for at in packed])
        yield LocationColumns(array("q", [ledger]) * len(entries), entries, log_ids, offsets)
    yield from damage


def _decode_header(path: str, data: bytes) -> FileInfoHeader:
    try:
        return file_info.decode_header(data)
    except CorruptionError as error:
        raise error.located(path) from None


def _ledger_data(header: FileInfoHeader) -> LedgerData:
    return LedgerData(header.fenced, header.master_key, header.explicit_lac, header.limbo or None)


def _damage(path: str, error: CorruptionError | StorageError) -> IndexDamage:
    return IndexDamage(path, "", reason_of(error), error.offset or 0)
