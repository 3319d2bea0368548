"""The index files that are open, the pages of them that are in memory, and the places of all files.

Few files are open and few pages in memory. Pages belong to an open file: one that is closed, or whose ledger
was deleted, takes its pages along. A file that was written and not synced stays open, so that a failed sync
is reported to the thread that waits for it.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from posixpath import join

from bkctl.codec.file_info import index_path
from bkctl.engine.interleaved_storage.ledger_file import LedgerFile
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.vfs import WritableFileSystem


class OpenFile:
    """A ledger's file with its lock. ``users`` belongs to :class:`OpenFiles`; the rest is under the lock."""

    __slots__ = ("descriptor", "lock", "pages", "users", "wanted")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.descriptor: LedgerFile | None = None
        self.pages: set[int] = set()
        self.users = 0
        self.wanted = True

    @property
    def file(self) -> LedgerFile:
        """The file, while it is lent."""
        assert self.descriptor is not None, "the file is open while it is lent"
        return self.descriptor


class OpenFiles:
    """Opens a ledger's file for whoever borrows it; closes the least recently used ones.

    ``places`` maps ledgers to the places of ``directories`` that their files are in, and becomes this
    object's. Any thread borrows; one thread at a time writes, syncs and forgets.
    """

    def __init__(
        self,
        filesystem: WritableFileSystem,
        directories: Sequence[str],
        places: dict[int, int],
        *,
        files_open_max: int,
        pages_max: int,
        page_bytes: int,
    ) -> None:
        self._filesystem = filesystem
        self._directories = directories
        self._files_open_max = files_open_max
        self._pages_max = pages_max
        self._page_bytes = page_bytes
        self._lock = threading.Lock()
        self._places = places
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        #: The files that were written since the last sync, by ledger; they stay open.
        self.unsynced: dict[int, OpenFile] = {}
        self._pages: OrderedDict[tuple[OpenFile, int], array[int]] = OrderedDict()
        self._pages_lock = threading.Lock()

    # --- where files are ------------------------------------------------------------------------------------

    def ledgers(self) -> list[int]:
        """Return the ledgers with a file, in no order."""
        with self._lock:
            return list(self._places)

    def place(self, ledger: int) -> int | None:
        """Return the place of the directory that the file of a ledger is in, None without one."""
        with self._lock:
            return self._places.get(ledger)

    def path(self, ledger: int) -> str | None:
        """Return where the file of a ledger is, None without one."""
        place = self.place(ledger)
        return None if place is None else join(self._directories[place], index_path(ledger))

    def add(self, ledger: int, place: int) -> None:
        """Note the file of a ledger that had none."""
        with self._lock:
            self._places[ledger] = place

    # --- open files -----------------------------------------------------------------------------------------

    @contextmanager
    def borrowed(self, ledger: int) -> Iterator[OpenFile | None]:
        """Lend the open file of a ledger, with its lock held; None when it has none."""
        with self._lock:
            place = self._places.get(ledger)
            if place is not None:
                opened = self._open.get(ledger)
                if opened is None:
                    opened = self._open[ledger] = OpenFile()
                else:
                    self._open.move_to_end(ledger)
                opened.users += 1
            surplus = self._surplus()
        self._close_all(surplus)
        if place is None:
            yield None
            return
        assert opened is not None
        try:
            with opened.lock:
                if opened.descriptor is None:
                    path = join(self._directories[place], index_path(ledger))
                    try:
                        opened.descriptor = LedgerFile.open(self._filesystem, path, self._page_bytes)
                    except NotFoundError as error:
                        if self.path(ledger) == path:
                            raise CorruptionError(
                                "index file", expected="a file", found="none", path=path
                            ) from error
                if opened.descriptor is None:
                    yield None
                else:
                    yield opened
        finally:
            self._give_back(opened)

    def _give_back(self, opened: OpenFile) -> None:
        with self._lock:
            opened.users -= 1
            unused = opened.users == 0 and not opened.wanted
        if unused:
            self._close_all([opened])

    def keep_until_synced(self, ledger: int, opened: OpenFile) -> None:
        """Keep a file open that is about to be written, until :meth:`note_synced`."""
        if ledger not in self.unsynced:
            with self._lock:
                opened.users += 1
            self.unsynced[ledger] = opened

    def note_synced(self) -> None:
        """Let the files be closed that were kept for a sync."""
        written, self.unsynced = self.unsynced, {}
        for opened in written.values():
            self._give_back(opened)

    def forget(self, ledger: int, place: int | None = None) -> None:
        """Forget the file of a ledger: now it is another one, at ``place``, or none.

        Threads that are using the old one finish with it.
        """
        kept = self.unsynced.pop(ledger, None)
        if kept is not None:
            self._give_back(kept)
        with self._lock:
            # In one step: a reader that comes between two would take the entries for absent ones.
            if place is None:
                self._places.pop(ledger, None)
            else:
                self._places[ledger] = place
            opened = self._open.pop(ledger, None)
            if opened is not None:
                opened.wanted = False
            unused = opened is not None and opened.users == 0
        if opened is not None and unused:
            self._close_all([opened])

    def _surplus(self) -> list[OpenFile]:
        """Return files without a user, the least recently used first. Called under the lock."""
        surplus: list[OpenFile] = []
        if len(self._open) > self._files_open_max:
            for ledger, opened in list(self._open.items())[: len(self._open) - self._files_open_max]:
                if opened.users == 0:
                    del self._open[ledger]
                    opened.wanted = False
                    surplus.append(opened)
        return surplus

    def _close_all(self, closed: Iterable[OpenFile]) -> None:
        for opened in closed:
            for number in list(opened.pages):
                self.drop_page(opened, number)
            if opened.descriptor is not None:
                # Nothing is lost with a descriptor whose pages were synced, or whose ledger is gone.
                with suppress(StorageError):
                    opened.descriptor.close()
                opened.descriptor = None

    def close(self) -> None:
        """Close all files; slots that were not synced are not durable."""
        with self._lock:
            opened = [*self._open.values()]
            self._open.clear()
        self.unsynced = {}
        self._close_all(opened)

    # --- pages: under the lock of their file ----------------------------------------------------------------

    def page(self, opened: OpenFile, number: int) -> array[int]:
        """Return the slots of a page of a file that is lent, from memory or from the file."""
        with self._pages_lock:
            slots = self._pages.get((opened, number))
            if slots is not None:
                self._pages.move_to_end((opened, number))
                return slots
        slots = opened.file.read_page(number)
        self.keep_page(opened, number, slots)
        return slots

    def keep_page(self, opened: OpenFile, number: int, slots: array[int]) -> None:
        """Keep a page in memory, in the place of the one that was used last long ago."""
        with self._pages_lock:
            self._pages[opened, number] = slots
            opened.pages.add(number)
            while len(self._pages) > self._pages_max:
                (owner, dropped), _ = self._pages.popitem(last=False)
                owner.pages.discard(dropped)

    def drop_page(self, opened: OpenFile, number: int) -> None:
        """Drop a page from memory."""
        with self._pages_lock:
            self._pages.pop((opened, number), None)
            opened.pages.discard(number)
