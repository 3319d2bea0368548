"""An index that is not there: the bookie has not flushed yet, or its index was lost.

Of a bookie that has not flushed yet the journals alone have every entry, and all of them behind the last
mark: an entry in front of it was in the logs and the index when the mark was set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from bkctl.admin.index.check.finding import Finding, Kind, about_directory
from bkctl.admin.index.check.indexed_ledgers import no_ledgers
from bkctl.admin.index.check.log_entries import LogEntryReader
from bkctl.admin.index.check.placed_entries import PlacedEntries
from bkctl.admin.index.check.replay import Replay
from bkctl.admin.index.rows.comparison import compare, side_by_side
from bkctl.admin.index.rows.journal_entries import kept_entries
from bkctl.admin.index.rows.location_runs import Rows, no_rows
from bkctl.admin.index.rows.row_sort import RowSorter
from bkctl.directories.index_spaces import IndexSpace
from bkctl.reporting import Advance
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.journals import journals_before_mark
from bkctl.vfs import FileSystem


class AbsentIndex:
    """The space of an index that is not there. ``placed`` gets the entries that the bookie has."""

    def __init__(
        self,
        filesystem: FileSystem,
        space: IndexSpace,
        book: DigestBook,
        memory_bytes: int,
        placed: PlacedEntries,
    ) -> None:
        self._filesystem = filesystem
        self._space = space
        self._book = book
        self._memory_bytes = memory_bytes
        self._placed = placed
        self._replay = Replay()

    def findings(self, advance: Advance) -> Iterator[Finding]:
        """Yield whether the index was lost. Raises StorageError."""
        space = self._space
        # The mark is read in front of the logs: a running bookie may flush, and move it past them.
        kept = journals_before_mark(self._filesystem, space.journal_dirs, space.mark_dirs)
        has_all = self._journals_have_all(advance)
        yield from self._replay.cut_journals()
        if not has_all or space.directories > 1:
            yield self._lost(has_all)
            return
        with closing(kept_entries(self._filesystem, kept, _all_of)) as batches:
            flushed = next(batches, None)
        if flushed is not None:
            yield self._flushed(flushed)
            return
        detail = "there is no index yet: whatever is in the logs is in the journal past the last mark, too"
        yield about_directory(Kind.NO_INDEX, space.dir, detail)
        yield from self._placed.findings(no_ledgers())

    def _journals_have_all(self, advance: Advance) -> bool:
        """Return whether the logs are whole, and each of their entries comes back at the next start."""
        with RowSorter(self._memory_bytes) as sorter:
            reader = LogEntryReader(self._filesystem, self._space, self._book)
            has_all = not any(reader.read(sorter, advance))
            self._replay.read(self._filesystem, self._space, sorter, self._book)
            self._placed.leave_out(self._replay.failing)
            for _, rows in side_by_side(iter(()), sorter.blocks()):
                compared = compare(no_rows(), rows)
                has_all &= bool(compared.unindexed_journaled.all())
                self._placed.add(compared)
        return has_all

    def _lost(self, has_all: bool) -> Finding:
        space = self._space
        if has_all and not space.logs and space.dir not in space.mark_dirs:
            detail = (
                "nothing but the cookie is there, while others of the bookie's directories have logs or"
                " an index: whatever was there is lost, and a reader is told that there is no such ledger"
            )
            return about_directory(Kind.EMPTIED_DIRECTORY, space.dir, detail)
        detail = "there is no index, and not every entry of the logs is in the journal past the last mark"
        return about_directory(Kind.LOST_INDEX, space.dir, detail)

    def _flushed(self, rows: Rows) -> Finding:
        detail = (
            "there is no index, and entries in front of the last mark, which were in it and in the logs"
            f" when the mark was set, stand in the journal alone (ledger {rows.ledgers[0]}, entry"
            f" {rows.entries[0]} is one), where no start replays them"
        )
        return about_directory(Kind.LOST_INDEX, self._space.dir, detail)


def _all_of(rows: Rows) -> Rows:
    return rows
