"""A set of ledger ids that only grows, at eight bytes for each id."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from bkctl.scan.columns.column import Column

#: Ids that wait at least before they are merged into the others.
_WAITING_MIN = 1 << 16


class IdSet:
    """Ids of ledgers, added many at a time from many logs that have mostly the same ones."""

    def __init__(self) -> None:
        self._ids: Column = np.empty(0, np.int64)
        self._waiting: list[Column] = []
        self._waiting_count = 0

    def add(self, ids: Collection[int]) -> None:
        """Add ids, in any order."""
        if not ids:
            return
        self._waiting.append(np.fromiter(ids, np.int64, len(ids)))
        self._waiting_count += len(ids)
        # As many as are there already, so that each id is sorted only a few times.
        if self._waiting_count > max(_WAITING_MIN, len(self._ids)):
            self.column()

    def column(self) -> Column:
        """Return the ids, ascending, each once."""
        if self._waiting:
            ids = np.unique(np.concatenate(self._waiting))
            self._waiting.clear()
            self._waiting_count = 0
            at = np.searchsorted(self._ids, ids)
            there = at < len(self._ids)
            there[there] = self._ids[at[there]] == ids[there]
            if not bool(there.all()):
                # The stable sort merges what is in order already.
                self._ids = np.sort(np.concatenate([self._ids, ids[~there]]), kind="stable")
        return self._ids
