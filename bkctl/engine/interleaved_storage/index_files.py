"""The ``.idx`` files of a bookie while it runs: few are open, few pages in memory.

One thread writes at a time (flushes and collectors take turns), any thread reads. A write goes to the file at
once and is durable with the next :meth:`IndexFiles.sync`; headers and new files are durable when the call
returns.

Source: ``org.apache.bookkeeper.bookie.IndexPersistenceMgr``, ``IndexInMemPageMgr`` and ``FileInfo``.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from posixpath import dirname, join

from bkctl.codec.file_info import (
    HEADER_BYTES,
    PAGE_BYTES,
    SLOT_BYTES,
    FileInfoHeader,
    decode_header,
    encode_header,
    index_path,
)
from bkctl.engine.interleaved_storage.index_places import (
    FIRST_DIRECTORY,
    RELOCATING_SUFFIX,
    find_files,
    settle_names,
    was_written,
)
from bkctl.engine.interleaved_storage.ledger_file import LedgerFile
from bkctl.engine.interleaved_storage.open_files import OpenFile, OpenFiles
from bkctl.engine.interleaved_storage.slot_counts import SlotCounts, used_slots
from bkctl.engine.work_threads import WorkThreads
from bkctl.errors import BkctlError, CorruptionError, NoSpaceError, NotFoundError, StorageError
from bkctl.vfs import WritableFileSystem
from bkctl.vfs.file_copy import copy_file

#: No file is so long that it has a slot of this entry: 2^62 bytes.
ENTRIES_MAX = 1 << 59
#: Files that are open at a time, unless something else is said.
FILES_OPEN_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFileSettings:
    """Bounds, and the version of files that are made."""

    files_open_max: int = FILES_OPEN_MAX
    pages_max: int = 4096
    page_bytes: int = PAGE_BYTES
    version: int = 1
    sync_threads: int = 8


class IndexFiles:
    """Over the ``current`` of each index directory. Every method raises StorageError, CorruptionError."""

    def __init__(
        self, filesystem: WritableFileSystem, directories: Sequence[str], settings: IndexFileSettings
    ) -> None:
        """Find all files. Raises RefusedError too, for a ledger with two of them."""
        self.directories = tuple(directories)
        self.entries = SlotCounts()
        self._filesystem = filesystem
        self._settings = settings
        self._per_page = settings.page_bytes // SLOT_BYTES
        self._files = OpenFiles(
            filesystem,
            self.directories,
            find_files(filesystem, directories),
            files_open_max=settings.files_open_max,
            pages_max=settings.pages_max,
            page_bytes=settings.page_bytes,
        )
        # Of the directory in which the next file is made.
        self._lock = threading.Lock()
        self._next_place = 0
        # Where a ledger may have a file that nobody is to find: one that is being made or removed, or where
        # that has failed. No file of the ledger is made elsewhere then, for a start refuses two.
        self._unsettled: dict[int, int] = {}
        # The folders whose names were made durable since the start.
        self._settled: set[str] = set()
        self._threads = WorkThreads("index-files", settings.sync_threads)

    # --- which files there are ------------------------------------------------------------------------------

    @property
    def never_written(self) -> bool:
        """Whether no index directory has, or had, a file."""
        return not was_written(self._filesystem, self.directories)

    @property
    def never_written_directories(self) -> list[str]:
        """The index directories that have, and had, no file."""
        return [each for each in self.directories if not was_written(self._filesystem, [each])]

    def note_written(self) -> None:
        """Make a folder in each index directory, durably, so that a later start sees an index there."""
        for directory in self.directories:
            self._filesystem.make_directories(join(directory, FIRST_DIRECTORY))

    def ledgers(self) -> list[int]:
        """Return the ledgers with a file, in no order."""
        return self._files.ledgers()

    def path(self, ledger: int) -> str | None:
        """Return where the file of a ledger is, None without one."""
        return self._files.path(ledger)

    def read_headers(self) -> Iterator[tuple[int, FileInfoHeader]]:
        """Return the header of every file, for the start; a file of no byte is none: Java makes it so.

        Raises CorruptionError naming the file whose header does not decode: the start is refused then, and
        at every other time too. No reader is served from a state that is not the ledger's.
        """
        for ledger in sorted(self.ledgers()):
            path = self.path(ledger)
            assert path is not None
            file = self._filesystem.open(path)
            try:
                if not file.size_bytes:
                    self._files.forget(ledger)
                    self._filesystem.remove(path)
                    continue
                header = decode_header(file.read_at(0, HEADER_BYTES))
                # A page that cannot be read is a trouble of its own readers, not of the start.
                with suppress(StorageError):
                    self.entries.add(ledger, used_slots(file))
            except CorruptionError as error:
                raise error.located(path) from None
            finally:
                file.close()
            yield ledger, header

    # --- headers: one thread --------------------------------------------------------------------------------

    def header(self, ledger: int) -> FileInfoHeader | None:
        """Return what the file of a ledger says, None without a file."""
        with self._files.borrowed(ledger) as opened:
            return None if opened is None else opened.file.header

    def write_headers(self, headers: Mapping[int, FileInfoHeader]) -> None:
        """Give ledgers these headers, durably; a file is made where there is none."""
        self._threads.do_all(self._write_header, list(headers.items()))

    def remove(self, ledger: int) -> None:
        """Remove the file of a ledger for good."""
        place = self._files.place(ledger)
        if place is None:
            place = self._unsettled.get(ledger)
        if place is None:
            return
        # Until it is gone for good: after an error the next call goes on.
        self._unsettled[ledger] = place
        self._files.forget(ledger)
        self.entries.forget(ledger)
        path = join(self.directories[place], index_path(ledger))
        with suppress(NotFoundError):
            self._filesystem.remove(path)
        if self._filesystem.status(dirname(path)) is not None:
            self._filesystem.sync_directory(dirname(path))
        del self._unsettled[ledger]

    def begin_anew(self, ledger: int, header: FileInfoHeader) -> None:
        """Put a file without slots in the place of a ledger's, in one step."""
        path = self.path(ledger)
        if path is None:
            return
        header = replace(header, version=self._settings.version)
        self._filesystem.replace(path, encode_header(self._storable(header)))
        self.entries.forget(ledger)
        # Readers that are in the old file find what it had when they began.
        self._files.forget(ledger, self._files.place(ledger))

    def _write_header(self, item: tuple[int, FileInfoHeader]) -> None:
        ledger, header = item
        with self._files.borrowed(ledger) as opened:
            if opened is not None:
                file = opened.file
                header = replace(header, version=file.header.version)
                if file.header != self._storable(header):
                    file.write_header(header)
                return
        self._create(ledger, self._storable(replace(header, version=self._settings.version)))

    def _create(self, ledger: int, header: FileInfoHeader) -> None:
        """Make a file in the next directory that has room. Raises NoSpaceError when none has."""
        failed: NoSpaceError | None = None
        folder = dirname(index_path(ledger))
        if folder not in self._settled:
            # Removals since then are durable, or their ledgers unsettled.
            settle_names(self._filesystem, self.directories, ledger)
            self._settled.add(folder)
        for _ in self.directories:
            place = self._place_of_new(ledger)
            directory = self.directories[place]
            try:
                LedgerFile.create(
                    self._filesystem, directory, ledger, header, self._settings.page_bytes
                ).close()
            except NoSpaceError as error:
                if self._filesystem.status(join(directory, index_path(ledger))) is not None:
                    # It came behind the name: no descriptor to sync the directory, or to open the file.
                    raise
                del self._unsettled[ledger]
                failed = error
                continue
            self._files.add(ledger, place)
            del self._unsettled[ledger]
            return
        assert failed is not None
        raise failed

    def _place_of_new(self, ledger: int) -> int:
        """Return the place of the directory in which to make a file; it is unsettled from here on."""
        with self._lock:
            place = self._unsettled.get(ledger)
            if place is None:
                place = self._next_place
                self._next_place = (place + 1) % len(self.directories)
                self._unsettled[ledger] = place
            return place

    @staticmethod
    def _storable(header: FileInfoHeader) -> FileInfoHeader:
        return header if header.version else replace(header, explicit_lac=None)

    # --- slots ----------------------------------------------------------------------------------------------

    def get(self, ledger: int, entries: Sequence[int]) -> list[int]:
        """Return the locations of entries of a ledger, 0 where there is none. From any thread."""
        with self._files.borrowed(ledger) as opened:
            if opened is None:
                return [0] * len(entries)
            per_page, found = self._per_page, []
            number, slots = -1, array("q")
            for entry in entries:
                if not 0 <= entry < ENTRIES_MAX:
                    found.append(0)
                    continue
                if entry // per_page != number:
                    number = entry // per_page
                    slots = self._files.page(opened, number)
                found.append(slots[entry % per_page])
            return found

    def put(self, ledger: int, entries: Sequence[int], locations: Sequence[int]) -> None:
        """Set slots of a ledger that has a file, ascending by entry; a full disk moves the file."""
        try:
            self._put(ledger, entries, locations)
        except NoSpaceError:
            if not self._move_to_room(ledger):
                raise
            self._put(ledger, entries, locations)

    def _put(self, ledger: int, entries: Sequence[int], locations: Sequence[int]) -> None:
        with self._files.borrowed(ledger) as opened:
            if opened is None:
                raise StorageError(f"ledger {ledger}: its index file is gone")
            file = opened.file
            self._files.keep_until_synced(ledger, opened)
            per_page = self._per_page
            at = 0
            while at < len(entries):
                number = entries[at] // per_page
                # A copy, because a write that fails leaves the page in memory as it was.
                slots = array("q", self._files.page(opened, number))
                unused = 0
                while at < len(entries) and entries[at] // per_page == number:
                    unused += not slots[entries[at] % per_page]
                    slots[entries[at] % per_page] = locations[at]
                    at += 1
                self._files.drop_page(opened, number)
                file.write_page(number, slots)
                self._files.keep_page(opened, number, slots)
                self.entries.add(ledger, unused)
        if len(self._files.unsynced) >= self._settings.files_open_max:
            self.sync()

    def sync(self) -> None:
        """Make all slots that were set durable. Raises SyncError."""
        self._threads.do_all(_sync_pages, list(self._files.unsynced.values()))
        self._files.note_synced()

    def last_entry(self, ledger: int) -> int | None:
        """Return the largest entry id of a ledger, None without entries. From any thread."""
        with self._files.borrowed(ledger) as opened:
            return None if opened is None else opened.file.last_entry()

    def page_of(self, ledger: int, number: int) -> array[int] | None:
        """Return the slots of a page, None behind the last one or without a file. From any thread."""
        with self._files.borrowed(ledger) as opened:
            if opened is None or number >= opened.file.pages:
                return None
            return array("q", opened.file.read_page(number))

    @property
    def slots_a_page(self) -> int:
        """How many slots a page has."""
        return self._per_page

    # --- moving to another directory ------------------------------------------------------------------------

    def _move_to_room(self, ledger: int) -> bool:
        """Move a ledger's file to another directory whose disk has more room; return whether there is one."""
        here = self._files.place(ledger)
        if here is None or len(self.directories) == 1:
            return False
        free = {at: self._filesystem.disk_space(path).free_bytes for at, path in enumerate(self.directories)}
        there = max(free, key=free.__getitem__)
        if there == here or free[there] <= free[here]:
            return False
        self.move(ledger, there)
        return True

    def move(self, ledger: int, place: int) -> None:
        """Move a file: a copy beside its new name, durable; the old one removed; then the name.

        As in Java a crash leaves the old file, with a copy that the next start removes, or the copy, which
        the next start gives the name.
        """
        path = self.path(ledger)
        assert path is not None, "a ledger without a file is not moved"
        target = join(self.directories[place], index_path(ledger))
        copy = target + RELOCATING_SUFFIX
        with self._files.borrowed(ledger) as opened:
            assert opened is not None
            self._filesystem.make_directories(dirname(target))
            with suppress(NotFoundError):
                self._filesystem.remove(copy)
            try:
                copy_file(self._filesystem, path, copy)
            except NoSpaceError:
                with suppress(BkctlError):
                    self._filesystem.remove(copy)
                raise
            self._filesystem.sync_directory(dirname(target))
            is_there = False
            try:
                try:
                    self._filesystem.remove(path)
                except BkctlError:
                    is_there = self._is_surely_there(path)
                    raise
                self._filesystem.sync_directory(dirname(path))
                self._filesystem.rename(copy, target)
                self._filesystem.sync_directory(dirname(target))
            finally:
                # Also after an error: what is written to a file without a name is lost with the next start.
                # A ledger whose copy has no name yet is refused until then.
                if not is_there:
                    self._files.forget(ledger, place)

    def _is_surely_there(self, path: str) -> bool:
        try:
            return self._filesystem.status(path) is not None
        except BkctlError:
            return False

    def close(self) -> None:
        """Give all files back; slots that were not synced are not durable."""
        self._files.close()
        self._threads.close()


def _sync_pages(opened: OpenFile) -> None:
    opened.file.sync()
