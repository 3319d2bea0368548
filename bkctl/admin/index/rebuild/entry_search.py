"""The search for entries that journals or the old index know and no log has.

It is made before an index is built without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from bkctl.admin.index.rebuild.expected_entries import ExpectedEntries
from bkctl.admin.index.rebuild.journal_facts import replayed_keys, stranded_ledgers
from bkctl.admin.index.rebuild.log_set import LogSet
from bkctl.admin.index.rebuild.old_locations import OldRows, dangling_entries, lost_entries, rows_in_logs
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.index.rows.journal_entries import rows_of, unlogged_entries, unreplayed_entries
from bkctl.admin.index.rows.location_runs import ROW_BYTES, ROW_BYTES_AT_PEAK, Rows, Run
from bkctl.admin.index.rows.lost_entries import LostEntries, missing_rows, note_missing, run_rows
from bkctl.admin.index.rows.row_sort import RowSorter
from bkctl.codec.entry import EntryBatch
from bkctl.directories.placement import Placement
from bkctl.scan.files.journals import journal_directories, replayed_records
from bkctl.vfs import FileSystem

#: Gives the runs of logs, few enough to be read side by side; called only when they are needed.
FewRuns = Callable[[LogSet], list[Run]]


class EntrySearch:
    """The sources of one index: its old locations and the journals. ``old_rows`` reads the first ones."""

    def __init__(
        self,
        filesystem: FileSystem,
        old_rows: OldRows,
        index_dirs: Sequence[str],
        placement: Placement,
        options: RebuildOptions,
        few_runs: FewRuns,
    ) -> None:
        self._fs = filesystem
        self._old_rows = old_rows
        self._index_dirs = index_dirs
        self._journals = placement.journals
        self._ledger_dirs = placement.ledger_dirs
        self._options = options
        self._few_runs = few_runs

    def by_old_index(self, found: LogSet, ledgers: Collection[int]) -> dict[int, LostEntries]:
        """Return the entries of ``ledgers`` that have a location in the old index and stand in no log.

        A dry run, which keeps no rows of the logs, only finds those whose log is gone. Raises StorageError.
        """
        if self._options.dry_run:
            return dangling_entries(self._fs, self._index_dirs, self._old_rows, found.logs, ledgers)
        runs, rows_max = self._few_runs(found), self._options.rows_beside(found.held_bytes)
        total = sum(run.rows for run in runs) * ROW_BYTES
        with self._options.phase("comparing the old index", total) as advance:
            return lost_entries(self._fs, self._index_dirs, self._old_rows, runs, ledgers, rows_max, advance)

    def by_journals(self, found: LogSet, ledgers: Collection[int]) -> dict[int, LostEntries]:
        """Return the entries of ``ledgers`` that journals in front of the last mark have and no log.

        A dry run takes the locations of the old index, where their log is there, for the rows of the logs, so
        it may return more than the rebuild itself. Raises StorageError.
        """
        # Half of the memory for the rows of the journals, half for those of the logs beside them.
        rows_max = self._options.rows_beside(found.held_bytes) // 2
        memory_bytes = rows_max * ROW_BYTES_AT_PEAK
        wanted = np.array(sorted(ledgers), np.int64)
        total = sum(journal.size_bytes for journal in self._journals)
        with (
            self._options.phase("comparing the journals", total) as advance,
            RowSorter(memory_bytes) as kept,
            RowSorter(memory_bytes) as located,
        ):
            if self._options.dry_run:
                logged = self._located(found, ledgers, located)
            else:
                logged = self._logged(found, rows_max)
            return unlogged_entries(
                self._fs, self._journals, self._ledger_dirs, wanted, logged, kept, advance
            )

    def replayed_ledgers(self, found: LogSet | None) -> set[int]:
        """Return the ledgers that the next start brings back with all that the logs have of them.

        Their master key is in the journals behind the mark, and so is each of their entries in the logs.
        Where no rows of the logs are kept, as in a dry run, the key alone decides. Raises StorageError.
        """
        keys = replayed_keys(self._fs, self._journals, self._ledger_dirs)
        if found is None or self._options.dry_run or not keys:
            return keys
        rows_max = self._options.rows_beside(found.held_bytes) // 2
        wanted = np.array(sorted(keys), np.int64)
        with RowSorter(rows_max * ROW_BYTES_AT_PEAK) as replayed:
            logged = self._logged(found, rows_max)
            left = unreplayed_entries(self._fs, self._journals, self._ledger_dirs, wanted, logged, replayed)
        return keys - left.keys()

    def by_metadata(self, found: LogSet, expected: ExpectedEntries) -> dict[int, LostEntries]:
        """Return the entries that the bookie has to have and that neither a log nor a replay of a start has.

        Raises BkctlError.
        """
        rows_max = self._options.rows_beside(found.held_bytes) // 2
        total = sum(journal.size_bytes for journal in self._journals)
        lost: dict[int, LostEntries] = {}
        directories = journal_directories(self._fs, self._journals)
        with (
            self._options.phase("comparing the metadata", total),
            RowSorter(rows_max * ROW_BYTES_AT_PEAK) as replayed,
        ):
            for item in replayed_records(self._fs, directories, self._ledger_dirs):
                if isinstance(item, EntryBatch):
                    for rows in rows_of(item, _all):
                        replayed.add(rows)
            unlogged = missing_rows(expected.rows(), self._logged(found, rows_max))
            note_missing(lost, unlogged, replayed.blocks())
        return lost

    def stranded_ledgers(self) -> set[int]:
        """Return the ledgers with entries in journals that no start brings back. Raises StorageError."""
        return stranded_ledgers(self._fs, self._journals, self._ledger_dirs)

    def _located(self, found: LogSet, ledgers: Collection[int], sorter: RowSorter) -> Iterator[Rows]:
        for rows in rows_in_logs(self._fs, self._index_dirs, self._old_rows, found.logs, ledgers):
            sorter.add(rows)
        yield from sorter.blocks()

    def _logged(self, found: LogSet, rows_max: int) -> Iterator[Rows]:
        yield from run_rows(self._few_runs(found), rows_max)


def _all(rows: Rows) -> Rows:
    return rows
