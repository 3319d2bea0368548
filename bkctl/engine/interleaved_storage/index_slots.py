"""The slots of ``.idx`` files, by keys of a ledger and an entry: the places of the entries.

A file has its header before its first slot. A slot lives as long as its ledger: when the ledger is deleted
its file goes, and if the ledger was made again in between, an empty file with its present header takes the
place.

Source: ``org.apache.bookkeeper.bookie.LedgerCacheImpl``.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from bkctl.codec.file_info import FileInfoHeader
from bkctl.codec.location import ABSENT
from bkctl.engine.cache.entry_table import ledger_of
from bkctl.engine.interleaved_storage.index_files import IndexFiles
from bkctl.engine.interleaved_storage.index_headers import HeaderIndex, header_of
from bkctl.errors import CorruptionError

_KEY = struct.Struct(">qq")


class SlotIndex:
    """Implements what the storage, its flush and its collectors ask of locations; one thread writes."""

    def __init__(self, files: IndexFiles, ledgers: HeaderIndex) -> None:
        self._files = files
        self._ledgers = ledgers
        #: Grows behind every put and every deletion, not behind a move.
        self.changes = 0

    @property
    def never_written(self) -> bool:
        """Whether there never was a file."""
        return self._files.never_written

    @property
    def never_written_directories(self) -> list[str]:
        """The index directories in which there never was a file."""
        return self._files.never_written_directories

    def get_many(self, keys: Sequence[bytes]) -> list[int | None]:
        """Return the location of every entry, in the order of ``keys``."""
        return [location or None for location in self.places(keys)]

    def places(self, keys: Sequence[bytes]) -> array[int]:
        """Return the locations of entries as a column, ``ABSENT`` where there is none."""
        found = array("q")
        for ledger, entries in _by_ledger(keys):
            slots = self._files.get(ledger, entries)
            for entry, location in zip(entries, slots, strict=True):
                if location < ABSENT:
                    raise CorruptionError(
                        f"location of ledger {ledger}, entry {entry}",
                        expected="a log id >= 0",
                        found=hex(location),
                        path=self._files.path(ledger),
                    )
            found.extend(slots)
        return found

    def put_many(self, keys: Sequence[bytes], locations: Sequence[int], *, sync: bool = True) -> None:
        """Set the locations of ``keys``: the entry logs they point into were forced before.

        Without ``sync`` they are durable with the next call that has it.
        """
        try:
            self._put(keys, locations)
            if sync:
                self._files.sync()
        finally:
            self.changes += 1

    def move_many(self, keys: Sequence[bytes], locations: Sequence[int]) -> None:
        """Set the locations of entries that were copied; this counts as no change, and :meth:`sync` ends it.

        The logs with the copies were forced before. Until the sync a crash may leave either location.
        """
        self._put(keys, locations)

    def sync(self) -> None:
        """Make everything durable that was put or moved before the call."""
        self._files.sync()

    def _put(self, keys: Sequence[bytes], locations: Sequence[int]) -> None:
        if len(keys) != len(locations):
            raise ValueError(f"{len(keys)} keys for {len(locations)} locations")
        runs = list(_by_ledger(keys))
        self._make_files({ledger for ledger, _ in runs})
        at = 0
        for ledger, entries in runs:
            places = locations[at : at + len(entries)]
            at += len(entries)
            if any(after <= before for before, after in pairwise(entries)):
                # Of two with the same key the later one counts.
                newest = dict(zip(entries, places, strict=True))
                entries = sorted(newest)
                places = [newest[entry] for entry in entries]
            self._files.put(ledger, entries, places)

    def _make_files(self, ledgers: Iterable[int]) -> None:
        missing: dict[int, FileInfoHeader] = {}
        for ledger in ledgers:
            if self._files.path(ledger) is None:
                missing[ledger] = header_of(self._ledgers.get(ledger))
        self._files.write_headers(missing)

    def last_entry(self, ledger: int) -> int | None:
        """Return the largest entry id of a ledger, None when it has no entries."""
        return self._files.last_entry(ledger)

    def entries(self, ledger: int) -> Iterator[int]:
        """Return the ids of a ledger's entries, ascending."""
        for first, slots in self._pages(ledger):
            yield from (entry for entry, location in enumerate(slots, first) if location != ABSENT)

    def batches(self) -> Iterator[tuple[list[bytes], Sequence[int]]]:
        """Return the keys and locations of all entries, a page of a ledger at a time."""
        for ledger in sorted(self._files.ledgers()):
            for first, slots in self._pages(ledger):
                used = [(entry, location) for entry, location in enumerate(slots, first) if location]
                if used:
                    yield [_KEY.pack(ledger, entry) for entry, _ in used], array("q", [at for _, at in used])

    def _pages(self, ledger: int) -> Iterator[tuple[int, array[int]]]:
        number = 0
        while (slots := self._files.page_of(ledger, number)) is not None:
            yield number * self._files.slots_a_page, slots
            number += 1

    def delete_ledgers(self, ledgers: Iterable[int]) -> None:
        """Remove every slot of the ledgers, durably; their rows are those of the rows' next flush."""
        try:
            self._delete_ledgers(ledgers)
        finally:
            self.changes += 1

    def _delete_ledgers(self, ledgers: Iterable[int]) -> None:
        for ledger in ledgers:
            row = self._ledgers.get(ledger)
            if row is None:
                self._files.remove(ledger)
            else:
                # It was made again since: a crash leaves the old file or the new one, never none.
                self._files.begin_anew(ledger, header_of(row))

    def count_estimate(self) -> int:
        """Return about how many entries there are, without looking into the files."""
        return self._files.entries.total

    def note_written(self) -> None:
        """Make the index directories durably ones that were written to."""
        self._files.note_written()

    def note_synced(self) -> None:
        """Do nothing: synced slots stay synced, and a slot that is damaged leads to no record."""

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def _by_ledger(keys: Sequence[bytes]) -> Iterator[tuple[int, list[int]]]:
    """Return runs of keys of one ledger: its id, and the entries."""
    for prefix, run in groupby(keys, key=ledger_of):
        entries = [_KEY.unpack(key)[1] for key in run]
        yield int.from_bytes(prefix, "big", signed=True), entries
