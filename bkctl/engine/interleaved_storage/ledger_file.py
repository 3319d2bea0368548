"""The ``.idx`` file of one ledger, written: its header durably at once, its slots in whole pages.

Where Java loses data it is not followed. A header is durable when the call that writes it returns, also of a
ledger that gets no entry any more; Java syncs headers with pages only. A file whose header does not decode is
refused each time that it is opened; Java serves its next call from a state that is not fenced.

Source: ``org.apache.bookkeeper.bookie.FileInfo`` and ``LedgerEntryPage``; bytes are those of
:mod:`bkctl.codec.file_info`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from posixpath import dirname, join

from bkctl.codec.file_info import (
    HEADER_BYTES,
    PAGE_BYTES,
    SLOT_BYTES,
    FileInfoHeader,
    decode_header,
    decode_slots,
    encode_header,
    index_path,
)
from bkctl.errors import CorruptionError
from bkctl.vfs import WritableFile, WritableFileSystem

_SWAP = sys.byteorder == "little"


class LedgerFile:
    """An open file; used by one thread at a time. ``header`` is what the file says.

    A page is ``page_bytes`` of slots, a multiple of 8, as native numbers; pages behind the end have none.
    """

    def __init__(self, file: WritableFile, header: FileInfoHeader, page_bytes: int = PAGE_BYTES) -> None:
        self.header = header
        self._file = file
        self._page_bytes = page_bytes

    @classmethod
    def create(
        cls,
        filesystem: WritableFileSystem,
        current_dir: str,
        ledger: int,
        header: FileInfoHeader,
        page_bytes: int = PAGE_BYTES,
    ) -> LedgerFile:
        """Make the file of a ledger that has none. It has its name when its header is durable, not before.

        Raises ValueError for what a header cannot hold, StorageError.
        """
        path = join(current_dir, index_path(ledger))
        data = encode_header(header)
        filesystem.make_directories(dirname(path))
        filesystem.replace(path, data)
        return cls.open(filesystem, path, page_bytes)

    @classmethod
    def open(cls, filesystem: WritableFileSystem, path: str, page_bytes: int = PAGE_BYTES) -> LedgerFile:
        """Open a file. Raises NotFoundError, CorruptionError for its header, StorageError."""
        file = filesystem.open_to_write(path)
        try:
            return cls(file, decode_header(file.read_at(0, HEADER_BYTES)), page_bytes)
        except CorruptionError as error:
            file.close()
            raise error.located(path) from None
        except BaseException:
            file.close()
            raise

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._file.path

    @property
    def pages(self) -> int:
        """The number of pages up to the end of the file, one that is cut short included."""
        return -(-max(self._file.size_bytes - HEADER_BYTES, 0) // self._page_bytes)

    def write_header(self, header: FileInfoHeader) -> None:
        """Change the header, durably. The file keeps its version, and version 0 has no explicit LAC.

        Raises ValueError for what such a header cannot hold, StorageError; after a SyncError it is not known
        which of the two headers is on the disk.
        """
        version = self.header.version
        lac = header.explicit_lac if version else None
        header = replace(header, version=version, explicit_lac=lac)
        # The lengths in front make what is behind the fields meaningless, and the fields of keys that clients
        # send are in one sector: a power cut leaves the old header or the new one.
        self._file.write_at(0, encode_header(header))
        self._file.sync_data()
        self.header = header

    def read_page(self, number: int) -> array[int]:
        """Return all slots of a page, 0 where there is none. Raises StorageError."""
        data = self._file.read_at(HEADER_BYTES + number * self._page_bytes, self._page_bytes)
        slots = array("q", data[: len(data) // SLOT_BYTES * SLOT_BYTES].ljust(self._page_bytes, b"\0"))
        if _SWAP:
            slots.byteswap()
        return slots

    def write_page(self, number: int, slots: array[int]) -> None:
        """Write a page whole; durable with the next :meth:`sync`, which comes after the entry logs' own.

        Raises ValueError for another number of slots than a page has, StorageError.
        """
        if len(slots) * SLOT_BYTES != self._page_bytes:
            raise ValueError(f"{len(slots)} slots for a page of {self._page_bytes} bytes")
        packed = array("q", slots)
        if _SWAP:
            packed.byteswap()
        self._file.write_at(HEADER_BYTES + number * self._page_bytes, packed.tobytes())

    def sync(self) -> None:
        """Make all pages durable. Raises SyncError."""
        self._file.sync_data()

    def last_entry(self) -> int | None:
        """Return the largest entry id with a location, None without any. Raises StorageError."""
        per_page = self._page_bytes // SLOT_BYTES
        for number in range(self.pages - 1, -1, -1):
            slots = self.read_page(number)
            for place in range(per_page - 1, -1, -1):
                if slots[place]:
                    return number * per_page + place
        return None

    def entries(self) -> Iterator[int]:
        """Return the ids of all entries with a location, ascending, page by page. Raises StorageError."""
        per_page = self._page_bytes // SLOT_BYTES
        for number in range(self.pages):
            data = self._file.read_at(HEADER_BYTES + number * self._page_bytes, self._page_bytes)
            yield from decode_slots(data[: len(data) // SLOT_BYTES * SLOT_BYTES], number * per_page).entries

    def close(self) -> None:
        """Give the file back; pages that were not synced are not durable."""
        self._file.close()
