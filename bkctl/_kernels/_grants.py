"""Ledgers by grant: the reference in Python.

A *grant* is a master key of 20 bytes and a ledger id of 8, as they stand side by side in an add request.
"""

from __future__ import annotations

from array import array
from typing import Generic, TypeVar

from bkctl._kernels._api import GRANT_BYTES
from bkctl._kernels._counters import LedgerUse

#: Adds to one ledger that are noted at once: sums of them have a place in 64 bits.
_ADDS_MAX = (1 << 31) - 1

_Use = TypeVar("_Use", bound=LedgerUse)


class GrantTable(Generic[_Use]):
    """Ledgers by grant, and what adds to them change, of many adds at once.

    Every call is one step for other threads. A grant of another length is never there.
    """

    __slots__ = ("_free", "_rows", "_uses")

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}
        #: The ledger of each row, None of one that is free.
        self._uses: list[_Use | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, grant: bytes) -> bool:
        return grant in self._rows

    def __setitem__(self, grant: bytes, use: _Use) -> None:
        """Put a ledger, in place of the one that had the grant; ValueError for one of another length."""
        if len(grant) != GRANT_BYTES:
            raise ValueError("a grant has 28 bytes")
        row = self._rows.get(grant)
        if row is None:
            if not self._free:
                # In this order: where the second one finds no memory, no row is free that is not there.
                self._uses.append(None)
                self._free.append(len(self._uses) - 1)
            row = self._rows[grant] = self._free.pop()
        self._uses[row] = use

    def get(self, grant: bytes) -> _Use | None:
        """Return the ledger of a grant, or None."""
        row = self._rows.get(grant)
        return None if row is None else self._uses[row]

    def pop(self, grant: bytes) -> _Use | None:
        """Remove a grant; return the ledger that it was of, or None."""
        row = self._rows.pop(grant, None)
        if row is None:
            return None
        use, self._uses[row] = self._uses[row], None
        self._free.append(row)
        return use

    def find(self, grants: bytes) -> bytes | None:
        """Return a column of the places of grants that lie one behind the other; None if one is not there.

        The places are good until the table is changed. ValueError when the grants have not 28 bytes each.
        """
        if len(grants) % GRANT_BYTES:
            raise ValueError("grants have 28 bytes each")
        rows: list[int] = []
        for start in range(0, len(grants), GRANT_BYTES):
            row = self._rows.get(grants[start : start + GRANT_BYTES])
            if row is None:
                return None
            rows.append(row)
        return array("q", rows).tobytes()

    def note(
        self, rows: bytes, lacs: bytes, counts: bytes, entry_bytes: float, generation: int
    ) -> tuple[list[_Use], list[tuple[_Use, int]]]:
        """Note adds to ledgers by their places: of each so many with that highest LAC.

        The three are columns, ``entry_bytes`` the average of an entry. Returns the ledgers whose LAC somebody
        waits for, and those that were not counted, because their counter is of another generation, with
        their adds. A ledger may come more than once. ValueError for columns of different lengths, for a place
        without a ledger, and for a number of adds that is negative or over 2^31 - 1; nothing was noted then.
        """
        columns = [array("q", column) for column in (rows, lacs, counts)]
        if len({len(column) for column in columns}) > 1:
            raise ValueError("columns of different lengths")
        uses = [self._uses[row] if 0 <= row < len(self._uses) else None for row in columns[0]]
        watched: list[_Use] = []
        uncounted: list[tuple[_Use, int]] = []
        if None in uses:
            raise ValueError("no ledger has that place")
        if any(not 0 <= adds <= _ADDS_MAX for adds in columns[2]):
            raise ValueError("no number of adds")
        for use, lac, adds in zip(uses, columns[1], columns[2], strict=True):
            assert use is not None
            use.lac = max(use.lac, lac)
            use.used = True
            if use.watched:
                watched.append(use)
            if use.counter.generation != generation:
                uncounted.append((use, adds))
                continue
            use.counter.entries += adds
            use.counter.bytes += adds * entry_bytes
        return watched, uncounted
