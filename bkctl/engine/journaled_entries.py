"""The entries that a bookie's journals hold behind its last marks."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.scan.directory import journal_ids
from bkctl.scan.journal import JournalScan
from bkctl.vfs import FileSystem


class JournalPlace(NamedTuple):
    """One journal directory and the last mark that counts for it."""

    directory: str
    mark: LastMark


class JournaledEntries:
    """The entries that stand in journals behind the last marks: 8 bytes each."""

    def __init__(self, filesystem: FileSystem, journals: Iterable[JournalPlace]) -> None:
        self._entries: dict[int, array[int]] = {}
        for place in journals:
            self._read(filesystem, place)
        for ledger, entries in self._entries.items():
            self._entries[ledger] = array("q", sorted(entries))

    def has(self, ledger: int, entry: int) -> bool:
        """Return whether a journal has the entry."""
        entries = self._entries.get(ledger)
        if entries is None:
            return False
        at = bisect_left(entries, entry)
        return at < len(entries) and entries[at] == entry

    def _read(self, filesystem: FileSystem, place: JournalPlace) -> None:
        for path, journal in journals_in(filesystem, place.directory):
            if journal < place.mark.journal_id:
                continue
            start = place.mark.offset if journal == place.mark.journal_id else 0
            with JournalScan(filesystem, path, start=start) as scan:
                for batch in scan.batches():
                    for ledger, entry in zip(batch.ledgers, batch.entries, strict=True):
                        self._entries.setdefault(ledger, array("q")).append(entry)


def journals_in(filesystem: FileSystem, directory: str) -> list[tuple[str, int]]:
    """Return path and id of each journal in a directory, which may not be there, the oldest first."""
    return [(f"{directory}/{journal_name(each)}", each) for each in journal_ids(filesystem, directory)]
