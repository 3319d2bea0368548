"""The room that a conversion needs on each disk, known before it writes anything.

It counts the rows of the old index while they are sorted, the new index, and copies of entries that lie in
another directory's log. The old index and all logs stay where they are, so no room is given back during the
conversion. Sizes of entries are not known without reading them: the share of a log's rows that are copied
is taken for the share of its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bkctl.admin.conversion.bookie_places import BookiePlaces
from bkctl.admin.conversion.old_index import OldLogs
from bkctl.admin.index.rows.location_runs import ROW_BYTES, Rows
from bkctl.codec.file_info import HEADER_BYTES, PAGE_BYTES, SLOT_BYTES
from bkctl.errors import RefusedError
from bkctl.storage_kinds import StorageKind
from bkctl.vfs.base import WritableFileSystem

_LOG_SHIFT = 32
_PAGE_SLOTS = PAGE_BYTES // SLOT_BYTES
#: A row of RocksDB's tables and of the files that they are merged from, and a row of a ledger.
_DATABASE_ROW_BYTES = 2 * 32
_LEDGER_ROW_BYTES = 256
#: RocksDB's own files in the two databases of a directory: logs, options, manifests.
_DATABASES_BYTES = 128 << 10
#: Rows are written, and written once more where there are many runs of them.
_SORTED_TIMES = 2


class NeededRoom:
    """Counts rows as they are read; :meth:`by_directory` says what they come to."""

    def __init__(self, places: BookiePlaces, target: StorageKind, logs: OldLogs) -> None:
        self._places, self._target = places, target
        self._bytes_of = {log.log_id: log.size_bytes for _, log in logs.every()}
        self._rows: Counter[int] = Counter()
        self._pages: Counter[int] = Counter()
        self._rows_of: Counter[int] = Counter()
        self._copied: dict[int, Counter[int]] = {}

    def add(self, rows: Rows, homes: np.ndarray[Any, Any], foreign: np.ndarray[Any, Any]) -> None:
        """Take rows in, with the index directory of each, and which of them are to be copied."""
        logs = rows.locations >> _LOG_SHIFT
        self._rows_of.update(_counted(logs))
        for home in np.unique(homes).tolist():
            mine = homes == home
            self._rows[home] += int(mine.sum())
            pages = np.stack((rows.ledgers[mine], rows.entries[mine] // _PAGE_SLOTS))
            self._pages[home] += int((np.diff(pages, axis=1) != 0).any(axis=0).sum()) + 1
            strange = logs[mine & foreign]
            if len(strange):
                self._copied.setdefault(home, Counter()).update(_counted(strange))

    def by_directory(self, ledgers: Sequence[int]) -> dict[str, int]:
        """Return the bytes that are written into each index and ledger directory, about."""
        indexes, found = self._places.indexes, Counter[str]()
        for home, path in enumerate(indexes):
            mine = sum(ledger % len(indexes) == home for ledger in ledgers)
            rows = self._rows[home]
            # A storage over all directories is sorted in the first one.
            found[indexes[0] if self._target.shares_log_ids else path] += rows * ROW_BYTES * _SORTED_TIMES
            if self._target.has_file_per_ledger:
                found[path] += mine * HEADER_BYTES + self._pages[home] * PAGE_BYTES
            else:
                found[path] += _DATABASES_BYTES + mine * _LEDGER_ROW_BYTES + rows * _DATABASE_ROW_BYTES
        for home, copied in self._copied.items():
            share = sum(
                self._bytes_of.get(log, 0) * count / self._rows_of[log] for log, count in copied.items()
            )
            found[self._places.ledgers[home]] += int(share)
        return dict(found)


def _counted(column: np.ndarray[Any, Any]) -> dict[int, int]:
    values, counts = np.unique(column, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def full_disks(fs: WritableFileSystem, needed: Mapping[str, int]) -> list[str]:
    """Return what is missing on which disk, in words; nothing where all has room. Raises StorageError."""
    by_disk: dict[int, list[str]] = {}
    for path in needed:
        by_disk.setdefault(fs.disk_space(path).device, []).append(path)
    found = []
    for paths in by_disk.values():
        free_bytes, bytes_needed = fs.disk_space(paths[0]).free_bytes, sum(needed[path] for path in paths)
        if bytes_needed > free_bytes:
            found.append(
                f"{', '.join(sorted(paths))}: about {bytes_needed} bytes are written there, and "
                f"{free_bytes} are free"
            )
    return found


def refuse_full_disks(fs: WritableFileSystem, needed: Mapping[str, int]) -> None:
    """Raise RefusedError where the disks have no room for what is written; StorageError."""
    found = full_disks(fs, needed)
    if found:
        raise RefusedError(f"{'; '.join(found)}; nothing was changed. Make room first, or move what is there")
